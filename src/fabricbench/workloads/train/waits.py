"""The replayed GPU's own clock: waits to absolute deadlines, their error measured and corrected.

A wait ends late by what the kernel takes to wake a process. Against that: the timer's slack is taken
away, each sleep is made shorter by the overshoot that was measured on this host, and deadlines are
absolute, so that one late wake-up shortens the next wait instead of adding up. What is left is counted.
"""

import ctypes
import time
from array import array
from collections.abc import Mapping, Sequence
from math import ceil
from statistics import fmean, median
from typing import Any

PR_SET_TIMERSLACK = 29
CALIBRATIONS = 25
CALIBRATION_S = 100e-6
"""So many sleeps of so many seconds measure the overshoot: some milliseconds, before anything is timed."""
MOST_OVERSHOOT_S = 500e-6
"""A longer one is another process's work, not the kernel's."""


def sharpen_timers() -> None:
    """Let this thread's sleeps end on time rather than within the usual slack of 50 µs."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


def overshoot() -> float:
    """By how many seconds a short sleep ends late on this host, typically."""
    late = []
    for _ in range(CALIBRATIONS):
        until = time.perf_counter() + CALIBRATION_S
        time.sleep(CALIBRATION_S)
        late.append(time.perf_counter() - until)
    return min(max(0.0, median(late)), MOST_OVERSHOOT_S)


class Device:
    """A GPU that does nothing, for as long as it is told."""

    def __init__(self, overshoot_s: float = 0.0, spins: bool = False) -> None:
        """`overshoot_s`: how much earlier a sleep is to end. `spins`: poll the clock for that last time.

        Polling takes a core that nothing else may need. Without it a wait may end early by what the
        overshoot varies; the next wait is the longer for it.
        """
        self._overshoot_s = overshoot_s
        self._spins = spins
        self._deadline = 0.0
        self.forget()

    def forget(self) -> None:
        """Count lateness anew from here."""
        self._late = array("d")
        self._ends = array("d")

    def start(self) -> None:
        """Begin a step, or what comes after its last transfer: the device is idle."""
        self._deadline = time.perf_counter()

    def busy(self, seconds: float) -> None:
        """Occupy the device for `seconds` after what it did before."""
        self._deadline += seconds
        left = self._deadline - time.perf_counter()
        if left > self._overshoot_s:
            time.sleep(left - self._overshoot_s)
        while self._spins and time.perf_counter() < self._deadline:
            time.sleep(0)  # lets threads of this process run that wait for the interpreter
        self._late.append(time.perf_counter() - self._deadline)

    def end(self) -> None:
        """The step's compute has ended: with the last wait, and as late as that."""
        self._ends.append(self._late[-1])

    def lateness(self) -> dict[str, float]:
        """How late waits ended since `forget`, in seconds (negative: early); see `together`."""
        if not self._ends:
            return {}
        ordered = sorted(self._late)
        return {
            "n": len(ordered),
            "mean_late_s": fmean(ordered),
            "p99_late_s": ordered[ceil(0.99 * len(ordered)) - 1],
            "latest_s": ordered[-1],
            "step_late_s": median(max(0.0, end) for end in self._ends),
            "drift_s": fmean(self._ends),
        }


def together(per_rank: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The record's fact `waits`, of all ranks.

    n: waits of all ranks; mean_late_s over all of them; p99_late_s, latest_s and step_late_s (the median
    lateness at the end of a step's compute) of the rank where it is largest; drift_s: how far the compute
    of a step was from the sum of its waits, in the mean of the rank where it was farthest.
    """
    known = [each for each in per_rank if each]
    if not known:
        return {}
    count = sum(each["n"] for each in known)
    worst = {key: max(each[key] for each in known) for key in ("p99_late_s", "latest_s", "step_late_s")}
    return {
        "n": count,
        "mean_late_s": sum(each["n"] * each["mean_late_s"] for each in known) / count,
        **worst,
        "drift_s": max((each["drift_s"] for each in known), key=abs),
    }
