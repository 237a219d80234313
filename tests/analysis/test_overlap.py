"""Models of a step: numbers that can be checked by hand."""

from math import inf, isnan

import pytest

from fabricbench.analysis.overlap import (
    PAYLOAD,
    Observation,
    Step,
    fit_without_overlap,
    link_for,
    overlapped_s,
    ring_bits,
)

LINK = 1e9 / PAYLOAD
"""Carries 1 Gbit of payload in a second."""


def a_step(ready_s: list[float], bucket_bytes: list[float], ranks: int = 2) -> Step:
    """A second of compute; two ranks, so that a link carries just the message."""
    return Step(compute_s=1.0, ready_s=ready_s, bucket_bytes=bucket_bytes, ranks=ranks)


@pytest.mark.parametrize(("ranks", "bits"), [(1, 0), (2, 8), (4, 12), (16, 15)])
def test_a_ring_carries_up_to_twice_the_message(ranks: int, bits: float) -> None:
    """2(p-1)/p of a message of one byte, in bits."""
    assert ring_bits(1, ranks) == bits


def test_what_is_reduced_during_compute_costs_nothing() -> None:
    """A bucket of a tenth of a second that is ready at half of it; the fixed cost comes on top."""
    assert overlapped_s(a_step([0.5], [0.1e9 / 8]), LINK, 0.25) == pytest.approx(1.25)


def test_the_last_bucket_sticks_out() -> None:
    """It can't begin before the gradient is there."""
    assert overlapped_s(a_step([0.5, 1.0], [0.1e9 / 8, 0.3e9 / 8]), LINK, 0) == pytest.approx(1.3)


def test_buckets_wait_for_the_link() -> None:
    """The second is ready at 0.6 s and goes when the first is through, at 1.5 s."""
    assert overlapped_s(a_step([0.5, 0.6], [1e9 / 8, 0.2e9 / 8]), LINK, 0) == pytest.approx(1.7)


@pytest.mark.parametrize("rate", [0.3e9, 2e9, 25e9])
def test_a_links_rate_is_found_by_the_step_that_it_gives(rate: float) -> None:
    """The inverse of a step's time, where the transfer decides it."""
    step = a_step([0.5, 1.0], [1e9 / 8, 0.2e9 / 8])
    assert link_for(step, overlapped_s(step, rate, 0.01), 0.01) == pytest.approx(rate, rel=1e-6)


def test_no_link_makes_a_step_shorter_than_its_compute() -> None:
    """Then any rate is too low."""
    assert link_for(a_step([0.5], [1e6]), 0.9, 0) == inf


def test_without_overlap_the_unknowns_are_those_of_the_published_steps() -> None:
    """Two rates and a fixed cost from three steps, as they were made."""
    rates, fixed_s = {"tcp": 10e9, "rdma": 20e9}, 0.02
    seen = [
        Observation(key=key, bits=bits, extra_s=fixed_s + bits / rates[key])
        for key, bits in (("tcp", 8e9), ("rdma", 8e9), ("rdma", 1e9))
    ]
    found, found_fixed_s = fit_without_overlap(seen, {}, with_fixed=True)
    assert found == pytest.approx(rates)
    assert found_fixed_s == pytest.approx(fixed_s)


def test_without_overlap_nothing_becomes_negative() -> None:
    """A step that is shorter than its compute makes the network infinitely fast, not faster."""
    found, fixed_s = fit_without_overlap(
        [Observation(key="tcp", bits=8e9, extra_s=-0.1)], {}, with_fixed=False
    )
    assert found == {"tcp": inf}
    assert fixed_s == 0


def test_known_rates_are_kept() -> None:
    """Only the fixed cost is left to find: 0.3 s less the transfer of 0.2 s."""
    seen = [Observation(key="tcp", bits=2e9, extra_s=0.3)]
    assert fit_without_overlap(seen, {"tcp": 10e9}, with_fixed=True) == ({"tcp": 10e9}, pytest.approx(0.1))


def test_too_few_published_steps_leave_it_open() -> None:
    """One step doesn't give a rate and a fixed cost."""
    found, fixed_s = fit_without_overlap([Observation(key="tcp", bits=2e9, extra_s=0.3)], {}, with_fixed=True)
    assert isnan(found["tcp"])
    assert isnan(fixed_s)
