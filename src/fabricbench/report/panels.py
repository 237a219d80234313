"""Figures grouped by workload, each group with the table behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import pandas as pd

from fabricbench.analysis.scaling import ONE_GPU, curves, efficiency
from fabricbench.analysis.stats import ok, over_repeats, reading_order
from fabricbench.analysis.table import Tables
from fabricbench.analysis.trained import parts_of_step
from fabricbench.report import figures, words
from fabricbench.report.trained import TRAINED, remarks, trained_texts, training_notes

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
    known = tables.conclusions.scaling.set_index("cell")
    scaled = efficiency(good[good["kind"] == kind])
    scaled = scaled.assign(
        communication=scaled["cell"].map(known["communication"]).astype(float),
        communication_by=scaled["cell"].map(known["communication_by"]).astype("string"),
    )
    places = {label: place for place, label in enumerate(reading_order(scaled))}
    groups = [
        (places[str(workload)], str(workload), str(backend), part)
        for (workload, backend), part in scaled.groupby(["workload", "backend"], sort=False)
    ]
    return [
        _scaling_group(part, workload, backend, kind, fabrics)
        for _, workload, backend, part in sorted(groups, key=itemgetter(0))
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
    if kind == "train" and cells["nosync_s"].notna().any():
        parts = parts_of_step(cells)
        svg = figures.step_parts(
            over_repeats(parts, "computing_ms"),
            over_repeats(parts, "exposed_ms"),
            fabrics=fabrics,
            title=f"{where}: time per step, computing and exposed communication, by GPU count",
        )
        panels.append(Panel("Time per step: computing (pale) and exposed communication (full)", svg))
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
        f"over its time on n. {_reference(cells)}{_communication(cells)}",
        "cfd": "The mesh is fixed (strong scaling): efficiency is the time of a step on one rank over "
        "n times its time on n. Communication is the share of a step that waits for halos.",
    }[kind]
    return PanelGroup(
        title=where,
        about=about,
        panels=panels,
        table=_scaling_table(cells, unit),
        demonstration=bool(cells["demonstration"].any()),
        notes=training_notes(cells) if kind == "train" else [],
    )


def _reference(cells: pd.DataFrame) -> str:
    """Where a cell's own steps stand for one GPU."""
    own = cells["efficiency"].notna() & (cells["reference"] != ONE_GPU)
    if not own.any():
        return ""
    return "Where no cell ran on one GPU, the cell's own steps without DDP stand for it. "


def _communication(cells: pd.DataFrame) -> str:
    """What communication is here; two ways of knowing it may stand beside each other."""
    said = {
        "without sync": "Communication is what a step takes beyond the same cell's without synchronisation, "
        "as a share of it: what computing doesn't hide, waiting for slower ranks included.",
        "beyond T(1)": "Communication is the share of a step beyond one GPU's.",
    }
    several = cells[(cells["gpus"] > 1) & cells["communication"].notna()]
    found = [said[by] for by in dict.fromkeys(several["communication_by"]) if by in said]
    return " Or, where that wasn't measured: ".join(sorted(found, reverse=True)) or said["beyond T(1)"]


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


def _scaling_table(cells: pd.DataFrame, unit: str) -> DataTable:
    """A row per fabric and GPU count; of training, what else was measured of the step."""
    quantities = {
        name: {(row["fabric"], row["gpus"]): row for row in over_repeats(cells, name).to_dict("records")}
        for name in ("step_s", "efficiency", "communication")
    }
    trained = bool((cells["kind"] == "train").any()) and bool(cells["n_steps"].notna().any())
    by_place = dict(iter(cells.groupby(["fabric", "gpus"], sort=False)))
    rows = []
    for row in over_repeats(cells).sort_values(["fabric", "gpus"], kind="stable").to_dict("records"):
        at = (row["fabric"], row["gpus"])
        step, share, spent = (quantities[name].get(at) for name in quantities)
        rows.append(
            [
                str(row["fabric"]),
                str(row["gpus"]),
                str(row["n"]),
                words.number(row["median"]),
                words.span(row["min"], row["max"]),
                words.share(row["spread"]),
                words.seconds(step["median"]) if step else words.DASH,
                words.share(share["median"]) if share else words.DASH,
                words.share(spent["median"]) if spent else words.DASH,
                *(trained_texts(by_place[at]) if trained else []),
                remarks(by_place[at]),
            ]
        )
    names = ["fabric", "GPUs", "repeats", f"median, {unit}", f"range, {unit}", "range / median"]
    names += ["step as run", "efficiency", "communication", *(TRAINED if trained else ())]
    numeric = frozenset(names[1:])
    if not any(row[-1] for row in rows):
        return DataTable(names, [row[:-1] for row in rows], numeric)
    return DataTable([*names, "remarks"], rows, numeric, frozenset({"remarks"}))


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
