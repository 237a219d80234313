"""Folders of records without Snakemake, and two campaigns against each other."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records import make_cell, make_record, put, write_campaign

from fabricbench.analysis.gather import compared, gather, grid_of
from fabricbench.errors import FabricbenchError


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A campaign's folder, without grid.json."""
    write_campaign(tmp_path / "before")
    return tmp_path / "before"


def changed(before: Path, name: str, workload: str = "vgg16", **change: Any) -> Path:
    """A copy of a campaign, run on another day; `times` multiplies a workload's times."""
    after = before.with_name(name)
    shutil.copytree(before, after)
    for path in after.glob("*/*.json"):
        plain = json.loads(path.read_text())
        for key in ("start", "end"):
            plain[key] = plain[key].replace("2026-11-30", "2026-12-01")
        if path.parent.name == workload:
            for series in plain["samples"]:
                if series["unit"] == "s":
                    series["values"] = [value * change.get("times", 1.0) for value in series["values"]]
            for ranks in plain["provenance"].get("ranks", []):
                ranks["versions"]["torch"] = change.get("torch", ranks["versions"]["torch"])
        path.write_text(json.dumps(plain))
    return after


def verdicts(tables: Any, workload: str) -> set[str]:
    """The verdicts on one workload's pairs that have cells on both sides."""
    found = tables.conclusions.comparisons
    return set(found.loc[(found["workload"] == workload) & (found["n_baseline"] > 0), "verdict"])


def test_a_folder_is_what_its_records_are(before):
    """Without grid.json: every record is a cell, failures included, and nothing is missing."""
    tables, grid = gather([before])
    assert len(grid["cells"]) == len(list(before.glob("*/*-r?-*.json"))) == len(tables.cells)
    assert "missing" not in set(tables.cells["status"])
    assert {"failed", "timeout"} <= set(tables.cells["status"])


def test_a_grid_beside_the_records_is_used(tmp_path):
    """What it names and isn't there is missing."""
    grid = write_campaign(tmp_path / "whole")
    (tmp_path / "whole" / "grid.json").write_text(json.dumps(grid))
    tables, _ = gather([tmp_path / "whole"])
    assert "missing" in set(tables.cells["status"])


def test_several_folders_are_one_table(before):
    """Cells are named after their folder as well, and more repeats are more blocks."""
    alone, _ = gather([before])
    again = changed(before, "again")
    tables, grid = gather([before, again])
    assert len(tables.cells) == 2 * len(alone.cells) == tables.cells["cell"].nunique()
    assert set(tables.cells["campaign"]) == {"before", "again"}
    assert grid["campaign"]["name"] == "before and again"
    one, both = (found.conclusions.comparisons["n_blocks"].max() for found in (alone, tables))
    assert both == 2 * one
    assert set(tables.facts["cells"]) <= set(tables.cells["cell"])


def test_the_same_twice_is_equivalent(before):
    """Equal samples on another day: no workload differs."""
    tables, _ = compared(before, changed(before, "after"), 0.3, allow_versions=False)
    assert verdicts(tables, "vgg16") == {"equivalent"}
    assert verdicts(tables, "euler") == {"none"}
    assert set(tables.conclusions.comparisons["by"]) == {"campaign"}
    assert not (~tables.differences["expected"]).any()


def test_a_slower_workload_is_found_alone(before):
    """Twice the time for VGG-16 is that, and no such thing is said of the others."""
    tables, _ = compared(before, changed(before, "after", times=2.0), 0.3, allow_versions=False)
    assert verdicts(tables, "vgg16") == {"slower"}
    assert "slower" not in verdicts(tables, "resnet50")
    found = tables.conclusions.comparisons.set_index("workload").loc["vgg16"]
    assert list(found["ratio"]) == pytest.approx([0.5] * len(found))
    assert not found["paired"].any()


def test_other_versions_are_refused_unless_they_are_the_question(before):
    """A library's version differs: listed as a difference, and compared only if that is allowed."""
    after = changed(before, "after", times=2.0, torch="3.0")
    tables, _ = compared(before, after, None, allow_versions=False)
    assert verdicts(tables, "vgg16") == {"refused"}
    rows = tables.differences[~tables.differences["expected"]]
    assert set(rows["what"]) == {"torch"}
    assert set(rows["this_side"]) == {"3.0"}
    tables, _ = compared(before, after, None, allow_versions=True)
    assert verdicts(tables, "vgg16") == {"slower"}


def test_the_margin_may_be_another(before):
    """Within ±90 % a quarter more is equivalent."""
    after = changed(before, "after", times=1.25)
    tables, _ = compared(before, after, 0.9, allow_versions=False)
    assert verdicts(tables, "vgg16") == {"equivalent"}


@pytest.mark.parametrize(("name", "words"), [("nowhere", "is no folder"), ("empty", "has no records")])
def test_what_is_no_campaign_is_one_line(tmp_path, name, words):
    """The folder, and what to give."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(FabricbenchError, match=f"{name}: {words}"):
        grid_of(tmp_path / name)


def test_a_campaign_is_not_compared_with_itself(before):
    """Two folders are needed."""
    with pytest.raises(FabricbenchError, match="is given twice"):
        compared(before, before, None, allow_versions=False)


def test_other_files_beside_records_are_no_cells(before):
    """Notes, tables and half a record change nothing."""
    (before / "vgg16" / "notes-1.json").write_text("{}")
    (before / "tables").mkdir(exist_ok=True)
    (before / "tables" / "x-y.json").write_text("[1")
    tables, _ = gather([before])
    assert not tables.cells["cell"].str.contains("notes|x-y").any()


def test_variants_have_one_name_in_both_campaigns(tmp_path):
    """A campaign of one batch meets another of two at the batch that they share."""
    for name, batches in (("one", (64,)), ("two", (32, 64))):
        for repeat in (1, 2):
            for batch in batches:
                cell = make_cell(repeat=repeat)
                put(make_record(replace(cell, params={**cell.params, "batch": batch})), tmp_path / name)
    tables, _ = compared(tmp_path / "one", tmp_path / "two", None, False)
    found = tables.conclusions.comparisons
    assert set(found.loc[found["n_baseline"] * found["n_other"] > 0, "workload"]) == {"vgg16, batch 64"}
    assert set(tables.differences["workload"]) == {"vgg16, batch 64"}
