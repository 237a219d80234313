"""What a cell says while it runs: a line of rank 0 about every two seconds, which the runner passes on."""

import time
from statistics import median

PROGRESS = "progress: "
"""Begins such a line in rank 0's own log."""
EVERY_S = 2.0


class Progress:
    """Rank 0's lines; silent on the others. Called between timed steps, never within one."""

    def __init__(self, rank: int, images: float) -> None:
        """`images`: of one step over all ranks, of the modelled machine's rate where time is stretched."""
        self._silent = rank != 0
        self._images = images
        self._said_at = 0.0
        self._phase = ""

    def say(self, phase: str, times: list[float], *, at_once: bool = False) -> None:
        """Tell how far a phase is: at its start, then at most every EVERY_S, and `at_once` at its end."""
        now = time.monotonic()
        if self._silent or (phase == self._phase and now - self._said_at < EVERY_S and not at_once):
            return
        self._said_at, self._phase = now, phase
        rate = ""
        if times:
            typical = median(times[-50:])
            rate = f", median {1000 * typical:.4g} ms, {self._images / typical:.4g} images/s"
        print(f"{PROGRESS}{phase}: step {len(times)}{rate}", flush=True)
