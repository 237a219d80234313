"""What every rank does around its workload: bind, meet, prove the world, measure, leave the result."""

import gc
import importlib
import socket
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.fabrics.traffic import Formula, by_node
from fabricbench.mpi_library import is_mpi
from fabricbench.provenance import merge_nodes, merge_ranks, node_provenance, rank_provenance
from fabricbench.workloads.lean import lean_torch
from fabricbench.workloads.place import Seen, look, settle
from fabricbench.workloads.ranks import Ranks, meet
from fabricbench.workloads.region import Region
from fabricbench.workloads.seat import Seat, write_result

MET = "met"
"""A file in the work folder that says the ranks have met: what fails before is the fabric's or launcher's."""

KINDS = {kind: f"fabricbench.workloads.{kind}.run" for kind in ("train", "cfd", "micro")}


def workload(kind: str) -> ModuleType:
    """The module of a workload kind: `preload(cell)`, and `run(cell, ranks, region) -> Outcome`."""
    return importlib.import_module(KINDS[kind])


def preload(cell: Cell) -> None:
    """Import before the fork whatever the ranks will need, once instead of once per rank.

    Garbage is not collected meanwhile: modules are none, and looking through them takes a seventh of the
    time that `import torch` does. Nor later: a look at what all ranks share would copy its pages in each.
    """
    collects = gc.isenabled()
    gc.disable()
    if cell.device == "replay":
        lean_torch()
    try:
        if cell.kind == "train" or not is_mpi(cell.backend["engine"]):
            distributed = importlib.import_module("torch.distributed.distributed_c10d")
            if not is_mpi(cell.backend["engine"]):
                # Looks for this engine in all installed packages, which would take every rank 25 ms.
                distributed.BackendConfig(distributed.Backend(cell.backend["engine"]))
        workload(cell.kind).preload(cell)
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def run_rank(
    cell: Cell, seat: Seat, work: Path, phases: dict[str, float], looked: Seen | None = None
) -> None:
    """Run one rank of a cell; rank 0 leaves result.json in `work`. Raises what the workload raises.

    `phases`: seconds of what came before, and `forked_at`, when that ended (UNIX time). `looked`: what a
    launcher has already seen of this node.
    """
    place = settle(cell, seat, looked or look(cell))
    with meet(cell, seat) as ranks:
        check_hosts(cell, ranks)
        ranks_up = time.time()
        if ranks.rank == 0:
            (work / MET).touch()
        region = Region(ranks, seat, place.refresh_s)
        outcome = workload(cell.kind).run(cell, ranks, region)
        own = rank_provenance(cell, place.binding, ranks.library())
        own |= {"unset": list(seat.unset)} if seat.unset else {}
        seen = region.seen()
        rails = place.rails
        known = node_provenance(place.facts, rails.interfaces, rails.adapters)
        of_node = None if seen is None else (place.declared, known | {"warnings": place.warnings})
        every = ranks.gather((own, seen, of_node))
        if ranks.rank == 0:
            write_result(
                work,
                {
                    "samples": outcome.samples,
                    "facts": outcome.facts,
                    "evidence": _evidence(every)
                    | {"formula": _formula(outcome.traffic, cell, every), "emulation": seat.shaping},
                    "ranks": merge_ranks([provenance for provenance, *_ in every]),
                    "nodes": merge_nodes([of_node[1] for *_, of_node in every if of_node]),
                    "phases_s": {
                        **{name: seconds for name, seconds in phases.items() if name != "forked_at"},
                        "ranks_up": ranks_up - phases["forked_at"],
                        "measured": region.seconds,
                    },
                    "moments": {"ranks_up": ranks_up} | region.moments,
                },
            )


def check_hosts(cell: Cell, ranks: Ranks) -> None:
    """Assert that the ranks sit on as many hosts as the cell says."""
    hosts = ranks.share(sorted(set(ranks.gather(socket.gethostname()))))
    if len(hosts) != cell.nodes:
        raise LaunchError(
            f"the cell asks for {cell.nodes} nodes, its ranks are on {len(hosts)}: {', '.join(hosts)}"
        )


def _evidence(every: list[Any]) -> dict[str, Any]:
    """What the first rank of each node read, by host."""
    nodes = {
        provenance["host"]: (seen, of_node[0]) for provenance, seen, of_node in every if seen is not None
    }
    return {
        "nodes": {host: seen["bytes"] for host, (seen, _) in nodes.items()},
        "baseline": {host: seen["baseline"] for host, (seen, _) in nodes.items()},
        "congestion": {host: seen["congestion"] for host, (seen, _) in nodes.items()},
        "declared": {host: declared for host, (_, declared) in nodes.items()},
        "host": {host: seen["host"] for host, (seen, _) in nodes.items()},
        "rails": {host: declared["counters"] for host, (_, declared) in nodes.items()},
    }


def _formula(traffic: Formula, cell: Cell, every: list[Any]) -> dict[str, Any]:
    """What must have crossed between nodes, by host."""
    hosts = [provenance["host"] for provenance, seen, _ in every if seen is not None]
    crossing = by_node(traffic, cell.ranks_per_node, cell.nodes)
    return {
        "algorithm": traffic.algorithm,
        "nodes": {host: vars(node) for host, node in zip(hosts, crossing, strict=True)},
    }
