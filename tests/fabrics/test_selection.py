"""The selection table, row by row."""

import pytest

from fabricbench.errors import ConfigError
from fabricbench.fabrics.selection import TABLE, environment, why_unsupported

MPICH = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0.100"}
NCCL = {
    "NCCL_NET": "Socket",
    "NCCL_NET_PLUGIN": "none",
    "NCCL_SOCKET_IFNAME": "=eth0.100",
    "NCCL_IB_DISABLE": "1",
}


@pytest.mark.parametrize(
    ("kind", "engine", "variables"),
    [
        ("emulated", "gloo", {"GLOO_SOCKET_IFNAME": "eth0.100"}),
        ("emulated", "mpi", MPICH),
        ("host", "gloo", {"GLOO_SOCKET_IFNAME": "eth0.100"}),
        ("host", "mpi", MPICH),
        ("host", "nccl", NCCL),
    ],
)
def test_row_gives_each_library_its_form(kind: str, engine: str, variables: dict[str, str]) -> None:
    """Each engine gets the interface in the form that it takes, exact for those that match prefixes."""
    assert why_unsupported(kind, engine) is None
    assert environment({"kind": kind, "interface": "eth0.100"}, engine) == variables


@pytest.mark.parametrize(
    ("kind", "engine", "reason"),
    [
        ("emulated", "nccl", "nccl moves data between the GPUs of one machine past the network"),
        ("token-ring", "gloo", "no way is known for gloo to use a fabric of kind token-ring"),
    ],
)
def test_unsupported_has_a_reason(kind: str, engine: str, reason: str) -> None:
    """What can't be selected says why, also when its environment is asked for."""
    assert str(why_unsupported(kind, engine)).startswith(reason)
    with pytest.raises(ConfigError, match=reason):
        environment({"kind": kind, "interface": "eth0"}, engine)


@pytest.mark.parametrize("row", TABLE, ids="-".join)
def test_row_is_either_variables_or_a_reason(row: tuple[str, str]) -> None:
    """Every row has variables, or a reason, and never both."""
    assert bool(TABLE[row].environment) != bool(TABLE[row].unsupported)
