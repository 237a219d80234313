"""The environment that ranks start in."""

from cells import a_cell

from fabricbench.launch.base import cell_environment


def test_inherited_choices_of_a_network_are_unset_and_named():
    """What a shell carries for another network doesn't reach the ranks; the record can say what it was."""
    shell = {
        "NCCL_SOCKET_IFNAME": "ib0",
        "UCX_TLS": "rc",
        "OMPI_MCA_btl": "tcp",
        "PMI_RANK": "3",
        "HOME": "/h",
    }
    environment, unset = cell_environment(a_cell(), shell)
    assert unset == ["NCCL_SOCKET_IFNAME", "OMPI_MCA_btl", "PMI_RANK", "UCX_TLS"]
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
