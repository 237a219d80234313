"""Whether this host suits as the place of a campaign in one allocation: all its ranks' launchers run here."""

import socket
from collections.abc import Collection, Mapping

from fabricbench.nodelist import expand_nodelist

_MEND = (
    "call snakemake on one of the allocation's nodes: in a script for sbatch, or in a shell by `srun --pty`"
)


def why_no_meeting(bootstrap: str | None, interfaces: Collection[str], host: str) -> str | None:
    """Why ranks can't meet their launcher on `host` over the interface `bootstrap`; None if they can."""
    if bootstrap is None or bootstrap in interfaces:
        return None
    return (
        f"cluster.bootstrap: {bootstrap}: no such interface on {host}, which has {', '.join(interfaces)}; "
        f"{_MEND}, or name one that this host has as well"
    )


def interfaces_here() -> list[str]:
    """The names of this host's interfaces."""
    return [name for _, name in socket.if_nameindex()]


def warnings(environment: Mapping[str, str], host: str) -> list[str]:
    """A line where `host` is none of the allocation's nodes; nothing otherwise."""
    given = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST") or ""
    try:
        names = {name.partition(".")[0] for name in expand_nodelist(given)}
    except ValueError:
        return []
    if not names or host.partition(".")[0] in names:
        return []
    return [
        f"cluster.kind: allocation: {host} is none of the allocation's nodes ({given}), which must all reach "
        f"it: if cells fail to meet, {_MEND}"
    ]
