"""How many steps: when the warm-up is over, and when enough were measured. Pure functions of step times."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt
from statistics import NormalDist, fmean, median, variance

CHUNK_S = 2.0
"""About how long ranks step before rank 0 looks at the times, decides, and tells how many steps come next."""
TOLERANCE = 0.03
"""Two windows of steps are as fast as each other when their medians differ by at most this share."""
_LEAST_WINDOW = 2
_Z = NormalDist().inv_cdf(0.975)
_MOST_CORRELATION = 0.9


@dataclass(frozen=True)
class Limits:
    """How long to step: `least` to `most` steps, in between until `budget_s` or `width` is reached."""

    least: int
    most: int
    budget_s: float
    width: float = 0.0
    """Relative whole width of the mean's 95 % interval that is narrow enough; 0: never."""


def is_steady(times: Sequence[float]) -> bool:
    """Whether the last third of the steps is as fast as the third before it, by their medians.

    Windows grow with the warm-up: a slow drift adds up over a longer window, and noise averages out, so
    what passes has little of its start left, and a noisy host still comes to an end. What hides is a start
    as mild as the noise of two steps (docs/training.md has the simulated figures). Medians, since one late
    step is no drift. The first third is never looked at: there DDP arranges its buckets, and libraries
    choose algorithms.
    """
    window = max(_LEAST_WINDOW, len(times) // 3)
    if len(times) < 2 * window + 1:
        return False
    before, last = median(times[-2 * window : -window]), median(times[-window:])
    return abs(before - last) <= TOLERANCE * last


def relative_width(times: Sequence[float]) -> float:
    """Whole width of the 95 % interval of the mean step time, as a share of the mean; inf below 3 steps.

    Student's t, with as many degrees of freedom as independent steps are worth the same: neighbours that
    are alike (lag-1 correlation r > 0) count for (1 - r) / (1 + r) of a step each.
    """
    count = len(times)
    if count < 3:
        return float("inf")
    mean, spread = fmean(times), variance(times)
    if spread == 0 or mean == 0:
        return 0.0
    alike = sum((a - mean) * (b - mean) for a, b in pairwise(times)) / (count - 1)
    correlation = min(max(alike / spread, 0.0), _MOST_CORRELATION)
    worth = max(3.0, count * (1 - correlation) / (1 + correlation))
    return 2 * t_quantile(worth - 1) * sqrt(spread / worth) / mean


def t_quantile(freedom: float) -> float:
    """Student's two-sided 95 % quantile for at least 2 degrees of freedom (Abramowitz and Stegun 26.7.5)."""
    z, v = _Z, freedom
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / v + second / v**2 + third / v**3 + fourth / v**4


def stopped_by(times: Sequence[float], spent_s: float, limits: Limits) -> str:
    """Which limit the measured steps have reached: width, budget or steps; empty: none, go on."""
    if len(times) < limits.least:
        return ""
    if limits.width and relative_width(times) <= limits.width:
        return "width"
    if len(times) >= limits.most:
        return "steps"
    return "budget" if spent_s >= limits.budget_s else ""


def next_chunk(times: Sequence[float], spent_s: float, limits: Limits) -> int:
    """Steps until the next decision: of about CHUNK_S, and not much beyond a limit; at least 1.

    `times` and `spent_s` (seconds, with waiting for input) are of the steps so far; without any, one step
    is made to learn how long it takes.
    """
    if not times:
        return 1
    typical = max(median(times[-50:]), 1e-6)
    whole = max(1, int(CHUNK_S / typical))
    if len(times) < limits.least:
        return min(whole, limits.least - len(times))
    left_s = max(0.0, limits.budget_s - spent_s)
    return max(1, min(whole, limits.most - len(times), ceil(left_s / typical)))
