"""The environment that ranks start in."""

import pytest
from cells import a_cell

from fabricbench.launch.asking import asking
from fabricbench.launch.base import cell_environment


def test_inherited_choices_of_a_network_are_unset_and_named():
    """What a shell carries for another network doesn't reach the ranks; the record can say what it was."""
    shell = {
        "NCCL_SOCKET_IFNAME": "ib0",
        "UCX_TLS": "rc",
        "OMPI_MCA_btl": "tcp",
        "PMI_RANK": "3",
        "HFI_UNIT": "1",
        "HOME": "/h",
    }
    environment, unset = cell_environment(a_cell(), shell)
    assert unset == ["HFI_UNIT", "NCCL_SOCKET_IFNAME", "OMPI_MCA_btl", "PMI_RANK", "UCX_TLS"]
    assert not set(unset) & set(environment)
    assert environment["HOME"] == "/h"


def test_the_cell_s_own_variables_win():
    """The fabric's variables are set whatever was inherited."""
    environment, _ = cell_environment(a_cell(), {"FI_TCP_IFACE": "docker0"})
    assert environment["FI_TCP_IFACE"] == "eth0"


def test_thread_counts_are_set():
    """Every library computes with the cell's number of threads."""
    environment, _ = cell_environment(a_cell(threads_per_rank=3), {"OMP_NUM_THREADS": "40"})
    assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "3"


def test_a_variable_that_the_user_removed_is_unset():
    """`NAME: null` in the config takes it away, inherited or not, and what was inherited is recorded."""
    cell = a_cell(unset=["MY_SETTING", "MPIR_CVAR_DEBUG_SUMMARY"])
    environment, unset = cell_environment(cell, {"MY_SETTING": "1", "HOME": "/h"})
    assert unset == ["MY_SETTING"]
    assert not {"MY_SETTING", "MPIR_CVAR_DEBUG_SUMMARY"} & set(environment)


@pytest.mark.parametrize(
    ("backend", "variables", "asked"),
    [
        ({"engine": "nccl"}, {}, "NCCL_DEBUG"),
        ({"engine": "mpi"}, {"FI_PROVIDER": "tcp"}, "MPIR_CVAR_DEBUG_SUMMARY"),
        ({"engine": "ring"}, {}, "MPIR_CVAR_DEBUG_SUMMARY"),
        ({"engine": "mpi", "library": "intel-mpi"}, {}, "I_MPI_DEBUG"),
        ({"engine": "mpi", "library": "cray-mpich"}, {}, "MPICH_OFI_VERBOSE"),
        ({"engine": "mpi", "library": "openmpi5"}, {"UCX_TLS": "rc"}, "UCX_LOG_LEVEL"),
        ({"engine": "mpi"}, {"FI_PROVIDER": "psm2"}, "PSM2_IDENTIFY"),
        ({"engine": "nccl"}, {"FI_PROVIDER": "cxi"}, "FI_LOG_LEVEL"),
    ],
)
def test_libraries_are_asked_which_network_they_took(backend, variables, asked):
    """Each in its own way, unless the cell already says how much it may tell."""
    assert asked in asking(backend, variables)
    assert asked not in asking(backend, variables | {asked: "0"})


def test_where_a_library_lies_is_no_choice_of_a_network():
    """What a module sets for the library to be found stays."""
    places = {"I_MPI_ROOT": "/opt/impi", "FI_PROVIDER_PATH": "/opt/impi/prov"}
    environment, unset = cell_environment(a_cell(), places | {"I_MPI_FABRICS": "ofi"})
    assert places.items() <= environment.items()
    assert unset == ["I_MPI_FABRICS"]
