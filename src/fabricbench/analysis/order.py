"""What a campaign's blocks turned out to be: how many, when, on which nodes, and how far apart."""

from collections.abc import Iterable, Sequence
from math import nan

import pandas as pd

from fabricbench.analysis import blocks
from fabricbench.analysis.compare import Axis, Rules
from fabricbench.analysis.names import condensed

REPEAT_COLUMNS = ["repeat", "cells", "first", "last", "node_sets"]
PAIRED_COLUMNS = ["blocks", "first", "last", "apart_s", "node_sets", "left_over", "why"]


def repeats(cells: pd.DataFrame) -> pd.DataFrame:
    """One row per repeat that has run: the block of the order, as the grid names it.

    cells: how many recorded their start; first, last: the earliest and latest of these; node_sets: the
    distinct sets of nodes, condensed, largest first, joined by `; `.
    """
    started = cells[cells["start"].notna() & cells["repeat"].notna()]
    rows = [
        {
            "repeat": repeat,
            "cells": len(part),
            "first": part["start"].min(),
            "last": part["start"].max(),
            "node_sets": _node_sets(part["node_set"]),
        }
        for repeat, part in started.groupby("repeat", sort=True)
    ]
    return pd.DataFrame(rows, columns=REPEAT_COLUMNS)


def paired(cells: pd.DataFrame, axes: Sequence[Axis], rules: Rules) -> pd.DataFrame:
    """One row per comparison along `axes`: its held-equal key, `by`, `baseline`, `other`, and

    blocks: how many pairs; first, last: when the first and the last of them began; apart_s: the longest
    time between the starts of the two cells of a pair; left_over: good cells without a partner, and why
    most of them have none.
    """
    tables = [_along(cells, axis, rules) for axis in axes]
    filled = [table for table in tables if not table.empty]
    named = [*blocks.HELD, "by", "baseline", "other"]
    table = pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=PAIRED_COLUMNS)
    return table.reindex(columns=[*named, *PAIRED_COLUMNS])


def _along(cells: pd.DataFrame, axis: Axis, rules: Rules) -> pd.DataFrame:
    found = blocks.find(
        cells,
        axis.by,
        axis.baseline,
        pair_within_s=rules.pair_within_s,
        allow_versions=rules.allow_versions,
    )
    starts, nodes = cells["start"].to_numpy(), cells["node_set"].to_numpy(dtype=object)
    pairs: dict[int, list[tuple[int, int, float]]] = {}
    columns = ["comparison", "baseline_row", "other_row", "apart_s"]
    for number, one, other, apart_s in found.pairs[columns].itertuples(index=False, name=None):
        pairs.setdefault(int(number), []).append((int(one), int(other), float(apart_s)))
    alone: dict[int, list[str]] = {}
    for number, why in found.unpaired[["comparison", "why"]].itertuples(index=False, name=None):
        alone.setdefault(int(number), []).append(str(why))
    rows = []
    for number in found.comparisons["comparison"]:
        of, left = pairs.get(int(number), []), alone.get(int(number), [])
        began = [starts[row] for one, other, _ in of for row in (one, other)]
        rows.append(
            {
                "blocks": len(of),
                "first": min(began, default=pd.NaT),
                "last": max(began, default=pd.NaT),
                "apart_s": max((apart_s for _, _, apart_s in of), default=nan),
                "node_sets": _node_sets(nodes[one] for one, _, _ in of),
                "left_over": len(left),
                "why": max(sorted(set(left)), key=left.count, default=""),
            }
        )
    numbers = pd.DataFrame(rows, columns=PAIRED_COLUMNS, index=found.comparisons.index)
    return pd.concat([found.comparisons, numbers], axis=1)


def _node_sets(names: Iterable[str]) -> str:
    """`n0-n15; n0-n3`: each set once, the largest first."""
    sets = {tuple(str(name).split(",")) for name in names if name}
    ordered = sorted(sets, key=_by_size)
    return "; ".join(condensed(nodes) for nodes in ordered)


def _by_size(nodes: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    return -len(nodes), nodes
