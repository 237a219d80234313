"""What training measures besides its headline becomes columns, and nothing where it wasn't measured."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from records import make_cell, make_grid, make_record, put

from fabricbench.analysis import table
from fabricbench.analysis.table import collect
from fabricbench.analysis.trained import parts_of_step, training_columns
from fabricbench.cell import Cell
from fabricbench.record import Record, Series


def timed(cell: Cell, **metrics: list[float]) -> Record:
    """A record with these series of rank 0, and a median per rank for those that end in _median_s."""
    samples = [
        Series(metric=name, unit="s", values=values, rank=0)
        for name, values in metrics.items()
        if not name.endswith("_median_s")
    ]
    samples += [
        Series(metric=name, unit="s", values=[value], rank=rank)
        for name, values in metrics.items()
        if name.endswith("_median_s")
        for rank, value in enumerate(values)
    ]
    return make_record(cell, samples=samples)


def test_exposed_communication_is_a_step_less_one_without_synchronisation() -> None:
    """Medians of rank 0: 2.0 s against 1.5 s leave 0.5 s, a quarter of the step."""
    record = timed(make_cell(), step_s=[1.9, 2.0, 2.4], nosync_s=[1.5, 1.4, 1.6], alone_s=[1.4, 1.45])
    found = training_columns(record)
    assert (found["nosync_s"], found["alone_s"]) == (1.5, pytest.approx(1.425))
    assert (found["exposed_s"], found["exposed"]) == (pytest.approx(0.5), pytest.approx(0.25))
    assert found["n_steps"] == 3
    assert pd.isna(found["load_s"])


def test_the_straggler_is_the_rank_whose_own_step_is_longest() -> None:
    """Without synchronisation no rank waits for another: 1.2 s against a median of 1.0 s is a fifth."""
    found = training_columns(timed(make_cell(), step_s=[2.0], nosync_median_s=[1.0, 0.9, 1.2, 1.0]))
    assert (found["straggler"], found["straggler_rank"]) == (pytest.approx(0.2), 2)
    alone = training_columns(timed(make_cell(), step_s=[2.0], alone_median_s=[1.0, 1.0, 1.0, 1.5]))
    assert alone["straggler_rank"] == 3
    assert "straggler" not in training_columns(timed(make_cell(gpus=1), step_s=[2.0], alone_median_s=[1.0]))


def test_facts_are_columns(tmp_path: Path) -> None:
    """Gradients, buckets, memory and how measuring went stand in the table, in their own types."""
    record = make_record(make_cell())
    record.facts.update(steady=False, stopped_by="budget", warmup_steps=50)
    put(record, tmp_path)
    row = collect(make_grid([record.cell]), tmp_path).cells.iloc[0]
    assert (row["gradient_bytes"], row["buckets"], row["peak_memory_bytes"]) == (11_068_600, 6, 3 * 2**29)
    assert (row["steady"], row["stopped_by"], row["warmup_steps"], row["n_steps"]) == (
        False,
        "budget",
        50,
        30,
    )


def test_records_without_them_have_nulls(tmp_path: Path) -> None:
    """A flow cell, messages, and training from before any of it was taken."""
    old = timed(make_cell(), step_s=[2.0])
    old.facts.clear()
    old.facts["images_per_step"] = 256
    records = [old, make_record(make_cell("cfd")), make_record(make_cell("micro"))]
    for record in records:
        put(record, tmp_path)
    cells = collect(make_grid([record.cell for record in records]), tmp_path).cells
    for name in ("alone_s", "nosync_s", "exposed", "straggler", "buckets", "steady", "peak_memory_bytes"):
        assert cells[name].isna().all()
    assert set(cells["stopped_by"]) == set(cells["no_verdict"]) == {""}
    assert list(cells["n_steps"].isna()) == [False, True, True]


def test_a_fact_of_another_kind_makes_the_record_unreadable(tmp_path: Path) -> None:
    """A row that says so, as for any other spoilt record."""
    record = make_record(make_cell())
    record.facts["steady"] = "yes"
    put(record, tmp_path)
    row = collect(make_grid([record.cell]), tmp_path).cells.iloc[0]
    assert row["status"] == "unreadable"
    assert "'yes'" in row["reason"]


def test_a_saturated_cell_keeps_its_value_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ok, and its reason stands in no_verdict; a failed one has none."""
    monkeypatch.setattr(table, "why_saturated", lambda record: "its host was too busy")
    record = make_record(make_cell())
    put(record, tmp_path)
    row = collect(make_grid([record.cell]), tmp_path).cells.iloc[0]
    assert (row["status"], row["no_verdict"]) == ("ok", "its host was too busy")
    assert row["value"] > 0


def test_parts_of_a_step_are_of_the_machine_that_is_modelled(tmp_path: Path) -> None:
    """Replayed steps are divided by D = 10; real compute is not; one GPU computes for its whole step."""
    cells = [make_cell(), replace(make_cell(), device="cpu", repeat=2), make_cell(gpus=1, repeat=3)]
    for cell in cells[:2]:
        put(timed(cell, step_s=[2.0], nosync_s=[1.5]), tmp_path)
    put(timed(cells[2], step_s=[1.4]), tmp_path)
    parts = parts_of_step(collect(make_grid(cells), tmp_path).cells)
    assert list(parts["computing_ms"]) == pytest.approx([150, 1500, 140])
    assert list(parts["exposed_ms"]) == pytest.approx([50, 500, 0])
