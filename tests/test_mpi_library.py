"""MPI libraries by their own words."""

import pytest

from fabricbench.mpi_library import which_mpi


@pytest.mark.parametrize(
    ("version", "library"),
    [
        ("MPICH Version:      5.0.2\nMPICH Release date: x", "mpich"),
        ("Open MPI v5.0.3, package: Debian", "openmpi5"),
        ("Open MPI v4.1.5, package", "openmpi4"),
        ("Intel(R) MPI Library 2021.12 for Linux* OS", "intel-mpi"),
        ("MPI VERSION    : CRAY MPICH version 8.1.28.4 (ANL base 3.4a2)", "cray-mpich"),
        ("MVAPICH2 Version : 2.3.7", None),
    ],
)
def test_a_library_is_known_by_what_it_says(version, library):
    """Those that are made from MPICH aren't taken for it."""
    assert which_mpi(version) == library
