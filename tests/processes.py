"""Who descends from whom among this machine's processes."""

import os
import time
from collections.abc import Callable


def wait_until(true: Callable[[], object]) -> None:
    """Poll until something is true; an AssertionError after a minute."""
    for _ in range(1200):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("waited for a minute in vain")


def descendants(pid: int) -> dict[int, str]:
    """Process number → name of all processes below one."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                text = file.read()
        except OSError:
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        parents[int(entry)] = (int(rest.split()[1]), name)
    found: dict[int, str] = {}
    level = {pid}
    while level:
        level = {child for child, (parent, _) in parents.items() if parent in level}
        found |= {child: parents[child][1] for child in level}
    return found


def runners_of(workload: str, below: int) -> list[int]:
    """Processes below one that measure a cell of a workload."""
    found = []
    for pid in descendants(below):
        try:
            with open(f"/proc/{pid}/cmdline") as arguments:
                text = arguments.read()
        except OSError:
            continue
        if "run-cell" in text and f"/{workload}/" in text and "\0-m\0" in text:
            found.append(pid)
    return found


def ranks_of(workload: str, below: int) -> dict[int, int]:
    """Rank → process number of the ranks that measure a cell of a workload now."""
    return {
        int(name.removeprefix("fb-rank-")): pid
        for runner in runners_of(workload, below)
        for pid, name in descendants(runner).items()
        if name.startswith("fb-rank-")
    }
