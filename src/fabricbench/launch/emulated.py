"""Launcher for emulated clusters: namespaces beside one import, then ranks forked into the nodes."""

import os
import sys
from pathlib import Path

from fabricbench.cell import Cell
from fabricbench.fabrics import emulation
from fabricbench.launch.base import NEIGHBOURS, RUNNER, Command, python_module
from fabricbench.launch.building import Building
from fabricbench.launch.leaving import report_launch_error
from fabricbench.launch.ranks import Seats, start_ranks
from fabricbench.workloads.seat import read_cell

STORE_PORT = 29500  # in the cell's own network namespace, where nothing else can hold it


class Emulated:
    """Ranks on nodes that the cell itself makes on this machine."""

    in_a_job = False

    def command(self, cell: Cell, work: Path) -> Command:
        """One process that becomes the cluster."""
        return Command(python_module(__name__, str(work)))


def links(cell: Cell, neighbours: list[str]) -> list[emulation.Link]:
    """The fabric under test first, then the idle interfaces that the campaign's other fabrics have."""
    fabric = cell.fabric
    shape = fabric["link_bit_s"], fabric["delay_s"], fabric["jitter_s"], fabric["loss"]
    tested = [emulation.Link(name, *shape) for name in fabric["interface"]]
    others = dict.fromkeys(name for name in neighbours if name not in fabric["interface"])
    return [*tested, *(emulation.Link(name) for name in others)]


def main(work: Path) -> int:
    """Become the cluster: returns the exit status of the ranks."""
    cell = read_cell(work)
    neighbours = os.environ.get(NEIGHBOURS, "").split()
    runner = int(os.environ[RUNNER])
    emulation.become_private()
    emulation.die_with_parent(runner)
    if init := emulation.fork_init():  # the PID namespace and all in it end with this child
        return os.waitstatus_to_exitcode(os.waitpid(init, 0)[1])
    emulation.mount_own_proc()
    building = Building(cell, links(cell, neighbours))

    def seats() -> Seats:
        built = building.finished()
        return Seats(
            enter=[node.enter for node in built.nodes],
            store=f"{built.nodes[0].management_address}:{STORE_PORT}",
            shaping=built.shaping,
            peers=built.peers,
            seen=built.seen,
        )

    os._exit(start_ranks(cell, work, seats))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with report_launch_error(folder):
        sys.exit(main(folder))
