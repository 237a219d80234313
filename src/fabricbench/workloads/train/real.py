"""Real compute: a torchvision model, its optimiser, and the precision and layout it is trained in."""

import copy
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.workloads.ranks import Ranks
from fabricbench.workloads.train.data import Batches, Folder, Synthetic
from fabricbench.workloads.train.trainee import Trainee

SEED = 20080857
CLASSES = 1000

# Their default initialisation draws from a truncated normal distribution: half a minute, for nothing here.
INIT: dict[str, dict[str, Any]] = {
    "inception_v3": {"init_weights": False},
    "googlenet": {"init_weights": False},
}
# Models that are made for one image size.
SIZED: dict[str, Callable[[int], dict[str, Any]]] = {
    **dict.fromkeys(
        ("vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14"), lambda size: {"image_size": size}
    ),
    "maxvit_t": lambda size: {"input_size": (size, size)},
}


def build_model(name: str, image_size: int = 224) -> nn.Module:
    """A torchvision classifier with random weights, 1000 classes, training; ValueError if there is none."""
    from torchvision.models import get_model

    sized = SIZED[name](image_size) if name in SIZED else {}
    model: nn.Module = get_model(name, weights=None, **INIT.get(name, {}), **sized)
    return model.train()


def loss_of(output: Any, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy, with auxiliary heads weighted as their papers do (Inception 0.4, GoogLeNet 0.3)."""
    entropy = nn.functional.cross_entropy
    if isinstance(output, torch.Tensor):
        return entropy(output, labels)
    main, *others = [head for head in output if head is not None]
    if len(output) == 3:  # GoogLeNet: logits, aux_logits2, aux_logits1
        return entropy(main, labels) + sum(0.3 * entropy(head, labels) for head in others)
    return entropy(main, labels) + sum(0.4 * entropy(head, labels) for head in others)


def set_precision(precision: str) -> None:
    """Allow TF32 in matrix products and convolutions, or forbid it: by itself torch has it in the latter."""
    allowed = precision == "tf32"
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def check_compiler(device: str) -> None:
    """LaunchError where torch.compile would find no C++ compiler, which it needs for kernels on a CPU."""
    wanted = os.environ.get("CXX") or "g++"
    if device == "cpu" and shutil.which(wanted.split()[0]) is None:
        raise LaunchError(
            f"compile: true: no C++ compiler {wanted!r} on this node; install it, name another by the "
            "variable CXX in the workload's environment, or set compile: false"
        )


class Real(Trainee):
    """Forward, backward and SGD with momentum, on a GPU or on cores."""

    def __init__(self, cell: Cell, ranks: Ranks) -> None:
        """Build the model from the same seed on every rank; input from a seed of the rank's own."""
        params = cell.params
        if params.get("compile"):
            check_compiler(cell.device)
        set_precision(params.get("precision", "fp32"))
        torch.manual_seed(SEED)
        self._device = torch.device(*(("cuda", torch.cuda.current_device()) if on_gpu(cell) else ("cpu",)))
        layout = torch.channels_last if params.get("channels_last") else torch.contiguous_format
        self.model = build_model(params["model"], params["image_size"]).to(self._device)
        self.model = self.model.to(memory_format=layout)
        self._optimiser = self._new_optimiser()
        self._half = params.get("precision") == "bf16"
        self._compiles = bool(params.get("compile"))
        source = Folder if params.get("images") else Synthetic
        self._batches: Batches = source(cell, ranks, SEED, self._device, layout)
        self.loads = self._batches.waits
        self._images, self._labels = self._batches.first()

    def load(self) -> None:
        """Wait for the next batch, and bring it onto the device."""
        self._images, self._labels = self._batches.next()

    def step(self, model: Callable[..., Any]) -> None:
        """Zero, forward, loss, backward, update."""
        self._optimiser.zero_grad(set_to_none=False)  # gradients may be views of DDP's buckets
        with self._autocast():
            loss = loss_of(model(self._images), self._labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()

    def callable(self, model: nn.Module) -> Callable[..., Any]:
        """Compile around DDP, not below it: so the compiler cuts its graphs where DDP's buckets end.

        A graph cut nowhere would give all gradients at once, and leave nothing to overlap with.
        """
        if not self._compiles:
            return model
        return torch.compile(model)

    def keep(self) -> Any:
        """Weights and buffers, and where random numbers (dropout's) stand."""
        numbers = torch.get_rng_state(), torch.cuda.get_rng_state() if self._device.type == "cuda" else None
        return copy.deepcopy(self.model.state_dict()), numbers

    def restore(self, kept: Any) -> None:
        """Weights as kept, and an optimiser without momentum."""
        weights, (here, there) = kept
        self.model.load_state_dict(weights)
        self.model.zero_grad(set_to_none=True)  # DDP gives gradients places of its own
        self._optimiser = self._new_optimiser()
        torch.set_rng_state(here)
        if there is not None:
            torch.cuda.set_rng_state(there)

    def facts(self, observed: Sequence[Any], buckets: Sequence[int]) -> dict[str, Any]:
        """What the input is."""
        return self._batches.facts()

    def close(self) -> None:
        """End the loader's workers."""
        self._batches.close()

    def _new_optimiser(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def _autocast(self) -> AbstractContextManager[Any]:
        if not self._half:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=torch.bfloat16)


def on_gpu(cell: Cell) -> bool:
    """Whether the cell computes on GPUs."""
    return cell.device == "cuda"
