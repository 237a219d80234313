"""Two campaigns in Markdown, for a terminal or a ticket: what differs first, then verdicts."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from fabricbench.analysis.compare import EQUIVALENT, FASTER, REFUSED, SLOWER, UNDECIDED, words_of
from fabricbench.analysis.table import Tables
from fabricbench.report.words import plural

ORDER = (SLOWER, REFUSED, UNDECIDED, FASTER, EQUIVALENT)
MOST_DIFFERENCES = 30


def summary(tables: Tables) -> str:
    """The whole comparison along `campaign` as Markdown."""
    comparisons = tables.conclusions.comparisons
    if comparisons.empty:
        return "No cell was measured in both campaigns, so there is nothing to compare.\n"
    before, after = comparisons["baseline"].iloc[0], comparisons["other"].iloc[0]
    lines = [f"# {after} against {before}", "", "## What else differs", ""]
    lines += _differences(tables.differences) or ["Nothing that was recorded."]
    lines += ["", "## Verdicts", "", _counts(comparisons), ""]
    lines += _table(comparisons)
    lines += ["", *(f"- {_where(row)}: {row['why']}" for row in _rows(comparisons))]
    return "\n".join(lines) + "\n"


def exit_status(comparisons: pd.DataFrame, strict: bool) -> int:
    """1 if anything is slower, or refused, or there is nothing to compare; with `strict` undecided too."""
    bad = {SLOWER, REFUSED, *([UNDECIDED] if strict else [])}
    return int(comparisons.empty or bool(comparisons["verdict"].isin(bad).any()))


def _differences(differences: pd.DataFrame) -> list[str]:
    """What differs and doesn't follow from the fabric, each once, with how many comparisons it concerns."""
    found = differences[~differences["expected"] & (differences["kind"] != "none")]
    columns = ["kind", "what", "that_side", "this_side"]
    counted = found.groupby(columns, sort=False, dropna=False, as_index=False).size()
    pairs = _pairs(differences)
    lines = [
        f"- {row['kind']}, {row['what']}: {row['that_side'] or 'none'} → {row['this_side'] or 'none'} "
        f"({row['size']} of {pairs} comparisons)"
        for row in counted.to_dict("records")
    ]
    left_out = len(lines) - MOST_DIFFERENCES
    return lines[:MOST_DIFFERENCES] + ([f"- and {left_out} more"] if left_out > 0 else [])


def _pairs(differences: pd.DataFrame) -> int:
    return len(differences[["workload", "backend", "gpus", "fabric"]].drop_duplicates())


def _counts(comparisons: pd.DataFrame) -> str:
    verdicts = list(comparisons["verdict"])
    known = [word for word in ORDER if word in verdicts] + sorted(set(verdicts) - set(ORDER))
    return ", ".join(f"{verdicts.count(word)} {word}" for word in known)


def _table(comparisons: pd.DataFrame) -> list[str]:
    lines = [
        "| workload | fabric | backend | GPUs | verdict | difference | cells |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in _rows(comparisons):
        low, high = row["log_low"], row["log_high"]
        span = words_of(low, high) if low == low else "–"
        cells = f"{row['n_baseline']} and {row['n_other']}"
        where = f"{row['workload']} | {row['fabric']} | {row['backend']} | {row['gpus']}"
        lines.append(f"| {where} | {row['verdict']} | {span} | {cells} |")
    return lines


def _rows(comparisons: pd.DataFrame) -> Iterable[dict[Any, Any]]:
    """Worst first."""
    rank = {word: place for place, word in enumerate(ORDER)}
    order = comparisons["verdict"].map(rank).fillna(len(ORDER))
    return comparisons.loc[order.sort_values(kind="stable").index].to_dict("records")


def _where(row: dict[Any, Any]) -> str:
    return f"{row['workload']} on {row['fabric']} over {row['backend']}, {plural(int(row['gpus']), 'GPU')}"
