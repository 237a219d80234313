"""Device `replay`: real DDP, real buckets, real bytes; each layer's compute is a wait.

The waits are what a real GPU took: per layer, where a profile was recorded, or else a published one-GPU
rate, spread over the layers by multiply-adds, a third forward and two thirds backward. As a scale model,
times are multiplied by D and bytes divided by S (docs/emulation.md).
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fabricbench.cell import Cell
from fabricbench.cores import cores_per_rank
from fabricbench.workloads.ranks import Ranks
from fabricbench.workloads.train.layers import layers_of
from fabricbench.workloads.train.trainee import Trainee
from fabricbench.workloads.train.waits import Device, overshoot, sharpen_timers, together

FORWARD_SHARE = 1 / 3
BYTES_PER_PARAMETER = 4
"""Gradients are float32."""


@dataclass(frozen=True)
class Timed:
    """A layer as it is replayed, here and now (so after scaling): numbers reduced, and seconds."""

    parameters: int
    forward_s: float
    backward_s: float


class Compute(torch.autograd.Function):
    """A layer that takes time and has a gradient, and does no arithmetic."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, device: Device, layer: Timed
    ) -> torch.Tensor:
        """Wait for the layer's forward time."""
        ctx.device, ctx.backward_s, ctx.weight = device, layer.backward_s, weight
        device.busy(layer.forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Wait for the layer's backward time, then hand out a gradient of the weight's shape."""
        ctx.device.busy(ctx.backward_s)
        return gradients[0], ctx.weight.new_zeros(()).expand_as(ctx.weight), None, None


class End(torch.autograd.Function):
    """Before the first layer: its backward pass is where a step's compute has ended."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, device: Device) -> torch.Tensor:
        """Nothing."""
        ctx.device = device
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Say so to the device."""
        ctx.device.end()
        return gradients[0], None


class ReplayedModel(nn.Module):
    """One parameter per layer, and one wait per layer and pass."""

    def __init__(self, layers: Sequence[Timed], device: Device) -> None:
        """`layers` in forward order."""
        super().__init__()
        self.device = device
        self.layers = list(layers)
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(layer.parameters)) for layer in layers)

    def ready_s(self, buckets: Sequence[int]) -> list[float]:
        """When in a step each of DDP's buckets (bytes, in the order of reduction) has its last gradient.

        In seconds of compute from the step's start; the backward pass fills buckets, last layer first.
        """
        moments, filled = [], 0
        at = sum(layer.forward_s for layer in self.layers)
        left = iter(reversed(self.layers))
        for size in buckets:
            while filled < size and (layer := next(left, None)) is not None:
                filled += layer.parameters * BYTES_PER_PARAMETER
                at += layer.backward_s
            moments.append(at)
            filled -= size
        return moments

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All layers one after another."""
        x = End.apply(x, self.device)
        for weight, layer in zip(self.weights, self.layers, strict=True):
            x = Compute.apply(x, weight, self.device, layer)
        return x


def timed_layers(cell: Cell) -> list[Timed]:
    """The layers of a cell's model: bytes divided by S; times of its batch multiplied by D."""
    params, size, stretch = cell.params, cell.scale["bytes"], cell.scale["time"]
    profile = params["profile"]
    if recorded := profile.get("layers"):
        stretch *= params["batch"] / profile["batch"]
        parts = [(layer["parameters"], layer["forward_s"], layer["backward_s"]) for layer in recorded]
    else:
        found = layers_of(params["model"], params["image_size"])
        per_mac = params["batch"] / profile["images_per_s"] / sum(layer.macs for layer in found)
        times = [layer.macs * per_mac for layer in found]
        parts = [
            (layer.parameters, FORWARD_SHARE * time, (1 - FORWARD_SHARE) * time)
            for layer, time in zip(found, times, strict=True)
        ]
    return [
        Timed(max(1, round(parameters / size)), forward_s * stretch, backward_s * stretch)
        for parameters, forward_s, backward_s in parts
    ]


def spares_cores(cell: Cell) -> bool:
    """Whether every rank on this machine has its cores to itself, so that one may poll a clock."""
    here = cell.gpus if cell.launcher in ("emulated", "host") else cell.ranks_per_node
    need = here * cores_per_rank(cell.threads_per_rank, cell.backend["engine"], cell.kind)
    return need <= len(os.sched_getaffinity(0))


class Replayed(Trainee):
    """The replayed model and its step: forward, backward, gradients reduced, optimiser, and the fixed cost.

    The optimiser's step is what a recorded profile has beside its layers; in a published rate it is part
    of them.
    """

    model: ReplayedModel
    settles = 0  # a wait is as long the first time

    def __init__(self, cell: Cell) -> None:
        """Every rank by itself: layers are known to all before they are forked."""
        sharpen_timers()
        self.model = ReplayedModel(timed_layers(cell), Device(overshoot(), spares_cores(cell)))
        whole_s = cell.params["batch"] / cell.params["profile"]["images_per_s"] * cell.scale["time"]
        in_layers_s = sum(layer.forward_s + layer.backward_s for layer in self.model.layers)
        self._optimiser_s = whole_s - in_layers_s if cell.params["profile"].get("layers") else 0.0
        self._compute_s = in_layers_s + self._optimiser_s
        self._fixed_s = cell.params.get("fixed_cost", 0.0) * cell.scale["time"] if cell.gpus > 1 else 0.0
        self._image = torch.ones(1, requires_grad=True)

    def step(self, model: Callable[..., Any]) -> None:
        """Wait through one step; ranks that reduce (in DDP) also through what that costs at any rate."""
        device = self.model.device
        device.start()
        model(self._image).sum().backward()
        after_s = self._optimiser_s + (self._fixed_s if model is not self.model else 0.0)
        if after_s > 0:
            device.start()  # after the last transfer, whenever that ended
            device.busy(after_s)

    def begin(self) -> None:
        """Lateness is of the measured steps alone."""
        self.model.device.forget()

    def observed(self) -> dict[str, float]:
        """How late this rank's waits were."""
        return self.model.device.lateness()

    def facts(self, observed: Sequence[dict[str, float]], buckets: Sequence[int]) -> dict[str, Any]:
        """Seconds that all waits of a step add up to, those of the fixed cost, lateness, and `ready_s`."""
        return {
            "compute_s": self._compute_s,
            "fixed_s": self._fixed_s,
            "waits": together(observed),
            "bucket_ready_s": self.model.ready_s(buckets),
        }


def prepare(cell: Cell, ranks: Ranks) -> Trainee:
    """What the loop trains on device replay."""
    return Replayed(cell)
