"""Cells with a result that may enter no verdict (column `no_verdict`): left out of comparisons, and said."""

from collections.abc import Mapping, Sequence
from typing import Any

from fabricbench.analysis.blocks import SIDES

Rows = list[tuple[Any, ...]]
"""Of pairs (baseline's row, other's row), or of what has no partner (side, row, why)."""


def without(paired: Rows, alone: Rows, barred: set[int]) -> tuple[Rows, Rows]:
    """Pairs and what is alone without the barred rows; a barred row's partner is alone."""
    if not barred:
        return paired, alone
    kept = [pair for pair in paired if not barred.intersection(pair[:2])]
    parted = [
        (name, pair[at], "its partner enters no verdict")
        for pair in paired
        if pair not in kept
        for at, name in enumerate(SIDES)
    ]
    return kept, [row for row in (*alone, *parted) if row[1] not in barred]


def no_verdict(
    comparison: Mapping[str, Any], every: list[list[int]], barred: list[list[int]], why: Sequence[str]
) -> str:
    """Why there is no verdict at all: a demonstration, or a side none of whose cells may enter one."""
    if str(comparison.get("demonstration")) == "True":
        return "a demonstration: real compute on scaled links models nothing, so no ratio is drawn from it"
    whole = [out for rows, out in zip(every, barred, strict=True) if rows and len(out) == len(rows)]
    return "; ".join(sorted({why[row] for rows in whole for row in rows}))


def left_out(
    every: list[list[int]], barred: list[list[int]], names: Sequence[str], why: Sequence[str]
) -> str:
    """How many cells of either side are left out, as "1 of 5 cells of opa (its host was too busy)"."""
    return ", ".join(
        f"{len(out)} of {len(rows)} cells of {name} ({'; '.join(sorted({why[row] for row in out}))})"
        for rows, out, name in zip(every, barred, names, strict=True)
        if out
    )
