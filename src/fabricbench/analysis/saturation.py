"""Whether a cell's host, not its fabric, decided how fast it was.

Emulated nodes share one machine, and a replayed GPU is a process that sleeps. Both stay what they stand for
only while that machine has time for them: docs/emulation.md says how the limits were measured.
"""

from collections.abc import Mapping
from statistics import median
from typing import Any

from fabricbench.record import Record

MOST_LATE = 0.02
"""Lateness at the end of a step's compute, as a share of the step, by the median of the worst rank."""
MOST_CPU = 0.90
"""Busy share of all cores during the measured steps…"""
LEAST_LINK = 0.85
"""…that is harmless as long as the links are full: share of the busiest node's link rate that was used."""


def why_saturated(record: Record) -> str:
    """Why a cell may enter no comparison, in one sentence without an end; "" if its host kept up.

    Only cells of device replay on an emulated cluster: elsewhere nodes and GPUs are real.
    """
    if (record.cell.launcher, record.cell.device) != ("emulated", "replay"):
        return ""
    steps = next((series.values for series in record.samples if series.metric == "step_s"), [])
    if not steps:
        return ""
    step_s, whole_s = median(steps), sum(steps)
    late_s = record.facts.get("waits", {}).get("step_late_s", 0.0)
    if late_s > MOST_LATE * step_s:
        return (
            f"its host was too busy: the compute of a step of {_ms(step_s)} ended {_ms(late_s)} late, "
            f"{late_s / step_s:.1%} of it; at most {MOST_LATE:.0%} is accepted"
        )
    cpu = max((host["cpu_share"] or 0.0 for host in record.evidence.get("host", {}).values()), default=0.0)
    used = link_share(record.evidence, record.cell.fabric["link_bit_s"], whole_s)
    if cpu > MOST_CPU and used is not None and used < LEAST_LINK:
        return (
            f"its host was too busy: {cpu:.0%} of its cores' time was used while the busiest link was "
            f"{used:.0%} full; above {MOST_CPU:.0%} a link must be at least {LEAST_LINK:.0%} full"
        )
    return ""


def link_share(evidence: Mapping[str, Any], link_bit_s: float | None, seconds: float) -> float | None:
    """The share of its link that the busiest node used in `seconds` of steps; None if nothing was to cross.

    By what the algorithms may at most have sent in the measured steps, in the direction that carries more:
    the counters' bytes are of all regions, also of those steps that reduce nothing.
    """
    nodes = evidence.get("formula", {}).get("nodes", {}).values()
    most = max((max(*node["tx_bytes"], *node["rx_bytes"]) for node in nodes), default=0)
    if not most or not link_bit_s or seconds <= 0:
        return None
    return float(8 * most / link_bit_s / seconds)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"
