"""Repeats of the same measurement into one row: median and range, nothing inferred."""

import numpy as np
import pandas as pd

from fabricbench.analysis.names import natural

KEY = ["workload", "kind", "backend", "gpus", "fabric", "unit", "emulated", "demonstration"]
"""What is held equal among the repeats that one row stands for."""


def ok(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells that may enter an aggregate: status ok, with a headline value."""
    return cells[(cells["status"] == "ok") & cells["value"].notna()]


def over_repeats(cells: pd.DataFrame, column: str = "value") -> pd.DataFrame:
    """One row per workload × fabric × backend × gpus: n, median, min, max and spread of `column`.

    The columns are in the unit of `column`; `spread` is (max - min) / median, and NaN for one repeat.
    """
    good = ok(cells)
    groups = good[good[column].notna()].groupby(KEY, sort=False, as_index=False)
    table = groups.agg(
        n=(column, "size"), median=(column, "median"), min=(column, "min"), max=(column, "max")
    )
    relative = (table["max"] - table["min"]) / table["median"]
    return table.assign(spread=np.where(table["n"] > 1, relative, np.nan))


def counts(cells: pd.DataFrame) -> dict[str, int]:
    """Cells by status, most frequent first, ties by name."""
    found = cells["status"].value_counts()
    return {str(name): int(n) for name, n in sorted(found.items(), key=lambda item: (-item[1], str(item[0])))}


def reading_order(cells: pd.DataFrame) -> list[str]:
    """Labels of workloads: the config's workloads as they first ran, their variants in natural order."""
    pairs = dict.fromkeys(cells[["family", "workload"]].itertuples(index=False, name=None))
    families = list(dict.fromkeys(family for family, _ in pairs))
    places = sorted((families.index(family), natural(label), label) for family, label in pairs)
    return [str(label) for *_, label in places]
