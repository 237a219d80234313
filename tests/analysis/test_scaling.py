"""Scaling efficiency and message curves give known answers."""

from pathlib import Path

import pandas as pd
import pytest
from records import make_cell, make_grid, make_record, put

from fabricbench.analysis import table
from fabricbench.analysis.scaling import curves, efficiency, scaling
from fabricbench.analysis.table import Tables, collect
from fabricbench.cell import Cell
from fabricbench.record import Record, Series


def tables_of(tmp_path: Path, steps: list[tuple[Cell, list[float]]]) -> Tables:
    """Tables of cells with given step times."""
    for cell, values in steps:
        put(make_record(cell, values), tmp_path)
    return collect(make_grid([cell for cell, _ in steps]), tmp_path)


def test_weak_scaling_is_time_on_one_over_time_on_n(tmp_path: Path) -> None:
    """Fixed batch per rank: 1.0 s on one GPU (median of 0.9, 1.0, 1.3) and 1.25 s on four are 80 %."""
    steps = [(make_cell(gpus=1, repeat=i), [t]) for i, t in enumerate((0.9, 1.0, 1.3), start=1)]
    steps += [(make_cell(gpus=4, repeat=i), [t]) for i, t in enumerate((1.25, 2.0), start=1)]
    table = efficiency(tables_of(tmp_path, steps).cells)
    assert list(table.loc[table["gpus"] == 4, "efficiency"]) == pytest.approx([0.8, 0.5])
    assert table.loc[table["gpus"] == 1, "efficiency"].median() == pytest.approx(1.0)


def test_strong_scaling_is_time_on_one_over_n_times_time_on_n(tmp_path: Path) -> None:
    """Fixed total cells: 1.0 s on one rank, 0.625 s on two are 80 %."""
    steps = [(make_cell("cfd", gpus=1), [1.0]), (make_cell("cfd", gpus=2), [0.625])]
    table = efficiency(tables_of(tmp_path, steps).cells).set_index("gpus")
    assert table.loc[2, "efficiency"] == pytest.approx(1.0 / (2 * 0.625))


def test_one_gpu_of_any_fabric_is_the_reference_of_a_fabric_without(tmp_path: Path) -> None:
    """One GPU sends nothing over any fabric; but where a fabric has its own one-GPU cell, that counts."""
    steps = [(make_cell(gpus=1), [1.0]), (make_cell(gpus=4, fabric="opa"), [1.25])]
    table = efficiency(tables_of(tmp_path, steps).cells).set_index("fabric")
    assert table.loc["opa", "efficiency"] == pytest.approx(0.8)
    steps.append((make_cell(gpus=1, fabric="opa"), [0.5]))
    table = efficiency(tables_of(tmp_path, steps).cells)
    assert list(table.loc[table["gpus"] == 4, "efficiency"]) == pytest.approx([0.4])


def test_no_efficiency_without_one_gpu(tmp_path: Path) -> None:
    """Without any one-GPU cell of the same workload there is no reference, and no efficiency."""
    table = efficiency(tables_of(tmp_path, [(make_cell(gpus=4), [1.0])]).cells)
    assert pd.isna(table["efficiency"]).all()


def test_curves_pool_samples_and_repeats(tmp_path: Path) -> None:
    """1 MB in 0.1 … 1.1 s over two repeats: median 0.6 s, 10 % 0.2 s, 90 % 1.0 s; bandwidths accordingly."""
    cells = [make_cell("micro", repeat=repeat) for repeat in (1, 2)]
    times = [[0.1, 0.3, 0.5, 0.7, 0.9, 1.1], [0.2, 0.4, 0.6, 0.8, 1.0]]
    for cell, values in zip(cells, times, strict=True):
        series = [
            Series(metric=metric, unit="s", bytes=1_000_000, values=values)
            for metric in ("stream_s", "allreduce_s")
        ]
        put(make_record(cell, samples=series), tmp_path)
    tables = collect(make_grid(cells), tmp_path)
    table = curves(tables.cells, tables.samples).set_index("metric")
    stream, allreduce = table.loc["stream_s"], table.loc["allreduce_s"]
    assert (stream["samples"], stream["repeats"]) == (11, 2)
    assert [stream[f"time_s_{at}"] for at in ("p10", "median", "p90")] == pytest.approx([0.2, 0.6, 1.0])
    assert [stream[f"bandwidth_bit_s_{at}"] for at in ("p10", "median", "p90")] == pytest.approx(
        [8e6, 8e6 / 0.6, 40e6]
    )
    assert allreduce["bandwidth_bit_s_median"] == pytest.approx(8e6 / 0.6 * 1.5)
    assert stream["of_line_rate"] == pytest.approx(8e6 / 0.6 / 50e6)


def test_nothing_measured_is_empty(tmp_path: Path) -> None:
    """Without ok cells both tables are empty and keep their columns."""
    tables = collect(make_grid([make_cell(), make_cell("micro")]), tmp_path)
    assert "efficiency" in efficiency(tables.cells)
    assert "time_s_median" in curves(tables.cells, tables.samples)


def test_what_a_step_takes_beyond_one_gpu_is_communication(tmp_path: Path) -> None:
    """1.0 s on one GPU, 1.25 s on four: a fifth of the step; without the one-GPU cell nothing is known."""
    steps = [(make_cell(gpus=1), [1.0]), (make_cell(gpus=4), [1.25])]
    steps.append((make_cell(gpus=4, workload="other"), [1.25]))
    tables = tables_of(tmp_path, steps)
    table = scaling(tables.cells, tables.samples).set_index(["workload", "gpus"])
    assert table.loc[("vgg16", 4), "communication"] == pytest.approx(0.2)
    assert table.loc[("vgg16", 1), "communication"] == 0
    assert pd.isna(table.loc[("other", 4), "communication"])
    assert set(table["scaling"]) == {"weak"}


def test_the_flow_solver_measures_its_wait(tmp_path: Path) -> None:
    """The share of its steps that waited for halos, at a fixed mesh; synthetic records wait for a tenth."""
    tables = tables_of(tmp_path, [(make_cell("cfd", gpus=2), [0.5, 0.6, 0.7])])
    [row] = scaling(tables.cells, tables.samples).to_dict("records")
    assert row["communication"] == pytest.approx(0.1)
    assert (row["scaling"], row["communication_by"]) == ("strong", "halo wait")


def timed(cell: Cell, **metrics: float) -> Record:
    """A record with one sample of each metric."""
    samples = [Series(metric=name, unit="s", values=[value], rank=0) for name, value in metrics.items()]
    return make_record(cell, samples=samples)


def scaling_of(tmp_path: Path, records: list[Record]) -> pd.DataFrame:
    """The table `scaling` of some records, by repeat."""
    for record in records:
        put(record, tmp_path)
    return collect(make_grid([record.cell for record in records]), tmp_path).conclusions.scaling.set_index(
        "repeat"
    )


def test_without_one_gpu_a_cell_refers_to_itself(tmp_path: Path) -> None:
    """1.0 s without DDP, 1.25 s with it: 80 %; where a cell ran on one GPU, that is the reference."""
    alone = timed(make_cell(gpus=4), step_s=1.25, alone_s=1.0)
    table = scaling_of(tmp_path, [alone])
    assert (table.loc[1, "efficiency"], table.loc[1, "reference"]) == (pytest.approx(0.8), "itself")
    assert table.loc[1, "communication"] == pytest.approx(0.2)
    table = scaling_of(tmp_path, [alone, timed(make_cell(gpus=1, repeat=2), step_s=0.5)])
    assert (table.loc[1, "efficiency"], table.loc[1, "reference"]) == (pytest.approx(0.4), "one GPU")


def test_communication_is_what_is_exposed_where_that_was_measured(tmp_path: Path) -> None:
    """1.25 s with and 1.125 s without synchronisation: a tenth, whatever one GPU took; one GPU has none."""
    several = timed(make_cell(gpus=4), step_s=1.25, nosync_s=1.125)
    table = scaling_of(tmp_path, [several, timed(make_cell(gpus=1, repeat=2), step_s=1.0, nosync_s=0.9)])
    assert table.loc[1, "communication"] == pytest.approx(0.1)
    assert list(table["communication_by"]) == ["without sync", "beyond T(1)"]
    assert table.loc[2, "communication"] == 0


def test_a_saturated_cell_is_no_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own efficiency stands, marked; others don't refer to it."""
    monkeypatch.setattr(table, "why_saturated", lambda record: "busy" if record.cell.gpus == 1 else "")
    one, several = timed(make_cell(gpus=1), step_s=1.0), timed(make_cell(gpus=4, repeat=2), step_s=1.25)
    found = scaling_of(tmp_path, [one, several])
    assert (found.loc[1, "no_verdict"], pd.isna(found.loc[2, "efficiency"])) == ("busy", True)
