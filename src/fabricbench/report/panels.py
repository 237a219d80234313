"""Figures grouped by workload, each group with the table behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from fabricbench.analysis.scaling import curves, efficiency
from fabricbench.analysis.stats import ok, over_repeats
from fabricbench.analysis.table import Tables
from fabricbench.report import figures, words

METRICS = {
    "pingpong_s": "ping-pong",
    "stream_s": "stream",
    "allreduce_s": "all-reduce",
}


@dataclass(frozen=True)
class DataTable:
    """Texts to show; columns named in `numeric` are aligned to the right, those in `wrap` may be long."""

    columns: list[str]
    rows: list[list[str]]
    numeric: frozenset[str] = frozenset()
    wrap: frozenset[str] = frozenset()
    wrong: frozenset[int] = frozenset()
    """Rows, by place, of cells that aren't what they say."""


@dataclass(frozen=True)
class Panel:
    """One figure."""

    title: str
    svg: str


@dataclass(frozen=True)
class PanelGroup:
    """Figures that share a workload and a backend, and their numbers."""

    title: str
    about: str
    panels: list[Panel]
    table: DataTable
    demonstration: bool = False
    notes: list[str] = field(default_factory=list)


def scaling_groups(tables: Tables, kind: str, fabrics: Sequence[str]) -> list[PanelGroup]:
    """One group per workload and backend of `kind` (train or cfd) that has an ok cell."""
    good = ok(tables.cells)
    shares = tables.conclusions.scaling.set_index("cell")["communication"]
    scaled = efficiency(good[good["kind"] == kind])
    scaled = scaled.assign(communication=scaled["cell"].map(shares).astype(float))
    return [
        _scaling_group(part, str(workload), str(backend), kind, fabrics)
        for (workload, backend), part in scaled.groupby(["workload", "backend"], sort=False)
    ]


def _scaling_group(
    cells: pd.DataFrame, workload: str, backend: str, kind: str, fabrics: Sequence[str]
) -> PanelGroup:
    medians = over_repeats(cells)
    unit = str(cells["unit"].iloc[0])
    where = f"{workload} over {backend}"
    panels = [_by_gpus(cells, medians, where, f"Throughput, {unit}", fabrics, column="value", label=unit)]
    if kind == "cfd":
        times = cells.assign(step_ms=cells["step_s"] * 1e3)
        panels.append(
            _by_gpus(
                times,
                over_repeats(times, "step_ms"),
                where,
                "Time per step, ms",
                fabrics,
                column="step_ms",
                label="ms per step",
            )
        )
    shares = over_repeats(cells, "efficiency")
    if cells["gpus"].nunique() > 1 and not shares.empty:
        kept = cells[cells["efficiency"].notna()]
        panels.append(
            _by_gpus(
                kept,
                shares,
                where,
                "Scaling efficiency (grey dashes: ideal)",
                fabrics,
                column="efficiency",
                label="efficiency",
                ideal=True,
                percent=True,
            )
        )
    about = {
        "train": "Batch per GPU is fixed (weak scaling): efficiency is the time of a step on one GPU "
        "over its time on n. Communication is the share of a step beyond one GPU's.",
        "cfd": "The mesh is fixed (strong scaling): efficiency is the time of a step on one rank over "
        "n times its time on n. Communication is the share of a step that waits for halos.",
    }[kind]
    return PanelGroup(
        title=where,
        about=about,
        panels=panels,
        table=_scaling_table(
            medians, shares, over_repeats(cells, "step_s"), over_repeats(cells, "communication"), unit
        ),
        demonstration=bool(cells["demonstration"].any()),
    )


def _by_gpus(
    cells: pd.DataFrame,
    medians: pd.DataFrame,
    where: str,
    heading: str,
    fabrics: Sequence[str],
    **how: Any,
) -> Panel:
    title = f"{where}: {heading}, by GPU count"
    return Panel(heading, figures.by_gpus(cells, medians, fabrics=fabrics, title=title, **how))


def _scaling_table(
    medians: pd.DataFrame, shares: pd.DataFrame, steps: pd.DataFrame, communication: pd.DataFrame, unit: str
) -> DataTable:
    key = ["fabric", "gpus"]
    share_of = {(row["fabric"], row["gpus"]): row for row in shares.to_dict("records")}
    spent_of = {(row["fabric"], row["gpus"]): row for row in communication.to_dict("records")}
    step_of = {(row["fabric"], row["gpus"]): row for row in steps.to_dict("records")}
    rows = []
    for row in medians.sort_values(key, kind="stable").to_dict("records"):
        at = (row["fabric"], row["gpus"])
        rows.append(
            [
                str(row["fabric"]),
                str(row["gpus"]),
                str(row["n"]),
                words.number(row["median"]),
                words.span(row["min"], row["max"]),
                words.share(row["spread"]),
                words.seconds(step_of[at]["median"]) if at in step_of else words.DASH,
                words.share(share_of[at]["median"]) if at in share_of else words.DASH,
                words.share(spent_of[at]["median"]) if at in spent_of else words.DASH,
            ]
        )
    names = ["fabric", "GPUs", "repeats", f"median, {unit}", f"range, {unit}", "range / median"]
    names += ["step as run", "efficiency", "communication"]
    return DataTable(names, rows, frozenset(names[1:]))


def message_groups(tables: Tables, fabrics: Sequence[str]) -> list[PanelGroup]:
    """One group per micro workload, backend and GPU count that has samples."""
    table = curves(tables.cells, tables.samples)
    return [
        _message_group(part, str(workload), str(backend), int(str(gpus)), tables, fabrics)
        for (workload, backend, gpus), part in table.groupby(["workload", "backend", "gpus"], sort=False)
    ]


def _message_group(
    table: pd.DataFrame, workload: str, backend: str, gpus: int, tables: Tables, fabrics: Sequence[str]
) -> PanelGroup:
    where = f"{workload} over {backend}, {words.plural(gpus, 'rank')}"
    limit = _trustworthy_from(tables, workload, backend)
    panels = []
    for metric, name in METRICS.items():
        part = table[table["metric"] == metric]
        if part.empty:
            continue
        timed, label = ("one-way time", "time") if metric == "pingpong_s" else ("time", "time")
        if metric != "stream_s":
            panels.append(_by_size(part, where, f"{name}: {timed}", "time_s", label, fabrics, limit))
        if metric != "pingpong_s" and part["bandwidth_bit_s_median"].notna().any():
            kind = "bus bandwidth" if metric == "allreduce_s" else "bandwidth"
            panels.append(_by_size(part, where, f"{name}: {kind}", "bandwidth_bit_s", kind, fabrics, limit))
    notes = []
    if limit is not None and (table["bytes"] < limit).any():
        notes.append(
            f"Messages below {words.size(limit)} pass partly in a burst of the shaper, faster than the link, "
            "or take the time that the library needs to start on this machine: "
            "their bandwidth is no property of the fabric."
        )
    about = "Lines are medians, bands reach from the 10th to the 90th percentile of all samples and repeats."
    return PanelGroup(title=where, about=about, panels=panels, table=_message_table(table), notes=notes)


def _by_size(
    part: pd.DataFrame,
    where: str,
    title: str,
    quantity: str,
    label: str,
    fabrics: Sequence[str],
    limit: float | None,
) -> Panel:
    svg = figures.by_size(
        part,
        quantity=quantity,
        fabrics=fabrics,
        label=label,
        title=f"{where}, {title}, by message size",
        trustworthy_from=limit,
    )
    return Panel(_heading(title), svg)


def _message_table(table: pd.DataFrame) -> DataTable:
    rows = [
        [
            METRICS.get(str(row["metric"]), str(row["metric"])),
            str(row["fabric"]),
            words.size(row["bytes"]),
            f"{row['samples']:,}",
            words.seconds(row["time_s_median"]),
            f"{words.seconds(row['time_s_p10'])} – {words.seconds(row['time_s_p90'])}",
            words.bit_rate(row["bandwidth_bit_s_median"]),
            words.share(row["of_line_rate"]),
        ]
        for row in table.sort_values(["metric", "fabric", "bytes"], kind="stable").to_dict("records")
    ]
    names = ["operation", "fabric", "message", "samples", "median time", "10th–90th percentile"]
    names += ["bus bandwidth", "of line rate"]
    return DataTable(names, rows, frozenset(names[2:]))


def _trustworthy_from(tables: Tables, workload: str, backend: str) -> float | None:
    """The largest such bound among a workload's cells, in bytes; None where links aren't shaped."""
    cells = tables.cells
    names = cells.loc[(cells["workload"] == workload) & (cells["backend"] == backend), "cell"]
    bounds = [
        float(bound)
        for name in names
        if isinstance(
            bound := emulation_of(tables.facts, str(name)).get("trustworthy_from_bytes"), int | float
        )
    ]
    return max(bounds, default=None)


def _heading(text: str) -> str:
    return text[:1].upper() + text[1:]


def emulation_of(facts: Mapping[str, Any], cell: str) -> Mapping[str, Any]:
    """evidence.emulation of a cell, or nothing."""
    found = facts["cells"].get(cell, {}).get("evidence", {}).get("emulation", {})
    return found if isinstance(found, Mapping) else {}
