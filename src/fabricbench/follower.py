"""Passes a running cell's progress on to its log."""

import time
from pathlib import Path

from fabricbench.workloads.progress import PROGRESS

EVERY_S = 1.0
"""How often the rank's log is looked at."""


class Follower:
    """Reads what was added to rank 0's log, and prints the lines of progress in it."""

    def __init__(self, path: Path) -> None:
        """`path`: the log, which need not exist yet."""
        self._path = path
        self._read_to = 0
        self._due = 0.0

    def look(self, *, at_once: bool = False) -> None:
        """Pass on whole new lines of progress; within EVERY_S of the last look, only `at_once`."""
        if time.monotonic() < self._due and not at_once:
            return
        self._due = time.monotonic() + EVERY_S
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_to)
                added = file.read()
        except OSError:  # no rank has come so far, or a network file system doesn't show it yet
            return
        whole = added[: added.rfind(b"\n") + 1]
        self._read_to += len(whole)
        for line in whole.decode(errors="replace").splitlines():
            if line.startswith(PROGRESS):
                print(line.removeprefix(PROGRESS), flush=True)
