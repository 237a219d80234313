"""What a run's raw samples say of that run: its middle, spread, drift, humps and slowest rank.

Nothing here is about other runs: an interval within one run says how well its median is known, not how much
the next run will differ. Formulas and error rates: docs/statistics.md.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from math import ceil, nan, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from fabricbench.analysis.headline import MICRO_METRICS

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

KEY = ["cell", "metric", "unit", "bytes"]
NOT_SERIES = (
    *("step_median_s", "step_slowest_rank", "load_median_s", "load_slowest_rank"),
    *(f"{step}_{what}" for step in ("alone", "nosync") for what in ("s", "min_s", "max_s")),
    *(f"{step}_{what}" for step in ("alone", "nosync") for what in ("median_s", "slowest_rank")),
)
"""Metrics that aren't one quantity over time (`slowest_ranks` reads those of the step), and the few steps
without DDP or synchronisation, whose medians stand in cells."""
HEADLINE_METRICS = ("step_s", *MICRO_METRICS)
"""What a cell's headline is made from: the first of these that it has, at its largest message."""

CONFIDENCE = 0.95
FLAG_LEVEL = 0.01
"""A steady run is called drifting, or two-humped, at most this often; more often if its samples hang together
and are few (docs/statistics.md)."""
SMALLEST_CHANGE = 0.02
"""As a share of the median: a smaller drift, or humps nearer to each other, are never flagged."""
TREND_MIN = 8
TREND_POINTS = 100
"""A longer series is cut into this many bins of consecutive samples, whose medians stand for it."""
PERSISTENCE_MIN = 30
"""Fewer samples can't show whether they depend on each other; they are taken to be independent."""
HUMPS_MIN = 10
SMALLEST_HUMP = 0.1
"""As a share of the samples."""
HUMPS_APART = 3.0
"""How far the humps' means are apart, in their own standard deviation; the halves of a normal are 2.65."""
PAIRS_AT_ONCE = 1_000_000

COLUMNS = [
    *KEY,
    *("n", "median", "median_low", "median_high", "why_no_interval", "iqr_of_median", "mad_of_median"),
    *("drift", "drift_p", "humps_apart", "dip", "dip_limit", "drifting", "two_humped", "steadiness"),
]
RANK_COLUMNS = [
    *("cell", "ranks", "slowest_rank", "over_median_rank", "slowest_of_steps"),
    *("most_often_rank", "most_often_of_steps", "steps"),
]

DIP_LIMITS = {
    10: 0.5045,
    15: 0.5265,
    20: 0.5384,
    30: 0.557,
    50: 0.5713,
    100: 0.5932,
    200: 0.6036,
    500: 0.6154,
    1000: 0.6179,
    2000: 0.6267,
}
"""√n · dip that 1 % of samples of size n from a uniform distribution exceed: of all distributions with one
hump, the one that looks most like two. Simulated with `dip` below; tests/analysis/test_within.py checks."""


def summary(samples: pd.DataFrame) -> pd.DataFrame:
    """One row per (cell, metric, bytes), in order of first appearance.

    median_low and median_high enclose the median in 95 % of cases, NaN where `why_no_interval` says why;
    iqr_of_median, mad_of_median: interquartile range and median absolute deviation over the median;
    drift: change from the first to the last sample over the median (Theil–Sen), drift_p of Mann–Kendall;
    humps_apart: distance of the means of the two halves that split best, over the median; dip with the
    limit that it must exceed (NaN where the halves are too near or too mixed for two humps).
    steadiness: steady | drifting | two-humped | drifting, two-humped | too few samples.
    """
    timed = samples[~samples["metric"].isin(NOT_SERIES) & samples["value"].notna()]
    if timed.empty:
        return pd.DataFrame(columns=COLUMNS)
    group = timed.groupby(KEY, sort=False, dropna=False).ngroup().to_numpy()
    values, starts, counts = _in_time(group, timed["n"].to_numpy(), timed["value"].to_numpy(dtype=float))
    numbers = {name: np.full(len(starts), nan) for name in COLUMNS if name not in KEY}
    for rows, matrix in _equally_long(values, starts, counts):
        for name, found in _row_numbers(matrix).items():
            numbers[name][rows] = found
    first = np.full(len(starts), len(group))
    np.minimum.at(first, group, np.arange(len(group)))
    table = timed.iloc[first][KEY].reset_index(drop=True).assign(**numbers)
    table["n"] = counts
    table["drifting"] = table["drifting"].astype(bool)
    table["two_humped"] = table["two_humped"].astype(bool)
    table["why_no_interval"] = [_why_no_interval(int(count)) for count in counts]
    table["steadiness"] = _steadiness(table)
    return table[COLUMNS]


def cell_flags(series: pd.DataFrame) -> pd.Series:
    """By cell, the steadiness of what its headline is made from; `series` is what `summary` gives."""
    order = {metric: position for position, metric in enumerate(HEADLINE_METRICS)}
    known = series[series["metric"].isin(HEADLINE_METRICS)]
    known = known.assign(
        _order=known["metric"].map(order).astype(int), _bytes=-known["bytes"].astype(float).fillna(0)
    )
    first = known.sort_values(["_order", "_bytes"], kind="stable").drop_duplicates("cell")
    return first.set_index("cell")["steadiness"]


def slowest_ranks(samples: pd.DataFrame) -> pd.DataFrame:
    """One row per cell that has samples by rank: which rank is the slowest, by how much and how often.

    slowest_rank has the longest median step; over_median_rank: by how much over the median rank's, as a
    share; slowest_of_steps: the share of steps in which it was the slowest; most_often_rank: the rank that
    was the slowest in most steps. By chance alone a rank is the slowest in 1 of `ranks` steps.
    """
    by_rank = samples[(samples["metric"] == "step_median_s") & samples["rank"].notna()]
    by_rank = by_rank.assign(rank=by_rank["rank"].astype(int)).sort_values(["value", "rank"])
    ranks = by_rank.groupby("cell", sort=False)
    table = ranks.agg(ranks=("rank", "nunique"), slowest_rank=("rank", "last"), _max=("value", "last"))
    table["over_median_rank"] = table["_max"] / ranks["value"].median() - 1
    named = samples[samples["metric"] == "step_slowest_rank"]
    named = named.assign(rank=named["value"].astype(int))
    times = named.groupby(["cell", "rank"], as_index=False).size()
    often = times.sort_values(["size", "rank"], ascending=[False, True]).drop_duplicates("cell")
    often = often.set_index("cell").rename(columns={"rank": "most_often_rank", "size": "_often"})
    steps = named.groupby("cell").size().rename("steps")
    table = table.join(often, how="outer").join(steps, how="outer").rename_axis("cell").reset_index()
    own = times.rename(columns={"rank": "slowest_rank", "size": "_own"})
    table = table.merge(own, on=["cell", "slowest_rank"], how="left")
    table["most_often_of_steps"] = table["_often"] / table["steps"]
    was_slowest = table["_own"].fillna(0) / table["steps"]
    table["slowest_of_steps"] = was_slowest.where(table["slowest_rank"].notna())
    integers = dict.fromkeys(("ranks", "slowest_rank", "most_often_rank", "steps"), "Int64")
    return table[RANK_COLUMNS].astype(integers)


def median_interval(ordered: Floats, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """For each row of sorted values, two of them that enclose the median with at least this confidence.

    Whatever the distribution, k or fewer of n samples lie below its median with the probability of k or
    fewer heads in n throws. NaN where even the extremes don't reach the confidence.
    """
    inside = _order_statistic(ordered.shape[1], confidence)
    if inside is None:
        missing = np.full(len(ordered), nan)
        return missing, missing
    return ordered[:, inside], ordered[:, -1 - inside]


def trend(matrix: Floats) -> tuple[Floats, Floats]:
    """For each row of values in order of time, the Theil–Sen slope per sample and Mann–Kendall's p.

    The slope is the median of the slopes of all pairs; p is two-sided, by the normal approximation with
    its corrections for continuity and ties, and for samples that follow the one before (`persistence`).
    """
    rows, n = matrix.shape
    slopes, score = np.empty(rows), np.empty(rows)
    pairs = n * (n - 1) // 2
    block = max(1, PAIRS_AT_ONCE // pairs)
    centred = matrix - np.median(matrix, axis=1, keepdims=True)
    for begin in range(0, rows, block):
        part = centred[begin : begin + block]
        # Single precision: half the memory, and far finer than the noise, once the median is taken off.
        slope = np.empty((len(part), pairs), dtype=np.float32)
        filled = 0
        for lag in range(1, n):
            np.divide(part[:, lag:] - part[:, :-lag], lag, out=slope[:, filled : filled + n - lag])
            filled += n - lag
        score[begin : begin + block] = np.count_nonzero(slope > 0, axis=1) - np.count_nonzero(
            slope < 0, axis=1
        )
        middle = pairs // 2
        slope.partition(middle, axis=1)
        upper = slope[:, middle]
        lower = upper if pairs % 2 else slope[:, :middle].max(axis=1)
        slopes[begin : begin + block] = (upper.astype(float) + lower) / 2
    again = persistence(matrix) if n >= PERSISTENCE_MIN else 0.0
    deviation = np.sqrt(_score_variance(matrix) * (1 + again) / (1 - again))
    with np.errstate(invalid="ignore", divide="ignore"):
        z = np.where(deviation > 0, np.maximum(np.abs(score) - 1, 0) / deviation, 0.0)
    return slopes, 2 * special.ndtr(-z)


def persistence(matrix: Floats) -> Floats:
    """For each row, how much of a sample's deviation the next one keeps: 0 (nothing) to 0.95.

    From the differences of neighbours, in which a slow drift or a single jump hardly shows: where a share ρ
    is kept, one difference and the next correlate by (ρ - 1) / 2.
    """
    step = np.diff(matrix, axis=1)
    step -= np.median(step, axis=1, keepdims=True)
    reach = 3 * np.quantile(np.abs(step), 0.75, axis=1, keepdims=True)
    step = np.clip(step, -reach, reach)
    power = (step**2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = (step[:, 1:] * step[:, :-1]).sum(axis=1) / power
    # A ramp without noise has steps that differ by rounding only: nothing to learn from.
    noisy = power > (1e-9 * np.abs(matrix).max(axis=1)) ** 2
    return np.where(noisy, np.clip(1 + 2 * correlation, 0, 0.95), 0)


def split(ordered: Floats) -> tuple[Floats, Floats]:
    """For each row of sorted values, its best split in two: the distance of the halves' means, and that
    distance in standard deviations within the halves.

    The split with the least squares within; each half holds a tenth of the samples at least. Outliers are
    first drawn in to three interquartile ranges beyond the quartiles.
    """
    n = ordered.shape[1]
    lower, upper = np.quantile(ordered, [0.25, 0.75], axis=1, keepdims=True)
    reach = 3 * (upper - lower)
    centred = np.clip(ordered, lower - reach, upper + reach)
    centred -= centred.mean(axis=1, keepdims=True)
    least = max(2, ceil(SMALLEST_HUMP * n))
    sizes = np.arange(least, n - least + 1)
    sums = np.cumsum(centred, axis=1)[:, sizes - 1]
    between = sums**2 * n / (sizes * (n - sizes))
    at = np.argmax(between, axis=1)
    row = np.arange(len(ordered))
    size = sizes[at]
    apart = -sums[row, at] * n / (size * (n - size))
    within = np.maximum((centred**2).sum(axis=1) - between[row, at], 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(apart > 0, apart / np.sqrt(within / n), 0.0)
    return apart, relative


def dip(ordered: list[float]) -> float:
    """Hartigan's dip of sorted values: how far their distribution is from the nearest one with one hump.

    Algorithm AS 217 (Hartigan 1985): the greatest convex minorant and the least concave majorant of the
    distribution function are drawn ever closer around the interval that holds the mode.
    """
    x, n = ordered, len(ordered)
    if n < 2 or x[0] == x[-1]:
        return 0.5 / n
    minorant, majorant = _hull(x), _hull([-value for value in reversed(x)])
    majorant = [n - 1 - index for index in reversed(majorant)]
    low, high, widest = 0, n - 1, 1.0
    while True:
        convex, concave = [high], [low]
        while convex[-1] > low:
            convex.append(minorant[convex[-1]])
        while concave[-1] < high:
            concave.append(majorant[concave[-1]])
        distance, left, right = _farthest(x, convex, concave)
        if distance < widest:
            break
        widest = max(widest, _below(x, convex, left), _above(x, concave, right))
        if low == convex[left] and high == concave[right]:
            break
        low, high = convex[left], concave[right]
    return widest / (2 * n)


def dip_limit(n: int) -> float:
    """The dip that 1 % of uniform samples of size n exceed."""
    sizes = list(DIP_LIMITS)
    return float(np.interp(1 / sqrt(n), 1 / np.sqrt(sizes[::-1]), list(DIP_LIMITS.values())[::-1])) / sqrt(n)


def _in_time(
    group: npt.NDArray[Any], n: npt.NDArray[Any], values: Floats
) -> tuple[Floats, npt.NDArray[Any], npt.NDArray[Any]]:
    """Values by group and then by n, and where each group starts and how long it is."""
    step = np.diff(group)
    if np.any(step < 0) or np.any((step == 0) & (np.diff(n) < 0)):
        order = np.lexsort((n, group))
        group, values = group[order], values[order]
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    return values, starts, np.diff(starts, append=len(group))


def _equally_long(
    values: Floats, starts: npt.NDArray[Any], counts: npt.NDArray[Any]
) -> Iterator[tuple[npt.NDArray[Any], Floats]]:
    """Series of one length as the rows of a matrix, so that one call does for all; not too many at once."""
    for count in np.unique(counts):
        rows = np.flatnonzero(counts == count)
        most = max(1, PAIRS_AT_ONCE // int(count))
        for begin in range(0, len(rows), most):
            part = rows[begin : begin + most]
            yield part, values[starts[part][:, None] + np.arange(count)]


def _row_numbers(matrix: Floats) -> dict[str, Any]:
    ordered = np.sort(matrix, axis=1)
    median = np.median(ordered, axis=1)
    low, high = median_interval(ordered)
    lower, upper = np.quantile(ordered, [0.25, 0.75], axis=1)
    deviation = np.median(np.abs(matrix - median[:, None]), axis=1)
    unit = np.where(median > 0, median, nan)  # what takes no time has no share of it
    return {
        "median": median,
        "median_low": low,
        "median_high": high,
        "iqr_of_median": (upper - lower) / unit,
        "mad_of_median": deviation / unit,
        **_drift(matrix, unit),
        **_humps(ordered, unit),
    }


def _drift(matrix: Floats, median: Floats) -> dict[str, Any]:
    if matrix.shape[1] < TREND_MIN:
        return {"drifting": False}
    binned = _binned(matrix)
    slope, p = trend(binned)
    drift = slope * (binned.shape[1] - 1) / median
    return {
        "drift": drift,
        "drift_p": p,
        "drifting": (p < FLAG_LEVEL) & (np.abs(drift) >= SMALLEST_CHANGE),
    }


def _humps(ordered: Floats, median: Floats) -> dict[str, Any]:
    n = ordered.shape[1]
    if n < HUMPS_MIN:
        return {"two_humped": False}
    distance, relative = split(ordered)
    apart = distance / median
    # The dip is worked out only where two humps would be flagged: it's the one step that isn't vectorised.
    candidates = np.flatnonzero((apart >= SMALLEST_CHANGE) & (relative >= HUMPS_APART))
    found = np.full(len(ordered), nan)
    found[candidates] = [dip(ordered[row].tolist()) for row in candidates]
    limit = dip_limit(n)
    return {"humps_apart": apart, "dip": found, "dip_limit": limit, "two_humped": found > limit}


def _binned(matrix: Floats) -> Floats:
    """Long series as the medians of consecutive bins; a bin is as long as any other, to one sample."""
    n = matrix.shape[1]
    if n <= TREND_POINTS:
        return matrix
    edges = np.linspace(0, n, TREND_POINTS + 1).astype(int)
    bins = [np.median(matrix[:, begin:end], axis=1) for begin, end in pairwise(edges)]
    return np.stack(bins, axis=1)


def _score_variance(matrix: Floats) -> Floats:
    """The variance of Mann–Kendall's score without a trend, less where values are tied."""
    n = matrix.shape[1]
    variance = np.full(len(matrix), n * (n - 1) * (2 * n + 5) / 18)
    tied = np.flatnonzero((np.diff(np.sort(matrix, axis=1), axis=1) == 0).any(axis=1))
    for row in tied:
        t = np.unique(matrix[row], return_counts=True)[1]
        variance[row] -= (t * (t - 1) * (2 * t + 5)).sum() / 18
    return variance


@lru_cache
def _order_statistic(n: int, confidence: float) -> int | None:
    """How many of the sorted values, from either end, lie outside the interval of the median."""
    outside = (1 - confidence) / 2
    fewer = special.bdtr(np.arange((n + 1) // 2), n, 0.5)
    inside = int(np.count_nonzero(fewer <= outside))
    return inside - 1 if inside else None


def _why_no_interval(n: int) -> str:
    if _order_statistic(n, CONFIDENCE) is not None:
        return ""
    reached = max(0.0, 100 - 200 * 0.5**n)
    return f"{n} sample(s) enclose the median in {reached:.0f} % of cases at most; 6 are needed for 95 %"


def _steadiness(table: pd.DataFrame) -> list[str]:
    return [
        ", ".join(word for word, said in (("drifting", drifts), ("two-humped", humped)) if said)
        or ("steady" if n >= HUMPS_MIN else "too few samples")
        for n, drifts, humped in zip(table["n"], table["drifting"], table["two_humped"], strict=True)
    ]


def _hull(x: list[float]) -> list[int]:
    """For each index, the one before it on the greatest convex minorant of the first so many points."""
    before = [0] * len(x)
    for j in range(1, len(x)):
        at = j - 1
        while at:
            further = before[at]
            if (x[j] - x[at]) * (at - further) < (x[at] - x[further]) * (j - at):
                break
            at = further
        before[j] = at
    return before


def _farthest(x: list[float], convex: list[int], concave: list[int]) -> tuple[float, int, int]:
    """The largest distance between minorant and majorant, in samples, and where on either it is."""
    last = len(concave) - 1
    at, over = len(convex) - 2, 1
    distance, left, right = 0.0, len(convex) - 1, last
    if len(convex) == 2 and len(concave) == 2:
        return 1.0, left, right
    while True:
        a, b = convex[at], concave[over]
        if a > b:
            before = convex[at + 1]
            gap = b - before + 1 - (x[b] - x[before]) * (a - before) / (x[a] - x[before])
            over += 1
            if gap >= distance:
                distance, left, right = gap, at + 1, over - 1
        else:
            before = concave[over - 1]
            gap = (x[a] - x[before]) * (b - before) / (x[b] - x[before]) - (a - before - 1)
            at -= 1
            if gap >= distance:
                distance, left, right = gap, at + 1, over
        at, over = max(at, 0), min(over, last)
        if convex[at] == concave[over]:
            return distance, left, right


def _below(x: list[float], convex: list[int], left: int) -> float:
    """How far the distribution rises above its convex minorant, left of the mode; in samples."""
    most = 0.0
    for end, begin in zip(convex[left:-1], convex[left + 1 :], strict=True):
        rise = 1.0
        if end - begin > 1 and x[end] != x[begin]:
            slope = (end - begin) / (x[end] - x[begin])
            rise = max(1.0, max(j - begin + 1 - (x[j] - x[begin]) * slope for j in range(begin, end + 1)))
        most = max(most, rise)
    return most


def _above(x: list[float], concave: list[int], right: int) -> float:
    """How far the distribution falls below its concave majorant, right of the mode; in samples."""
    most = 0.0
    for begin, end in zip(concave[right:-1], concave[right + 1 :], strict=True):
        fall = 1.0
        if end - begin > 1 and x[end] != x[begin]:
            slope = (end - begin) / (x[end] - x[begin])
            fall = max(1.0, max((x[j] - x[begin]) * slope - (j - begin - 1) for j in range(begin, end + 1)))
        most = max(most, fall)
    return most
