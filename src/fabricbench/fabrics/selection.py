"""Which variables make an engine use a fabric: a table, one row per kind of fabric and engine.

A row gives the environment (with `{interface}` where the fabric's interface goes, in the form that this
library takes), or the reason why this engine can't use this kind of fabric. A new kind is new rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fabricbench.errors import ConfigError


@dataclass(frozen=True)
class Row:
    """How one engine is made to use one kind of fabric, or why it can't be."""

    environment: Mapping[str, str] = field(default_factory=dict)
    unsupported: str | None = None


# Gloo takes one plain name and rejects patterns.
_GLOO = Row({"GLOO_SOCKET_IFNAME": "{interface}"})
# MPICH over libfabric's TCP provider.
_MPICH_TCP = Row({"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "{interface}"})
# NCCL takes prefixes: '=' makes the name exact. NCCL_NET fails where it can't be had, instead of falling
# back; a plugin would ignore NCCL_IB_DISABLE.
_NCCL_TCP = Row(
    {
        "NCCL_NET": "Socket",
        "NCCL_NET_PLUGIN": "none",
        "NCCL_SOCKET_IFNAME": "={interface}",
        "NCCL_IB_DISABLE": "1",
    }
)
_NCCL_EMULATED = Row(
    unsupported="nccl moves data between the GPUs of one machine past the network, so not over emulated links"
)

TABLE: Mapping[tuple[str, str], Row] = {
    ("emulated", "gloo"): _GLOO,
    ("emulated", "mpi"): _MPICH_TCP,
    ("emulated", "nccl"): _NCCL_EMULATED,
    ("host", "gloo"): _GLOO,
    ("host", "mpi"): _MPICH_TCP,
    ("host", "nccl"): _NCCL_TCP,
}


def environment(fabric: Mapping[str, Any], engine: str) -> dict[str, str]:
    """The variables that make `engine` use `fabric` (with its kind and interface).

    Raises ConfigError, with the reason, where `why_unsupported` gives one.
    """
    if reason := why_unsupported(fabric["kind"], engine):
        raise ConfigError(f"fabric {fabric.get('name', fabric['kind'])} on {engine}: {reason}")
    row = TABLE[fabric["kind"], engine]
    return {name: value.format(interface=fabric["interface"]) for name, value in row.environment.items()}


def why_unsupported(kind: str, engine: str) -> str | None:
    """Why `engine` can't use a fabric of this kind; None when it can."""
    row = TABLE.get((kind, engine))
    return f"no way is known for {engine} to use a fabric of kind {kind}" if row is None else row.unsupported
