"""The grid as squares: a median with its verdict, range and ratio, or why there is none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fabricbench.analysis.conclusions import Conclusions
from fabricbench.analysis.stats import over_repeats, reading_order
from fabricbench.analysis.table import MISLABELLED
from fabricbench.report import words
from fabricbench.report.verdicts import Said, said

Key = tuple[str, str, int, str]
"""Workload, backend, GPUs and fabric of a square."""

REASON_LENGTH = 120


@dataclass(frozen=True)
class Square:
    """One combination on one fabric. Without a `value`, `why` says what stands in its way."""

    value: str = ""
    said: Said | None = None
    """The verdict against the baseline; for a second name, against its first."""
    control_of: str = ""
    """The first name of the network of which this fabric is a second name."""
    range: str = ""
    tone: str = ""
    """CSS class: base, or the verdict's."""
    why: str = ""
    demonstration: bool = False
    mislabelled: bool = False
    """A cell's bytes went elsewhere, which `why` then says first."""


@dataclass(frozen=True)
class Row:
    """One backend and GPU count, with a square per fabric."""

    backend: str
    gpus: int
    squares: list[Square]


@dataclass(frozen=True)
class Group:
    """The rows of one workload."""

    workload: str
    about: str
    rows: list[Row]


def heatmap(
    cells: pd.DataFrame, fabrics: Sequence[str], baseline: str, conclusions: Conclusions, margin: float
) -> list[Group]:
    """Squares for every combination of workload, backend and GPU count that the grid names.

    `baseline` is the fabric that the others are compared with; "" if fabrics aren't compared.
    """
    measured = {
        (row["workload"], row["backend"], row["gpus"], row["fabric"]): row
        for row in over_repeats(cells).to_dict("records")
    }
    against = _by_square(conclusions.comparisons, baseline)
    controls = _by_square(conclusions.controls)
    combination = ["workload", "backend", "gpus"]
    by_square: dict[Any, pd.DataFrame] = dict(iter(cells.groupby([*combination, "fabric"], sort=False)))
    wanted: dict[str, list[tuple[str, int]]] = {}
    for workload, backend, gpus in cells[combination].drop_duplicates().itertuples(index=False):
        wanted.setdefault(str(workload), []).append((str(backend), int(gpus)))
    return [
        Group(
            workload=workload,
            about=_about(cells[cells["workload"] == workload]),
            rows=[
                Row(
                    backend,
                    gpus,
                    [
                        _square(
                            measured.get(key),
                            by_square.get(key),
                            fabric == baseline,
                            controls.get(key) or against.get(key) or [],
                            margin,
                        )
                        for fabric in fabrics
                        for key in [(workload, backend, gpus, fabric)]
                    ],
                )
                for backend, gpus in sorted(pairs)
            ],
        )
        for workload in reading_order(cells)
        for pairs in [wanted[workload]]
    ]


def _about(cells: pd.DataFrame) -> str:
    """What the numbers of a workload are: `train, vgg16 · images/s`."""
    kind = next((str(kind) for kind in cells["kind"] if kind), "")
    named = next((str(name) for name in cells["model_or_case"] if name), "")
    unit = next((str(unit) for unit in cells["unit"] if unit), "")
    if (cells["device"] == "replay").any():
        unit += " of the cluster that is modelled"
    if kind == "micro":
        unit += " bus bandwidth of the largest message, on the link as run"
    workload = str(cells["workload"].iloc[0])
    head = ", ".join(part for part in (kind, named if named != workload else "") if part)
    return " · ".join(part for part in (head, unit) if part)


def _by_square(comparisons: pd.DataFrame, baseline: str | None = None) -> dict[Key, list[Mapping[Any, Any]]]:
    """Rows by the square of their other side; against one baseline, or against any."""
    found: dict[Key, list[Mapping[Any, Any]]] = {}
    for row in comparisons[comparisons["by"] == "fabric"].to_dict("records"):
        if baseline is None or row["baseline"] == baseline:
            key = (str(row["workload"]), str(row["backend"]), int(row["gpus"]), str(row["other"]))
            found.setdefault(key, []).append(row)
    return found


def _square(
    row: Mapping[Any, Any] | None,
    cells: pd.DataFrame | None,
    baseline: bool,
    compared: list[Mapping[Any, Any]],
    margin: float,
) -> Square:
    if cells is None:
        return Square(why="not in the grid")
    absent = _absent(cells)
    mislabelled = bool((cells["status"] == MISLABELLED).any())
    if row is None:
        return Square(why=absent, mislabelled=mislabelled)
    n = words.plural(int(row["n"]), "repeat").replace(" ", words.NBSP)
    # What is compared in several layouts is told in the table of comparisons alone.
    verdict = said(compared[0], margin) if len(compared) == 1 else None
    control = compared[0]["baseline"] if compared and "noise_floor_percent" in compared[0] else ""
    return Square(
        value=words.number(float(row["median"])),
        said=verdict,
        control_of=str(control),
        range=f"{words.span(float(row['min']), float(row['max']))} · {n}" if row["n"] > 1 else n,
        tone="base" if baseline else verdict.tone if verdict else "",
        why=absent,
        demonstration=bool(row["demonstration"]),
        mislabelled=mislabelled,
    )


def _absent(cells: pd.DataFrame) -> str:
    """What didn't give a value, by status, with the first reason, and what has one that isn't compared.

    Mislabelled cells come first.
    """
    said = [_without_value(cells), _barred(cells)]
    return "; ".join(text for text in said if text)


def _barred(cells: pd.DataFrame) -> str:
    why = [str(text) for text in cells["no_verdict"] if text]
    return _short(f"{len(why)} of {len(cells)} not compared: {why[0]}") if why else ""


def _without_value(cells: pd.DataFrame) -> str:
    bad = cells[(cells["status"] != "ok") | cells["value"].isna()]
    bad = bad.sort_values("status", key=lambda status: status != MISLABELLED, kind="stable")
    if bad.empty:
        return ""
    found = [str(status) for status in bad["status"]]
    head = ", ".join(
        status if status == "unsupported" else f"{found.count(status)} {status}"
        for status in dict.fromkeys(found)
    )
    reason = next((str(reason) for reason in bad["reason"] if reason), "")
    return f"{head}: {_short(reason)}" if reason else head


def _short(reason: str) -> str:
    return f"{reason[:REASON_LENGTH].rsplit(' ', 1)[0]} …" if len(reason) > REASON_LENGTH else reason
