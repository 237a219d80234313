"""Device `replay`: real DDP, real buckets, real bytes; each layer's compute is a wait.

The waits add up to what a real GPU took for its batch (a published one-GPU rate), spread over the
layers by multiply-adds, a third forward and two thirds backward. As a scale model, times are
multiplied by D and bytes divided by S (docs/emulation.md).
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from fabricbench.cell import Cell
from fabricbench.workloads.ranks import Ranks
from fabricbench.workloads.train.layers import Layer, layers_of
from fabricbench.workloads.train.trainee import Trainee

FORWARD_SHARE = 1 / 3


class Device:
    """The replayed GPU's own clock.

    Waits run to absolute deadlines: one that woke late shortens the next, so that many short waits
    don't add up their errors. `late_s` is the worst lateness seen: large when the host is too busy.
    """

    def __init__(self) -> None:
        """Idle until the first kernel."""
        self.deadline = 0.0
        self.late_s = 0.0

    def start(self) -> None:
        """Begin a step: the device is idle."""
        self.deadline = time.perf_counter()

    def busy(self, seconds: float) -> None:
        """Occupy the device for `seconds` after what it did before."""
        self.deadline += seconds
        left = self.deadline - time.perf_counter()
        if left > 0:
            time.sleep(left)
        else:
            self.late_s = max(self.late_s, -left)


class Compute(torch.autograd.Function):
    """A layer that takes time and has a gradient, and does no arithmetic."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, device: Device, forward_s: float, backward_s: float
    ) -> torch.Tensor:
        """Wait for the layer's forward time."""
        ctx.device, ctx.backward_s, ctx.weight = device, backward_s, weight
        device.busy(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Wait for the layer's backward time, then hand out a gradient of the weight's shape."""
        ctx.device.busy(ctx.backward_s)
        return gradients[0], ctx.weight.new_zeros(()).expand_as(ctx.weight), None, None, None


class ReplayedModel(nn.Module):
    """One parameter per layer, of its size divided by the byte scale, and one wait per pass."""

    def __init__(self, layers: Sequence[Layer], step_s: float, byte_scale: float) -> None:
        """`step_s`: what all waits of one step add up to, here and now (so after scaling)."""
        super().__init__()
        self.device = Device()
        sizes = [max(1, round(layer.parameters / byte_scale)) for layer in layers]
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(size)) for size in sizes)
        total = sum(layer.macs for layer in layers)
        self.times = [layer.macs / total * step_s for layer in layers]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All layers one after another."""
        for weight, seconds in zip(self.weights, self.times, strict=True):
            forward_s = FORWARD_SHARE * seconds
            x = Compute.apply(x, weight, self.device, forward_s, seconds - forward_s)
        return x


def step_seconds(cell: Cell) -> float:
    """Seconds of one step's compute here: the profile's time for the batch, times D."""
    profile = cell.params["profile"]
    return float(cell.params["batch"] / profile["images_per_s"] * cell.scale["time"])


class Replayed(Trainee):
    """The replayed model and its step: forward, backward, gradients reduced; no optimiser step."""

    model: ReplayedModel

    def __init__(self, cell: Cell, ranks: Ranks) -> None:
        """Layers as rank 0 finds them."""
        found = layers_of(cell.params["model"], cell.params["image_size"]) if ranks.rank == 0 else None
        self.model = ReplayedModel(ranks.share(found), step_seconds(cell), cell.scale["bytes"])
        self._image = torch.ones(1, requires_grad=True)

    def step(self, model: Callable[..., Any]) -> None:
        """Wait through one step."""
        self.model.device.start()
        model(self._image).sum().backward()

    def begin(self) -> None:
        """Lateness is of the measured steps alone."""
        self.model.device.late_s = 0.0

    def observed(self) -> float:
        """The worst lateness of a wait."""
        return self.model.device.late_s

    def facts(self, observed: Sequence[float]) -> dict[str, Any]:
        """What all waits of a step add up to, and the worst lateness of any rank."""
        return {"compute_s": sum(self.model.times), "latest_wait_s": max(observed)}


def prepare(cell: Cell, ranks: Ranks) -> Trainee:
    """What the loop trains on device replay."""
    return Replayed(cell, ranks)
