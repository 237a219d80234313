"""What ran at the same time as a cell, and so may have shared its links: other cells, and others' jobs.

Emulated cells have links of their own and wait for each other, so nothing runs beside them.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from math import nan
from typing import Any

import numpy as np
import pandas as pd

_MOMENT = timedelta(microseconds=1)


def overlaps(spans: Sequence[tuple[datetime, datetime]]) -> list[int]:
    """For each (start, end), how many of the others it shares time with; touching ends share none."""
    if not spans:
        return []
    starts = np.array([start.timestamp() for start, _ in spans])
    # A span without length is in its moment all the same.
    ends = np.array([max(end, start + _MOMENT).timestamp() for start, end in spans])
    begun = np.searchsorted(np.sort(starts), ends, side="left")
    over = np.searchsorted(np.sort(ends), starts, side="right")
    return [int(count) for count in begun - over - 1]


def with_overlaps(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of cells with `overlaps`: 0 for emulated ones, none for those that didn't run."""
    ran = [row for row in rows if row.get("start") and row.get("end")]
    real = [row for row in ran if not row["emulated"]]
    counted = dict.fromkeys(map(id, ran), 0)
    counted |= zip(map(id, real), overlaps([(row["start"], row["end"]) for row in real]), strict=True)
    return [row | {"overlaps": counted.get(id(row))} for row in rows]


def job_columns(provenance: Mapping[str, Any], began: datetime | None = None) -> dict[str, Any]:
    """`job`, `queue_s`, `startup_s`, `others` and `restarts` from what a record says of its job.

    `began`: the start of a cell that has a job of its own; in an allocation other cells come before it.
    """
    job = provenance.get("job") or {}
    submitted, started = (_moment(job.get(name)) for name in ("submitted", "started"))
    others = job.get("others") or {}
    return {
        "job": str(job.get("id") or ""),
        "queue_s": (started - submitted).total_seconds() if submitted and started else nan,
        "startup_s": (began - started).total_seconds() if began and started else nan,
        "others": _count(others.get("jobs")),
        "restarts": _count(job.get("restarts")),
    }


def beside(cells: pd.DataFrame) -> "pd.Series[bool]":
    """Which cells ran at the same time as others of the table or as others' jobs; none if not told."""
    found = pd.Series(False, index=cells.index)
    for name in ("overlaps", "others"):
        if name in cells:
            found |= (cells[name].fillna(0) > 0).astype(bool)
    return found


def _moment(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None


def _count(value: Any) -> int | None:
    """A number of things, or of the things in a list."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, list | tuple):
        return len(value)
    return int(value) if isinstance(value, int | float) else None
