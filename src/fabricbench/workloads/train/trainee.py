"""What one rank trains: a model and the step that trains it, on whichever device the cell names.

The loop that warms up and measures (`loop.py`) knows only this; real compute and replay are two of them.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn


class Trainee:
    """A bare model and its training step. A device has one of these; what it doesn't need stays as here."""

    model: nn.Module
    """Without DDP; on the rank's device."""
    loads = False
    """Whether `load` waits for something, which is then timed apart from the step."""

    settles = 2
    """Steps that are made and not counted, before those without DDP and those without synchronisation."""

    def load(self) -> None:
        """Fetch the next step's input."""

    def step(self, model: Callable[..., Any]) -> None:
        """Make one training step with `model`: the bare one, or DDP or a compiler around it.

        It ends when every gradient is reduced, on a GPU in the order of its stream.
        """
        raise NotImplementedError

    def callable(self, model: nn.Module) -> Callable[..., Any]:
        """What `step` is to be given for `model`: itself, or a compiler around it."""
        return model

    def keep(self) -> Any:
        """All that training changes, for `restore`; None where nothing changes."""
        return None

    def restore(self, kept: Any) -> None:
        """Be as when `kept` was made."""

    def begin(self) -> None:
        """The measured steps begin: forget what was observed before."""

    def observed(self) -> Any:
        """What this rank saw during the measured steps, small; gathered on rank 0."""
        return None

    def facts(self, observed: Sequence[Any], buckets: Sequence[int]) -> dict[str, Any]:
        """On rank 0: the record's facts from every rank's `observed` and DDP's buckets, in bytes."""
        return {}

    def close(self) -> None:
        """End what runs beside the rank."""
