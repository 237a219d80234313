"""What is checked before ranks meet."""

import pytest

from fabricbench.errors import LaunchError
from fabricbench.workloads.place import check_names

FACTS = {"host": "n0", "interfaces": {"lo": {}, "eth0": {}, "eth0.100": {}}}


@pytest.mark.parametrize(
    "variables",
    [
        {"GLOO_SOCKET_IFNAME": "eth0"},
        {"GLOO_SOCKET_IFNAME": "eth0,lo"},
        {"NCCL_SOCKET_IFNAME": "=eth0"},
        {"NCCL_SOCKET_IFNAME": "eth"},
        {"NCCL_SOCKET_IFNAME": "^docker"},
        {"OMPI_MCA_btl_tcp_if_include": "10.0.0.0/24"},
        {"SOMETHING_ELSE": "eth9"},
        {},
    ],
)
def test_names_that_are_here_pass(variables):
    """Exact names, lists, NCCL's prefixes and exclusions, Open MPI's subnets."""
    check_names(variables, FACTS)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GLOO_SOCKET_IFNAME", "eth9"),
        ("GLOO_SOCKET_IFNAME", "eth0,eth9"),
        ("NCCL_SOCKET_IFNAME", "=eth9"),
        ("NCCL_SOCKET_IFNAME", "ib"),
        ("FI_TCP_IFACE", "eth9"),
    ],
)
def test_a_name_that_is_not_here_is_one_line(variable, value):
    """Before any library waits for it: the variable, its value, the node and what it has."""
    with pytest.raises(LaunchError, match=f"{variable}={value}: no interface .* on n0, which has lo, eth0"):
        check_names({variable: value}, FACTS)
