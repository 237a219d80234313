"""The A/A control: one network under two names. What seems to differ between the two is noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, nan
from typing import Any

import pandas as pd

from fabricbench.analysis.compare import EQUIVALENT, NONE, Axis, Rules, compare, words_of

Pairs = Sequence[tuple[str, str]]
"""Names of fabrics with one definition: the one that is compared with others, and its second name."""

NO_CONTROL = "no control was measured: one network under two names shows what is noise"


@dataclass(frozen=True)
class Decision:
    """Whether a campaign can decide at all, by its controls."""

    can_decide: bool
    reason: str = ""
    """Why it can't; empty if it can."""


def control(
    cells: pd.DataFrame,
    pairs: Pairs,
    rules: Rules | None = None,
    flags: Mapping[str, str] | pd.Series | None = None,
) -> pd.DataFrame:
    """One row per pair × held-equal key: what `compare` gives, and besides

    noise_floor_percent: the farther end of the interval, what a difference must exceed to mean something
    (NaN where there's no interval); can_decide, and the reason where it's false.
    """
    rules = rules or Rules()
    tables = [
        compare(cells[cells["fabric"].isin([name, again])], [Axis("fabric", name)], rules, flags)
        for name, again in pairs
    ]
    filled = [table for table in tables if not table.empty]
    table = pd.concat(filled, ignore_index=True) if filled else compare(cells.iloc[:0], [], rules)
    rows = table.to_dict("records")
    reasons = [_reason({str(name): value for name, value in row.items()}, rules) for row in rows]
    return table.assign(
        noise_floor_percent=[_floor(low, high) for low, high in _intervals(table)],
        can_decide=[not reason for reason in reasons],
        reason=pd.Series(reasons, index=table.index, dtype="string"),
    )


def decision(controls: pd.DataFrame) -> Decision:
    """Over all controls of a campaign: it can decide if each that may have a verdict came out equivalent."""
    counted = controls[controls["verdict"] != NONE]
    if counted.empty:
        return Decision(False, NO_CONTROL)
    failed = counted[~counted["can_decide"].astype(bool)]
    if failed.empty:
        return Decision(True)
    places = [
        f"{workload} over {backend} on {gpus} GPUs: {reason}"
        for workload, backend, gpus, reason in failed[["workload", "backend", "gpus", "reason"]].itertuples(
            index=False, name=None
        )
    ]
    return Decision(False, f"{len(failed)} of {len(counted)} controls failed; {'; '.join(places)}")


def without_second_names(cells: pd.DataFrame, pairs: Pairs) -> pd.DataFrame:
    """The cells without the controls' second names: these are no further comparison that Holm must count."""
    return cells[~cells["fabric"].isin([again for _, again in pairs])]


def _intervals(table: pd.DataFrame) -> list[tuple[float, float]]:
    return [(float(low), float(high)) for low, high in zip(table["log_low"], table["log_high"], strict=True)]


def _floor(log_low: float, log_high: float) -> float:
    farther = max(abs(log_low), abs(log_high))
    return 100 * (exp(farther) - 1) if farther == farther else nan


def _reason(row: Mapping[str, Any], rules: Rules) -> str:
    if row["verdict"] == EQUIVALENT:
        return ""
    low, high = float(row["log_low"]), float(row["log_high"])
    if low != low:
        return f"its control has no interval ({str(row['why']).rstrip('.')})"
    names = f"{row['baseline']} and {row['other']} are one network, yet {row['other']} came out"
    if row["differs"]:
        return f"{names} {words_of(low, high)}: something other than the network differs between them"
    return f"{names} {words_of(low, high)}: the noise is too large for a margin of ±{100 * rules.margin:g} %"
