"""A rank takes its place: the node is looked at, the fabric found on it, and the rank bound.

All of it before the ranks meet, so that an interface that is missing or down is one clear line and not a
library's time-out.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.fabrics import doctor, evidence, node, selection
from fabricbench.fabrics.counters import REFRESH_S
from fabricbench.fabrics.findings import Finding
from fabricbench.workloads.binding import bind
from fabricbench.workloads.seat import Seat

NAMING = (
    *("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "FI_TCP_IFACE", "FI_VERBS_IFACE"),
    "OMPI_MCA_btl_tcp_if_include",
)
"""Variables that name interfaces; a library that finds none of that name says so late, or not at all."""


@dataclass(frozen=True)
class Seen:
    """What a look at a node gives: its facts, and the fabric's rails there."""

    facts: dict[str, Any]
    rails: node.Rails
    found: list[Finding] | None = None
    """Problems and warnings, where the node has been examined already."""


@dataclass(frozen=True)
class Place:
    """Where a rank sits: its node's facts, the fabric's rails there, and what it was bound to."""

    facts: Mapping[str, Any]
    rails: node.Rails
    binding: dict[str, Any]
    declared: dict[str, Any]
    """Which counters of this node must carry the bytes (evidence.declare)."""
    refresh_s: float
    """How late these counters may be."""
    warnings: list[str]
    """What the preflight found and the measurement may go on with, by the first rank of a node."""


def look(cell: Cell) -> Seen:
    """Look at this node and find the cell's fabric on it; LaunchError where it isn't there."""
    facts = node.probe(ask_names=False)
    return Seen(facts, node.resolve(cell.fabric, facts))


def examine(cell: Cell, seen: Seen, peers: Mapping[str, Sequence[str]]) -> Seen:
    """The same with what the preflight finds: the fabric here, and whether `peers` are reached over it.

    `peers`: addresses on the fabric by host name, in which this node's own may be.
    """
    others = {host: own for host, own in peers.items() if host != seen.facts["host"]}
    return replace(seen, found=doctor.preflight(cell.fabric, seen.facts, others))


def settle(cell: Cell, seat: Seat, seen: Seen) -> Place:
    """Set what only the node knows into this rank's environment, and bind.

    The first rank of each node also checks the fabric and that the other nodes are reached over it, unless
    that has been done.
    Raises LaunchError with one line per problem.
    """
    facts, rails = seen.facts, seen.rails
    warnings: list[str] = []
    if seat.local_rank == 0:
        found = seen.found if seen.found is not None else examine(cell, seen, seat.peers).found or []
        if problems := [each for each in found if each.level == "problem"]:
            raise LaunchError("; ".join(f"{each.text}: {each.mend}" for each in problems))
        warnings = [f"{each.check}: {each.text}" for each in found]
    variables = selection.on_node(cell.environment, rails)
    check_names(variables, facts)
    os.environ.update(variables)
    binding = bind(cell, seat, facts, rails)
    path = selection.path(cell.fabric, cell.backend)
    segments = None if seat.shaping is None else seat.shaping["gso_max_segs"]
    declared = evidence.declare(cell.fabric, path, facts, rails, segments)
    drivers = [facts["interfaces"].get(name, {}).get("driver") for name in rails.interfaces]
    refresh_s = max((REFRESH_S.get(driver, 0.0) for driver in drivers), default=0.0)
    return Place(facts, rails, binding, declared, refresh_s, warnings)


def check_names(variables: Mapping[str, str], facts: Mapping[str, Any]) -> None:
    """Raise LaunchError when a variable, as the user may have set it, names an interface that isn't here.

    NCCL's names are prefixes unless `=` comes first, and its `^` excludes; Open MPI also takes subnets.
    """
    known = facts["interfaces"]
    for variable in NAMING:
        value = variables.get(variable, "")
        exact = variable != "NCCL_SOCKET_IFNAME" or value.startswith("=")
        for name in [] if value.startswith("^") else value.removeprefix("=").split(","):
            if not name or "/" in name or name in known:
                continue
            if exact or not any(own.startswith(name) for own in known):
                raise LaunchError(
                    f"{variable}={value}: no interface {name!r} on {facts['host']}, which has "
                    f"{', '.join(known)}; correct it in the config's environment"
                )
