"""Throughput and efficiency by GPU count, and time and bandwidth by message size."""

import numpy as np
import pandas as pd

from fabricbench.analysis.headline import MICRO_METRICS, bus_factor
from fabricbench.analysis.names import SPREAD
from fabricbench.analysis.stats import ok

SCALED_KINDS = ("train", "cfd")
ANY_FABRIC = ["workload", "itself"]
OWN = [*ANY_FABRIC, "fabric"]
SHARED = ["workload", "backend", "fabric"]
CURVE_KEY = ["workload", "backend", "gpus", "fabric", "metric", "bytes"]
CURVE_COLUMNS = [
    *CURVE_KEY,
    "samples",
    "repeats",
    *(f"{what}_{at}" for what in ("time_s", "bandwidth_bit_s") for at in ("p10", "median", "p90")),
    "line_rate_bit_s",
    "of_line_rate",
]


ONE_GPU, ITSELF = "one GPU", "itself"
"""What an efficiency refers to: cells on one GPU, or the cell's own steps without DDP."""


def efficiency(cells: pd.DataFrame) -> pd.DataFrame:
    """One row per ok training or flow cell with `efficiency`, a share, and the `reference` that it has.

    Of one GPU: (value / gpus) / value on one GPU. The one-GPU value is the median over repeats of the same
    workload, backend and fabric; where a fabric has none, over all fabrics, since one GPU sends nothing over
    any. Cells that may enter no verdict are no reference. Without any, of itself: the median time of a step
    of rank 0 without DDP, measured in the same cell, over that of its step. Without either, NaN and "". At a
    fixed batch per rank that is T(1)/T(n), weak scaling; at fixed total cells, where value is DOF over time,
    it is T(1)/(n·T(n)), strong scaling.
    """
    scaled = ok(cells)
    scaled = scaled[scaled["kind"].isin(SCALED_KINDS)]
    # One GPU has no placement, so the reference of what is spread is packed: see report/placed.py.
    scaled = scaled.assign(itself=scaled["backend"].str.removesuffix(SPREAD))
    one = scaled[(scaled["gpus"] == 1) & (_texts(scaled, "no_verdict") == "")]
    own = one.groupby(OWN, as_index=False).agg(on_own=("value", "median"))
    on_any = one.groupby(ANY_FABRIC, as_index=False).agg(on_any=("value", "median"))
    joined = scaled.merge(own, on=OWN, how="left").merge(on_any, on=ANY_FABRIC, how="left")
    reference = joined["on_own"].fillna(joined["on_any"])
    share = joined["value"] / joined["gpus"].astype(float) / reference
    alone = _numbers(joined, "alone_s") / joined["step_s"]
    by = np.where(share.notna(), ONE_GPU, np.where(alone.notna(), ITSELF, ""))
    return joined.drop(columns=["on_own", "on_any", "itself"]).assign(
        efficiency=share.fillna(alone), reference=pd.Series(by, index=joined.index, dtype="string")
    )


def _numbers(cells: pd.DataFrame, name: str) -> pd.Series:
    """A column of numbers, NaN where the table has none."""
    return cells[name] if name in cells else pd.Series(np.nan, index=cells.index)


def _texts(cells: pd.DataFrame, name: str) -> pd.Series:
    """A column of texts, "" where the table has none."""
    found = cells[name] if name in cells else pd.Series("", index=cells.index)
    return found.astype("string").fillna("")


def scaling(cells: pd.DataFrame, samples: pd.DataFrame) -> pd.DataFrame:
    """One row per ok training or flow cell: how well it scales, and what share of a step communicates.

    scaling: weak (fixed batch per rank) or strong (fixed mesh); efficiency as above. communication, a share
    of the step: of the flow solver its wait for halos, measured (`halo wait`, medians of rank 0); of
    training what a step takes beyond one without synchronisation in the same cell (`without sync`: exposed
    communication), or where that wasn't measured beyond one GPU's without DDP (`beyond T(1)`: with whatever
    else grows along; NaN without a reference).
    """
    scaled = efficiency(cells)
    waits = samples[samples["metric"] == "halo_wait_s"].groupby("cell")["value"].median()
    steps = samples[samples["metric"] == "step_s"].groupby("cell")["value"].median()
    waiting = (waits / steps).rename("waiting")
    joined = scaled.merge(waiting, left_on="cell", right_index=True, how="left")
    flow = joined["kind"] == "cfd"
    beyond = (1 - joined["efficiency"]).where(joined["gpus"] > 1, 0.0).where(joined["efficiency"].notna())
    exposed = _numbers(joined, "exposed").where(joined["gpus"] > 1)
    return pd.DataFrame(
        {
            **{name: joined[name] for name in ("cell", *SHARED, "gpus", "repeat", "demonstration")},
            "scaling": np.where(flow, "strong", "weak"),
            "efficiency": joined["efficiency"],
            "reference": joined["reference"],
            "communication": joined["waiting"].where(flow, exposed.fillna(beyond)),
            "communication_by": np.where(
                flow, "halo wait", np.where(exposed.notna(), "without sync", "beyond T(1)")
            ),
            "no_verdict": _texts(joined, "no_verdict"),
        }
    ).reset_index(drop=True)


def curves(cells: pd.DataFrame, samples: pd.DataFrame) -> pd.DataFrame:
    """One row per message size of every ok micro cell's series, over all samples and repeats.

    time_s_{p10,median,p90} in s (ping-pong: one way); bandwidth_bit_s_{…} bus bandwidth in bit/s at that
    time's quantile (p10 is the slow end); line_rate_bit_s of a node as shaped, all its ports together;
    of_line_rate the median's share of it.
    """
    micro = cells[(cells["status"] == "ok") & (cells["kind"] == "micro")]
    sized = samples[samples["metric"].isin(MICRO_METRICS) & samples["bytes"].notna()]
    columns = ["cell", "workload", "backend", "gpus", "fabric", "line_rate_bit_s"]
    rated = micro.assign(line_rate_bit_s=micro["link_bit_s"] * micro["ports_per_node"].astype(float))
    joined = sized.merge(rated[columns], on="cell", how="inner")
    if joined.empty:
        return pd.DataFrame(columns=CURVE_COLUMNS)
    groups = joined.groupby(CURVE_KEY, sort=False)
    table = groups.agg(
        samples=("value", "size"),
        repeats=("cell", "nunique"),
        time_s_median=("value", "median"),
        line_rate_bit_s=("line_rate_bit_s", "first"),
    )
    table["time_s_p10"] = groups["value"].quantile(0.1)
    table["time_s_p90"] = groups["value"].quantile(0.9)
    table = table.reset_index()
    factor = [
        bus_factor(str(metric), int(ranks))
        for metric, ranks in zip(table["metric"], table["gpus"], strict=True)
    ]
    carried_bit = table["bytes"].astype(float) * 8 * np.array(factor)
    for at, time_at in (("p10", "p90"), ("median", "median"), ("p90", "p10")):
        table[f"bandwidth_bit_s_{at}"] = carried_bit / table[f"time_s_{time_at}"]
    table["of_line_rate"] = table["bandwidth_bit_s_median"] / table["line_rate_bit_s"]
    return table[CURVE_COLUMNS]
