"""Records into one table: a row per cell of the grid and a row per raw sample; see docs/table.md."""

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd

from fabricbench.analysis.company import job_columns, with_overlaps
from fabricbench.analysis.conclusions import Conclusions, axes_along, conclude
from fabricbench.analysis.differences import DIFFERENCE_DTYPES, differences
from fabricbench.analysis.headline import UNITS, Headline, headline, ports_per_node
from fabricbench.analysis.names import by_node
from fabricbench.analysis.saturation import why_saturated
from fabricbench.analysis.trained import training_columns
from fabricbench.cell import Cell, canonical_json
from fabricbench.errors import RecordError
from fabricbench.record import Record, Series, failure_path, read_record, write_atomically
from fabricbench.variants import Labels

Json = Mapping[str, Any]

FACTS_SCHEMA = 1
MISLABELLED = "mislabelled"
"""Status and verdict of a cell whose bytes went elsewhere; whatever else its record says, it has no value."""
SHARED_EVIDENCE = ("declared", "rails", "formula", "emulation", "words")
"""What cells of one kind have alike, of thousands of which a process holds the evidence."""
NAMED_PARAMS = ("model", "case", "flow", "test")
"""Parameters that name what a workload computes, the first that is there."""

CELL_DTYPES = {
    "cell": "string",
    "workload": "string",
    "family": "string",
    "variant": "string",
    "kind": "string",
    "model_or_case": "string",
    "fabric": "string",
    "fabric_kind": "string",
    "backend": "string",
    "engine": "string",
    "library": "string",
    "versions": "string",
    "gpus": "Int64",
    "nodes": "Int64",
    "ranks_per_node": "Int64",
    "placement": "string",
    "node_set": "string",
    "device": "string",
    "repeat": "Int64",
    "status": "string",
    "reason": "string",
    "evidence": "string",
    "because": "string",
    "of_formula": "float64",
    "rails": "string",
    "accepted": "bool",
    "demonstration": "bool",
    "emulated": "bool",
    "rate_bit_s": "float64",
    "effective_bit_s": "float64",
    "link_bit_s": "float64",
    "ports_per_node": "Int64",
    "scale_bytes": "float64",
    "scale_time": "float64",
    "value": "float64",
    "unit": "string",
    "step_s": "float64",
    "of_line_rate": "float64",
    "no_verdict": "string",
    "alone_s": "float64",
    "nosync_s": "float64",
    "exposed_s": "float64",
    "exposed": "float64",
    "straggler": "float64",
    "straggler_rank": "Int64",
    "gradient_bytes": "Int64",
    "buckets": "Int64",
    "peak_memory_bytes": "Int64",
    "load_s": "float64",
    "steady": "boolean",
    "stopped_by": "string",
    "warmup_steps": "Int64",
    "n_steps": "Int64",
    "start": "datetime64[us, UTC]",
    "end": "datetime64[us, UTC]",
    "duration_s": "float64",
    "overhead_s": "float64",
    "job": "string",
    "queue_s": "float64",
    "startup_s": "float64",
    "restarts": "Int64",
    "overlaps": "Int64",
    "others": "Int64",
    "log": "string",
    "params": "string",
}
SAMPLE_DTYPES = {
    "cell": "string",
    "metric": "string",
    "unit": "string",
    "bytes": "Int64",
    "rank": "Int32",
    "n": "int64",
    "value": "float64",
}
FRAMES: dict[str, dict[str, str]] = {
    "cells": CELL_DTYPES,
    "samples": SAMPLE_DTYPES,
    "differences": DIFFERENCE_DTYPES,
}
"""The tables that are files of their own, with their columns."""


@dataclass(frozen=True)
class Tables:
    """What one campaign left behind."""

    cells: pd.DataFrame
    """One row per cell of the grid, and per combination that it doesn't support."""
    samples: pd.DataFrame
    """One row per raw sample of the cells of status ok."""
    differences: pd.DataFrame
    """What else differed, one row per difference of every compared pair; see analysis.differences."""
    conclusions: Conclusions
    """What may be said of them; see analysis.conclusions."""
    facts: dict[str, Any]
    """{"schema", "cells": {id: {facts, evidence, phases_s, provenance}}, "provenance": [distinct values]}."""


@dataclass(frozen=True)
class _Outcome:
    """What stands on disk for one cell of the grid; the record is None where there's none to read."""

    status: str
    reason: str = ""
    record: Record | None = None
    headline: Headline = field(default_factory=Headline)
    times: Json = field(default_factory=dict)
    proof: Json = field(default_factory=dict)
    trained: Json = field(default_factory=dict)
    no_verdict: str = ""


def fabric_order(grid: Json) -> list[str]:
    """The fabrics of the grid: what the others are compared with first, then as configured."""
    used = [str(entry["cell"]["fabric"]["name"]) for entry in grid["cells"]]
    used += [str(entry["fabric"]) for entry in grid["unsupported"]]
    configured = grid["campaign"].get("fabrics", {})
    named = [str(name) for name in configured] if isinstance(configured, Mapping) else []
    baseline = [baseline_fabric(grid["campaign"], used)]
    return [name for name in dict.fromkeys([*baseline, *named, *used]) if name in set(used)]


def baseline_fabric(campaign: Json, used: Iterable[str]) -> str:
    """The fabric that others are compared with; "" if the campaign compares no fabrics."""
    axes = axes_along(campaign, used)
    return next((axis.baseline for axis in axes if axis.by == "fabric" and axis.baseline in used), "")


def labels_of(*grids: Json) -> Labels:
    """What the cells of grids that are shown together are called."""
    return Labels.of(Cell.from_json(entry["cell"]) for grid in grids for entry in grid["cells"])


def collect(grid: Json, results: Path, labels: Labels | None = None) -> Tables:
    """Read the record of every cell that `grid` names from `results` (results/<campaign>).

    A cell that can't be read is a row that says so. `labels`: what cells are called beside those of other
    grids; by default what this grid's own need. Raises TypeError if the grid itself is malformed.
    """
    named = [(entry["id"], Cell.from_json(entry["cell"])) for entry in grid["cells"]]
    labels = labels or Labels.of(cell for _, cell in named)
    shared: dict[bytes, Any] = {}
    outcomes = [(cell, _shared(_outcome(identity, results), cell, shared)) for identity, cell in named]
    rows = [
        _row(identity, cell, outcome, results, labels)
        for (identity, _), (cell, outcome) in zip(named, outcomes, strict=True)
    ]
    rows += _unsupported_rows(grid["unsupported"], [cell for _, cell in named], rows)
    good = [outcome.record for _, outcome in outcomes if outcome.record and outcome.status == "ok"]
    cells, samples = _frame(with_overlaps(rows), CELL_DTYPES), _samples(good)
    for record in good:
        record.samples = []  # they are in the table now: of thousands of cells that is most of the memory
    facts = _facts([outcome.record for _, outcome in outcomes if outcome.record])
    return Tables(
        cells=cells,
        samples=samples,
        differences=differences(good, fabric_order(grid), labels),
        conclusions=conclude(cells, samples, grid["campaign"], facts),
        facts=facts,
    )


def _shared(outcome: _Outcome, cell: Cell, shared: dict[bytes, Any]) -> _Outcome:
    """The outcome with one object for what many records have alike: cell, provenance, some evidence."""
    if (record := outcome.record) is not None:
        record.cell = cell
        record.provenance = _one(record.provenance, shared)
        for name in SHARED_EVIDENCE:
            if name in record.evidence:
                record.evidence[name] = _one(record.evidence[name], shared)
    return outcome


def _one(plain: Any, shared: dict[bytes, Any]) -> Any:
    """The first object that was equal to this one."""
    return shared.setdefault(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS), plain)


def write_tables(tables: Tables, folder: Path) -> None:
    """Write every table (.parquet and .csv) and facts.json; each file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    frames = {name: getattr(tables, name) for name in FRAMES} | vars(tables.conclusions)
    for name, frame in frames.items():
        _write_parquet(frame, folder / f"{name}.parquet")
        write_atomically(folder / f"{name}.csv", frame.to_csv(index=False, lineterminator="\n"))
    write_atomically(folder / "facts.json", json.dumps(tables.facts, ensure_ascii=False, indent=1) + "\n")


def read_tables(folder: Path) -> Tables:
    """The inverse of `write_tables`; raises RecordError naming what can't be read."""
    try:
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        frames = {
            name: pd.read_parquet(folder / f"{name}.parquet").astype(dtypes)
            for name, dtypes in FRAMES.items()
        }
        concluded = {
            field.name: pd.read_parquet(folder / f"{field.name}.parquet") for field in fields(Conclusions)
        }
    except (OSError, ValueError, KeyError) as error:
        raise RecordError(f"{folder}: tables can't be read: {error}; collect them again") from None
    return Tables(facts=facts, conclusions=Conclusions(**concluded), **frames)


def _outcome(identity: str, results: Path) -> _Outcome:
    """The record wins over a failure left beside it, since success comes last."""
    path = results / f"{identity}.json"
    place = path if path.exists() else failure_path(path)
    if not place.exists():
        log = _log(identity, results)
        return _Outcome("missing", "no record, though it has a log: killed?" if log else "not run yet")
    try:
        record = read_record(place)
        if record.id != identity:
            raise RecordError(f"{place}: holds cell {record.id}, not {identity}")
        _check_samples(record, place)
        times, proof = _times(record), _proof(record)
        if proof["evidence"] == MISLABELLED or record.status == MISLABELLED:
            reason = record.reason or proof["because"]
            return _Outcome(MISLABELLED, reason, record, times=times, proof=proof)
        if record.status != "ok":
            return _Outcome(record.status, record.reason, record, times=times, proof=proof)
        if place != path:
            raise RecordError(f"{place}: a failure record that says ok; remove it and run again")
        found = headline(record)
        reason = record.reason or found.reason
        trained, barred = training_columns(record), why_saturated(record)
        return _Outcome("ok", reason, record, found, times, proof, trained, barred)
    except (RecordError, TypeError, ValueError, KeyError, AttributeError) as error:
        return _Outcome("unreadable", str(error))


def _check_samples(record: Record, place: Path) -> None:
    """A record's fields are checked on reading; what lies inside its samples is checked here."""
    for series in record.samples:
        if not all(isinstance(value, int | float) and isfinite(value) for value in series.values):
            raise RecordError(f"{place}: samples of {series.metric} that aren't finite numbers")


def _row(identity: str, cell: Cell, outcome: _Outcome, results: Path, labels: Labels) -> dict[str, Any]:
    found, record = outcome.headline, outcome.record
    return {
        "cell": identity,
        "workload": labels.label(cell),
        "family": cell.workload,
        "variant": labels.variant(cell),
        "kind": cell.kind,
        "model_or_case": next((str(cell.params[name]) for name in NAMED_PARAMS if name in cell.params), ""),
        "fabric": cell.fabric["name"],
        "fabric_kind": cell.fabric.get("kind", ""),
        "backend": cell.backend["name"],
        "engine": cell.backend.get("engine", ""),
        "library": cell.backend.get("library", ""),
        "versions": _versions(record) if record else "",
        "node_set": ",".join(sorted(record.evidence.get("nodes", {}))) if record else "",
        "gpus": cell.gpus,
        "nodes": cell.nodes,
        "ranks_per_node": cell.ranks_per_node,
        "placement": cell.placement,
        "device": cell.device,
        "repeat": cell.repeat,
        "status": outcome.status,
        "reason": outcome.reason,
        "accepted": bool(record and record.accepted),
        "demonstration": cell.demonstration,
        "emulated": cell.launcher == "emulated",
        "rate_bit_s": _number(cell.fabric.get("rate_bit_s")),
        "effective_bit_s": _number(cell.fabric.get("effective_bit_s")),
        "link_bit_s": _number(cell.fabric.get("link_bit_s")),
        "ports_per_node": ports_per_node(cell),
        "scale_bytes": _number(cell.scale["bytes"]),
        "scale_time": _number(cell.scale["time"]),
        "value": found.value,
        "unit": found.unit or UNITS.get(cell.kind, ""),
        "step_s": found.step_s,
        "of_line_rate": found.of_line_rate,
        "no_verdict": outcome.no_verdict,
        **outcome.trained,
        **outcome.times,
        **outcome.proof,
        **(_job(record) if record else {}),
        "log": _log(identity, results),
        "params": canonical_json(cell.params),
    }


def _job(record: Record) -> dict[str, Any]:
    own = record.cell.launcher == "slurm"
    return job_columns(record.provenance, _moment(record.start) if own else None)


def _versions(record: Record) -> str:
    """Versions of libraries over all ranks, as canonical JSON: what a comparison must have in common."""
    found: dict[str, set[str]] = {}
    for ranks in record.provenance.get("ranks") or []:
        for name, version in (ranks.get("versions") or {}).items():
            found.setdefault(str(name), set()).add(str(version))
    return (
        canonical_json({name: " and ".join(sorted(all_of)) for name, all_of in found.items()})
        if found
        else ""
    )


def _unsupported_rows(
    entries: Iterable[Json], cells: list[Cell], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """What the grid decided never to run, for each variant of the workload that has cells elsewhere (`rows`).

    Kinds are looked up where another cell shares the name.
    """
    fabrics = {cell.fabric["name"]: cell.fabric for cell in reversed(cells)}
    backends = {cell.backend["name"]: cell.backend for cell in reversed(cells)}
    kinds = {cell.workload: cell.kind for cell in cells}
    variants: dict[str, dict[str, str]] = {}
    for row in rows:
        variants.setdefault(row["family"], {})[row["workload"]] = row["variant"]
    measured = {tuple(row[name] for name in ("workload", "fabric", "backend", "gpus")) for row in rows}
    found = []
    for entry in entries:
        family, fabric, backend, gpus = (entry[name] for name in ("workload", "fabric", "backend", "gpus"))
        for label, variant in variants.get(family, {family: ""}).items():
            if (label, fabric, backend, gpus) in measured:
                continue
            found.append(
                {
                    "cell": f"{family}/{fabric}-{backend}-{gpus}{label.removeprefix(family)}",
                    "workload": label,
                    "family": family,
                    "variant": variant,
                    "kind": kinds.get(family, ""),
                    "fabric": fabric,
                    "fabric_kind": fabrics.get(fabric, {}).get("kind", ""),
                    "backend": backend,
                    "engine": backends.get(backend, {}).get("engine", ""),
                    "gpus": gpus,
                    "status": "unsupported",
                    "reason": entry["reason"],
                    "emulated": bool(cells) and cells[0].launcher == "emulated",
                }
            )
    return found


def _times(record: Record) -> dict[str, Any]:
    """Start, end, how long the cell took and how much of that wasn't the measured region."""
    start, end = _moment(record.start), _moment(record.end)
    by_clock = (end - start).total_seconds() if start and end else nan
    duration_s = _number(record.phases_s.get("total", by_clock))
    measured_s = _number(record.phases_s.get("measured"))
    return {"start": start, "end": end, "duration_s": duration_s, "overhead_s": duration_s - measured_s}


def _proof(record: Record) -> dict[str, Any]:
    """What the counters say of the cell's fabric; empty for records from before they were judged."""
    evidence = record.evidence
    rails = {node: ", ".join(names) for node, names in (evidence.get("rails") or {}).items()}
    return {
        "evidence": evidence.get("verdict") or "",
        "because": evidence.get("because") or "",
        "of_formula": _number(evidence.get("of_formula")),
        "rails": by_node(rails.items()),
    }


def _moment(text: str) -> datetime | None:
    """An ISO 8601 moment in UTC, also where the text doesn't say so; None for no text."""
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _log(identity: str, results: Path) -> str:
    """The log's path, or "" where there's none."""
    path = results / "logs" / f"{identity}.log"
    return path.as_posix() if path.exists() else ""


def _number(value: Any) -> float:
    return nan if value is None else float(value)


def _frame(rows: list[dict[str, Any]], dtypes: Mapping[str, str]) -> pd.DataFrame:
    """A frame of fixed columns and dtypes, also when empty; text is "" and a flag False where absent."""
    absent: dict[str, Any] = {"string": "", "bool": False, "float64": nan}
    columns = {
        name: pd.Series([row.get(name, absent.get(dtype)) for row in rows], dtype=_readable(dtype))
        for name, dtype in dtypes.items()
    }
    return pd.DataFrame(columns).astype(dict(dtypes))


def _readable(dtype: str) -> Any:
    """Integers go through their nullable dtype; the others are taken as they are."""
    return "Int64" if dtype in ("Int64", "Int32", "int64") else dtype


def _samples(records: list[Record]) -> pd.DataFrame:
    """Series flattened; arrays are repeated rather than rows built, since there may be millions."""
    flat: list[tuple[str, Series]] = [
        (name, series)
        for record in records
        for name in [record.id]  # a digest, so once per record
        for series in record.samples
        if series.values
    ]
    lengths = [len(series.values) for _, series in flat]
    per_series = _frame(
        [
            {"cell": cell, "metric": s.metric, "unit": s.unit, "bytes": s.bytes, "rank": s.rank, "n": 0}
            for cell, s in flat
        ],
        {name: dtype for name, dtype in SAMPLE_DTYPES.items() if name != "value"},
    )
    frame = per_series.loc[np.repeat(per_series.index.to_numpy(), lengths)].reset_index(drop=True)
    frame["n"] = np.concatenate([np.arange(length) for length in lengths] or [np.array([], dtype=int)])
    frame["value"] = np.array([value for _, series in flat for value in series.values], dtype=float)
    return frame.astype(SAMPLE_DTYPES)


def _facts(records: list[Record]) -> dict[str, Any]:
    """What a table can't hold, with provenance once per distinct value."""
    distinct: dict[int, int] = {}
    provenance: list[Any] = []
    cells: dict[str, Any] = {}
    for record in records:
        key = id(record.provenance)  # equal ones are one object: see _shared
        if key not in distinct:
            distinct[key] = len(provenance)
            provenance.append(record.provenance)
        cells[record.id] = {
            "facts": record.facts,
            "evidence": record.evidence,
            "phases_s": record.phases_s,
            "provenance": distinct[key],
        }
    return {"schema": FACTS_SCHEMA, "cells": cells, "provenance": provenance}


def _write_parquet(frame: pd.DataFrame, path: Path) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        frame.to_parquet(temporary, index=False)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
