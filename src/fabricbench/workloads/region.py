"""The timed region: what is measured begins and ends on all ranks together, between two counter readings."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabricbench.fabrics import counters
from fabricbench.fabrics.traffic import NOTHING, Formula
from fabricbench.workloads.ranks import Ranks
from fabricbench.workloads.seat import Seat

IDLE_S = 0.05
"""How long the idle node is watched, before the first measured region and after the last, for what it
carries anyway: the less of the two, so that a burst isn't taken for a habit."""


@dataclass(frozen=True)
class Cpu:
    """Time of all cores together, in the kernel's ticks."""

    busy: int
    whole: int

    def __add__(self, other: "Cpu") -> "Cpu":
        """Both spans."""
        return Cpu(self.busy + other.busy, self.whole + other.whole)

    def __sub__(self, other: "Cpu") -> "Cpu":
        """From the other reading to this one."""
        return Cpu(self.busy - other.busy, self.whole - other.whole)

    @property
    def share(self) -> float | None:
        """The busy share; None for a span too short to tell."""
        return self.busy / self.whole if self.whole > 0 else None


def cpu_times(proc: Path = Path("/proc")) -> Cpu:
    """Busy and whole time of this machine's cores since it started, whichever containers they ran.

    What the hypervisor took for other guests is busy: it wasn't to be had.
    """
    try:
        ticks = [int(text) for text in (proc / "stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return Cpu(0, 0)
    idle = sum(ticks[3:5])  # and waiting for disks
    return Cpu(sum(ticks) - idle, sum(ticks))


@dataclass
class Outcome:
    """What a workload returns on rank 0 (elsewhere it is empty): series as of the record, and facts."""

    samples: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    traffic: Formula = NOTHING
    """What the timed region must have sent, by the algorithms that it ran."""


def series(metric: str, unit: str, values: list[float], **where: int) -> dict[str, Any]:
    """One series of raw samples; `where` may give bytes and rank."""
    return {"metric": metric, "unit": unit, "values": values} | where


class Region:
    """Counts seconds and bytes of the timed region on this rank's node."""

    def __init__(self, ranks: Ranks, seat: Seat, refresh_s: float = 0.0) -> None:
        """One per rank; the first rank of a node reads the node's counters.

        `refresh_s`: how late a card's counters may be.
        """
        self._refresh_s = refresh_s
        self._ranks = ranks
        self._reads = seat.local_rank == 0
        self._idle: counters.Counters | None = None
        self.seconds = 0.0
        self.moments: dict[str, float] = {}
        """What happened when, UNIX time; first_step is when the first step began, of whatever kind."""
        self.bytes: counters.Counters = {}
        self.congestion: dict[str, int] = {}
        self._cpu = Cpu(0, 0)

    def mark(self, name: str) -> None:
        """It is now that `name` happens for the first time."""
        self.moments.setdefault(name, time.time())

    @contextmanager
    def timed(self, *, beside: bool = False) -> Iterator[None]:
        """Everything within is measured; the barriers around it are not.

        `beside`: not the measurement itself, so that how busy the host is then doesn't count.
        """
        self._ranks.barrier()
        if self._idle is None:
            self._idle = self._watch_idle()
        before, crowded = self._read()
        busy = cpu_times() if self._reads and not beside else Cpu(0, 0)
        self._ranks.barrier()  # no rank sends before every node has read its counters
        self.mark("first_step")
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began
        self._ranks.barrier()
        if self._reads and not beside:
            self._cpu += cpu_times() - busy
        if self._reads and self._refresh_s:
            time.sleep(self._refresh_s)
        after, now_crowded = self._read()
        self._ranks.barrier()  # nor after, before all have
        for name, counts in counters.grown(after, before).items():
            total = self.bytes.setdefault(name, {"rx_bytes": 0, "tx_bytes": 0})
            for direction, count in counts.items():
                total[direction] += count
        for name, count in counters.difference(now_crowded, crowded).items():
            self.congestion[name] = self.congestion.get(name, 0) + count

    def seen(self) -> dict[str, Any] | None:
        """What the node's counters saw in all regions, and would have seen idle; None on its other ranks."""
        self._ranks.barrier()
        after = self._watch_idle()
        if not self._reads:
            return None
        share = self.seconds / IDLE_S
        before = self._idle or after
        idle = {
            name: {way: min(count, before.get(name, counts)[way]) * share for way, count in counts.items()}
            for name, counts in after.items()
        }
        host = {"cpu_share": self._cpu.share, "cores": os.cpu_count()}
        return {"bytes": self.bytes, "baseline": idle, "congestion": self.congestion, "host": host}

    def _read(self) -> tuple[counters.Counters, dict[str, int]]:
        return (counters.read(), counters.congestion()) if self._reads else ({}, {})

    def _watch_idle(self) -> counters.Counters:
        """Bytes by counter in IDLE_S in which no rank sends anything."""
        before = counters.read() if self._reads else {}
        time.sleep(IDLE_S)
        return counters.grown(counters.read(), before) if self._reads else {}


def over_ranks(per_rank: list[list[float]], metric: str, unit: str) -> list[dict[str, Any]]:
    """Reduce every rank's step times to what a record keeps at any number of ranks.

    Steps of rank 0, and per step the minimum, the maximum and the slowest rank; a median per rank.
    """
    steps = list(zip(*per_rank, strict=True))
    slowest = [float(max(range(len(step)), key=step.__getitem__)) for step in steps]
    name = metric.removesuffix(f"_{unit}")
    reduced = [
        series(metric, unit, per_rank[0]),
        series(f"{name}_min_{unit}", unit, [min(step) for step in steps]),
        series(f"{name}_max_{unit}", unit, [max(step) for step in steps]),
        series(f"{name}_slowest_rank", "rank", slowest),
    ]
    medians = [
        series(f"{name}_median_{unit}", unit, [_median(own)], rank=r) for r, own in enumerate(per_rank)
    ]
    return reduced + medians


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
