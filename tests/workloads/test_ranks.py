"""Ranks over MPI, with a library that is made up."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from cells import a_backend, a_cell

from fabricbench.errors import LaunchError
from fabricbench.workloads.ranks import MpiRanks
from fabricbench.workloads.seat import Seat

CRAY = "MPI VERSION    : CRAY MPICH version 8.1.28.4 (ANL base 3.4a2)\n"
SEAT = Seat(rank=0, size=2, node=0, local_rank=0, store="")


@pytest.fixture
def loads(monkeypatch):
    """Let mpi4py load a library that says this of itself."""

    def says(version: str) -> None:
        world = SimpleNamespace(Get_rank=lambda: 0, Get_size=lambda: 2, allgather=lambda item: [item] * 2)
        fake = ModuleType("mpi4py")
        fake.__version__ = "4.1"
        fake.rc = SimpleNamespace()
        fake.MPI = SimpleNamespace(COMM_WORLD=world, Get_library_version=lambda: version)
        monkeypatch.setitem(sys.modules, "mpi4py", fake)

    return says


@pytest.mark.parametrize(
    ("library", "version"),
    [("mpich", CRAY), ("openmpi5", "MPICH Version: 5.0.2\n"), ("mpich", "Intel(R) MPI Library 2021.12")],
)
def test_a_library_that_is_another_is_refused(loads, library, version):
    """Also where the one is made from the other; the line names both, and the mend."""
    loads(version)
    words = rf"^backends.mpi.library: {library}, and mpi4py loads {version[:5]}.*: name that library, or use"
    with pytest.raises(LaunchError, match=words.replace("(", r"\(").replace(")", r"\)")):
        MpiRanks(a_cell(backend=a_backend("mpi", library=library)), SEAT)


def test_the_library_that_the_backend_names_is_taken(loads):
    """By what it says, blanks and all."""
    loads(CRAY)
    ranks = MpiRanks(a_cell(backend=a_backend("mpi", library="cray-mpich")), SEAT)
    assert (ranks.rank, ranks.size) == (0, 2)
