"""What ranks ran on and with."""

import os

import pytest
from cells import a_cell

from fabricbench.provenance import git_revision, merge_ranks, rank_provenance, rank_ranges


@pytest.mark.parametrize(
    ("ranks", "text"), [([0], "0"), ([0, 1, 2, 3], "0-3"), ([0, 1, 2, 5], "0-2,5"), ([], "")]
)
def test_ranges_of_ranks_are_short(ranks, text):
    """Neighbouring ranks are written as a range."""
    assert rank_ranges(ranks) == text


def test_equal_ranks_are_kept_once():
    """512 equal ranks take one entry; one that differs takes a second."""
    merged = merge_ranks([{"host": f"n{rank // 8}", "threads": 1} for rank in range(511)] + [{"host": "n63"}])
    assert [(one["ranks"], len(one["host"]), one.get("threads")) for one in merged] == [
        ("0-510", 64, 1),
        ("511", 1, None),
    ]


def test_the_effective_environment_is_recorded(monkeypatch):
    """What a rank really had, not what it should have had."""
    monkeypatch.setenv("FI_PROVIDER", "sockets")
    assert rank_provenance(a_cell(), {"cores": [0]}, {})["environment"]["FI_PROVIDER"] == "sockets"


def test_outside_a_checkout_there_is_no_revision(monkeypatch):
    """Without git the revision is None, and nothing fails."""
    monkeypatch.setenv("PATH", os.devnull)
    assert git_revision() is None
