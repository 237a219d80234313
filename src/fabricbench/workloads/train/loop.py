"""The loop that every training cell runs, real or replayed: steps timed one by one, in chunks.

How many steps come next is rank 0's decision. The others hear it over the store (the management
network), never over the fabric under test, once per chunk and outside the timed steps.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Protocol, TypeVar

import torch

from fabricbench.cell import Cell
from fabricbench.workloads.progress import Progress
from fabricbench.workloads.ranks import StoredRanks
from fabricbench.workloads.train import pace
from fabricbench.workloads.train.trainee import Trainee

T = TypeVar("T")


@dataclass
class Times:
    """Seconds per step of this rank, and of waiting for each step's input."""

    steps: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    loop_s: float = 0.0
    """The whole loop by the host's clock, with decisions between chunks."""

    @property
    def spent_s(self) -> float:
        """All of it."""
        return sum(self.steps) + sum(self.loads)


class Clock(Protocol):
    """Times steps; `read` gives those since it was last read."""

    def start(self) -> None:
        """A step begins."""

    def stop(self) -> None:
        """It ends."""

    def read(self) -> list[float]:
        """Seconds of each step."""


class HostClock:
    """The host's monotonic clock: a step ends when the call returns."""

    def __init__(self) -> None:
        """Nothing timed yet."""
        self._times: list[float] = []
        self._began = 0.0

    def start(self) -> None:
        """A step begins."""
        self._began = time.perf_counter()

    def stop(self) -> None:
        """It ends."""
        self._times.append(time.perf_counter() - self._began)

    def read(self) -> list[float]:
        """Seconds of each step since the last reading."""
        times, self._times = self._times, []
        return times


class CudaClock:
    """Events on the current stream: the host runs ahead as in any training, and waits only when read.

    DDP lets this stream wait for its last all-reduce, so a step's end is after its communication.
    """

    def __init__(self) -> None:
        """Nothing timed yet."""
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def start(self) -> None:
        """Record a step's begin on the stream."""
        pair = _event(), _event()
        self._events.append(pair)
        pair[0].record()

    def stop(self) -> None:
        """Record its end."""
        self._events[-1][1].record()

    def read(self) -> list[float]:
        """Seconds of each step since the last reading, once the device has made them."""
        torch.cuda.synchronize()
        times = [begin.elapsed_time(end) / 1000 for begin, end in self._events]
        self._events = []
        return times


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class Loop:
    """Steps of one trainee on one rank."""

    def __init__(self, cell: Cell, ranks: StoredRanks, trainee: Trainee, progress: Progress) -> None:
        """One per cell and rank."""
        self._ranks = ranks
        self._trainee = trainee
        self._progress = progress
        self._clock: Clock = CudaClock() if cell.device == "cuda" else HostClock()
        self._decisions = 0

    def make(self, phase: str, model: Callable[..., Any], count: int) -> Times:
        """So many steps; nothing is decided, so nothing is told."""
        times = Times()
        while (left := count - len(times.steps)) > 0:
            self._progress.say(phase, times.steps)
            limits = pace.Limits(count, count, float("inf"))
            self._chunk(model, min(left, pace.next_chunk(times.steps, times.spent_s, limits)), times)
        return times

    def warm_up(self, model: Callable[..., Any], limits: pace.Limits) -> tuple[int, bool]:
        """At least `least` steps and then until steady, `most` or `budget_s`; returns (steps, steady)."""
        times, steady = Times(), False
        while True:
            enough = len(times.steps) >= limits.least
            steady = enough and pace.is_steady(times.steps)
            # Not what was spent: a first step that compiles for minutes would end the warm-up.
            spent_s = len(times.steps) * median(times.steps) if times.steps else 0.0
            over = enough and pace.stopped_by(times.steps, spent_s, limits) != ""
            count = 0 if steady or over else pace.next_chunk(times.steps, spent_s, limits)
            if enough:  # another look at the windows needs some more steps
                count = min(count, max(1, len(times.steps) // 5))
            count, steady = self._agreed((count, steady))
            if count == 0:
                return len(times.steps), steady
            self._progress.say("warm-up", times.steps)
            self._chunk(model, count, times)

    def measure(self, model: Callable[..., Any], limits: pace.Limits) -> tuple[Times, str]:
        """Step until a limit is reached; returns the times and which limit (width, budget or steps)."""
        times, began = Times(), time.perf_counter()
        while True:
            reached = pace.stopped_by(times.steps, times.spent_s, limits)
            count = 0 if reached else pace.next_chunk(times.steps, times.spent_s, limits)
            count, reached = self._agreed((count, reached))
            if count == 0:
                times.loop_s = time.perf_counter() - began
                self._progress.say("measuring", times.steps, at_once=True)
                return times, reached
            self._progress.say("measuring", times.steps)
            self._chunk(model, count, times)

    def _agreed(self, own: tuple[int, T]) -> tuple[int, T]:
        """Rank 0's decision on every rank; what the others decided themselves doesn't count."""
        if self._ranks.size == 1:
            return own
        self._decisions += 1
        key = f"decision/{self._decisions}"
        if self._ranks.rank == 0:
            self._ranks.tell(key, own)
            return own
        count, reason = self._ranks.hear(key)
        return count, reason

    def _chunk(self, model: Callable[..., Any], count: int, times: Times) -> None:
        """Make `count` steps and add their times."""
        trainee, clock = self._trainee, self._clock
        for _ in range(count):
            if trainee.loads:
                began = time.perf_counter()
                trainee.load()
                times.loads.append(time.perf_counter() - began)
                self._ranks.barrier()  # or one rank's wait for its input is another's communication
            clock.start()
            trainee.step(model)
            clock.stop()
        times.steps += clock.read()
