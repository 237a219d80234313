"""How many cores ranks need."""

import subprocess
import sys

import pytest

from fabricbench.cores import cores_per_rank


@pytest.mark.parametrize(
    ("engine", "kind", "cores"),
    [
        ("mpi", "cfd", 2),
        ("ring", "micro", 2),
        ("mpi", "train", 3),
        ("ring", "train", 3),
        ("gloo", "micro", 3),
        ("nccl", "train", 3),
    ],
)
def test_an_engines_own_thread_counts(engine, kind, cores):
    """Gloo and NCCL have one beside the rank's two, and training over MPI has one that calls MPI."""
    assert cores_per_rank(2, engine, kind) == cores


def test_what_doctor_and_ranks_share_loads_nothing_heavy():
    """The doctor reads it on login nodes, where torch may be missing."""
    program = "import sys, fabricbench.cores, fabricbench.mpi_library; "
    program += "print([n for n in ('torch', 'mpi4py', 'numpy', 'psutil') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"
