"""Emulated rates beside published ones, and what simpler models make of the same fitted rates."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from published import EMULATED, put_campaign
from records import make_cell, make_grid, make_record, put

from fabricbench.analysis.published import DTYPES, gaps, published
from fabricbench.analysis.table import collect, read_tables, write_tables


def published_of(folder: Path, **how: Any) -> pd.DataFrame:
    """The frame of a made-up campaign, by model and fabric."""
    grid = put_campaign(folder / "results", **how)
    frame = collect(grid, folder / "results").conclusions.published
    return frame.set_index(["model", "fabric"])


def test_each_published_rate_has_a_row_with_its_error(tmp_path: Path) -> None:
    """Six rates, three fitted; the emulated one is the median over both repeats."""
    frame = published_of(tmp_path)
    assert len(frame) == 6
    assert sorted(frame["fits"]) == ["", "", "", "effective", "effective", "fixed_cost"]
    row = frame.loc[("resnet101", "tcp")]
    assert row["published"] == 1685.1
    assert row["repeats"] == 2
    assert row["emulated"] == pytest.approx(1720 * 1.005)
    assert row["emulated_error"] == pytest.approx(1720 * 1.005 / 1685.1 - 1)
    assert (row["emulated_min"], row["emulated_max"]) == pytest.approx((1720, 1720 * 1.01))


def test_without_a_network_there_is_a_step_and_a_fixed_cost(tmp_path: Path) -> None:
    """Fitted on Inception V3 over RDMA it is 30 ms, which is 1.6 and 3.6 % off on two others."""
    frame = published_of(tmp_path)
    assert frame["null_fixed_s"].iloc[0] == pytest.approx(0.0301, abs=1e-4)
    errors = frame["null_error"]
    assert errors[("inception_v3", "rdma")] == pytest.approx(0)
    assert errors[("inception_v3", "tcp")] == pytest.approx(0.016, abs=5e-4)
    assert errors[("resnet101", "rdma")] == pytest.approx(0.036, abs=5e-4)


def test_the_model_without_overlap_hits_what_it_is_fitted_to(tmp_path: Path) -> None:
    """Its two rates and its fixed cost give the three fitted rates exactly, and miss the others."""
    frame = published_of(tmp_path)
    fitted = frame["fits"] != ""
    assert frame.loc[fitted, "no_overlap_error"].abs().max() < 1e-6
    assert frame.loc[~fitted, "no_overlap_error"].abs().min() > 0.01
    assert frame.loc[("vgg16", "rdma"), "no_overlap_bit_s"] > 25e9


def test_the_computed_overlap_uses_the_campaigns_own_values(tmp_path: Path) -> None:
    """At 13.8 and 21.3 Gbit/s and 8 ms every rate is within 4 % of the published."""
    raw = {"tcp": {"interface": "eth0", "rate": "25 Gbit/s", "effective": "13.8 Gbit/s"}}
    raw["rdma"] = {"interface": "eth1", "rate": "25 Gbit/s", "effective": "21.3 Gbit/s"}
    frame = published_of(tmp_path, fabrics=raw)
    assert frame["overlap_error"].abs().max() < 0.04
    assert frame.loc[("vgg16", "tcp"), "effective_bit_s"] == 13.8e9


def test_a_rate_without_cells_is_a_row_all_the_same(tmp_path: Path) -> None:
    """Nothing emulated yet: what needs no record is there, the rest is NaN."""
    rates = {key: rate for key, rate in EMULATED.items() if key[0] != "vgg16"}
    row = published_of(tmp_path, rates=rates).loc[("vgg16", "tcp")]
    assert row["repeats"] == 0
    assert pd.isna(row["emulated"])
    assert pd.isna(row["overlap"])
    assert row["null"] > 0


def test_a_cell_whose_host_was_too_busy_repeats_nothing(tmp_path: Path) -> None:
    """It is no emulated rate, as it is in no comparison."""
    grid = put_campaign(tmp_path / "results")
    tables = collect(grid, tmp_path / "results")
    busy = tables.cells["repeat"] == 2
    cells = tables.cells.assign(no_verdict=tables.cells["no_verdict"].mask(busy, "the host was too busy"))
    frame = published(cells, tables.facts, grid["campaign"]).set_index(["model", "fabric"])
    assert frame.loc[("resnet101", "tcp"), "repeats"] == 1
    assert frame.loc[("resnet101", "tcp"), "emulated"] == pytest.approx(1720)


def test_gaps_are_against_the_baseline_and_the_widest_comes_first(tmp_path: Path) -> None:
    """TCP against RDMA: −26.8, −3.5 and −1.6 % as published."""
    table = gaps(published_of(tmp_path).reset_index(), "rdma")
    assert list(table["model"]) == ["vgg16", "resnet101", "inception_v3"]
    assert list(table["published"]) == pytest.approx([-0.268, -0.035, -0.016], abs=5e-4)
    assert table["emulated"].iloc[0] == pytest.approx(1310 / 1780 - 1)
    assert table["null"].tolist() == pytest.approx([0, 0, 0])


def test_a_campaign_that_repeats_nothing_has_no_rows(tmp_path: Path) -> None:
    """The columns are there all the same, also when read from files."""
    record = make_record(make_cell())
    put(record, tmp_path)
    write_tables(collect(make_grid([record.cell]), tmp_path), tmp_path / "tables")
    frame = read_tables(tmp_path / "tables").conclusions.published
    assert frame.empty
    assert list(frame) == list(DTYPES)
