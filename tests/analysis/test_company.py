"""Which cells ran at the same time, counted by their intervals; and what Slurm told of their jobs."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from records import make_cell, make_failure, make_grid, make_on_slurm, make_record, put

from fabricbench.analysis.company import beside, job_columns, overlaps
from fabricbench.analysis.table import collect

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def spans(*pairs: tuple[float, float]) -> list[tuple[datetime, datetime]]:
    """Seconds as intervals."""
    return [(ZERO + timedelta(seconds=start), ZERO + timedelta(seconds=end)) for start, end in pairs]


@pytest.mark.parametrize(
    ("pairs", "counts"),
    [
        ([], []),
        ([(0, 5)], [0]),
        ([(0, 5), (5, 9)], [0, 0]),
        ([(0, 5), (4, 9)], [1, 1]),
        ([(0, 9), (2, 3), (4, 5)], [2, 1, 1]),
        ([(0, 5), (0, 5), (0, 5)], [2, 2, 2]),
        ([(2, 2), (0, 5), (5, 5)], [1, 1, 0]),
        ([(2, 2)], [0]),
    ],
)
def test_overlaps_of_intervals(pairs: list[tuple[float, float]], counts: list[int]) -> None:
    """Each interval's number of others that it shares time with; touching ends share none."""
    assert overlaps(spans(*pairs)) == counts


def test_overlaps_are_those_of_every_pair() -> None:
    """The same as by looking at all pairs of 200 drawn intervals."""
    draw = random.Random(7)
    drawn = [(start, start + draw.expovariate(0.1)) for start in (draw.uniform(0, 500) for _ in range(200))]
    slow = [sum(a is not b and a[0] < b[1] and b[0] < a[1] for b in drawn) for a in drawn]
    assert overlaps(spans(*drawn)) == slow
    assert max(slow) > 3


def test_jobs_and_overlaps_stand_in_the_table(tmp_path: Path) -> None:
    """Two cells overlap, a failed one among them, a third ran alone, a fourth not at all."""
    cells = [
        make_cell(repeat=repeat, launcher="slurm", scale={"bytes": 1, "time": 1}) for repeat in (1, 2, 3, 4)
    ]
    records = [make_on_slurm(cell, after_s=at) for cell, at in zip(cells, (0, 6, 90), strict=False)]
    records[1] = make_on_slurm(cells[1], after_s=6, others=3, status="failed", reason="x", samples=[])
    for record in records:
        put(record, tmp_path)
    table = collect(make_grid(cells), tmp_path).cells.set_index("repeat")
    assert table["overlaps"].tolist() == [1, 1, 0, pd.NA]
    assert table["others"].tolist() == [0, 3, 0, pd.NA]
    assert table["job"].tolist() == ["1000", "1006", "1090", ""]
    assert table["queue_s"].tolist()[:3] == [42.0] * 3
    assert table["startup_s"].tolist()[:3] == [3.0] * 3
    assert table["restarts"].tolist() == [0, 0, 0, pd.NA]
    assert beside(table).tolist() == [True, True, False, False]


def test_emulated_cells_overlap_with_none(tmp_path: Path) -> None:
    """Each has links of its own, whatever its clock says."""
    cells = [make_cell(repeat=1), make_cell(fabric="opa")]
    same = {"start": "2026-01-01T00:00:00+00:00", "end": "2026-01-01T00:01:00+00:00"}
    put(make_record(cells[0], **same), tmp_path)
    failure = make_failure(cells[1], "failed", "x")
    failure.start, failure.end = same["start"], ""
    put(failure, tmp_path)
    table = collect(make_grid(cells), tmp_path).cells
    assert table["overlaps"].tolist() == [0, pd.NA]
    assert not beside(table).any()
    assert not beside(table.drop(columns=["overlaps", "others"])).any()


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ({}, ("", None, None)),
        ({"id": 7, "restarts": 2, "others": {"jobs": ["8", "9"]}}, ("7", 2, 2)),
        ({"id": "7", "submitted": "never", "others": {"jobs": "many"}}, ("7", None, None)),
        ({"id": "7", "others": None, "restarts": True}, ("7", None, None)),
    ],
)
def test_what_is_not_told_of_a_job_is_absent(job: dict[str, Any], told: tuple[Any, ...]) -> None:
    """Provenance of another version, or of a site whose Slurm says less."""
    found = job_columns({"job": job})
    assert (found["job"], found["restarts"], found["others"]) == told
    assert found["queue_s"] != found["queue_s"]
    assert found["startup_s"] != found["startup_s"]


def test_cells_of_an_allocation_have_no_startup(tmp_path: Path) -> None:
    """Its job began long before, with other cells."""
    cell = make_cell(repeat=1, launcher="allocation", scale={"bytes": 1, "time": 1})
    put(replace(make_on_slurm(cell), cell=cell), tmp_path)
    assert collect(make_grid([cell]), tmp_path).cells["startup_s"].isna().all()
