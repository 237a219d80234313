"""What a training cell measured besides its headline: computing alone, exposed communication, stragglers.

All of it from a record's samples and facts. A record without them, of another kind or from before they were
taken, gives nothing, which the table shows as null.
"""

from collections.abc import Mapping
from math import nan
from statistics import median
from typing import Any

import pandas as pd

from fabricbench.record import Record

MEDIANS = ("step_s", "alone_s", "nosync_s", "load_s")
"""Series of rank 0 whose medians count."""
BY_RANK = ("nosync_median_s", "alone_median_s")
"""Where ranks' own pace shows, since no rank waits there for another: the first that has several ranks."""
FACTS: Mapping[str, type] = {
    "gradient_bytes": int,
    "buckets": int,
    "peak_memory_bytes": int,
    "steady": bool,
    "stopped_by": str,
    "warmup_steps": int,
}
"""Facts that are columns as they are."""


def training_columns(record: Record) -> dict[str, Any]:
    """Columns of a training record of status ok; see docs/table.md. Empty for another kind.

    Times are in seconds as they passed here. exposed_s may be a little below 0, since it is the difference
    of two medians; it holds what a step waits for slower ranks too.
    """
    if record.cell.kind != "train":
        return {}
    values: dict[str, list[float]] = {}
    ranks: dict[str, dict[int, float]] = {}
    for series in record.samples:
        if series.metric in MEDIANS:
            values.setdefault(series.metric, []).extend(series.values)
        elif series.metric in BY_RANK and series.rank is not None and series.values:
            ranks.setdefault(series.metric, {})[series.rank] = series.values[0]
    middle = {name: float(median(found)) for name, found in values.items() if found}
    step_s, nosync_s = middle.get("step_s", nan), middle.get("nosync_s", nan)
    exposed_s = step_s - nosync_s
    facts = {name: _fact(record.facts.get(name), kind) for name, kind in FACTS.items()}
    return {
        "alone_s": middle.get("alone_s", nan),
        "nosync_s": nosync_s,
        "load_s": middle.get("load_s", nan),
        "exposed_s": exposed_s,
        "exposed": exposed_s / step_s if step_s > 0 else nan,
        **_straggler(next((ranks[name] for name in BY_RANK if len(ranks.get(name, {})) > 1), {})),
        **{name: value for name, value in facts.items() if value is not None},
        "n_steps": len(values["step_s"]) if values.get("step_s") else None,
    }


def parts_of_step(cells: pd.DataFrame) -> pd.DataFrame:
    """The training cells whose step is known in parts, with `computing_ms` and `exposed_ms`.

    Both in ms of the machine that is modelled: divided by D where compute is replayed, as the headline is.
    Of one GPU without steps of its own kind, the whole step is computing.
    """
    trained = cells[(cells["kind"] == "train") & cells["step_s"].notna()]
    alone = (trained["gpus"] == 1).fillna(False).astype(bool)
    computing_s = trained["nosync_s"].where(~alone | trained["nosync_s"].notna(), trained["step_s"])
    scale = trained["scale_time"].where(trained["device"] == "replay", 1.0)
    parts = trained.assign(
        computing_ms=1e3 * computing_s / scale, exposed_ms=1e3 * (trained["step_s"] - computing_s) / scale
    )
    return parts[parts["computing_ms"].notna()]


def _straggler(by_rank: Mapping[int, float]) -> dict[str, Any]:
    """By how much the slowest rank's own step is over the median rank's, and which rank that is."""
    if not by_rank:
        return {}
    slowest = max(sorted(by_rank), key=by_rank.__getitem__)
    middle = median(by_rank.values())
    return {"straggler": by_rank[slowest] / middle - 1 if middle > 0 else nan, "straggler_rank": slowest}


def _fact(value: Any, kind: type) -> Any:
    """A fact of the kind that its column holds; None for none. Raises TypeError or ValueError for another."""
    if value is None:
        return None
    if kind is bool and not isinstance(value, bool):
        raise TypeError(f"a fact that is {value!r}, and should be true or false")
    return kind(value)
