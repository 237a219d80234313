"""One network under two names shows the noise floor, and whether a campaign can decide at all."""

import numpy as np
import pandas as pd
import pytest
from tables import cells_of

from fabricbench.analysis.compare import Rules
from fabricbench.analysis.control import NO_CONTROL, control, decision, without_second_names

PAIRS = [("ethernet", "ethernet-again")]


def two_names(noise: float, differ: float = 0.0, blocks: int = 5, **same) -> pd.DataFrame:
    """Cells of one network under two names, that differ by so much all the same, and of another network."""
    rng = np.random.default_rng(1)
    values = 100 * np.exp(rng.normal(0, noise, (2, blocks)))
    again = values[1] * np.exp(differ)
    return cells_of({"ethernet": values[0], "ethernet-again": again, "opa": 2 * values[0]}, **same)


def test_a_quiet_control_is_the_noise_floor() -> None:
    """1 % noise: equivalent, and the floor is the interval's farther end."""
    table = control(two_names(0.01), PAIRS)
    assert len(table) == 1, "opa is no control"
    row = table.iloc[0]
    assert (row["verdict"], row["can_decide"], row["reason"]) == ("equivalent", True, "")
    farther = max(abs(row["log_low"]), abs(row["log_high"]))
    assert row["noise_floor_percent"] == pytest.approx(100 * (np.exp(farther) - 1))
    assert 0 < row["noise_floor_percent"] < 5
    assert decision(table).can_decide


def test_a_noisy_control_cant_decide() -> None:
    """10 % noise isn't equivalent within 5 %: the campaign can't decide, and the reason has the numbers."""
    table = control(two_names(0.1), PAIRS)
    assert not table["can_decide"].any()
    assert "the noise is too large for a margin of ±5 %" in table["reason"].iloc[0]
    found = decision(table)
    assert not found.can_decide
    assert found.reason.startswith(
        "1 of 1 controls failed; w0 over gloo on 4 GPUs: ethernet and ethernet-again"
    )
    assert control(two_names(0.1), PAIRS, Rules(margin=0.5))["can_decide"].all()


def test_a_control_that_differs_says_that_something_else_does() -> None:
    """One network that is 20 % slower under its second name: something else differs."""
    row = control(two_names(0.01, differ=-0.2), PAIRS).iloc[0]
    assert not row["can_decide"]
    assert "came out slower by " in row["reason"]
    assert "something other than the network differs" in row["reason"]


def test_one_block_is_no_control() -> None:
    """One block has no interval, so no noise floor."""
    row = control(two_names(0.01, blocks=1), PAIRS).iloc[0]
    assert np.isnan(row["noise_floor_percent"])
    assert "one block gives no interval" in row["reason"]
    assert not row["can_decide"]


def test_without_a_control_nothing_is_decided() -> None:
    """No pair of names, no cells, or demonstrations only: the reason says what is missing."""
    demonstrations = control(two_names(0.01, demonstration=True), PAIRS)
    for table in (control(two_names(0.01), []), control(two_names(0.01).iloc[:0], PAIRS), demonstrations):
        assert decision(table).reason == NO_CONTROL
        assert not decision(table).can_decide


def test_second_names_are_no_further_comparison() -> None:
    """They are left out of what is compared, so Holm doesn't count them."""
    assert set(without_second_names(two_names(0.01), PAIRS)["fabric"]) == {"ethernet", "opa"}


@pytest.mark.slow
def test_a_true_control_fails_rarely_where_noise_is_small() -> None:
    """500 true controls of 1 % noise and 5 blocks: nearly all can decide; of 10 % noise nearly none."""
    rng = np.random.default_rng(2)
    for noise, low, high in ((0.01, 0.97, 1.0), (0.10, 0.0, 0.03)):
        values = {name: np.exp(rng.normal(0, noise, (500, 5))) for name in PAIRS[0]}
        share = control(cells_of(values), PAIRS)["can_decide"].mean()
        assert low <= share <= high
