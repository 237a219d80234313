"""A rank takes its place: the node is looked at, the fabric found on it, and the rank bound.

All of it before the ranks meet, so that an interface that is missing or down is one clear line and not a
library's time-out.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.fabrics import doctor, evidence, node, selection
from fabricbench.fabrics.counters import REFRESH_S
from fabricbench.workloads.binding import bind
from fabricbench.workloads.seat import Seat


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


def settle(cell: Cell, seat: Seat) -> Place:
    """Look at the node, set what only the node knows into this rank's environment, and bind.

    The first rank of each node also checks the fabric and that the other nodes are reached over it.
    Raises LaunchError with one line per problem.
    """
    facts = node.probe(ask_names=False)
    rails = node.resolve(cell.fabric, facts)
    if seat.local_rank == 0:
        peers = {host: own for host, own in seat.peers.items() if host != facts["host"]}
        problems = doctor.preflight(cell.fabric, facts, peers)
        if problems:
            raise LaunchError("; ".join(f"{found.text}: {found.mend}" for found in problems))
    os.environ.update(selection.on_node(cell.environment, rails))
    binding = bind(cell, seat, facts, rails)
    path = selection.path(cell.fabric, cell.backend)
    segments = None if seat.shaping is None else seat.shaping["gso_max_segs"]
    declared = evidence.declare(cell.fabric, path, facts, rails, segments)
    drivers = [facts["interfaces"].get(name, {}).get("driver") for name in rails.interfaces]
    return Place(
        facts, rails, binding, declared, max((REFRESH_S.get(driver, 0.0) for driver in drivers), default=0.0)
    )
