"""How many steps: simulated with fixed seeds, so nothing here depends on a clock."""

import random
from math import exp, inf

import pytest
from scipy import stats

from fabricbench.workloads.train import pace

LIMITS = pace.Limits(least=10, most=1000, budget_s=30.0, width=0.02)


def warmed_up(times: list[float], least: int = 5) -> int | None:
    """After how many of these steps a warm-up that looks after each of them is over; None: never."""
    return next((n for n in range(least, len(times) + 1) if pace.is_steady(times[:n])), None)


def noisy(excess: float, decay: float, noise: float, seed: int, count: int = 50) -> list[float]:
    """Steps of 1 s that begin slower by `excess`, which fades within `decay` steps, with noise."""
    drawn = random.Random(seed)
    return [(1 + excess * exp(-n / decay)) * exp(drawn.gauss(0, noise)) for n in range(count)]


@pytest.mark.parametrize(("excess", "decay"), [(2.0, 3), (2.0, 6), (0.5, 3), (10.0, 1)])
def test_a_fading_start_is_over_when_steps_are_called_steady(excess: float, decay: float) -> None:
    """False positives: at 2 % noise less than 5 % is left of a slow start in 95 of 100 warm-ups."""
    left = []
    for seed in range(200):
        found = warmed_up(noisy(excess, decay, 0.02, seed))
        left.append(0.0 if found is None else excess * exp(-found / decay))
    assert sum(each < 0.05 for each in left) >= 190


def test_a_steady_start_is_seen_at_once() -> None:
    """At 2 % noise three of four warm-ups end within 7 steps, and all within 50."""
    found = [warmed_up(noisy(0.0, 1, 0.02, seed)) for seed in range(200)]
    assert None not in found
    assert sum(each is not None and each <= 7 for each in found) >= 150


def test_a_drift_that_goes_on_is_not_steady() -> None:
    """1 % slower at each step, with 1 % noise: not called steady after 50 steps."""
    times = [[(1.01**n) * random.Random(s * 100 + n).gauss(1, 0.01) for n in range(50)] for s in range(100)]
    assert sum(pace.is_steady(each) for each in times) == 0


def test_one_late_step_is_no_drift() -> None:
    """Medians."""
    assert pace.is_steady([1, 1, 1, 1, 1, 1, 9, 1, 1])


@pytest.mark.parametrize("freedom", [2, 3, 5, 10, 30, 1000])
def test_student_s_quantile(freedom: int) -> None:
    """Within 3 % of the exact one for 2 degrees of freedom, within 0.5 % from 3."""
    exact = stats.t.ppf(0.975, freedom)
    assert pace.t_quantile(freedom) == pytest.approx(exact, rel=0.03 if freedom == 2 else 0.005)


def test_the_width_is_that_of_the_interval_of_the_mean() -> None:
    """Alternating steps, which are not alike: Student's interval."""
    times = [0.9, 1.1] * 10
    expected = 2 * stats.t.ppf(0.975, 19) * stats.tstd(times) / 20**0.5
    assert pace.relative_width(times) == pytest.approx(expected, rel=0.001)
    assert pace.relative_width([1.0, 1.0]) == inf
    assert pace.relative_width([1.0] * 5) == 0


def test_an_interval_of_steps_that_follow_each_other_holds_the_mean() -> None:
    """Neighbours that are alike (lag-1 correlation 0.6) count for less: 90 of 100 intervals hold 1."""
    held = 0
    for seed in range(300):
        drawn, state, times = random.Random(seed), 0.0, []
        for _ in range(100):
            state = 0.6 * state + drawn.gauss(0, 0.02)
            times.append(1 + state)
        mean = sum(times) / len(times)
        held += abs(mean - 1) <= pace.relative_width(times) * mean / 2
    assert held >= 270


@pytest.mark.parametrize(
    ("times", "spent_s", "limits", "reason"),
    [
        ([1.0] * 9, 99.0, LIMITS, ""),  # never below the least
        ([1.0] * 10, 10.0, LIMITS, "width"),
        ([1.0, 2.0] * 5, 15.0, LIMITS, ""),
        ([1.0, 2.0] * 10, 30.0, LIMITS, "budget"),
        ([1.0, 2.0] * 500, 20.0, pace.Limits(10, 1000, 30.0, 0.0), "steps"),
        ([1.0] * 10, 10.0, pace.Limits(10, 10, 30.0, 0.0), "steps"),
        ([1.0] * 20, 20.0, pace.Limits(10, 1000, 30.0, 0.0), ""),
    ],
)
def test_what_ends_the_measured_steps(
    times: list[float], spent_s: float, limits: pace.Limits, reason: str
) -> None:
    """The first limit that is reached, from the least number on."""
    assert pace.stopped_by(times, spent_s, limits) == reason


@pytest.mark.parametrize(
    ("times", "spent_s", "limits", "count"),
    [
        ([], 0.0, LIMITS, 1),
        ([0.1], 0.1, LIMITS, 9),
        ([0.1] * 20, 2.0, LIMITS, 20),
        ([5.0] * 3, 15.0, LIMITS, 1),
        ([0.1] * 20, 29.5, LIMITS, 5),
        ([0.001] * 990, 1.0, LIMITS, 10),
        ([0.0] * 10, 0.0, LIMITS, 990),
    ],
)
def test_a_chunk_is_of_two_seconds_and_not_much_beyond_a_limit(
    times: list[float], spent_s: float, limits: pace.Limits, count: int
) -> None:
    """At least one step, also where that is long."""
    assert pace.next_chunk(times, spent_s, limits) == count
