"""A broken cluster for tests: nodes with networks of their own, and one shared memory that MPI uses."""

import sys
from pathlib import Path

from fabricbench.fabrics import emulation
from fabricbench.launch import emulated, pmi, ranks
from fabricbench.launch.leaving import report_launch_error


class OneNode(pmi.PmiServer):
    """Tells MPI that all ranks sit on one node."""

    def __init__(self, size: int, nodes: int, ranks_per_node: int) -> None:
        """As if there were one node for all."""
        super().__init__(size, 1, size)


def main(work: Path) -> int:
    """The emulated launcher, its nodes without memory and IPC of their own."""
    emulation.NODE_NAMESPACES = {kind: emulation.NODE_NAMESPACES[kind] for kind in ("net", "uts")}
    ranks.PmiServer = OneNode
    with report_launch_error(work):
        return emulated.main(work)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
