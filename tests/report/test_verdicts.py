"""Verdicts read as one would say them, and say neither more nor less than the table does."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tables import cells_of, samples_of

from fabricbench.analysis.compare import Axis, Rules, compare
from fabricbench.analysis.conclusions import Conclusions, conclude
from fabricbench.report.compared import comparison_sections
from fabricbench.report.steadiness import blocks, within
from fabricbench.report.verdicts import Finding, findings, said

AXES = [Axis("fabric", "ethernet")]
CAMPAIGN: dict[str, Any] = {"compare": [{"by": "fabric", "baseline": "ethernet"}], "seed": 7}
NETWORK = {"interface": ["eth0"], "rate_bit_s": 10}


def rows(other: list[float], baseline: list[float] | None = None, **same: Any) -> pd.DataFrame:
    """Comparisons of opa with ethernet, whose blocks have these values."""
    ethernet = baseline or [100.0] * len(other)
    return compare(cells_of({"ethernet": ethernet, "opa": other}, **same), AXES, Rules())


def first(frame: pd.DataFrame) -> dict[Any, Any]:
    """The one row of a frame."""
    (row,) = frame.to_dict("records")
    return row


def text(finding: Finding) -> str:
    """A finding as the page shows it."""
    parts = [f"{clause.lead}{clause.word}{clause.rest}" for clause in finding.clauses]
    return f"{finding.where}: {'; '.join(parts)}.".replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("values", "said_so", "tone"),
    [
        ([130.0, 131.0, 132.0], "faster 29–34 %", "higher-3"),
        ([76.0, 77.0, 78.0], "slower 26–34 %", "lower-3"),
        ([108.0, 108.2, 108.4], "faster 7.7–8.7 %", "higher-1"),
        ([99.0, 100.0, 101.0], "equivalent ±5 %", "same"),
        ([90.0, 100.0, 115.0], "undecided (+68 blocks)", "open"),
        ([100.0], "undecided", "open"),
    ],
)
def test_a_verdict_in_a_word(values: list[float], said_so: str, tone: str) -> None:
    """The word with its interval, and a tone that follows the verdict and not the ratio."""
    found = said(first(rows(values)), 0.05)
    assert found.text.replace("\u00a0", " ") == said_so
    assert found.tone == tone


def test_what_a_word_does_not_hold_stands_in_the_interval() -> None:
    """Equivalent and undecided have their interval in words; faster has it in its text."""
    assert said(first(rows([99.0, 100.0, 101.0])), 0.05).interval.startswith("from 2.")
    assert said(first(rows([130.0, 131.0, 132.0])), 0.05).interval == ""
    one = said(first(rows([130.0])), 0.05)
    assert (one.interval, one.ratio) == ("", "1.30×")


def test_no_verdict_and_refused() -> None:
    """A demonstration has neither verdict nor ratio; other versions are refused, with the reason."""
    none = said(first(rows([130.0, 131.0, 132.0], demonstration=True)), 0.05)
    assert (none.text, none.ratio, none.tone) == ("no verdict", "", "")
    cells = cells_of({"ethernet": [100.0, 100.0], "opa": [130.0, 131.0]})
    cells["versions"] = [json.dumps({"torch": name}) for name in cells["fabric"]]
    refused = said(first(compare(cells, AXES, Rules())), 0.05)
    assert (refused.text, refused.ratio, refused.tone) == ("refused", "", "open")
    assert "torch: ethernet / opa" in refused.why


def test_unpaired_is_marked() -> None:
    """Cells of other nodes are two samples, and the verdict and its sentence say so."""
    cells = cells_of({"ethernet": [100.0, 101.0, 102.0], "opa": [200.0, 201.0, 202.0]})
    cells["node_set"] = cells["fabric"]
    table = compare(cells, AXES, Rules())
    assert said(first(table), 0.05).unpaired
    assert "on 4 GPUs (unpaired)." in text(findings(table, 0.05)[0])
    assert not said(first(rows([130.0, 131.0])), 0.05).unpaired


def test_a_sentence_holds_all_sizes() -> None:
    """Faster at two sizes, equivalent at one, undecided at one, in that order."""
    sizes = {
        1: [99.0, 100.0, 101.0],
        4: [130.0, 131.0, 132.0],
        8: [90.0, 100.0, 115.0],
        16: [155.0, 157.0, 159.0],
    }
    cells = pd.concat(
        [
            cells_of({"ethernet": [100.0] * 3, "opa": values}, gpus=gpus, nodes=gpus)
            for gpus, values in sizes.items()
        ]
    )
    (finding,) = findings(compare(cells.reset_index(drop=True), AXES, Rules()), 0.05)
    assert text(finding) == (
        "w0 over gloo: opa is faster than ethernet by 29–34 % on 4 GPUs and by 52–62 % on 16; "
        "equivalent within ±5 % on 1 GPU; "
        "undecided on 8 GPUs: 68 more blocks would probably show equivalence."
    )


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([99.0, 100.0, 101.0], "w0 over gloo: opa is equivalent to ethernet within ±5 % on 4 GPUs."),
        ([100.0], "w0 over gloo: opa against ethernet: undecided on 4 GPUs: one block gives no interval"),
        (
            [102.0, 102.1, 102.2],
            "opa is equivalent to ethernet within ±5 % on 4 GPUs, yet faster by 1.9 to 2.3 %.",
        ),
        ([76.0, 77.0, 78.0], "opa is slower than ethernet by 26–34 % on 4 GPUs."),
    ],
)
def test_a_sentence_begins_with_what_it_is_about(values: list[float], sentence: str) -> None:
    """Whichever verdict comes first names both sides."""
    assert sentence in text(findings(rows(values), 0.05)[0])


def test_what_no_number_of_blocks_decides_says_so() -> None:
    """A ratio at the margin and much noise: neither a thousand blocks nor any promise."""
    row = first(rows([90.0, 100.0, 115.0])) | {"further_blocks": None, "further_for": ""}
    table = pd.DataFrame([row])
    assert "with this noise and ratio, 1,000 blocks would not decide" in text(findings(table, 0.05)[0])
    assert said(row, 0.05).text == "undecided"


def concluded(noise: float, pairs: bool = True, blocks: int = 5) -> Conclusions:
    """A campaign of three networks, of which one has two names."""
    rng = np.random.default_rng(1)
    values = 100 * np.exp(rng.normal(0, noise, (3, blocks)))
    cells = cells_of({"ethernet": values[0], "opa": 2 * values[1], "opa-again": 2 * values[2]})
    return conclude(cells, _steps(cells), campaign(pairs), {"cells": {}})


def _steps(cells: pd.DataFrame) -> pd.DataFrame:
    return samples_of({str(cell): np.full(30, 1.0) for cell in cells["cell"]})


def campaign(pairs: bool = True) -> dict[str, Any]:
    """Its config."""
    fabrics = {"ethernet": NETWORK, "opa": NETWORK | {"rate_bit_s": 40}}
    fabrics["opa-again"] = fabrics["opa"] if pairs else NETWORK | {"rate_bit_s": 41}
    return CAMPAIGN | {"fabrics": {name: {"name": name, **of} for name, of in fabrics.items()}}


def test_a_quiet_campaign_names_its_noise_floor() -> None:
    """The widest control is the floor, in the sentence with its place; nothing says it can't decide."""
    conclusions = concluded(0.005)
    trust = comparison_sections(conclusions, campaign()).trust
    floor = conclusions.controls["noise_floor_percent"].max()
    assert (trust.cannot, trust.failed, trust.missing) == ("", [], "")
    assert f"(opa and opa-again) differs by at most {floor:.1f}\u00a0% (w0 over gloo, 4 GPUs" in trust.floor


def test_a_noisy_campaign_cannot_decide() -> None:
    """The reason names control, interval and margin."""
    trust = comparison_sections(concluded(0.1), campaign()).trust
    assert trust.cannot == "1 of 1 control did not come out equivalent."
    assert "w0 over gloo, 4 GPUs: opa and opa-again are one network" in trust.failed[0]
    assert "too large for a margin of ±5 %" in trust.failed[0]


def test_without_a_control_the_floor_is_not_known() -> None:
    """No network has two names: that is said, and the campaign isn't called unable."""
    compared = comparison_sections(concluded(0.005, pairs=False), campaign(pairs=False))
    assert compared.trust.missing.startswith("Noise floor not known: no control was measured")
    assert (compared.trust.cannot, compared.trust.floor) == ("", "")
    assert compared.controls.lines == []


def test_every_comparison_is_a_line_with_its_tests() -> None:
    """Blocks, method, both p-values and the sentence that says why, under the axis and its baseline."""
    (section,) = comparison_sections(concluded(0.005), campaign()).sections
    assert section.title == "By fabric, against ethernet"
    (line,) = section.lines
    assert (line.what, line.blocks, line.method) == ("w0 over gloo, 4 GPUs: opa", "5", "paired t")
    assert line.p == "< 0.0001 (1)"
    assert line.said.why.startswith("Faster by ")


def test_steady_and_unsteady_series_are_told_apart() -> None:
    """A ramp drifts and is listed with its numbers; a flat series isn't."""
    samples = samples_of({"a": np.linspace(0.97, 1.03, 30), "b": np.full(30, 1.0)})
    cells = cells_of({"ethernet": [1.0], "opa": [2.0]})
    found = within(conclude(cells, samples, CAMPAIGN, {"cells": {}}))
    assert found.counts == "1 of 2 series aren't steady."
    (row,) = found.unsteady.rows
    assert row[:4] == ["a", "step_s", "drifting", "30"]
    assert "+6.0\u00a0%" in row


def test_few_samples_are_said_to_tell_nothing() -> None:
    """Below ten samples a series is neither steady nor not."""
    cells = cells_of({"ethernet": [1.0], "opa": [2.0]})
    found = within(conclude(cells, samples_of({"a": [1.0, 1.1]}), CAMPAIGN, {"cells": {}}))
    assert found.counts == "0 of 1 series aren't steady; 1 have too few samples to tell."


@pytest.mark.parametrize(("over", "often", "listed"), [(1.03, 1, True), (1.01, 1, False), (1.03, 0, False)])
def test_a_slow_rank_is_one_that_is_slow_most_often(over: float, often: int, listed: bool) -> None:
    """More than 2 % over the median rank, and the slowest in most steps: only both are worth a line."""
    medians = samples_of({"a": [1.0, over, 1.0, 1.0]}, "step_median_s")
    medians["rank"] = pd.Series([0, 1, 2, 3], dtype="Int32")
    slowest = samples_of({"a": [float(often)] * 8 + [2.0] * 2}, "step_slowest_rank")
    cells = cells_of({"ethernet": [1.0], "opa": [2.0]})
    samples = pd.concat([medians, slowest], ignore_index=True)
    found = within(conclude(cells, samples, CAMPAIGN, {"cells": {}})).slow_ranks
    assert [row[:2] for row in found.rows] == ([["a", "1 of 4"]] if listed else [])


def test_blocks_are_shown_as_they_turned_out() -> None:
    """Seed, repeats, and blocks of comparisons and of controls."""
    cells = cells_of({"ethernet": [1.0, 1.0], "opa": [2.0, 2.0], "opa-again": [2.0, 2.0]})
    found = blocks(cells, campaign())
    assert "seed 7" in found.drawn
    assert [row[:2] for row in found.repeats.rows] == [["1", "3"], ["2", "3"]]
    assert [row[:2] for row in found.comparisons.rows] == [
        ["w0 over gloo, 4 GPUs: opa against ethernet", "2"],
        ["w0 over gloo, 4 GPUs: opa-again against opa", "2"],
    ]
    assert found.comparisons.rows[0][3] == "60.0 s"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"cluster": {"kind": "slurm"}, "seed": 3}, "seed 3. They were submitted so; when each ran was"),
        ({}, "The seed of the order isn't recorded."),
    ],
)
def test_who_chose_the_order(config: dict[str, Any], words: str) -> None:
    """Under Slurm the order is a wish; without a seed nothing is claimed."""
    assert words in blocks(cells_of({"ethernet": [1.0]}), config).drawn
