"""What a call would do: cells done and missing, the time and nodes they take, and files to tidy up.

`results` is everywhere the folder of all results: a record is `<results>/<campaign>/<workload>/….json`.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from fabricbench.analysis.names import natural
from fabricbench.campaign import Cluster
from fabricbench.cell import Cell
from fabricbench.errors import RecordError
from fabricbench.grid import Grid, GridCell, Unsupported
from fabricbench.record import Record, failure_path, read_record, write_record
from fabricbench.slurm_job import minutes
from fabricbench.variants import Labels, Values, axis_values

UNREADABLE = ".unreadable"
DONE, MISSING, IS_UNREADABLE = "done", "missing", "unreadable"

_OVERHEAD_S = 4.0
"""What a cell takes beside its measured region: start, imports, namespaces."""
_UNMEASURED = 2
"""Steps that training makes before each of its two extra series."""
_UNKNOWN_S = 10.0
"""Taken for a cell whose parameters don't say how long it takes."""
_RECORD_FILE = re.compile(rf".+-[0-9a-f]{{8}}(\.failed)?\.json({re.escape(UNREADABLE)})?")

Alike = tuple[str, int, Values]


@dataclass(frozen=True, kw_only=True)
class CellPlan:
    """One cell of the grid and how it stands."""

    cell: GridCell
    state: str
    """done, missing, unreadable, or the failure's status: failed, timeout, mislabelled."""
    reason: str
    """Why it failed (also if that is accepted) or can't be read, in one line; empty otherwise."""
    seconds: float
    """How long it took, or is estimated to take."""
    measured: bool
    """Whether `seconds` comes from a record (of this cell, or of its workload, variant and GPU count)."""

    gpus_held: int
    """GPUs that nobody else can use meanwhile."""
    most_s: float
    """When it is stopped at the latest: its time-out, or the time limit of its job."""

    @property
    def node_hours(self) -> float:
        """Nodes times hours."""
        return self.cell.cell.nodes * self.seconds / 3600

    @property
    def gpu_hours(self) -> float:
        """GPUs held times hours."""
        return self.gpus_held * self.seconds / 3600

    @property
    def most_node_hours(self) -> float:
        """Nodes times the hours until it is stopped."""
        return self.cell.cell.nodes * self.most_s / 3600


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a campaign stands."""

    campaign: str
    cells: tuple[CellPlan, ...]
    stale: tuple[Path, ...]
    """Record files that the grid doesn't name (any more)."""
    unsupported: tuple[Unsupported, ...]
    by_slurm: bool = False
    """Whether node-hours are somebody's account."""


def plan(grid: Grid, results: Path) -> Plan:
    """How every cell of a grid stands, from the files below `results`."""
    campaign, cluster = grid.campaign["name"], Cluster.from_json(grid.campaign["cluster"])
    durations: dict[str, float] = {}
    alike: dict[Alike, list[float]] = {}
    standing = []
    for cell in grid.cells:
        state, reason, record = _state(cell.path(results, campaign))
        if record is not None and state == DONE and (seconds := _duration(record)) is not None:
            durations[cell.id] = seconds
            alike.setdefault(_alike(cell.cell), []).append(seconds)
        standing.append((cell, state, reason))
    means = {key: sum(values) / len(values) for key, values in alike.items()}
    cells = []
    for cell, state, reason in standing:
        known = durations.get(cell.id, means.get(_alike(cell.cell)))
        seconds = estimate(cell.cell) if known is None else known
        cells.append(
            CellPlan(
                cell=cell,
                state=state,
                reason=reason,
                seconds=seconds,
                measured=known is not None,
                gpus_held=_gpus_held(cell.cell, cluster),
                most_s=_most_s(cell, cluster),
            )
        )
    stale = _stale(grid, results / campaign)
    return Plan(
        campaign=campaign,
        cells=tuple(cells),
        stale=stale,
        unsupported=grid.unsupported,
        by_slurm=cluster.by_slurm,
    )


def _alike(cell: Cell) -> Alike:
    """What cells have in common that take about the same time."""
    return cell.workload, cell.gpus, axis_values(cell.kind, cell.params)


def _gpus_held(cell: Cell, cluster: Cluster) -> int:
    """All of its nodes where it has these to itself; otherwise those that it computes on."""
    if cluster.kind == "allocation" or (cluster.kind == "slurm" and cluster.slurm.exclusive):
        return cell.nodes * cluster.gpus_per_node
    return cell.gpus if cell.device == "cuda" else 0


def _most_s(cell: GridCell, cluster: Cluster) -> float:
    """When a cell is stopped at the latest."""
    return 60.0 * minutes(cluster, cell.timeout_s) if cluster.kind == "slurm" else cell.timeout_s


def estimate(cell: Cell) -> float:
    """Seconds that a cell takes by its parameters, where these say it; a guess otherwise."""
    params = cell.params
    if cell.device == "replay":
        # At least so many steps; a noisy cell makes more, up to its budget.
        step_s = params["batch"] / params["profile"]["images_per_s"] * cell.scale["time"]
        extra = 2 * (params["extra_steps"] + _UNMEASURED) if cell.gpus > 1 else 0
        return float((params["warmup"] + params["steps"] + extra) * step_s + _OVERHEAD_S)
    if cell.kind == "micro" and cell.fabric["link_bit_s"]:
        round_trip_s = 2 * 8 * sum(params["sizes"]) / cell.fabric["link_bit_s"]
        rounds = (params["warmup"] + params["iterations"]) * len(params["operations"])
        return float(rounds * round_trip_s + _OVERHEAD_S)
    return _UNKNOWN_S


def render_plan(plan: Plan) -> str:
    """The plan as text for a terminal."""
    lines = [f"campaign {plan.campaign}: {_count(len(plan.cells), 'cell')}", ""]
    lines += _table(plan)
    todo = [cell for cell in plan.cells if cell.state != DONE]
    lines += ["", f"to run: {_cost(todo, plan.by_slurm)}"]
    troubled = [cell for cell in plan.cells if cell.reason and cell.state != DONE]
    accepted = [cell for cell in plan.cells if cell.reason and cell.state == DONE]
    if troubled:
        lines += ["", "failed or unreadable (run again at the next call):"]
        lines += [f"  {cell.cell.id}: {cell.state}: {cell.reason}" for cell in troubled]
    if accepted:
        lines += ["", "accepted failures (delete a cell's record to try it again):"]
        lines += [f"  {cell.cell.id}: {cell.reason}" for cell in accepted]
    if plan.unsupported:
        lines += ["", "unsupported (never run):"]
        lines += [f"  {_names(row)}: {row.reason}" for row in plan.unsupported]
    if plan.stale:
        lines += [
            "",
            f"stale ({_count(len(plan.stale), 'file')} that no cell of the configuration needs):",
        ]
        lines += [f"  {path}" for path in plan.stale]
    return "\n".join(lines) + "\n"


def remove_stale(plan: Plan) -> tuple[Path, ...]:
    """Remove the plan's stale files; returns those that were there."""
    removed = []
    for path in plan.stale:
        if path.is_file():
            path.unlink()
            removed.append(path)
    return tuple(removed)


def set_aside_unreadable(grid: Grid, results: Path) -> list[str]:
    """Rename unreadable records at wanted places to `<name>.unreadable`; returns a line for each.

    Called before Snakemake builds its DAG, which takes any file for a result.
    """
    lines = []
    for cell in grid.cells:
        path = cell.path(results, grid.campaign["name"])
        try:
            if path.is_file():
                read_record(path)
        except RecordError as error:
            aside = path.with_name(path.name + UNREADABLE)
            os.replace(path, aside)
            lines.append(f"{_one_line(str(error))}; set aside as {aside.name}, the cell runs again")
    return lines


def accept(grid: Grid, results: Path, cell_id: str) -> str:
    """Take a cell's failure as its result, so that it isn't run again; returns a line that says so.

    `cell_id` may be any unique beginning of an id. Raises RecordError when no failure stands there.
    """
    campaign = grid.campaign["name"]
    if not cell_id:
        raise RecordError("accept: which cell? `fabricbench plan` lists those that failed")
    cells = [cell for cell in grid.cells if cell.id == cell_id]
    cells = cells or [cell for cell in grid.cells if cell.id.startswith(cell_id)]
    if not cells:
        raise RecordError(
            f"accept: no cell's id in campaign {campaign} starts with {cell_id!r}; "
            "`fabricbench plan` lists failed cells"
        )
    failed = [cell for cell in cells if failure_path(cell.path(results, campaign)).is_file()]
    if not failed:
        raise RecordError(f"accept: {cell_id}: no failure to accept; only a cell that failed can be accepted")
    if len(failed) > 1:
        few = ", ".join(cell.id for cell in failed[:3])
        raise RecordError(
            f"accept: {cell_id}: {len(failed)} failed cells start so ({few}, …); write more of it"
        )
    place = failed[0].path(results, campaign)
    failure = failure_path(place)
    record = read_record(failure)
    if not record.provenance.get("of_ranks"):
        raise RecordError(
            f"accept: {record.id}: {_one_line(record.reason)}: that is no outcome of its ranks, so there is "
            "nothing to accept; run it again"
        )
    record = replace(record, accepted=True)
    write_record(record, place)
    failure.unlink()
    return f"accepted {record.id}: {record.status}: {_one_line(record.reason)}"


def _state(path: Path) -> tuple[str, str, Record | None]:
    """(state, reason, record) of the cell whose record belongs at `path`."""
    failure = failure_path(path)
    try:
        if path.is_file():
            record = read_record(path)
            if record.status == "ok" or record.accepted:
                return DONE, f"{record.status}: {_one_line(record.reason)}" * record.accepted, record
            return record.status, _one_line(record.reason), record
        if failure.is_file():
            record = read_record(failure)
            return record.status, _one_line(record.reason) or "no reason given", record
    except RecordError as error:
        return IS_UNREADABLE, _one_line(str(error)), None
    return MISSING, "", None


def _duration(record: Record) -> float | None:
    """Seconds from a record's start to its end; None when it doesn't say."""
    try:
        return (datetime.fromisoformat(record.end) - datetime.fromisoformat(record.start)).total_seconds()
    except (ValueError, TypeError):
        return None


def _stale(grid: Grid, folder: Path) -> tuple[Path, ...]:
    """Record files below a campaign's folder that the grid doesn't name, sorted."""
    wanted = {folder / f"{cell.id}.json" for cell in grid.cells}
    wanted |= {failure_path(path) for path in wanted}
    files = (path for path in folder.glob("*/*") if _RECORD_FILE.fullmatch(path.name))
    return tuple(sorted(path for path in files if path not in wanted))


def _table(plan: Plan) -> list[str]:
    """A line per workload, or per variant of one that has several, and one for all, in columns."""
    labels = Labels.of(cell.cell.cell for cell in plan.cells)
    by_workload: dict[str, list[CellPlan]] = {}
    for cell in plan.cells:
        by_workload.setdefault(labels.label(cell.cell.cell), []).append(cell)
    rows = [
        ("workload", "cells", "done", "missing", "failed", "nodes", "time", "node-hours"),
        *(_row(name, cells) for name, cells in sorted(by_workload.items(), key=_natural_name)),
        _row("all", plan.cells),
    ]
    widths = [max(len(text) for text in column) for column in zip(*rows, strict=True)]
    return [_aligned(row, widths) for row in rows]


def _natural_name(named: tuple[str, list[CellPlan]]) -> list[tuple[int, str]]:
    """`batch 8` before `batch 32`."""
    return natural(named[0])


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    """The first column to the left, the others to the right."""
    numbers = (text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))
    return "  ".join([row[0].ljust(widths[0]), *numbers])


def _row(name: str, cells: Iterable[CellPlan]) -> tuple[str, ...]:
    cells = list(cells)
    states = [cell.state for cell in cells]
    nodes = sorted({cell.cell.cell.nodes for cell in cells})
    span = "" if not nodes else str(nodes[0]) if len(nodes) == 1 else f"{nodes[0]}-{nodes[-1]}"
    done, missing = states.count(DONE), states.count(MISSING)
    return (
        name,
        str(len(cells)),
        str(done),
        str(missing),
        str(len(cells) - done - missing),
        span,
        _time(sum(cell.seconds for cell in cells)),
        f"{sum(cell.node_hours for cell in cells):.2f}",
    )


def _cost(cells: list[CellPlan], by_slurm: bool) -> str:
    """What cells take, and how that is known; of a cluster's nodes also what they may take at most."""
    if not cells:
        return "nothing"
    guessed = sum(not cell.measured for cell in cells)
    basis = f"estimated, for {guessed} without any measurement" if guessed else "as measured before"
    hours = sum(cell.node_hours for cell in cells)
    time = _time(sum(cell.seconds for cell in cells))
    text = f"{_count(len(cells), 'cell')}, {time}, {hours:.2f} node-hours"
    if by_slurm and (gpus := sum(cell.gpu_hours for cell in cells)):
        text += f", {gpus:.2f} GPU-hours"
    text += f" ({basis})"
    if by_slurm:
        most = sum(cell.most_node_hours for cell in cells)
        text += f"; at most {most:.2f} node-hours by the time limits"
    return text


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{seconds / 3600:.1f} h"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _names(row: Unsupported) -> str:
    return f"{row.workload} on {row.backend} over {row.fabric}, {row.gpus} GPUs"


def _one_line(text: str) -> str:
    """The last line that isn't empty, which is what a traceback ends in."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
