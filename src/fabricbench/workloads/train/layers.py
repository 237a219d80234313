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
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

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
    """Run one forward pass on the meta device and count.

    Convolutions and linear layers count; what follows them with parameters of its own (a normalisation)
    adds its parameters to the layer before, in whose time it is. Auxiliary heads, which only training
    uses, are left out: the published rates this feeds are of the main network.
    """
    import torch
    from torch import nn
    from torchvision.models import get_model

    arguments = {"aux_logits": False, "init_weights": False} if model in ("inception_v3", "googlenet") else {}
    found: list[Layer] = []

    def count(module: nn.Module, _: Any, output: torch.Tensor) -> None:
        parameters = sum(p.numel() for p in module.parameters(recurse=False))
        if isinstance(module, nn.Conv2d):
            macs = output[0].numel() * module.weight[0].numel()
        elif isinstance(module, nn.Linear):
            macs = output[0].numel() * module.in_features
        else:
            macs = 0
        if parameters and macs == 0 and found:
            found[-1] = Layer(found[-1].parameters + parameters, found[-1].macs)
        elif parameters:
            found.append(Layer(parameters, macs))

    with torch.device("meta"):
        network = get_model(model, weights=None, **arguments)
        for module in network.modules():
            if not list(module.children()):
                module.register_forward_hook(count)
        network(torch.empty(2, 3, image_size, image_size))
    return found


if __name__ == "__main__":
    print(json.dumps([asdict(layer) for layer in measure(sys.argv[1], int(sys.argv[2]))]))
