"""What every rank does around its workload: bind, meet, prove the world, measure, leave the result."""

import importlib
import socket
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.provenance import merge_ranks, rank_provenance
from fabricbench.workloads.ranks import Ranks, meet
from fabricbench.workloads.region import Region
from fabricbench.workloads.seat import Seat, bind_to_cores, write_result

KINDS = {kind: f"fabricbench.workloads.{kind}.run" for kind in ("train", "cfd", "micro")}


def workload(kind: str) -> ModuleType:
    """The module of a workload kind: `preload(cell)`, and `run(cell, ranks, region) -> Outcome`."""
    return importlib.import_module(KINDS[kind])


def preload(cell: Cell) -> None:
    """Import before the fork whatever the ranks will need, once instead of once per rank."""
    if cell.backend["engine"] != "mpi":
        importlib.import_module("torch.distributed")
    workload(cell.kind).preload(cell)


def run_rank(
    cell: Cell, seat: Seat, work: Path, shaping: dict[str, Any] | None, phases: dict[str, float]
) -> None:
    """Run one rank of a cell; rank 0 leaves result.json in `work`. Raises what the workload raises."""
    cores = bind_to_cores(cell, seat)
    with meet(cell, seat) as ranks:
        check_hosts(cell, ranks)
        ranks_up = time.time()
        region = Region(ranks, seat)
        outcome = workload(cell.kind).run(cell, ranks, region)
        own = rank_provenance(cell, cores, ranks.library())
        every = ranks.gather((own, region.bytes if seat.local_rank == 0 else None))
        if ranks.rank == 0:
            write_result(
                work,
                {
                    "samples": outcome.samples,
                    "facts": outcome.facts,
                    "evidence": {"nodes": _by_node(every), "emulation": shaping},
                    "ranks": merge_ranks([provenance for provenance, _ in every]),
                    "phases_s": {
                        "import": phases["import"],
                        "ranks_up": ranks_up - phases["forked_at"],
                        "measured": region.seconds,
                    },
                },
            )


def check_hosts(cell: Cell, ranks: Ranks) -> None:
    """Assert that the ranks sit on as many hosts as the cell says."""
    hosts = ranks.share(sorted(set(ranks.gather(socket.gethostname()))))
    if len(hosts) != cell.nodes:
        raise LaunchError(
            f"the cell asks for {cell.nodes} nodes, its ranks are on {len(hosts)}: {', '.join(hosts)}"
        )


def _by_node(every: list[tuple[dict[str, Any], Any]]) -> dict[str, Any]:
    return {provenance["host"]: counters for provenance, counters in every if counters is not None}
