"""Repeats become one row with median and range; only ok cells count."""

from pathlib import Path

import pandas as pd
import pytest
from records import make_cell, make_failure, make_grid, make_record, put

from fabricbench.analysis.stats import counts, over_repeats
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


def test_no_good_cells_is_an_empty_table(tmp_path: Path) -> None:
    """Nothing measured: no rows, the same columns, nothing raised."""
    cells = collect(make_grid([make_cell()]), tmp_path).cells
    table = over_repeats(cells)
    assert table.empty
    assert {"n", "median", "min", "max", "spread"} <= set(table.columns)


def test_counts_by_status(cells: pd.DataFrame) -> None:
    """Every cell is counted, the most frequent status first."""
    assert counts(cells) == {"ok": 4, "failed": 1}
