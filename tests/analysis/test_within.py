"""A run's samples give known answers, and false alarms are as rare as they claim: simulated, fixed seeds."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog
from tables import band, samples_of

from fabricbench.analysis.within import (
    DIP_LIMITS,
    cell_flags,
    dip,
    dip_limit,
    median_interval,
    persistence,
    slowest_ranks,
    split,
    summary,
    trend,
)


def many(matrix: np.ndarray) -> pd.DataFrame:
    """The summary of series that are the rows of a matrix."""
    rows, n = matrix.shape
    table = samples_of({"": matrix.ravel()})
    return summary(
        table.assign(cell=np.repeat([f"w/c{row}" for row in range(rows)], n), n=np.tile(range(n), rows))
    )


def test_known_answers_of_one_series() -> None:
    """1 … 9 out of order: median 5, between the 2nd and the 8th in 96 %, quartiles 3 and 7, MAD 2."""
    row = many(np.array([[5, 1, 9, 3, 7, 2, 8, 4, 6.0]])).iloc[0]
    assert [row[name] for name in ("n", "median", "median_low", "median_high")] == [9, 5, 2, 8]
    assert row["iqr_of_median"] == pytest.approx(4 / 5)
    assert row["mad_of_median"] == pytest.approx(2 / 5)
    assert row["why_no_interval"] == ""


def test_five_samples_give_no_interval_and_say_why() -> None:
    """The extremes of 5 enclose the median in 1 - 2/32 = 94 %; 6 do in 97 %."""
    table = summary(samples_of({"w/five": range(1, 6), "w/six": range(1, 7)})).set_index("cell")
    assert pd.isna(table.loc["w/five", "median_low"])
    assert table.loc["w/five", "why_no_interval"] == (
        "5 sample(s) enclose the median in 94 % of cases at most; 6 are needed for 95 %"
    )
    assert list(table.loc["w/six", ["median_low", "median_high"]]) == [1, 6]
    assert table.loc["w/five", "steadiness"] == "too few samples"


def test_series_are_told_apart_by_metric_and_size_and_sorted_by_n() -> None:
    """Two sizes of one metric and another metric make three rows; rows of the file may be in any order."""
    steps = samples_of({"w/a": np.linspace(1, 2, 20)})
    pings = samples_of({"w/a": np.ones(8)}, "pingpong_s").assign(bytes=1024)
    larger = pings.assign(bytes=4096, value=3.0)
    ranks = samples_of({"w/a": [1.0]}, "step_median_s").assign(rank=0)
    table = pd.concat([steps, pings, larger, ranks], ignore_index=True).astype({"bytes": "Int64"})
    found = summary(table.sample(frac=1, random_state=1))
    assert sorted(zip(found["metric"], found["bytes"].fillna(0), strict=True)) == [
        ("pingpong_s", 1024),
        ("pingpong_s", 4096),
        ("step_s", 0),
    ]
    assert found.set_index("metric").loc["step_s", "drift"] == pytest.approx(1 / 1.5)


def test_no_samples_is_an_empty_table() -> None:
    """Nothing in, no rows out, the same columns."""
    nothing = samples_of({"w/a": [1.0]}).iloc[:0]
    assert summary(nothing).empty
    assert list(summary(nothing)) == list(summary(samples_of({"w/a": [1.0]})))
    assert cell_flags(summary(nothing)).empty
    assert slowest_ranks(nothing).empty


@pytest.mark.parametrize("n", [6, 11, 25, 200])
def test_the_median_interval_covers_in_95_percent_of_any_distribution(n) -> None:
    """Exponential samples, median ln 2: covered in 95 % at least, in 99 % at most where n is small."""
    trials = 20_000
    low, high = median_interval(np.sort(np.random.default_rng(n).exponential(size=(trials, n)), axis=1))
    covered = np.mean((low <= np.log(2)) & (np.log(2) <= high))
    assert 0.95 - band(0.95, trials) <= covered <= 0.99


def test_trend_by_hand() -> None:
    """Slopes of 1, 2, 4, 3 by pairs: 1, 3/2, 2/3, 2, 1/2, -1: median 5/6; S = 4, z = 3/√(26/3)."""
    slope, p = trend(np.array([[1.0, 2, 4, 3], [2, 2, 2, 2]]))
    assert slope == pytest.approx([5 / 6, 0], abs=1e-6)
    assert p == pytest.approx([0.30818, 1], abs=1e-4)


def test_one_wild_sample_moves_no_trend() -> None:
    """A hundred steps of 1 s of which one takes 1000 s: no drift."""
    values = 1 + np.random.default_rng(1).normal(0, 0.01, 100)
    values[97] = 1000
    assert many(values[None, :]).iloc[0]["steadiness"] == "steady"


@pytest.mark.parametrize("n", [20, 200, 1000])
@pytest.mark.parametrize("change", [0.05, -0.05])
def test_a_drift_is_found_with_its_size(n, change) -> None:
    """5 % from the first to the last sample under 1 % noise: found, and 5 % of the median."""
    ramp = np.linspace(1, 1 + change, n) * (1 + np.random.default_rng(n).normal(0, 0.01, (20, n)))
    table = many(ramp)
    assert table["drifting"].all()
    assert table["drift"].median() == pytest.approx(change, abs=0.01)


def test_a_sure_but_tiny_drift_is_no_flag() -> None:
    """1 % over the run with hardly any noise: p is tiny, the run is steady all the same."""
    row = many(np.linspace(1, 1.01, 100)[None, :]).iloc[0]
    assert row["drift_p"] < 1e-9
    assert row["steadiness"] == "steady"


def test_waits_that_are_mostly_nothing_have_no_shares() -> None:
    """A median of zero: no share of it, no flag, no warning."""
    row = many(np.array([[0.0] * 15 + [1.0] * 9])).iloc[0]
    assert row["median"] == 0
    assert np.isnan(row[["iqr_of_median", "mad_of_median", "drift", "humps_apart"]].astype(float)).all()
    assert row["steadiness"] == "steady"


def test_two_humps_are_found() -> None:
    """Steps of 1 s of which 30 %, here and there, take 10 % longer: in 20 of 20 runs of 200, 8 of 30."""
    rng = np.random.default_rng(2)
    for n, least in ((30, 8), (200, 20)):
        values = np.where(rng.random((20, n)) < 0.3, 1.1, 1.0) * (1 + rng.normal(0, 0.01, (20, n)))
        table = many(values)
        assert table["two_humped"].sum() >= least
        assert table["humps_apart"].median() == pytest.approx(0.1, abs=0.01)
    assert "two-humped" in set(table["steadiness"])


def test_humps_that_are_near_to_each_other_are_no_flag() -> None:
    """Clean humps 1 % apart don't matter."""
    rng = np.random.default_rng(3)
    values = np.where(rng.random((5, 200)) < 0.5, 1.01, 1.0) * (1 + rng.normal(0, 0.0005, (5, 200)))
    assert set(many(values)["steadiness"]) == {"steady"}


def test_one_broad_hump_isnt_looked_at_for_two() -> None:
    """The best halves of normal samples are 2.65 of their deviations apart; the dip is for what has 3."""
    values = 1 + np.random.default_rng(14).normal(0, 0.05, (200, 200))
    assert many(values)["dip"].isna().mean() > 0.95


def test_a_few_outliers_are_no_hump() -> None:
    """5 % of samples that take twice as long are outliers, not a hump of a tenth."""
    rng = np.random.default_rng(4)
    values = np.where(rng.random((50, 200)) < 0.05, 2.0, 1.0) * (1 + rng.normal(0, 0.01, (50, 200)))
    assert not many(values)["two_humped"].any()


def test_half_a_run_slower_is_both() -> None:
    """The first half at 1 s, the second at 1.2 s: drifting and two-humped, and both are said."""
    values = np.repeat([1.0, 1.2], 50) * (1 + np.random.default_rng(5).normal(0, 0.01, 100))
    assert many(values[None, :]).iloc[0]["steadiness"] == "drifting, two-humped"


@pytest.mark.parametrize("n", [10, 30, 200])
@pytest.mark.parametrize("shape", ["normal", "uniform", "lognormal"])
def test_false_alarms_are_rare(n, shape) -> None:
    """Steady samples of one hump, of 5 % noise or more: each flag is raised in 1 % of runs at most."""
    runs, rng = 2000 if n < 200 else 1000, np.random.default_rng([n, len(shape)])
    values = {
        "normal": lambda: 1 + rng.normal(0, 0.05, (runs, n)),
        "uniform": lambda: 1 + rng.uniform(-0.2, 0.2, (runs, n)),
        "lognormal": lambda: np.exp(rng.normal(0, 0.3, (runs, n))),
    }[shape]()
    table = many(values)
    assert table["drifting"].mean() <= 0.01 + band(0.01, runs)
    assert table["two_humped"].mean() <= 0.01 + band(0.01, runs)
    if n == 30:
        assert table["drifting"].any(), "a test at 1 % that never errs tests nothing"


def test_samples_that_hang_together_are_no_drift() -> None:
    """Each sample keeps 60 % of the deviation of the one before: flagged in 1 % of runs of 200 at most."""
    runs, n, kept = 1500, 200, 0.6
    values = np.random.default_rng(12).normal(0, 0.05 * np.sqrt(1 - kept**2), (runs, n + 50))
    for at in range(1, n + 50):
        values[:, at] += kept * values[:, at - 1]
    assert persistence(values[:, 50:]).mean() == pytest.approx(kept, abs=0.05)
    assert many(1 + values[:, 50:])["drifting"].mean() <= 0.01 + band(0.01, runs)


def test_neither_a_ramp_nor_a_jump_hangs_together() -> None:
    """What drifts or jumps isn't mistaken for samples that keep the deviation of the one before."""
    noise = np.random.default_rng(13).normal(0, 0.01, (200, 200))
    for shape in (np.linspace(0, 0.2, 200), np.repeat([0, 0.2], 100)):
        assert persistence(1 + shape + noise).mean() < 0.1
    assert persistence(np.linspace(1, 2, 50)[None, :]) == [0]


def test_mann_kendall_has_its_level() -> None:
    """p below 0.05 in 5 % of runs without a trend, a little less for the correction for continuity."""
    runs = 4000
    p = trend(np.random.default_rng(6).normal(size=(runs, 20)))[1]
    assert 0.04 - band(0.04, runs) <= np.mean(p < 0.05) <= 0.05 + band(0.05, runs)


def test_the_dip_is_the_distance_to_the_nearest_distribution_with_one_hump() -> None:
    """Against a linear program that looks for that distribution itself, over every mode."""
    rng = np.random.default_rng(7)
    for trial in range(12):
        n = int(rng.integers(4, 13))
        apart = 5 * (trial % 2)
        values = np.sort(np.concatenate([rng.normal(0, 1, n // 2), rng.normal(apart, 1, n - n // 2)]))
        assert dip(values.tolist()) == pytest.approx(
            min(nearest_with_mode(values, m) for m in range(n)), abs=1e-7
        )


def nearest_with_mode(x: np.ndarray, mode: int) -> float:
    """Least distance of the empirical distribution to one that is convex up to x[mode], concave from there.

    Unknown are its values at each x, two at the mode, where it may jump, and the distance.
    """
    n = len(x)
    width = n + 2
    rows, bounds = [], []

    def constrain(terms: list[tuple[int, float]], bound: float) -> None:
        row = np.zeros(width)
        for index, factor in terms:
            row[index] += factor
        rows.append(row)
        bounds.append(bound)

    for i in range(n):
        lower, upper = i if i <= mode else i + 1, i if i < mode else i + 1
        for index, level in ((lower, i / n), (upper, (i + 1) / n)):
            constrain([(index, 1), (n + 1, -1)], level)
            constrain([(index, -1), (n + 1, -1)], -level)
    for i in range(n):
        if i != mode:
            index = i if i < mode else i + 1
            for level in (i / n, (i + 1) / n):
                constrain([(index, 1), (n + 1, -1)], level)
                constrain([(index, -1), (n + 1, -1)], -level)
    left = [(x[i], i) for i in range(mode + 1)]
    right = [(x[i], i + 1) for i in range(mode, n)]
    for low, high in pairwise(range(n + 1)):
        constrain([(low, 1), (high, -1)], 0)
    for points, sign in ((left, 1), (right, -1)):
        for (x0, a), (x1, b), (x2, c) in zip(points, points[1:], points[2:], strict=False):
            constrain(
                [(a, -sign / (x1 - x0)), (b, sign / (x1 - x0) + sign / (x2 - x1)), (c, -sign / (x2 - x1))], 0
            )
    distance = np.zeros(width)
    distance[-1] = 1
    return float(linprog(distance, A_ub=np.array(rows), b_ub=bounds, bounds=[(0, 1)] * width).fun)


@pytest.mark.parametrize("n", [10, 50, 70])
def test_the_limit_of_the_dip_is_what_1_percent_of_uniform_samples_exceed(n) -> None:
    """Checks the table of simulated limits, and between its rows."""
    trials = 3000
    drawn = np.sort(np.random.default_rng(n).random((trials, n)), axis=1)
    above = np.mean([dip(row.tolist()) > dip_limit(n) for row in drawn])
    assert above == pytest.approx(0.01, abs=band(0.01, trials))
    assert list(DIP_LIMITS) == sorted(DIP_LIMITS)


def test_split_by_hand() -> None:
    """0, 0, 0, 1, 1, 1 halves into means 1 apart without any spread; 0 … 9 into halves 5 apart."""
    apart, relative = split(np.array([[0, 0, 0, 1, 1, 1.0]]))
    assert apart == pytest.approx([1])
    assert relative[0] > 1e6
    apart, relative = split(np.arange(10.0)[None, :])
    assert apart == pytest.approx([5])
    assert relative == pytest.approx([5 / np.sqrt(2)])


def test_flags_are_of_the_headlines_series() -> None:
    """Micro: all-reduce before ping-pong, and its largest message; drift elsewhere isn't the headline's."""
    drifting = np.linspace(1, 2, 30)
    steady = 1 + np.random.default_rng(8).normal(0, 0.01, 30)
    parts = [
        samples_of({"m/a": drifting}, "pingpong_s").assign(bytes=1_048_576),
        samples_of({"m/a": drifting}, "allreduce_s").assign(bytes=1024),
        samples_of({"m/a": steady}, "allreduce_s").assign(bytes=1_048_576),
        samples_of({"w/b": drifting}),
    ]
    flags = cell_flags(summary(pd.concat(parts, ignore_index=True).astype({"bytes": "Int64"})))
    assert flags.to_dict() == {"m/a": "steady", "w/b": "drifting"}


def test_the_slowest_rank() -> None:
    """Rank 2's median step is 10 % above the median rank's, and it was the slowest in 6 of 8 steps."""
    medians = pd.concat(
        [
            samples_of({"w/a": [value]}, "step_median_s").assign(rank=rank)
            for rank, value in enumerate([1.0, 1.0, 1.1])
        ]
    )
    slowest = samples_of({"w/a": [2, 2, 0, 2, 2, 2, 0, 2]}, "step_slowest_rank")
    row = slowest_ranks(pd.concat([medians, slowest], ignore_index=True).astype({"rank": "Int32"})).iloc[0]
    assert (row["cell"], row["ranks"], row["slowest_rank"], row["steps"]) == ("w/a", 3, 2, 8)
    assert row["over_median_rank"] == pytest.approx(0.1)
    assert row["slowest_of_steps"] == pytest.approx(0.75)
    assert (row["most_often_rank"], row["most_often_of_steps"]) == (2, 0.75)


def test_the_slowest_rank_by_half_of_the_facts() -> None:
    """Without medians by rank, how often is known, by how much isn't. Never the slowest is a share of 0."""
    slowest = samples_of({"w/a": [1, 1, 0]}, "step_slowest_rank")
    row = slowest_ranks(slowest).iloc[0]
    assert pd.isna(row["slowest_rank"])
    assert pd.isna(row["slowest_of_steps"])
    assert row["most_often_rank"] == 1
    medians = pd.concat(
        [
            samples_of({"w/a": [value]}, "step_median_s").assign(rank=rank)
            for rank, value in enumerate([1.0, 1.0, 1.1])
        ]
    )
    both = slowest_ranks(pd.concat([medians, slowest], ignore_index=True).astype({"rank": "Int32"})).iloc[0]
    assert (both["slowest_rank"], both["slowest_of_steps"]) == (2, 0)
