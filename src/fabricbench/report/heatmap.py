"""The grid as squares: a median with its range and ratio, or why there is none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log2
from typing import Any

import pandas as pd

from fabricbench.analysis.stats import over_repeats, ratio_to_first
from fabricbench.analysis.table import MISLABELLED
from fabricbench.report import words

STEPS = (0.04, 0.15, 0.35, 0.8)
"""Bounds on |log2 ratio| between one depth of colour and the next."""
REASON_LENGTH = 120
NBSP = "\u00a0"


@dataclass(frozen=True)
class Square:
    """One combination on one fabric. Without a `value`, `why` says what stands in its way."""

    value: str = ""
    ratio: str = ""
    range: str = ""
    tone: str = ""
    """CSS class: lower-1 … lower-4, same, higher-1 … higher-4, or none."""
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


def heatmap(cells: pd.DataFrame, fabrics: Sequence[str]) -> list[Group]:
    """Squares for every combination of workload, backend and GPU count that the grid names."""
    summary = ratio_to_first(over_repeats(cells), fabrics)
    measured = {
        (row["workload"], row["backend"], row["gpus"], row["fabric"]): row
        for row in summary.to_dict("records")
    }
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
                        _square(measured.get(key), by_square.get(key), fabric == fabrics[0])
                        for fabric in fabrics
                        for key in [(workload, backend, gpus, fabric)]
                    ],
                )
                for backend, gpus in sorted(pairs)
            ],
        )
        for workload, pairs in wanted.items()
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


def _square(row: Mapping[Any, Any] | None, cells: pd.DataFrame | None, baseline: bool) -> Square:
    if cells is None:
        return Square(why="not in the grid")
    absent = _absent(cells)
    mislabelled = bool((cells["status"] == MISLABELLED).any())
    if row is None:
        return Square(why=absent, mislabelled=mislabelled)
    ratio = float(row["ratio"])
    n = words.plural(int(row["n"]), "repeat").replace(" ", NBSP)
    return Square(
        value=words.number(float(row["median"])),
        ratio="" if baseline else words.ratio(ratio) if isfinite(ratio) else "",
        range=f"{words.span(float(row['min']), float(row['max']))} · {n}" if row["n"] > 1 else n,
        tone="base" if baseline else _tone(ratio),
        why=absent,
        demonstration=bool(row["demonstration"]),
        mislabelled=mislabelled,
    )


def _absent(cells: pd.DataFrame) -> str:
    """What didn't give a value, by status, with the first reason; mislabelled cells come first."""
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
    if len(reason) > REASON_LENGTH:
        reason = f"{reason[:REASON_LENGTH].rsplit(' ', 1)[0]} …"
    return f"{head}: {reason}" if reason else head


def _tone(ratio: float) -> str:
    """A class by how far a ratio is from 1; a colour only repeats what the number says."""
    if not isfinite(ratio) or ratio <= 0:
        return ""
    depth = sum(abs(log2(ratio)) >= bound for bound in STEPS)
    return f"{'higher' if ratio > 1 else 'lower'}-{depth}" if depth else "same"
