"""The grid: every cell that a campaign measures, and every point that it can't.

The only place that knows what makes a cell another cell, and what is unsupported.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from fabricbench.campaign import Backend, Campaign, Cluster, Fabric, Workload
from fabricbench.cell import Cell, cell_id
from fabricbench.code_key import code_key as package_code_key
from fabricbench.cores import cores_per_rank
from fabricbench.errors import ConfigError, FabricbenchError, LaunchError
from fabricbench.fabrics.selection import default_transport, environment, fill, why_unsupported
from fabricbench.launch.nodes import pick
from fabricbench.mpi_library import is_mpi
from fabricbench.record import write_atomically
from fabricbench.variants import axis_values
from fabricbench.workloads.cfd.mesh import process_grid

SCHEMA = 1

_MOST_REASONS = 3

ENGINES = {
    "train": ("gloo", "nccl", "mpi", "ring"),
    "cfd": ("mpi",),
    "micro": ("gloo", "mpi", "nccl", "ring"),
}
"""The engines that each kind of workload runs on."""
_WHY_NOT = {("cfd", "ring"): ": it sends halos, and reduces one number, so a ring would be no other engine"}


@dataclass(frozen=True)
class GridCell:
    """A cell with what is needed to run it."""

    cell: Cell
    code_key: str
    timeout_s: float

    @cached_property
    def id(self) -> str:
        """`<workload>/<slug>-<digest8>`."""
        return cell_id(self.cell, self.code_key)

    def path(self, results: Path, campaign: str) -> Path:
        """Where its record belongs, below the folder of all results."""
        return results / campaign / f"{self.id}.json"


@dataclass(frozen=True)
class Unsupported:
    """A point of the grid that can't be measured, whatever the repeat and the variant of the workload."""

    workload: str
    fabric: str
    backend: str
    gpus: int
    reason: str


@dataclass(frozen=True)
class Grid:
    """The campaign as plain JSON, its cells in the order of running, and what is unsupported."""

    campaign: Mapping[str, Any]
    cells: tuple[GridCell, ...]
    unsupported: tuple[Unsupported, ...]


class _Point(NamedTuple):
    """One point of the grid."""

    repeat: int
    workload: str
    gpus: int
    backend: str
    fabric: str
    placement: str
    """packed or spread; empty without Slurm."""
    params: Mapping[str, Any]
    """One variant of the workload's parameters."""


def expand(campaign: Campaign, code_key: Callable[[str, str], str] = package_code_key) -> Grid:
    """The grid of a campaign: blocks (repeats) first, in each the fabrics and placements next to each other.

    Which group of them comes first in a block, and which in a group, is drawn by the seed. Variants of a
    workload that have backend and GPU count in common follow each other, in an order that is drawn too.
    `code_key` gives the key of (workload kind, launcher). Raises ConfigError when no cell can be measured.
    """
    cells = []
    unsupported: dict[Unsupported, None] = {}
    for point in sorted(_points(campaign), key=partial(_place, campaign)):
        if reason := _why_not(campaign, point):
            row = Unsupported(point.workload, point.fabric, point.backend, point.gpus, reason)
            unsupported[row] = None
        else:
            workload = campaign.workloads[point.workload]
            key = code_key(workload.kind, campaign.cluster.kind)
            cells.append(GridCell(_cell(campaign, point), key, workload.timeout_s))
    rows = sorted(unsupported, key=lambda row: (row.workload, row.gpus, row.backend, row.fabric))
    if not cells:
        raise ConfigError(_why_nothing(rows))
    return Grid(campaign.to_json(), tuple(cells), tuple(rows))


def selected(
    campaign: Campaign, workload: Workload, fabric: str, backend: str
) -> tuple[dict[str, str], list[str]]:
    """(the variables of this workload's cells on a fabric and backend, those that the user took out).

    The table's, then the campaign's, fabric's, backend's and workload's own: the later wins. Raises
    ConfigError where there is no way.
    """
    network, _ = pair(campaign, fabric, backend)
    variables: dict[str, str | None] = dict(of_table(campaign, workload, fabric, backend))
    own = (campaign.environment, campaign.fabrics[fabric].environment)
    for level in (*own, campaign.backends[backend].environment, workload.environment):
        variables |= level
    kept = {name: value for name, value in variables.items() if value is not None}
    return fill(kept, network), sorted(variables.keys() - kept.keys())


def of_table(campaign: Campaign, workload: Workload, fabric: str, backend: str) -> dict[str, str]:
    """The variables that the table has for a fabric and backend, before the user's own."""
    return environment(*pair(campaign, fabric, backend), workload.device)


def why_not_selected(campaign: Campaign, workload: Workload, fabric: str, backend: str) -> str | None:
    """Why a workload can't run on a fabric and backend, at whatever GPU count; None when it can."""
    engines = ENGINES[workload.kind]
    if campaign.backends[backend].engine not in engines:
        why = _WHY_NOT.get((workload.kind, campaign.backends[backend].engine), "")
        return f"{workload.kind} runs on {' or '.join(engines)}{why}"
    return why_unsupported(*pair(campaign, fabric, backend), workload.device)


def pair(campaign: Campaign, fabric: str, backend: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A fabric and a backend as a cell has them."""
    network = campaign.fabrics[fabric]
    return _fabric(network, campaign.cluster.scale.time), _backend(campaign.backends[backend], network.kind)


def write_grid(grid: Grid, path: Path) -> bool:
    """Write grid.json; returns False, and leaves the file alone, when it holds this grid already."""
    plain = {
        "schema": SCHEMA,
        "campaign": grid.campaign,
        "cells": [
            {"id": cell.id, "cell": vars(cell.cell), "code_key": cell.code_key, "timeout_s": cell.timeout_s}
            for cell in grid.cells
        ],
        "unsupported": [vars(row) for row in grid.unsupported],
    }
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n"
    if path.is_file() and path.read_bytes() == text.encode():
        return False
    write_atomically(path, text)
    return True


def read_grid(path: Path) -> Grid:
    """The inverse of `write_grid`; raises FabricbenchError when the file isn't such a grid."""
    return read_cells(path)[0]


def read_cells(path: Path) -> tuple[Grid, dict[str, GridCell]]:
    """The same, and its cells by the ids that the file gives them, which takes no time to make again."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        if plain["schema"] != SCHEMA:
            raise FabricbenchError(f"{path}: grid schema {plain['schema']!r}, this version reads {SCHEMA}")
        cells = {
            str(c["id"]): GridCell(Cell.from_json(c["cell"]), c["code_key"], c["timeout_s"])
            for c in plain["cells"]
        }
        unsupported = (Unsupported(**row) for row in plain["unsupported"])
        return Grid(plain["campaign"], tuple(cells.values()), tuple(unsupported)), cells
    except OSError as error:
        raise FabricbenchError(f"{path}: can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise FabricbenchError(f"{path}: is no grid; remove it and call Snakemake again") from None


def _points(campaign: Campaign) -> Iterator[_Point]:
    """Every point that `only` and `except`, of the campaign and of its workload, leave in."""
    for workload in campaign.workloads.values():
        repeats = range(1, workload.repeats + 1)
        for gpus in workload.gpus:
            placements = _placements(campaign.cluster, _placement(workload, gpus)[0])
            for axes in product(repeats, workload.backends, workload.fabrics, placements, workload.variants):
                repeat, backend, fabric, placement, params = axes
                point = _Point(repeat, workload.name, gpus, backend, fabric, placement, params)
                if _left_in(campaign, point) and _left_in(workload, point):
                    yield point


def _placements(cluster: Cluster, nodes: int) -> tuple[str, ...]:
    """The ways to choose so many nodes; where both are the same nodes, they are called packed."""
    if not cluster.by_slurm:
        return ("",)
    known = cluster.nodelist or tuple(map(str, range(cluster.nodes)))  # of an allocation that fits
    same = pick(known, nodes, "packed") == pick(known, nodes, "spread")
    return ("packed",) if same else cluster.placement


def _place(campaign: Campaign, point: _Point) -> tuple[int, bytes, bytes, bytes]:
    """Where a point stands in the order of running: a draw of its own, so that one more moves no other.

    A variant is drawn by all its values, those that are no lists too, so that a value more moves none either.
    """
    group = f"{campaign.seed} {point.repeat} {point.workload} {point.gpus} {point.backend}"
    values = axis_values(campaign.workloads[point.workload].kind, point.params)
    spread = " spread" if point.placement == "spread" else ""
    return point.repeat, _draw(group), _draw(f"{group} {values}"), _draw(f"{group} {point.fabric}{spread}")


def _draw(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _left_in(rules: Campaign | Workload, point: _Point) -> bool:
    at = point._asdict()
    if any(matcher.matches(**at) for matcher in rules.leave_out):
        return False
    return not rules.only or any(matcher.matches(**at) for matcher in rules.only)


def _why_nothing(unsupported: list[Unsupported]) -> str:
    """Why a campaign has no cell, in at most three lines."""
    if not unsupported:
        return "config: only, except: leave no cell to measure; loosen them"
    lines = {
        row.reason: f"config: workloads.{row.workload}: can't run on {row.backend} over {row.fabric} with "
        f"{row.gpus} GPUs: {row.reason}"
        for row in reversed(unsupported)
    }
    first = [*lines.values()][::-1]
    if len(first) > _MOST_REASONS:
        rest = len(first) - _MOST_REASONS + 1
        first = [*first[: _MOST_REASONS - 1], f"config: no cell can run, for {rest} more reasons like these"]
    return "\n".join(first)


def _placement(workload: Workload, gpus: int) -> tuple[int, int]:
    """(nodes, ranks per node) for this many ranks; nodes are filled."""
    ranks_per_node = min(workload.ranks_per_node, gpus)
    return -(-gpus // ranks_per_node), ranks_per_node


def _why_not(campaign: Campaign, point: _Point) -> str | None:
    """Why a point can't be measured; None when it can."""
    workload = campaign.workloads[point.workload]
    nodes, ranks_per_node = _placement(workload, point.gpus)
    if reason := why_not_selected(campaign, workload, point.fabric, point.backend):
        return reason
    if (workload.kind, workload.device, campaign.backends[point.backend].engine) == ("micro", "cuda", "gloo"):
        return "gloo sends point to point from the host's memory only; give it a workload with device: cpu"
    if workload.kind == "micro" and point.gpus == 1:
        return "a message needs two ranks"
    if point.gpus % ranks_per_node:
        return f"{point.gpus} ranks don't fill nodes of {ranks_per_node}"
    if nodes > campaign.cluster.nodes:
        return f"needs {nodes} nodes, the cluster has {campaign.cluster.nodes}"
    if campaign.cluster.nodelist and nodes > (left := len(campaign.cluster.nodelist)):
        return f"needs {nodes} nodes, cluster.nodelist leaves {left}"
    if workload.kind == "cfd":
        try:
            process_grid(point.params["cells"], point.gpus, point.params["process_grid"])
        except LaunchError as error:
            return str(error)
    return None


def _cell(campaign: Campaign, point: _Point) -> Cell:
    workload = campaign.workloads[point.workload]
    fabric, backend = pair(campaign, point.fabric, point.backend)
    variables, unset = selected(campaign, workload, point.fabric, point.backend)
    nodes, ranks_per_node = _placement(workload, point.gpus)
    return Cell(
        workload=workload.name,
        kind=workload.kind,
        params=point.params,
        fabric=fabric,
        backend=backend,
        environment=variables,
        unset=unset,
        launcher=campaign.cluster.kind,
        binding=campaign.cluster.binding,
        gpus=point.gpus,
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        threads_per_rank=workload.threads_per_rank,
        device=workload.device,
        scale=vars(campaign.cluster.scale),
        repeat=point.repeat,
        site=_site(campaign.cluster, workload, backend["engine"], point.placement),
    )


def _site(cluster: Cluster, workload: Workload, engine: str, placement: str) -> dict[str, Any]:
    """What may choose other machines or another stack under Slurm; not who pays, nor how long it may take."""
    if not cluster.by_slurm:
        return {}
    cpus = cluster.cpus_per_rank or cores_per_rank(workload.threads_per_rank, engine, workload.kind)
    site: dict[str, Any] = {"placement": placement, "cpus_per_rank": cpus}
    given: dict[str, Any] = {"modules": list(cluster.modules), "container": cluster.container}
    if cluster.kind == "slurm":
        site["exclusive"] = cluster.slurm.exclusive
        given |= {key: getattr(cluster.slurm, key) for key in ("partition", "constraint", "switches")}
        if workload.device == "cuda" and cluster.slurm.gpus_by != "none":
            given["gpu_type"] = cluster.slurm.gpu_type
    return site | {key: value for key, value in given.items() if value}


def _backend(backend: Backend, kind: str) -> dict[str, Any]:
    """A backend as a cell has it: MPI's transport, if none was chosen, is the fabric's."""
    resolved = {"name": backend.name, "engine": backend.engine, **backend.options}
    if is_mpi(backend.engine):
        resolved.setdefault("transport", default_transport(kind, resolved["library"]))
    return resolved


def _fabric(fabric: Fabric, time_scale: float) -> dict[str, Any]:
    """A fabric as a cell has it: delay and jitter as shaped here, which is times the time scale."""
    return {
        "name": fabric.name,
        **fabric.definition,
        "delay_s": fabric.delay_s * time_scale,
        "jitter_s": fabric.jitter_s * time_scale,
    }
