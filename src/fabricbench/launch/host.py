"""Launcher for one machine as it is: ranks forked after one import, on an interface that exists."""

import os
import socket
import sys
from pathlib import Path

from fabricbench.cell import Cell
from fabricbench.fabrics.emulation import die_with_parent
from fabricbench.launch.base import RUNNER, Command, python_module
from fabricbench.launch.leaving import report_launch_error
from fabricbench.launch.ranks import Seats, start_ranks
from fabricbench.workloads.seat import read_cell


class Host:
    """All ranks on this machine."""

    in_a_job = False

    def command(self, cell: Cell, work: Path) -> Command:
        """One process that forks the ranks."""
        return Command(python_module(__name__, str(work)))


def main(work: Path) -> int:
    """Fork the ranks: returns their exit status."""
    cell = read_cell(work)
    die_with_parent(int(os.environ[RUNNER]))
    # A bound socket handed on to rank 0: nobody can take the port between the choice and its use.
    listener = socket.create_server(("127.0.0.1", 0))
    store = f"127.0.0.1:{listener.getsockname()[1]}"
    seats = Seats(enter=[_stay], store=store, shaping=None, listener=listener.fileno())
    return start_ranks(cell, work, lambda: seats)


def _stay() -> None:
    """The one node is this machine itself."""


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with report_launch_error(folder):
        sys.exit(main(folder))
