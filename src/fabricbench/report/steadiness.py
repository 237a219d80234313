"""The sections on runs and their order: what wasn't steady, which rank was slow, what the blocks were."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fabricbench.analysis import order
from fabricbench.analysis.compare import Axis
from fabricbench.analysis.conclusions import Conclusions, axes_of, rules_of, second_names
from fabricbench.analysis.control import without_second_names
from fabricbench.analysis.within import SMALLEST_CHANGE
from fabricbench.report import verdicts, words
from fabricbench.report.panels import DataTable

Json = Mapping[str, Any]

MOST_ROWS = 500
MOMENT = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True)
class Within:
    """The section on single runs."""

    counts: str
    """One sentence: how many series are steady, and how many aren't."""
    unsteady: DataTable
    left_out: int
    slow_ranks: DataTable


@dataclass(frozen=True)
class Order:
    """The section on blocks."""

    drawn: str
    repeats: DataTable
    comparisons: DataTable


def within(conclusions: Conclusions) -> Within:
    """Series that drift or have two humps, and ranks that hold the others up."""
    series = conclusions.series
    flagged = series[(series["drifting"] | series["two_humped"]).astype(bool)]
    few = int((series["steadiness"] == "too few samples").sum())
    parts = [f"{len(flagged):,} of {len(series):,} series aren't steady"]
    if few:
        parts.append(f"{few:,} have too few samples to tell")
    return Within(
        counts=f"{'; '.join(parts)}." if len(series) else "",
        unsteady=_unsteady(flagged[:MOST_ROWS]),
        left_out=max(0, len(flagged) - MOST_ROWS),
        slow_ranks=_slow_ranks(conclusions.ranks),
    )


def _unsteady(series: pd.DataFrame) -> DataTable:
    numbers = ["samples", "median", "95 % interval", "quartiles apart", "drift", "p of drift", "humps apart"]
    rows = [
        [
            str(row["cell"]),
            str(row["metric"]) if pd.isna(row["bytes"]) else f"{row['metric']}, {words.size(row['bytes'])}",
            str(row["steadiness"]),
            str(row["n"]),
            words.seconds(row["median"]),
            f"{words.seconds(row['median_low'])} – {words.seconds(row['median_high'])}",
            words.percent(100 * row["iqr_of_median"]),
            words.percent(100 * row["drift"], sign=True),
            words.p_value(row["drift_p"]),
            words.percent(100 * row["humps_apart"]) if row["two_humped"] else words.DASH,
        ]
        for row in series.to_dict("records")
    ]
    return DataTable(["cell", "series", "found", *numbers], rows, frozenset(numbers))


def _slow_ranks(ranks: pd.DataFrame) -> DataTable:
    """Cells in which one rank is slower than the median rank by 2 % and more, and the slowest most often."""
    same = (ranks["slowest_rank"] == ranks["most_often_rank"]).fillna(False).astype(bool)
    slow = ranks[same & (ranks["over_median_rank"] > SMALLEST_CHANGE)]
    numbers = ["slowest rank", "over the median rank", "slowest in", "by chance"]
    rows = [
        [
            str(row["cell"]),
            f"{row['slowest_rank']} of {row['ranks']}",
            words.percent(100 * row["over_median_rank"], sign=True),
            f"{words.share(row['slowest_of_steps'])} of {words.plural(int(row['steps']), 'step')}",
            words.share(1 / row["ranks"]),
        ]
        for row in slow.sort_values("over_median_rank", ascending=False)[:MOST_ROWS].to_dict("records")
    ]
    return DataTable(["cell", *numbers], rows, frozenset(numbers))


def blocks(cells: pd.DataFrame, campaign: Json) -> Order:
    """What the blocks turned out to be."""
    rules, pairs = rules_of(campaign), second_names(campaign)
    found = [order.paired(without_second_names(cells, pairs), axes_of(campaign, cells), rules)]
    for name, again in pairs:
        of = cells[cells["fabric"].isin([name, again])]
        found.append(order.paired(of, [Axis("fabric", name)], rules))
    filled = [table for table in found if not table.empty] or found[:1]
    return Order(
        drawn=_drawn(campaign),
        repeats=_repeats(order.repeats(cells)),
        comparisons=_pairs(pd.concat(filled, ignore_index=True)),
    )


def _drawn(campaign: Json) -> str:
    kind = (campaign.get("cluster") or {}).get("kind")
    if campaign.get("seed") is None:
        return "The seed of the order isn't recorded."
    text = (
        "Cells were ordered in blocks, one per repeat; the order within each was drawn with "
        f"seed {campaign['seed']}."
    )
    return f"{text} They were submitted so; when each ran was Slurm's choice." if kind == "slurm" else text


def _repeats(table: pd.DataFrame) -> DataTable:
    rows, before = [], None
    for row in table.to_dict("records"):
        gap = words.DASH if before is None else words.seconds((row["first"] - before).total_seconds())
        rows.append(
            [
                str(row["repeat"]),
                str(row["cells"]),
                _when(row["first"], row["last"]),
                gap,
                row["node_sets"] or words.DASH,
            ]
        )
        before = row["last"]
    names = ["repeat", "cells", "first to last start, UTC", "after the one before", "nodes"]
    return DataTable(names, rows, frozenset({*names[:2], names[3]}), wrap=frozenset({"nodes"}))


def _when(first: Any, last: Any) -> str:
    """`2026-11-30 10:01:00 to 10:03:20`."""
    if pd.isna(first):
        return words.DASH
    end = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:{MOMENT}}"
    return f"{first:{MOMENT}} to {end}"


def _pairs(table: pd.DataFrame) -> DataTable:
    rows = [
        [
            f"{verdicts.where(row)}: {verdicts.sides(row)}",
            str(row["blocks"]),
            _when(row["first"], row["last"]),
            words.seconds(row["apart_s"]) if row["apart_s"] else "0 s",
            row["node_sets"] or words.DASH,
            f"{row['left_over']}: {row['why']}" if row["left_over"] else words.DASH,
        ]
        for row in table.to_dict("records")
    ]
    names = ["comparison", "blocks", "first to last start, UTC", "apart, at most", "nodes", "left over"]
    return DataTable(
        names, rows, frozenset({"blocks", "apart, at most"}), wrap=frozenset({"nodes", "left over"})
    )
