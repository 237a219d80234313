"""Where the simulated numbers in docs/statistics.md and the limits of the dip come from; fixed seeds.

    .venv/bin/python benchmarks/error_rates.py [dip]

Prints the coverage of intervals by noise and method, and how often steady and two-humped runs are flagged
(about a minute); with `dip`, the limits of the dip instead (some minutes).
"""

import sys
from math import sqrt

import numpy as np
import pandas as pd
from scipy import stats

from fabricbench.analysis.compare import bootstrap, t_interval
from fabricbench.analysis.within import DIP_LIMITS, dip, summary

TRIALS, RESAMPLES = 4000, 1000
BLOCKS = (2, 3, 5, 10, 15)
STEADY_RUNS = 2000


def draws(rng: np.random.Generator, blocks: int) -> dict[str, np.ndarray]:
    """Noise around a mean of zero."""
    shape = (TRIALS, blocks)
    return {
        "normal": rng.normal(0, 1, shape),
        "heavy tails (t, 3 degrees)": rng.standard_t(3, shape),
        "very skewed (lognormal)": np.exp(rng.normal(0, 1, shape)) - np.exp(0.5),
    }


def covered(low: np.ndarray, high: np.ndarray) -> str:
    return f"{np.mean((low <= 0) & (high >= 0)):.3f}"


def coverage() -> None:
    print("| noise | blocks | t | studentised | percentile | BCa |\n|---|---|---|---|---|---|")
    for blocks in BLOCKS:
        rng = np.random.default_rng([1, blocks])
        for name, values in draws(rng, blocks).items():
            error = values.std(axis=1, ddof=1) / sqrt(blocks)
            cells = [name, str(blocks), covered(*t_interval(values.mean(axis=1), error, blocks - 1, 0.95))]
            [studentised] = bootstrap(values, [0.95], RESAMPLES, 1)
            cells.append(covered(*studentised) if blocks >= 5 else "")
            index = rng.integers(0, blocks, (RESAMPLES, blocks))
            ends = [np.percentile(row[index].mean(axis=1), [2.5, 97.5]) for row in values]
            cells.append(covered(*np.array(ends).T))
            cells.append(bias_corrected(values[:1000], rng) if blocks >= 5 else "")
            print("|", " | ".join(cells), "|", flush=True)


def bias_corrected(values: np.ndarray, rng: np.random.Generator) -> str:
    found = stats.bootstrap(
        (values,), np.mean, axis=1, vectorized=True, method="BCa", n_resamples=RESAMPLES, rng=rng
    )
    return covered(found.confidence_interval.low, found.confidence_interval.high)


def flagged(matrix: np.ndarray) -> pd.DataFrame:
    rows, n = matrix.shape
    samples = pd.DataFrame(
        {
            "cell": np.repeat([f"c{row}" for row in range(rows)], n),
            "metric": "step_s",
            "unit": "s",
            "bytes": pd.NA,
            "n": np.tile(np.arange(n), rows),
            "value": matrix.ravel(),
        }
    )
    return summary(samples)[["drifting", "two_humped"]].mean()


def false_alarms() -> None:
    print("\n| samples | kept from one to the next | drifting | two-humped |\n|---|---|---|---|")
    for n in (20, 30, 50, 200, 1000):
        for kept in (0.0, 0.3, 0.6, 0.9):
            values = np.random.default_rng([2, n, int(10 * kept)]).normal(size=(STEADY_RUNS, n + 100))
            for at in range(1, n + 100):
                values[:, at] = kept * values[:, at - 1] + sqrt(1 - kept**2) * values[:, at]
            rates = flagged(1 + 0.05 * values[:, 100:])
            print(f"| {n} | {kept} | {rates['drifting']:.3f} | {rates['two_humped']:.3f} |", flush=True)


def found_humps() -> None:
    print("\n| samples | share in the slower hump, 10 % later, 1 % noise | found |\n|---|---|---|")
    for n in (20, 30, 50, 100, 200):
        for share in (0.15, 0.3, 0.5):
            rng = np.random.default_rng([3, n, int(100 * share)])
            values = np.where(rng.random((500, n)) < share, 1.1, 1.0) * rng.normal(1, 0.01, (500, n))
            print(f"| {n} | {share} | {flagged(values)['two_humped']:.2f} |", flush=True)


def dip_limits() -> None:
    for n in DIP_LIMITS:
        rng = np.random.default_rng(n)
        trials = min(100_000, 20_000_000 // n)
        drawn = np.sort(rng.random((trials, n)), axis=1)
        limit = np.quantile([dip(row.tolist()) for row in drawn], 0.99) * sqrt(n)
        print(f"    {n}: {limit:.4f},", flush=True)


def main() -> None:
    if sys.argv[1:] == ["dip"]:
        dip_limits()
        return
    coverage()
    false_alarms()
    found_humps()


if __name__ == "__main__":
    main()
