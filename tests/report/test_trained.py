"""The training section says what training measured, variant by variant, and what to beware of."""

from dataclasses import replace

import pandas as pd
import pytest
from records import make_cell, make_grid, make_record, put

from fabricbench.analysis import table
from fabricbench.analysis.conclusions import conclude
from fabricbench.analysis.table import Tables, collect
from fabricbench.cell import Cell
from fabricbench.report import setting
from fabricbench.report.heatmap import heatmap
from fabricbench.report.panels import PanelGroup, scaling_groups
from fabricbench.report.verdicts import findings

FABRICS = ["ethernet", "opa"]


def variant(batch: int, gpus: int, fabric: str, repeat: int = 1) -> Cell:
    """A training cell of the workload `sweep`."""
    cell = make_cell(gpus=gpus, fabric=fabric, repeat=repeat)
    return replace(cell, workload="sweep", params={**cell.params, "batch": batch})


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Two batches on two fabrics; one cell never became steady, one was on a host that was too busy."""
    folder = tmp_path_factory.mktemp("results")
    cells = [
        variant(batch, gpus, fabric, repeat)
        for batch in (128, 32)
        for gpus in (4, 16)
        for fabric in FABRICS
        for repeat in (1, 2)
    ]
    for place, cell in enumerate(cells):
        record = make_record(cell)
        record.facts["steady"] = place != 1
        put(record, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "why_saturated", lambda record: "busy" * (record.cell == cells[2]))
        grid = make_grid(cells)
        grid["campaign"]["compare"] = [{"by": "batch", "baseline": "32"}]
        return collect(grid, folder)


@pytest.fixture(scope="module")
def groups(tables: Tables) -> list[PanelGroup]:
    """The training section's groups."""
    return scaling_groups(tables, "train", FABRICS)


def test_variants_are_groups_in_the_order_people_count(groups: list[PanelGroup]) -> None:
    """Batch 32 before 128, whichever ran first."""
    assert [group.title for group in groups] == ["sweep, batch 32 over gloo", "sweep, batch 128 over gloo"]


def test_the_table_has_what_training_measured(groups: list[PanelGroup]) -> None:
    """Exposed communication, the slowest rank, gradients in buckets, memory and steps."""
    shown = groups[0].table
    row = dict(zip(shown.columns, shown.rows[0], strict=True))
    assert row["communication"].endswith(" %")
    assert row["slowest rank"] == "rank 1, +2.0\u00a0%"
    assert row["gradients per step"] == "11.1 MB in 6 buckets"
    assert (row["peak memory"], row["steps"]) == ("1.5 GiB", "8 + 30")
    assert "remarks" not in row


def test_the_text_says_what_was_referred_to(groups: list[PanelGroup]) -> None:
    """Without a cell on one GPU, its own steps; communication is what isn't hidden."""
    assert "own steps without DDP" in groups[0].about
    assert "without synchronisation" in groups[0].about
    assert any("exposed communication" in panel.title for panel in groups[0].panels)


def test_what_to_beware_of_is_said(groups: list[PanelGroup]) -> None:
    """In the row, and once below the figures with the reason."""
    shown = groups[1].table
    remarks = [dict(zip(shown.columns, row, strict=True))["remarks"] for row in shown.rows]
    assert sorted(filter(None, remarks)) == ["1 of 2 never steady", "1 of 2 not compared"]
    assert groups[1].notes == [
        "1 of 8 cells never became steady before it was measured.",
        "1 of 8 cells shown here, but neither compared nor taken as a reference: busy.",
    ]


def test_a_wait_for_images_is_said(tables: Tables) -> None:
    """It is in no step's time, so it stands apart."""
    waiting = replace(tables, cells=tables.cells.assign(load_s=0.004))
    notes = scaling_groups(waiting, "train", FABRICS)[0].notes
    assert notes == [
        "Waiting for images took 4.00 ms per step (median of 8 cells), which is not in a step's time."
    ]


def test_old_records_have_the_table_that_they_had(tables: Tables) -> None:
    """No empty columns, no figure of what wasn't measured, and communication beyond T(1)."""
    bare = tables.cells.assign(
        **dict.fromkeys(("nosync_s", "alone_s", "exposed", "straggler"), float("nan")),
        steady=pd.Series(pd.NA, index=tables.cells.index, dtype="boolean"),
        n_steps=pd.Series(pd.NA, index=tables.cells.index, dtype="Int64"),
        no_verdict="",
    )
    old = replace(tables, cells=bare, conclusions=conclude(bare, tables.samples, {}, tables.facts))
    [first, *_] = scaling_groups(old, "train", FABRICS)
    assert "slowest rank" not in first.table.columns
    assert not any("exposed" in panel.title for panel in first.panels)
    assert "beyond one GPU's" in first.about


def test_the_grid_and_the_first_screen_name_what_is_not_compared(tables: Tables) -> None:
    """A square says how many of its cells, the first screen how many of all."""
    found = heatmap(tables.cells, FABRICS, "", tables.conclusions, 0.05)
    assert [group.workload for group in found] == ["sweep, batch 32", "sweep, batch 128"]
    squares = [square for row in found[1].rows for square in row.squares]
    assert [square.why for square in squares if square.why] == ["1 of 2 not compared: busy"]
    assert setting.barred(tables.cells) == "1 cell measured but not compared: busy. Each is marked below."
    assert setting.barred(tables.cells.assign(no_verdict="")) == ""


def test_the_first_sentence_counts_variants(tables: Tables) -> None:
    """Their names would fill it."""
    assert setting.summary(tables.cells, FABRICS).startswith("sweep in 2 variants on ethernet and opa")


def test_findings_along_a_parameter_name_it(tables: Tables) -> None:
    """A number alone would say nothing."""
    found = findings(tables.conclusions.comparisons, 0.05)
    assert {finding.where for finding in found} == {"sweep on ethernet over gloo", "sweep on opa over gloo"}
    assert found[0].clauses[0].lead == "batch 128 is "
    assert "than batch 32" in found[0].clauses[0].rest
