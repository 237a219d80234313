"""Messages through a GPU's memory, on the host's: the same code, without the GPU that isn't here."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = r"""
import os
from mpi4py import MPI
from fabricbench.workloads.micro import channel, run

class World:
    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    barrier = comm.Barrier
    polling = POLLING

one = channel.KIND
one.memory = "cpu"
link = one(World(), 1, ring=RING)
for operation in (run.pingpong, run.stream, run.allreduce):
    assert len(operation(link, 4096, 1, 3)) == 3
sent = link.buffer(1024)
link.as_float32(sent)[:] = 7 + World.rank
link.settle()
if World.rank == 0:
    link.send(sent, 1)
else:
    link.receive(sent, 0)
    assert (link.as_float32(sent) == 7).all()
assert run.check(link, 4096)
os.write(1, f"right on rank {World.rank}\n".encode())  # in one piece, beside the other rank's
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["StagedMpiChannel", "DeviceMpiChannel"])
@pytest.mark.parametrize(("ring", "polling"), [(False, False), (True, False), (True, True)])
def test_messages_from_another_memory_arrive_whole(kind, ring, polling):
    """Two real MPI ranks: staged through a copy, or handed to MPI as a tensor, every byte is right."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    program = PROGRAM.replace("KIND", kind).replace("RING", str(ring)).replace("POLLING", str(polling))
    command = [str(mpiexec), "-n", "2", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert sorted(done.stdout.splitlines()) == ["right on rank 0", "right on rank 1"], done.stderr
