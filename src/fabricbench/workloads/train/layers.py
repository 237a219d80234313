"""A model's layers with parameters, in forward order, and the multiply-adds of each.

Computed from torchvision's own model on the meta device (no memory, no arithmetic), in a process of its
own, and kept in the user's cache: importing torchvision, with the compiler that it brings along, takes
longer than a replayed cell's whole start.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from fabricbench.errors import LaunchError
from fabricbench.record import write_atomically


@dataclass(frozen=True)
class Layer:
    """`parameters`: how many numbers; `macs`: multiply-adds of one image's forward pass."""

    parameters: int
    macs: int


_known: dict[tuple[str, int], list[Layer]] = {}
"""What this process, or the one that it was forked from, has found."""


def layers_of(model: str, image_size: int) -> list[Layer]:
    """The layers of a torchvision model; from the cache where they are known."""
    found = _known.get((model, image_size)) or cached(model, image_size)
    if found is None:
        found = measure_apart(model, image_size)
        with contextlib.suppress(OSError):  # a read-only home costs time, not the cell
            write_atomically(_cache_file(model, image_size), json.dumps([asdict(layer) for layer in found]))
    _known[model, image_size] = found
    return found


def measure_apart(model: str, image_size: int) -> list[Layer]:
    """`measure` in another process; raises LaunchError with its last words where that fails."""
    command = [sys.executable, "-m", __name__, model, str(image_size)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise LaunchError(f"the layers of {model} at image_size {image_size} can't be told: {said[-1]}")
    return [Layer(**layer) for layer in json.loads(done.stdout)]


def cached(model: str, image_size: int) -> list[Layer] | None:
    """What an earlier cell found for this torchvision, or None."""
    try:
        return [Layer(**layer) for layer in json.loads(_cache_file(model, image_size).read_text())]
    except (OSError, ValueError, TypeError):
        return None


def _cache_file(model: str, image_size: int) -> Path:
    """Named by all that its content depends on: the model, torchvision, and how layers are counted here."""
    counting = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return cache / "fabricbench" / f"layers-{version('torchvision')}-{model}-{image_size}-{counting}.json"


def measure(model: str, image_size: int) -> list[Layer]:
    """Run one forward pass on the meta device and count, without auxiliary heads.

    Those are used in training only, and the published rates that this feeds are of the main network.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from torchvision.models import get_model

    arguments = without_heads(model)
    with torch.device("meta"):
        image = torch.empty(1, 3, image_size, image_size)
        try:
            network = get_model(model, weights=None, **arguments)
        except NotImplementedError:  # some compute with tensors while they are made
            with torch.device("cpu"):
                network = get_model(model, weights=None, **arguments).to("meta")
        counter = FlopCounterMode(display=False)
        with Seen(network, lambda: counter.get_total_flops() // 2) as seen, counter:
            network.eval()(image)
    return [Layer(parameters, int(macs)) for parameters, macs in seen.layers]


def without_heads(model: str) -> dict[str, bool]:
    """Arguments for torchvision that leave auxiliary heads out; and an initialisation that takes minutes."""
    return {"aux_logits": False, "init_weights": False} if model in ("inception_v3", "googlenet") else {}


class Seen:
    """The layers of a network by one forward pass, each with what a meter has gained since the one before.

    A layer is a module whose parameters weren't seen before its forward pass ended: mostly one without
    parts, else one that uses the weights of its parts itself, as attention does. One that gained nothing
    (a normalisation) adds its parameters to the layer before, in whose time it is. Forward order is, in
    reverse, that in which gradients become ready, also where a model has branches: autograd takes what was
    done last first.
    """

    def __init__(self, network: Any, meter: Callable[[], float]) -> None:
        """Hooks stand while this is used as a context."""
        self.layers: list[tuple[int, float]] = []
        """Numbers of parameters, and what the meter gained."""
        self.owners: list[tuple[Any, int, list[Any]]] = []
        """Modules in the order in which they ended, each with its layer's place and its parameters."""
        self._network, self._meter = network, meter
        self._counted: set[int] = set()
        self._before = 0.0

    def __enter__(self) -> Self:
        """Hooks stand from here."""
        self._hooks = [module.register_forward_hook(self._end) for module in self._network.modules()]
        return self

    def __exit__(self, *_: object) -> None:
        """To here."""
        for hook in self._hooks:
            hook.remove()
        if self.layers:  # what came after the last layer is in its time
            parameters, gained = self.layers[-1]
            self.layers[-1] = (parameters, gained + self._meter() - self._before)

    def _end(self, module: Any, *_: Any) -> None:
        own = [parameter for parameter in module.parameters() if id(parameter) not in self._counted]
        if not own:
            return
        self._counted.update(map(id, own))
        numbers, now = sum(parameter.numel() for parameter in own), self._meter()
        if now == self._before and self.layers:
            before, gained = self.layers[-1]
            self.layers[-1] = (before + numbers, gained)
        else:
            self.layers.append((numbers, now - self._before))
        self.owners.append((module, len(self.layers) - 1, own))
        self._before = now


if __name__ == "__main__":
    print(json.dumps([asdict(layer) for layer in measure(sys.argv[1], int(sys.argv[2]))]))
