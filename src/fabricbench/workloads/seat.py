"""A rank's seat: who it is, where it sits, and how it meets the others."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabricbench.cell import Cell

RESULT = "result.json"
"""What rank 0 leaves in the work folder."""


@dataclass(frozen=True)
class Seat:
    """What a launcher tells a rank. Ranks are numbered node by node."""

    rank: int
    size: int
    node: int
    local_rank: int
    store: str
    """host:port of torch's key-value store; an IPv6 host in brackets."""
    listener: int | None = None
    """Rank 0 may inherit a socket that is already bound to the store's port."""
    peers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Each node's addresses on the fabric under test, by rail, as far as the launcher knows them."""
    shaping: Mapping[str, Any] | None = None
    """How the links are emulated; None for real ones."""
    unset: Sequence[str] = field(default_factory=list)
    """Variables that were unset or changed for this rank alone, since its node had set them."""


def read_cell(work: Path) -> Cell:
    """The cell that the runner left in its work folder."""
    return Cell.from_json((work / "cell.json").read_text(encoding="utf-8"))


def write_result(work: Path, result: dict[str, object]) -> None:
    """Leave rank 0's result where the runner reads it."""
    (work / RESULT).write_text(json.dumps(result, allow_nan=False), encoding="utf-8")
