"""One rank on a node of a Slurm job: what srun or an MPI launcher starts, once for each rank."""

import os
import re
import socket
import sys
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.launch.addresses import join, meeting_address
from fabricbench.launch.base import inherited_choice, own_environment
from fabricbench.launch.leaving import become_rank, leave_error
from fabricbench.launch.rollcall import (
    BACKLOG,
    Hello,
    Meeting,
    answer,
    end_with,
    read_meeting,
)
from fabricbench.launch.starters import launch_of
from fabricbench.workloads import entry
from fabricbench.workloads.place import look
from fabricbench.workloads.seat import Seat, read_cell

# What launchers tell each rank: its number, and how many there are.
_BY_SRUN = (("SLURM_PROCID", "SLURM_NTASKS"),)
_BY_MPI = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))

# Of the families that are unset, what launchers say to their own library.
_PROTOCOL = re.compile(
    "PMI_|PMIX_|OMPI_MCA_orte_precondition_transports$"  # by srun's pmix as well: a key for psm2
)
_PROTOCOL_OF_MPIRUN = re.compile(
    "PMI_|PMIX_|PRTE_MCA_|I_MPI_HYDRA_|MPICH_INTERFACE_HOSTNAME|"
    "OMPI_MCA_(?!(pml|btl|mtl|coll|osc|opal_common|common)(_|$))"
)


def identity(environment: Mapping[str, str], launch: str) -> tuple[int, int]:
    """(rank, size) as the launcher told; LaunchError where it told nothing."""
    for rank, size in _BY_MPI if launch == "mpirun" else _BY_SRUN:
        if rank in environment and size in environment:
            return int(environment[rank]), int(environment[size])
    raise LaunchError(f"what started this process with launch {launch} doesn't say which rank it is")


def set_environment(cell: Cell, environment: MutableMapping[str, str]) -> list[str]:
    """Set the cell's variables, and unset inherited ones that would choose another network.

    Returns the names of what was unset: what came from the node, as by a prolog of Slurm's, since the
    runner has already unset what it inherited. Those that the launcher itself needs stay.
    """
    own = own_environment(cell)
    kept = _PROTOCOL_OF_MPIRUN if launch_of(cell) == "mpirun" else _PROTOCOL
    foreign = sorted(
        name
        for name in environment
        if name not in own and (name in cell.unset or (inherited_choice(name) and not kept.match(name)))
    )
    changed = [name for name in sorted(own) if environment.get(name) not in (own[name], None)]
    for name in foreign:
        del environment[name]
    environment.update(own)
    return sorted({*foreign, *changed})


def main(work: Path) -> int:
    """Be a rank: returns its exit status."""
    try:
        cell, meeting = read_cell(work), read_meeting(work)
        rank, size = identity(os.environ, launch_of(cell))
    except (OSError, LaunchError) as error:  # no log yet, and perhaps no folder to leave it in
        print(f"fabricbench: {socket.gethostname()}: {_why(error, work)}", file=sys.stderr, flush=True)
        return 1
    status = 1
    try:
        become_rank(rank, work)
        be_rank(cell, meeting, rank, size, work)
        status = 0
    except BaseException as error:
        leave_error(work, f"rank {rank}", error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # an MPI that was never finalized would wait in its exit handlers


def be_rank(cell: Cell, meeting: Meeting, rank: int, size: int, work: Path) -> None:
    """Look at the node, come to the roll call, and run the cell's workload."""
    unset = set_environment(cell, os.environ)
    seen = look(cell)
    began = time.monotonic()
    entry.preload(cell)
    imported_s = time.monotonic() - began
    listener, store = None, ""
    if rank == 0:
        own = meeting_address(meeting.bootstrap, seen.facts["interfaces"], seen.facts["host"], cell.nodes > 1)
        family = socket.AF_INET6 if ":" in own else socket.AF_INET
        server = socket.create_server((own, 0), family=family, backlog=BACKLOG)
        store = join(own, server.getsockname()[1])
        listener = server.detach()
    me = Hello(rank, size, seen.facts["host"], list(seen.rails.addresses), store, _step(os.environ))
    called, connection = answer(meeting.address, meeting.token, me)
    end_with(connection)
    node, local_rank = divmod(rank, cell.ranks_per_node)
    seat = Seat(
        rank=rank,
        size=size,
        node=node,
        local_rank=local_rank,
        store=called.store,
        listener=listener,
        peers=called.peers,
        unset=unset,
    )
    phases = {"import": imported_s, "roll_call": called.waited_s, "forked_at": time.time()}
    entry.run_rank(cell, seat, work, phases, seen)


def _step(environment: Mapping[str, str]) -> str:
    job, step = environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")
    return f"{job}.{step}" if job and step else ""


def _why(error: Exception, work: Path) -> str:
    if isinstance(error, OSError):
        return (
            f"{work} can't be read ({error.strerror}); the project's folder, with its results, must lie on a "
            "file system that all nodes share"
        )
    return str(error)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
