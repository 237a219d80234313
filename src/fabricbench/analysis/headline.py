"""The headline: one number per cell, derived from its raw samples. Higher is better in every unit."""

from dataclasses import dataclass
from math import nan
from statistics import median

from fabricbench.cell import Cell
from fabricbench.record import Record, by_metric

UNITS = {"train": "images/s", "cfd": "MDOF/s", "micro": "Mbit/s"}
"""Of each kind's headline, also where a cell has none."""
MICRO_METRICS = ("allreduce_s", "stream_s", "pingpong_s")
"""What a micro cell's headline is taken from: the first of these that it has."""


@dataclass(frozen=True, kw_only=True)
class Headline:
    """A cell's number with its unit; NaN where there is none, and then `reason` says why."""

    value: float = nan
    unit: str = ""
    step_s: float = nan
    """Median time per step in seconds, as measured (not divided by the time scale)."""
    of_line_rate: float = nan
    """Bus bandwidth as a share of a node's links as shaped, all its ports (micro only)."""
    reason: str = ""


def headline(record: Record) -> Headline:
    """The number that stands for a record of status ok; raises nothing for missing optional facts."""
    derive = {"train": _train, "cfd": _cfd, "micro": _micro}.get(record.cell.kind)
    if derive is None:
        return Headline(reason=f"no headline is defined for workloads of kind {record.cell.kind}")
    return derive(record)


def time_scale(cell: Cell) -> float:
    """By what a raw step time is divided to get the modelled machine's.

    Only replayed compute is stretched by D; real compute runs at its own speed, so it isn't scaled.
    """
    return float(cell.scale["time"]) if cell.device == "replay" else 1.0


def bus_factor(metric: str, ranks: int) -> float:
    """Bytes that each link must carry per byte of message: 2(n-1)/n for all-reduce, 1 point to point.

    An all-reduce on one rank moves nothing, so its factor is NaN rather than a bandwidth of zero.
    """
    if metric != "allreduce_s":
        return 1.0
    return 2 * (ranks - 1) / ranks if ranks > 1 else nan


def bus_bandwidth_bit_s(metric: str, size_bytes: float, seconds: float, ranks: int) -> float:
    """Bus bandwidth in bit/s of one message of `size_bytes` that took `seconds`; NaN if it took none."""
    return bus_factor(metric, ranks) * size_bytes * 8 / seconds if seconds > 0 else nan


def _train(record: Record) -> Headline:
    step_s = _median_step_s(record)
    images = record.facts.get("images_per_step")
    if images is None or not step_s > 0:
        return Headline(unit="images/s", step_s=step_s, reason=_lacking(record, "images_per_step"))
    return Headline(
        value=float(images) * time_scale(record.cell) / step_s,
        unit="images/s",
        step_s=step_s,
    )


def _cfd(record: Record) -> Headline:
    step_s = _median_step_s(record)
    dof, stages = record.facts.get("dof"), record.facts.get("stages_per_step")
    if dof is None or stages is None or not step_s > 0:
        return Headline(unit="MDOF/s", step_s=step_s, reason=_lacking(record, "dof", "stages_per_step"))
    return Headline(value=float(dof) * float(stages) / step_s / 1e6, unit="MDOF/s", step_s=step_s)


def _micro(record: Record) -> Headline:
    unit = "Mbit/s"
    for metric in MICRO_METRICS:
        sized = [series for series in by_metric(record.samples, metric) if series.bytes and series.values]
        if not sized:
            continue
        largest = max(series.bytes or 0 for series in sized)
        bound = (record.evidence.get("emulation") or {}).get("trustworthy_from_bytes") or 0
        if largest < bound:
            return Headline(
                unit=unit,
                reason=f"its largest message has {largest:,} bytes; shaping is trustworthy from {bound:,}",
            )
        seconds = median(value for series in sized if series.bytes == largest for value in series.values)
        bit_s = bus_bandwidth_bit_s(metric, largest, seconds, record.cell.gpus)
        reason = "" if bit_s == bit_s else f"{metric} gives no bandwidth on {record.cell.gpus} rank(s)"
        return Headline(value=bit_s / 1e6, unit=unit, of_line_rate=_share(bit_s, record.cell), reason=reason)
    return Headline(unit=unit, reason=f"no samples of {', '.join(MICRO_METRICS)}")


def ports_per_node(cell: Cell) -> int:
    """Ports of the fabric on each node; 1 in records from before there could be several."""
    return int(cell.fabric.get("ports_per_node") or 1)


def _share(bit_s: float, cell: Cell) -> float:
    link_bit_s = cell.fabric.get("link_bit_s")
    return bit_s / (float(link_bit_s) * ports_per_node(cell)) if link_bit_s else nan


def _median_step_s(record: Record) -> float:
    values = [value for series in by_metric(record.samples, "step_s") for value in series.values]
    return float(median(values)) if values else nan


def _lacking(record: Record, *facts: str) -> str:
    absent = [name for name in facts if record.facts.get(name) is None]
    if not any(series.values for series in by_metric(record.samples, "step_s")):
        absent.append("samples of step_s")
    return f"no {', no '.join(absent)} in the record" if absent else "its median step took no time"
