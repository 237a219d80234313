"""From which size on a choice matters: GPUs, or bytes of a message."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fabricbench.analysis.blocks import HELD, usable
from fabricbench.analysis.compare import EQUIVALENT, FASTER, NONE, SLOWER
from fabricbench.analysis.headline import MICRO_METRICS

AXIS = ("by", "baseline", "other")
WITH_GPUS = ("gpus", "nodes", "ranks_per_node")
COLUMNS = ["smallest", "largest", "matters_from", "direction", "equivalent_up_to", "why"]


def from_gpus(comparisons: pd.DataFrame) -> pd.DataFrame:
    """From how many GPUs on it matters; see `from_size`. Nodes and ranks per node grow along."""
    return from_size(comparisons, "gpus", WITH_GPUS)


def from_bytes(comparisons: pd.DataFrame) -> pd.DataFrame:
    """From which message size on it matters; see `from_size`. Takes comparisons of `per_size`."""
    return from_size(comparisons, "bytes", ("bytes",))


def from_size(comparisons: pd.DataFrame, size: str, grows_along: Sequence[str]) -> pd.DataFrame:
    """One row per comparison over all its values of the column `size`.

    matters_from: the smallest size from which on every verdict is faster, or every one slower (`direction`),
    up to the largest that was compared; null if the largest has another verdict. equivalent_up_to: the
    largest size up to which every verdict is equivalent. Undecided counts as neither.
    """
    key = [name for name in (*AXIS, *HELD) if name in comparisons and name not in grows_along]
    rows = []
    if size in comparisons:
        sized = comparisons[comparisons[size].notna()]
        for _, group in sized.groupby(key, sort=False, dropna=False):
            rows.append({name: group[name].iloc[0] for name in key} | _threshold(group, size))
    table = pd.DataFrame(rows, columns=[*key, *COLUMNS])
    integers = ("smallest", "largest", "matters_from", "equivalent_up_to")
    return table.astype(dict.fromkeys(integers, "Int64"))


def per_size(
    cells: pd.DataFrame, series: pd.DataFrame, trusted_from: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """Micro cells as one row per metric and message size, to be compared like cells.

    `series` is what `within.summary` gives; the value is messages per second, 1 over the median time, and
    `steadiness` that of the size's own samples. trusted_from: by cell, from how many bytes on an emulated
    link holds its rate (evidence.emulation.trustworthy_from_bytes); shorter messages get no verdict.
    """
    sized = series[series["metric"].isin(MICRO_METRICS) & series["bytes"].notna() & (series["median"] > 0)]
    micro = cells[usable(cells.assign(value=1.0)) & (cells["kind"] == "micro")]
    rows = micro.drop(columns=["value", "unit"]).merge(
        sized[["cell", "metric", "bytes", "median", "steadiness"]], on="cell", how="inner"
    )
    rows = rows.assign(value=1 / rows["median"].astype(float), unit="messages/s").drop(columns="median")
    if not trusted_from:
        return rows
    short = [
        f"{int(size):,} bytes; shaping is trustworthy from {bound:,.0f}"
        if size < (bound := trusted_from.get(str(cell)) or 0)
        else ""
        for cell, size in zip(rows["cell"], rows["bytes"], strict=True)
    ]
    barred = rows["no_verdict"].astype("string").fillna("") if "no_verdict" in rows else [""] * len(rows)
    why = [of_cell or of_size for of_cell, of_size in zip(barred, short, strict=True)]
    return rows.assign(no_verdict=pd.Series(why, index=rows.index, dtype="string"))


def _threshold(group: pd.DataFrame, size: str) -> dict[str, Any]:
    verdicts = _verdicts(group, size)
    sizes = list(verdicts)
    same = [value for value in sizes if verdicts[value] == EQUIVALENT]
    unequal = [value for value in sizes if verdicts[value] != EQUIVALENT]
    found: dict[str, Any] = {
        "smallest": sizes[0],
        "largest": sizes[-1],
        "matters_from": None,
        "direction": "",
        "equivalent_up_to": max(
            (value for value in same if value < min(unequal, default=value + 1)), default=None
        ),
    }
    direction = verdicts[sizes[-1]]
    if direction not in (FASTER, SLOWER):
        return found | {"why": f"at the largest, {sizes[-1]}, the verdict is {direction}"}
    first = len(sizes)
    while first and verdicts[sizes[first - 1]] == direction:
        first -= 1
    why = "from the smallest that was compared on" if not first else _why(sizes[first - 1], verdicts)
    return found | {"matters_from": sizes[first], "direction": direction, "why": why}


def _verdicts(group: pd.DataFrame, size: str) -> dict[int, str]:
    """The verdict by size, in order; "mixed" where several layouts of one size differ."""
    found: dict[int, set[str]] = {}
    for value, verdict in zip(group[size], group["verdict"], strict=True):
        found.setdefault(int(value), set()).add(str(verdict))
    return {value: found[value].pop() if len(found[value]) == 1 else "mixed" for value in sorted(found)}


def _why(below: int, verdicts: Mapping[int, str]) -> str:
    verdict = verdicts[below]
    if verdict == NONE:
        return f"at {below} there is no verdict"
    sure = "" if verdict in (EQUIVALENT, FASTER, SLOWER) else ", so it may matter there already"
    return f"at {below} the verdict is {verdict}{sure}"
