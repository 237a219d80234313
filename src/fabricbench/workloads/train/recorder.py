"""`fabricbench profile`: how long one device takes for each layer of a model, forward and backward.

Steps are timed twice. Without hooks: forward pass, backward pass and optimiser as a whole. With hooks: a
mark wherever a layer's forward pass ends, and wherever a parameter's gradient is ready, which is what DDP
waits for; the time between two marks is the later one's layer's. Hooks disturb, so the layers' times are
scaled until they add up to the passes without them; both stand in the file.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import fabricbench
from fabricbench.errors import FabricbenchError
from fabricbench.profiles import SCHEMA
from fabricbench.provenance import cpu_model
from fabricbench.workloads.train.layers import Seen
from fabricbench.workloads.train.real import CLASSES, SEED, build_model, loss_of, set_precision

WARM_UP = 10


@dataclass(frozen=True)
class Recorded:
    """What is recorded: a torchvision model as the training cells build it, and how it is trained."""

    model: str
    batch: int
    image_size: int
    precision: str
    device: str


class Marks:
    """Moments on the device: events on a GPU's stream, or the host's clock."""

    def __init__(self, cuda: bool) -> None:
        """None yet."""
        self._cuda = cuda
        self._moments: list[Any] = []
        self._layers: list[int] = []

    def mark(self, layer: int) -> None:
        """What has been done since the last mark was this layer's."""
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self._moments.append(event)
        else:
            self._moments.append(time.perf_counter())
        self._layers.append(layer)

    def read(self) -> list[tuple[int, float]]:
        """(layer, seconds) of each mark but the first, once the device has come to the last; forgets all."""
        if self._cuda:
            torch.cuda.synchronize()
        pairs = zip(self._moments, self._moments[1:], strict=False)
        spans = [a.elapsed_time(b) / 1000 if self._cuda else b - a for a, b in pairs]
        found = list(zip(self._layers[1:], spans, strict=True))
        self._moments, self._layers = [], []
        return found


BEGIN, FORWARD, BACKWARD, UPDATE = -1, -2, -3, -4
"""Marks that are no layer's: the step begins, and its passes end."""


class Trained:
    """One model on one device, and its step with a mark after each pass."""

    def __init__(self, what: Recorded) -> None:
        """Raises FabricbenchError where there is no such device."""
        if what.device == "cuda" and not torch.cuda.is_available():
            raise FabricbenchError("--device cuda: torch sees no GPU here; run it where one is, or take cpu")
        set_precision(what.precision)
        torch.manual_seed(SEED)
        self.network = build_model(what.model, what.image_size).to(what.device)
        shape = (what.batch, 3, what.image_size, what.image_size)
        self.images = torch.randn(shape, device=what.device)
        self._labels = torch.randint(0, CLASSES, (what.batch,), device=what.device)
        self._optimiser = torch.optim.SGD(self.network.parameters(), lr=0.01, momentum=0.9)
        self._what = what
        self.marks = Marks(what.device == "cuda")

    def autocast(self) -> AbstractContextManager[Any]:
        """What bf16 computes under."""
        half = self._what.precision == "bf16"
        return torch.autocast(self._what.device, dtype=torch.bfloat16) if half else nullcontext()

    def step(self) -> list[tuple[int, float]]:
        """Zero, forward, loss, backward, update; returns the marks."""
        self._optimiser.zero_grad(set_to_none=False)
        self.marks.mark(BEGIN)
        with self.autocast():
            loss = loss_of(self.network(self.images), self._labels)
        self.marks.mark(FORWARD)
        loss.backward()  # type: ignore[no-untyped-call]
        self.marks.mark(BACKWARD)
        self._optimiser.step()
        self.marks.mark(UPDATE)
        return self.marks.read()


def record(what: Recorded, steps: int) -> dict[str, Any]:
    """The profile as its file holds it; times in seconds, medians over `steps` steps."""
    trained = Trained(what)
    for _ in range(WARM_UP):
        trained.step()
    whole = [dict(trained.step()) for _ in range(steps)]
    forward_s, backward_s, optimiser_s = (
        median(step[end] for step in whole) for end in (FORWARD, BACKWARD, UPDATE)
    )
    step_s = forward_s + backward_s + optimiser_s
    seen = _layers(trained)
    hooked = _hooked(trained, seen, steps)
    forwards = _scaled([median(step[0][at] for step in hooked) for at in range(len(seen.layers))], forward_s)
    backwards = _scaled(
        [median(step[1][at] for step in hooked) for at in range(len(seen.layers))], backward_s
    )
    name = torch.cuda.get_device_name() if what.device == "cuda" else cpu_model()
    return {
        "schema": SCHEMA,
        "source": f"recorded by fabricbench {fabricbench.__version__} on one {name}, {what.precision}, "
        f"batch {what.batch}, torch {torch.__version__}",
        **{key: value for key, value in vars(what).items() if key != "device"},
        "device": name,
        "torch": torch.__version__,
        "steps": steps,
        "images_per_s": what.batch / step_s,
        "step_s": step_s,
        "optimiser_s": optimiser_s,
        "hooked_step_s": median(sum(step[0]) + sum(step[1]) + step[2] for step in hooked),
        "layers": [
            {"parameters": parameters, "forward_s": forward, "backward_s": backward}
            for (parameters, _), forward, backward in zip(seen.layers, forwards, backwards, strict=True)
        ],
    }


def _layers(trained: Trained) -> Seen:
    """The model's layers as it trains, auxiliary heads included."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), Seen(trained.network, counter.get_total_flops) as seen, counter:
        trained.network(trained.images)
    return seen


def _hooked(trained: Trained, seen: Seen, steps: int) -> list[tuple[list[float], list[float], float]]:
    """Per step: seconds of each layer forward and backward, and of the optimiser."""
    mark = trained.marks.mark
    for module, layer, parameters in seen.owners:
        module.register_forward_hook(_marking(mark, layer))
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(_marking(mark, layer))
    found = []
    for _ in range(WARM_UP + steps):
        forward, backward = [0.0] * len(seen.layers), [0.0] * len(seen.layers)
        into, last, optimiser = forward, 0, 0.0
        for layer, seconds in trained.step():
            if layer >= 0:
                last = layer
            if layer == UPDATE:
                optimiser = seconds
            else:  # what comes after a pass's last layer (the loss, the images' gradient) is in its time
                into[last] += seconds
            if layer == FORWARD:
                into = backward
        found.append((forward, backward, optimiser))
    return found[WARM_UP:]


def _marking(mark: Callable[[int], None], layer: int) -> Callable[..., None]:
    def hook(*_: nn.Module) -> None:
        mark(layer)

    return hook


def _scaled(times: list[float], whole: float) -> list[float]:
    """The same shares of `whole`."""
    total = sum(times)
    return [time * whole / total for time in times]
