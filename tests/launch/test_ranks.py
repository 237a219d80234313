"""Forking ranks: nothing may have computed before."""

import subprocess
import sys
import threading

import pytest
from cells import a_cell

from fabricbench.errors import LaunchError
from fabricbench.launch.ranks import Seats, start_ranks
from fabricbench.workloads import entry

THREADS = """
import os, sys
from fabricbench.cell import Cell
from fabricbench.workloads import entry
entry.preload(Cell.from_json(sys.argv[1]))
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "engine", "device"),
    [("train", "gloo", "cpu"), ("train", "gloo", "replay"), ("micro", "gloo", "cpu"), ("cfd", "mpi", "cpu")],
)
def test_importing_a_workload_starts_no_thread(kind, engine, device):
    """After the import and before the fork one thread runs: no torch operation has started a pool."""
    cell = a_cell(kind, engine, device=device)
    command = [sys.executable, "-c", THREADS, cell.canonical()]
    environment = {"OPENBLAS_NUM_THREADS": "1", "HOME": "/tmp", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["1"]


def test_ranks_are_not_forked_beside_running_threads(monkeypatch, tmp_path):
    """Whatever started a thread before the fork is refused, not forked into dead pools."""
    stop = threading.Event()
    monkeypatch.setattr(entry, "preload", lambda cell: threading.Thread(target=stop.wait).start())
    try:
        with pytest.raises(LaunchError, match="threads run before the ranks are forked"):
            start_ranks(a_cell(), tmp_path, lambda: Seats(enter=[], store="", shaping=None))
    finally:
        stop.set()
