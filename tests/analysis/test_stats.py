"""Repeats become one row with median and range; only ok cells count."""

from pathlib import Path

import pandas as pd
import pytest
from records import make_cell, make_failure, make_grid, make_record, put

from fabricbench.analysis.stats import counts, over_repeats, ratio_to_first
from fabricbench.analysis.table import collect


@pytest.fixture
def cells(tmp_path: Path) -> pd.DataFrame:
    """Three repeats on ethernet (1000, 1280, 640 images/s), one on opa (2560), and a failed one."""
    steps = {1: 2.56, 2: 2.0, 3: 4.0}
    records = [make_record(make_cell(repeat=repeat), [step]) for repeat, step in steps.items()]
    records.append(make_record(make_cell(fabric="opa"), [1.0]))
    records.append(make_failure(make_cell(fabric="opa", repeat=2), "failed", "rank 1 raised"))
    for record in records:
        put(record, tmp_path)
    return collect(make_grid([record.cell for record in records]), tmp_path).cells


def test_median_range_and_spread(cells: pd.DataFrame) -> None:
    """Known answer: median 1000, range 640 to 1280, spread (1280 - 640) / 1000; one repeat has no spread."""
    table = over_repeats(cells).set_index("fabric")
    assert list(table["n"]) == [3, 1]
    ethernet = table.loc["ethernet"]
    assert [ethernet[name] for name in ("median", "min", "max")] == pytest.approx([1000, 640, 1280])
    assert ethernet["spread"] == pytest.approx(0.64)
    assert pd.isna(table.loc["opa", "spread"])


def test_ratio_is_to_the_first_fabric(cells: pd.DataFrame) -> None:
    """2560 images/s against 1000 is a ratio of 2.56; the baseline's own is 1."""
    table = ratio_to_first(over_repeats(cells), ["ethernet", "opa"]).set_index("fabric")
    assert table.loc["ethernet", "ratio"] == 1
    assert table.loc["opa", "ratio"] == pytest.approx(2.56)
    assert set(table["baseline"]) == {"ethernet"}


def test_no_ratio_without_a_baseline(cells: pd.DataFrame) -> None:
    """Where the first fabric has no data, there's no ratio, and no other fabric takes its place."""
    table = ratio_to_first(over_repeats(cells[cells["fabric"] == "opa"]), ["ethernet", "opa"])
    assert table["ratio"].isna().all()


def test_demonstrations_get_no_ratio(tmp_path: Path) -> None:
    """Real compute on scaled links models nothing, so it enters no ratio."""
    records = [make_record(make_cell("cfd", fabric=fabric), [1.0]) for fabric in ("ethernet", "opa")]
    for record in records:
        put(record, tmp_path)
    summary = over_repeats(collect(make_grid([record.cell for record in records]), tmp_path).cells)
    assert summary["demonstration"].all()
    assert ratio_to_first(summary, ["ethernet", "opa"])["ratio"].isna().all()


def test_no_good_cells_is_an_empty_table(tmp_path: Path) -> None:
    """Nothing measured: no rows, the same columns, nothing raised."""
    cells = collect(make_grid([make_cell()]), tmp_path).cells
    table = ratio_to_first(over_repeats(cells), ["ethernet"])
    assert table.empty
    assert {"n", "median", "min", "max", "spread", "ratio"} <= set(table.columns)


def test_counts_by_status(cells: pd.DataFrame) -> None:
    """Every cell is counted, the most frequent status first."""
    assert counts(cells) == {"ok": 4, "failed": 1}
