"""Which cells may be compared with which, and which of them were run close together: found in the table.

A block is a pair of cells, one of either side, that differ in nothing but the axis of the comparison, ran on
the same nodes and started within an hour of each other. What slows both down cancels in their ratio.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import optimize

from fabricbench.analysis.along import FOLLOWING, along
from fabricbench.variants import FOLLOWS

HELD = (
    *("family", "workload", "kind", "model_or_case", "fabric", "backend", "engine", "gpus", "nodes"),
    "ranks_per_node",
    *("placement", "device", "scale_bytes", "scale_time", "params", "unit", "emulated", "demonstration"),
    *("metric", "bytes"),
)
"""Columns of which two cells must share the value to be compared, as far as the table has them."""
DEPENDENT = {
    "fabric": (),
    "backend": ("engine",),
    "engine": ("backend",),
    "library": ("backend",),
    "gpus": ("nodes", "ranks_per_node"),
    "nodes": ("ranks_per_node",),
    **dict.fromkeys(FOLLOWS, (FOLLOWING,)),
    "model": ("model_or_case", FOLLOWING),
}
"""What differs along with an axis, so can't be held equal; but on either side it must have one value."""
VERSIONS_ASKED = ("library", "versions")
"""Axes along which versions differ because that is the question."""
NAMES_A_LIBRARY = ("backend", "engine", *VERSIONS_ASKED)
ON_OTHER_NODES = {"placement": "packed and spread ran on the same nodes"}
"""Axes along which the nodes differ because that is the question, and what is said where they don't."""
SIDES = ("baseline", "other")

PAIR_WITHIN_S = 3600.0
_NO_PAIR = 1e6
_OTHER_BLOCK = 10.0
"""Cost of pairing cells of different order blocks, above any difference of start (at most 1)."""

PAIR_COLUMNS = ["comparison", "block", "baseline_row", "other_row", "apart_s"]
REST_COLUMNS = ["comparison", "side", "row", "why"]


@dataclass(frozen=True)
class Blocks:
    """What one axis of a table has to compare."""

    comparisons: pd.DataFrame
    """One row per held-equal key × other value, numbered by `comparison`: the key's columns, `by`,
    `baseline`, `other`, `mixed` (why a side isn't one thing, or "") and `versions_differ` (which, or "")."""
    pairs: pd.DataFrame
    """One row per block: comparison, block (1, 2, … by time), baseline_row and other_row (positions in the
    table), baseline_cell, other_cell, apart_s."""
    unpaired: pd.DataFrame
    """One row per good cell without a partner: comparison, side (baseline or other), row,
    cell, why."""


@dataclass(frozen=True)
class _Side:
    """The good cells of one side, as arrays in order of start."""

    rows: npt.NDArray[np.int64]
    start_s: npt.NDArray[np.float64]
    node_set: npt.NDArray[Any]
    block: npt.NDArray[np.float64]
    versions: npt.NDArray[Any]
    library: npt.NDArray[Any]


def usable(cells: pd.DataFrame) -> pd.Series:
    """Which cells may enter a comparison: status ok, with a value above zero (its logarithm is taken)."""
    return (cells["status"] == "ok").fillna(False).astype(bool) & (cells["value"].fillna(0) > 0)


def held_equal(cells: pd.DataFrame, by: str) -> list[str]:
    """The columns that must be equal in a comparison along `by`."""
    return [name for name in HELD if name in cells and name != by and name not in DEPENDENT.get(by, ())]


def find(
    cells: pd.DataFrame,
    by: str,
    baseline: str,
    *,
    pair_within_s: float = PAIR_WITHIN_S,
    allow_versions: bool = False,
) -> Blocks:
    """Everything along the axis `by` that can be set against `baseline`, with its blocks and what is left.

    Cells are paired one to one: as many pairs as possible, those of one order block (`block`, or else
    `repeat`) first, then with the least time between starts. Unless `allow_versions`, cells whose
    libraries differ are no pair. `by` may be a parameter of a workload (along.along). Raises KeyError if
    the table has no column `by` otherwise.
    """
    cells = along(cells, by)
    asked = cells[by].astype("string").fillna("")
    known = ((cells["status"] != "unsupported") & (asked != "")).fillna(False).astype(bool)
    table = cells[known].reset_index(drop=True)
    sides = asked[known].to_numpy(dtype=object)
    held = held_equal(table, by)
    good, facts = usable(table).to_numpy(), _facts(table)
    strict = not allow_versions and by not in VERSIONS_ASKED
    comparisons: list[dict[str, Any]] = []
    keys: list[int] = []
    pairs: list[tuple[Any, ...]] = []
    rest: list[tuple[Any, ...]] = []
    for rows in _groups(table, held):
        values = sides[rows]
        for other in sorted(set(values) - {baseline}):
            if baseline not in values:
                continue
            first, second = (_side(facts, rows[(values == name) & good[rows]]) for name in (baseline, other))
            number = len(comparisons)
            differ = "" if allow_versions or by in VERSIONS_ASKED else _versions_differ(first, second, by)
            comparisons.append(
                {
                    "comparison": number,
                    "by": by,
                    "baseline": baseline,
                    "other": other,
                    "mixed": _mixed(table, by, (first, second)),
                    "versions_differ": differ,
                }
            )
            keys.append(int(rows[0]))
            matched, reasons = _match(first, second, by, pair_within_s, strict)
            pairs += [
                (number, block, first.rows[i], second.rows[j], abs(first.start_s[i] - second.start_s[j]))
                for block, (i, j) in enumerate(matched, start=1)
            ]
            rest += [(number, side, row, why) for side, row, why in reasons]
    found = Blocks(
        comparisons=pd.concat(
            [
                pd.DataFrame(
                    comparisons,
                    columns=["comparison", "by", "baseline", "other", "mixed", "versions_differ"],
                ),
                table.iloc[keys][held].reset_index(drop=True),
            ],
            axis=1,
        ),
        pairs=pd.DataFrame(pairs, columns=PAIR_COLUMNS),
        unpaired=pd.DataFrame(rest, columns=REST_COLUMNS),
    )
    names, positions = cells["cell"].to_numpy(), np.flatnonzero(known)
    for frame, prefixes in ((found.pairs, ("baseline_", "other_")), (found.unpaired, ("",))):
        for prefix in prefixes:
            frame[f"{prefix}row"] = positions[frame[f"{prefix}row"].to_numpy(dtype=int)]
            frame[f"{prefix}cell"] = names[frame[f"{prefix}row"].to_numpy(dtype=int)]
    return found


@lru_cache(maxsize=4096)
def version_difference(one: str, two: str) -> str:
    """Which versions differ between two JSON objects, as "torch: 2.13 / 2.14"; "" if none is known to.

    A library that only one of them names is another way to communicate, not another version.
    """
    if one == two or not one or not two:
        return ""
    try:
        first, second = json.loads(one), json.loads(two)
        shared = sorted(first.keys() & second.keys())
    except (ValueError, AttributeError):
        return f"versions: {one} / {two}"
    return ", ".join(
        f"{name}: {first[name]} / {second[name]}" for name in shared if first[name] != second[name]
    )


def _facts(table: pd.DataFrame) -> _Side:
    """The columns that pairing looks at, for all rows; what the table lacks is unknown."""
    start = pd.to_datetime(table["start"], utc=True) if "start" in table else None
    start_s = np.full(len(table), np.nan)
    if start is not None:
        since = (start - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
        start_s = since.to_numpy(dtype=float, na_value=np.nan)
    block = _numbers(table, "block")
    return _Side(
        rows=np.arange(len(table)),
        start_s=start_s,
        node_set=_texts(table, "node_set"),
        block=np.where(np.isnan(block), _numbers(table, "repeat"), block),
        versions=_texts(table, "versions"),
        library=_texts(table, "library"),
    )


def _texts(table: pd.DataFrame, name: str) -> npt.NDArray[Any]:
    column = table[name] if name in table else pd.Series("", index=table.index)
    return column.astype("string").fillna("").to_numpy(dtype=object)


def _numbers(table: pd.DataFrame, name: str) -> npt.NDArray[np.float64]:
    column = table[name] if name in table else pd.Series(np.nan, index=table.index)
    return np.asarray(column.astype("Float64").to_numpy(dtype=float, na_value=np.nan), dtype=np.float64)


def _groups(table: pd.DataFrame, held: Sequence[str]) -> Iterator[npt.NDArray[np.int64]]:
    """Row positions by held-equal key, in order of first appearance."""
    if table.empty:
        return
    numbers = table.groupby(list(held), sort=False, dropna=False).ngroup().to_numpy()
    order = np.argsort(numbers, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def _side(facts: _Side, rows: npt.NDArray[np.int64]) -> _Side:
    rows = rows[np.argsort(facts.start_s[rows], kind="stable")]
    taken = {name: column[rows] for name, column in vars(facts).items()}
    return _Side(**taken)


def _mixed(table: pd.DataFrame, by: str, sides: tuple[_Side, _Side]) -> str:
    """Why one side isn't one thing: several values of a column that the axis should determine."""
    for column in DEPENDENT.get(by, ()):
        if column not in table:
            continue
        for side, rows in zip(SIDES, (side.rows for side in sides), strict=True):
            values = sorted(table[column].iloc[rows].astype("string").fillna("").unique())
            if len(values) > 1 and column == FOLLOWING:
                return f"the {side} has cells of more than one profile or image size"
            if len(values) > 1:
                return f"the {side} has cells of more than one {column}: {', '.join(values)}"
    return ""


def _difference(one: _Side, i: int, two: _Side, j: int, by: str) -> str:
    """In which versions two cells differ."""
    if found := version_difference(one.versions[i], two.versions[j]):
        return found
    first, second = one.library[i], two.library[j]
    if by in NAMES_A_LIBRARY or not first or not second or first == second:
        return ""
    return f"library: {first} / {second}"


def _versions_differ(first: _Side, second: _Side, by: str) -> str:
    """In which versions any cell of one side differs from any of the other."""
    distinct = [
        {(v, name): i for i, (v, name) in enumerate(zip(side.versions, side.library, strict=True))}
        for side in (first, second)
    ]
    found = {_difference(first, i, second, j, by) for i in distinct[0].values() for j in distinct[1].values()}
    return "; ".join(sorted(found - {""}))


def _match(
    first: _Side, second: _Side, by: str, within_s: float, strict: bool
) -> tuple[list[tuple[int, int]], list[tuple[str, int, str]]]:
    """Pairs of indices in order of time, and (side, row, why) of what has no partner."""
    fitting = first.node_set[:, None] == second.node_set[None, :]
    if by in ON_OTHER_NODES:
        fitting = ~fitting
    fitting &= (first.node_set != "")[:, None] & (second.node_set != "")[None, :]
    apart_s = np.abs(first.start_s[:, None] - second.start_s[None, :])
    near = apart_s <= within_s  # false where a start is unknown
    same_versions = np.ones_like(near)
    if strict and _versions_differ(first, second, by):
        for i, j in zip(*np.nonzero(fitting & near), strict=True):
            same_versions[i, j] = not _difference(first, i, second, j, by)
    allowed = fitting & near & same_versions
    other_block = ~(first.block[:, None] == second.block[None, :])
    cost = np.where(allowed, _OTHER_BLOCK * other_block + apart_s / max(within_s, 1e-9), _NO_PAIR)
    chosen = [
        (int(i), int(j)) for i, j in zip(*optimize.linear_sum_assignment(cost), strict=True) if allowed[i, j]
    ]
    chosen.sort(key=lambda pair: first.start_s[pair[0]] + second.start_s[pair[1]])
    rest: list[tuple[str, int, str]] = []
    for axis, (name, side) in enumerate(zip(SIDES, (first, second), strict=True)):
        taken = {pair[axis] for pair in chosen}
        for index in range(len(side.rows)):
            if index not in taken:
                masks = [np.take(mask, index, axis=axis) for mask in (fitting, near, same_versions)]
                why = _why_alone(side, index, masks, by, within_s)
                rest.append((name, int(side.rows[index]), why))
    return chosen, rest


def _why_alone(side: _Side, index: int, masks: Sequence[Any], by: str, within_s: float) -> str:
    fitting, near, same_versions = masks
    if not len(near):
        return "the other side has no good cell"
    if not side.node_set[index]:
        return "its nodes aren't recorded"
    if np.isnan(side.start_s[index]):
        return "its start isn't recorded"
    if not fitting.any():
        return ON_OTHER_NODES.get(by, "no cell of the other side ran on the same nodes")
    if not (fitting & near).any():
        where = "other" if by in ON_OTHER_NODES else "the same"
        return f"no cell of the other side started on {where} nodes within {within_s:g} s"
    if not (fitting & near & same_versions).any():
        return "the cells near it ran with other library versions"
    return "each cell near it has another partner"
