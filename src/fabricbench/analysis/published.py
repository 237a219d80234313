"""A campaign's emulated rates beside the published ones that it repeats, and beside simpler models.

Every model may use what the campaign's own was fitted to (the rates marked so), and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import pandas as pd
import yaml

from fabricbench.analysis.overlap import (
    Observation,
    Step,
    fit_without_overlap,
    overlapped_s,
    ring_bits,
)
from fabricbench.analysis.stats import ok

Json = Mapping[str, Any]

MODELS = ("emulated", "overlap", "no_overlap", "null")
"""Columns with images/s; the first is measured on emulated links, the others are computed."""
DTYPES = {
    "model": "string",
    "fabric": "string",
    "backend": "string",
    "gpus": "Int64",
    "batch": "Int64",
    "fits": "string",
    "published": "float64",
    "repeats": "Int64",
    "emulated_min": "float64",
    "emulated_max": "float64",
    **dict.fromkeys(MODELS, "float64"),
    **{f"{name}_error": "float64" for name in MODELS},
    "no_overlap_bit_s": "float64",
    "effective_bit_s": "float64",
    "fixed_cost_s": "float64",
    "null_fixed_s": "float64",
}
EFFECTIVE, FIXED_COST = "effective", "fixed_cost"


@dataclass(frozen=True, kw_only=True)
class _Point:
    """A published rate with the cells that stand for it."""

    rate: Json
    """As grid.json has it: campaign.PublishedRate."""
    backend: str
    cells: pd.DataFrame
    step: Step | None
    """None where no cell recorded its buckets."""
    fixed_s: float

    @property
    def images(self) -> float:
        return float(self.rate["batch"] * self.rate["gpus"])

    @property
    def alone_s(self) -> float:
        """One GPU's step."""
        return float(self.rate["batch"] / self.rate["one_gpu_images_per_s"])

    @property
    def seconds(self) -> float:
        """The published step."""
        return float(self.images / self.rate["images_per_s"])

    @property
    def bits(self) -> float:
        return ring_bits(sum(self.step.bucket_bytes), self.step.ranks) if self.step else nan


def published(cells: pd.DataFrame, facts: Json, campaign: Json) -> pd.DataFrame:
    """One row per published rate and backend, in the reference's order of models; empty without a reference.

    published and the four models in images/s of all GPUs; `*_error` their shares above or below it; fits:
    the value chosen by this rate, "" for a prediction. emulated: the median over repeats (NaN while there
    are none); overlap: DDP's overlap computed at the campaign's own rates and fixed cost; no_overlap: the
    all-reduce after the compute, with rates (no_overlap_bit_s) and a fixed cost fitted to the same published
    rates; null: one GPU's step and a fixed cost (null_fixed_s), no network.
    """
    told = campaign.get("published")
    if "no_verdict" in cells:  # a host that was too busy repeats nothing
        cells = cells.assign(value=cells["value"].where(cells["no_verdict"].fillna("") == ""))
    points = _points(cells, facts, told["rates"]) if told else []
    rows = []
    for backend in dict.fromkeys(point.backend for point in points):
        own = [point for point in points if point.backend == backend]
        rows += _rows(own, _rates_of(campaign))
    frame = pd.DataFrame(rows, columns=list(DTYPES)).astype(DTYPES)
    return frame


def gaps(frame: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """By how much each fabric's rate is off the baseline fabric's, per model and backend, as shares.

    Columns: model, backend, fabric, and `published` and each of MODELS; the widest published gap first.
    """
    key = ["model", "backend"]
    rates = ["published", *MODELS]
    base = frame[frame["fabric"] == baseline].set_index(key)[rates]
    other = frame[frame["fabric"] != baseline].set_index(key)
    joined = other[rates] / base.reindex(other.index) - 1
    table = joined.assign(fabric=other["fabric"]).reset_index()[[*key, "fabric", *rates]]
    return table.sort_values("published", key=abs, ascending=False, kind="stable", ignore_index=True)


def _rates_of(campaign: Json) -> dict[str, float]:
    """Bit/s that each fabric is taken to reach on the real wire."""
    return {
        name: float(fabric.get("effective_bit_s") or fabric["rate_bit_s"])
        for name, fabric in campaign["fabrics"].items()
        if fabric.get("rate_bit_s")
    }


def _points(cells: pd.DataFrame, facts: Json, rates: Sequence[Json]) -> list[_Point]:
    """Each rate with its good cells, once per backend that the grid has for it."""
    train = cells[(cells["kind"] == "train") & (cells["device"] == "replay")]
    params = [yaml.safe_load(text) or {} for text in train["params"]]
    train = train.assign(
        model=[str(one.get("model")) for one in params],
        batch=[int(one.get("batch") or 0) for one in params],
        fixed_s=[float(one.get("fixed_cost") or 0.0) for one in params],
    )
    points = []
    for rate in rates:
        alike = train[
            (train["model"] == rate["model"])
            & (train["fabric"] == rate["fabric"])
            & (train["batch"] == rate["batch"])
            & (train["gpus"] == rate["gpus"])
        ]
        for backend, own in alike.groupby("backend", sort=False):
            good = ok(own)
            step = next(filter(None, map(_step(facts), good.to_dict("records"))), None)
            fixed_s = float(own["fixed_s"].iloc[0])
            points.append(_Point(rate=rate, backend=str(backend), cells=good, step=step, fixed_s=fixed_s))
    return points


def step_of(facts: Json, bytes_scale: float, time_scale: float, ranks: int) -> Step | None:
    """What a cell recorded of its buckets and compute, on the real machine's scale; None where it didn't."""
    if not facts.get("bucket_bytes") or not facts.get("bucket_ready_s"):
        return None
    return Step(
        compute_s=float(facts["compute_s"]) / time_scale,
        ready_s=[float(ready) / time_scale for ready in facts["bucket_ready_s"]],
        bucket_bytes=[float(size) * bytes_scale for size in facts["bucket_bytes"]],
        ranks=ranks,
    )


def _step(facts: Json) -> Any:
    def of(cell: Mapping[Any, Any]) -> Step | None:
        own = facts["cells"].get(cell["cell"], {}).get("facts", {})
        return step_of(own, cell["scale_bytes"], cell["scale_time"], int(cell["gpus"]))

    return of


def _rows(points: Sequence[_Point], rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """Rows of one backend, whose fitted rates the simpler models are fitted to as well."""
    fitted = [point for point in points if point.rate["fits"]]
    fixed = [point for point in fitted if point.rate["fits"] == FIXED_COST]
    null_s = sum(point.seconds - point.alone_s for point in fixed) / len(fixed) if fixed else 0.0
    free = {point.rate["fabric"] for point in fitted if point.rate["fits"] == EFFECTIVE}
    seen = [
        Observation(key=point.rate["fabric"], bits=point.bits, extra_s=point.seconds - point.alone_s)
        for point in fitted
        if point.step
    ]
    known = {name: rate for name, rate in rates.items() if name not in free}
    plain, plain_s = fit_without_overlap(seen, known, bool(fixed))
    return [_row(point, rates, plain, plain_s, null_s) for point in points]


def _row(
    point: _Point, rates: Mapping[str, float], plain: Mapping[str, float], plain_s: float, null_s: float
) -> dict[str, Any]:
    rate, fabric = point.rate, point.rate["fabric"]
    values = point.cells["value"]
    seconds = {
        "overlap": overlapped_s(point.step, rates[fabric], point.fixed_s) if point.step else nan,
        "no_overlap": point.alone_s + point.bits / plain.get(fabric, nan) + plain_s,
        "null": point.alone_s + null_s,
    }
    modelled = {"emulated": float(values.median()) if len(values) else nan}
    modelled |= {name: point.images / each for name, each in seconds.items()}
    return {
        **{name: rate[name] for name in ("model", "fabric", "gpus", "batch")},
        "backend": point.backend,
        "fits": rate["fits"] or "",
        "published": float(rate["images_per_s"]),
        "repeats": len(values),
        "emulated_min": float(values.min()) if len(values) else nan,
        "emulated_max": float(values.max()) if len(values) else nan,
        **modelled,
        **{f"{name}_error": value / rate["images_per_s"] - 1 for name, value in modelled.items()},
        "no_overlap_bit_s": plain.get(fabric, nan),
        "effective_bit_s": rates[fabric],
        "fixed_cost_s": point.fixed_s,
        "null_fixed_s": null_s,
    }
