"""A rank's seat: who it is, where it sits, and how it meets the others."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError


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


def read_cell(work: Path) -> Cell:
    """The cell that the runner left in its work folder."""
    return Cell.from_json((work / "cell.json").read_text(encoding="utf-8"))


# Gloo and NCCL move bytes in a thread of their own. On one core with the rank that waits for it, a short
# message took 1.8 ms instead of 0.17 (docs/emulation.md), so it gets a core as well.
ENGINE_THREADS = {"gloo": 1, "nccl": 1, "mpi": 0}


def bind_to_cores(cell: Cell, seat: Seat) -> list[int]:
    """Bind this rank as the cell's policy says, and return the cores it may run on.

    `auto` gives each rank of a machine cores of its own, for its threads and its engine's, while there
    are enough, and binds nothing when ranks share cores. `core` insists (LaunchError when too few).
    All emulated nodes are one machine, so their ranks are counted together.
    """
    cores = sorted(os.sched_getaffinity(0))
    ranks = seat.size if cell.launcher == "emulated" else cell.ranks_per_node
    index = seat.rank if cell.launcher == "emulated" else seat.local_rank
    width = cell.threads_per_rank + ENGINE_THREADS[cell.backend["engine"]]
    enough = ranks * width <= len(cores)
    if cell.binding == "none" or (cell.binding == "auto" and not enough):
        return cores
    if not enough:
        raise LaunchError(
            f"binding: core: {ranks} ranks of {width} cores each, and there are {len(cores)} cores here; "
            "set cluster.binding: auto, or fewer gpus"
        )
    own = cores[index * width : (index + 1) * width]
    os.sched_setaffinity(0, own)
    if (given := sorted(os.sched_getaffinity(0))) != own:
        raise LaunchError(f"rank {seat.rank} asked for cores {own}, the kernel gave {given}")
    return own


def own_counters() -> dict[str, dict[str, int]]:
    """rx_bytes and tx_bytes of every interface of this rank's node, by the kernel."""
    lines = open("/proc/self/net/dev", encoding="ascii").read().splitlines()[2:]  # noqa: SIM115
    counters = {}
    for line in lines:
        name, _, numbers = line.partition(":")
        words = numbers.split()
        counters[name.strip()] = {"rx_bytes": int(words[0]), "tx_bytes": int(words[8])}
    return counters


def write_result(work: Path, result: dict[str, object]) -> None:
    """Leave rank 0's result where the runner reads it."""
    (work / "result.json").write_text(json.dumps(result, allow_nan=False), encoding="utf-8")
