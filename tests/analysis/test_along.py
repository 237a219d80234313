"""Variants of a workload are told apart in the table, and compared along the parameter that varies."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from records import make_cell, make_grid, make_record, put

from fabricbench.analysis import table
from fabricbench.analysis.along import along
from fabricbench.analysis.table import Tables, collect
from fabricbench.cell import Cell

PROFILES = {
    "vgg16": {"images_per_s": 227.0, "batch": 64, "source": "a"},
    "resnet50": {"images_per_s": 357.0, "batch": 64, "source": "b"},
}


def variant(repeat: int = 1, gpus: int = 4, fabric: str = "ethernet", **params: Any) -> Cell:
    """A training cell of the workload `sweep`."""
    cell = make_cell(gpus=gpus, repeat=repeat, fabric=fabric)
    return replace(cell, workload="sweep", params={**cell.params, **params})


def tables_of(folder: Path, cells: list[Cell], compare: list[dict[str, str]], **entry: Any) -> Tables:
    """Tables of cells whose records are drawn."""
    for cell in cells:
        put(make_record(cell), folder)
    grid = make_grid(cells, **entry)
    grid["campaign"]["compare"] = compare
    return collect(grid, folder)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Two batches and two precisions, three repeats, compared along both."""
    cells = [
        variant(repeat, batch=batch, precision=precision)
        for repeat in (1, 2, 3)
        for batch in (32, 64)
        for precision in ("fp32", "bf16")
    ]
    compare = [{"by": "batch", "baseline": "64"}, {"by": "precision", "baseline": "fp32"}]
    unsupported = {"workload": "sweep", "fabric": "opa", "backend": "gloo", "gpus": 4, "reason": "no link"}
    return tables_of(tmp_path_factory.mktemp("swept"), cells, compare, unsupported=[unsupported])


def test_a_workload_s_variants_have_labels(swept: Tables) -> None:
    """The label names what varies; the family keeps the config's name."""
    row = swept.cells.iloc[0]
    assert (row["workload"], row["family"]) == ("sweep, batch 32, fp32", "sweep")
    assert row["variant"] == '{"batch":32,"precision":"fp32"}'
    assert swept.cells.loc[swept.cells["status"] == "ok", "workload"].nunique() == 4


def test_what_cannot_run_is_said_for_every_variant(swept: Tables) -> None:
    """A row each, with ids of their own."""
    rows = swept.cells[swept.cells["status"] == "unsupported"]
    assert set(rows["workload"]) == set(swept.cells["workload"])
    assert rows["cell"].is_unique
    assert set(rows["kind"]) == {"train"}


def test_one_variant_keeps_its_name(tmp_path: Path) -> None:
    """Nothing varies, so nothing is named, and an unsupported row is one."""
    unsupported = {"workload": "sweep", "fabric": "opa", "backend": "gloo", "gpus": 4, "reason": "no link"}
    tables = tables_of(tmp_path, [variant()], [], unsupported=[unsupported])
    assert list(tables.cells["workload"]) == ["sweep", "sweep"]
    assert list(tables.cells["variant"]) == ["", ""]


def test_a_comparison_along_a_parameter_holds_all_else_equal(swept: Tables) -> None:
    """Batches are compared at each precision, precisions at each batch, in blocks; both sides are texts."""
    found = swept.conclusions.comparisons
    rows = {(row["by"], row["workload"], row["baseline"], row["other"]) for row in found.to_dict("records")}
    assert rows == {
        ("batch", "sweep, fp32", "64", "32"),
        ("batch", "sweep, bf16", "64", "32"),
        ("precision", "sweep, batch 32", "fp32", "bf16"),
        ("precision", "sweep, batch 64", "fp32", "bf16"),
    }
    assert set(found["n_blocks"]) == {3}
    assert set(found["family"]) == {"sweep"}


def test_images_per_second_are_what_batches_are_compared_by(swept: Tables) -> None:
    """The ratio is that of the headline: half the batch in more than half the time is slower."""
    row = swept.conclusions.comparisons.iloc[0]
    cells = swept.cells.set_index("workload")["value"]
    assert row["ratio"] == pytest.approx(
        cells["sweep, batch 32, fp32"].median() / cells["sweep, batch 64, fp32"].median(), rel=0.02
    )
    assert row["verdict"] == "slower"


def test_holm_counts_all_variants_of_a_workload(swept: Tables) -> None:
    """Four tests of one workload of the config, whatever its variants are called."""
    assert set(swept.conclusions.comparisons["comparisons_of_workload"]) == {4}


def test_models_are_compared_with_the_profiles_that_they_have(tmp_path: Path) -> None:
    """Image size and profile follow from the model; they are not held equal, and one thing on each side."""
    sizes = {"vgg16": 224, "resnet50": 299}
    cells = [
        variant(repeat, model=model, profile=PROFILES[model], image_size=sizes[model])
        for repeat in (1, 2)
        for model in PROFILES
    ]
    tables = tables_of(tmp_path, cells, [{"by": "model", "baseline": "vgg16"}])
    [row] = tables.conclusions.comparisons.to_dict("records")
    assert (row["other"], row["workload"], row["n_blocks"], row["mixed"]) == ("resnet50", "sweep", 2, "")


def test_two_profiles_of_one_side_are_refused(tmp_path: Path) -> None:
    """A side must be one device."""
    cells = [variant(1, batch=32), variant(2, batch=32, profile=PROFILES["resnet50"]), variant(1, batch=64)]
    tables = tables_of(tmp_path, cells, [{"by": "batch", "baseline": "64"}])
    [row] = tables.conclusions.comparisons.to_dict("records")
    assert (row["verdict"], row["mixed"]) == (
        "refused",
        "the other has cells of more than one profile or image size",
    )


def test_a_parameter_that_no_workload_varies_compares_nothing(swept: Tables) -> None:
    """The column is there, and empty; a table without variants is no mistake."""
    assert set(along(swept.cells, "model")["model"]) == {""}
    assert set(along(swept.cells.drop(columns="variant"), "batch")["batch"]) == {""}
    assert along(swept.cells, "fabric") is swept.cells
    assert along(swept.cells.iloc[:0], "batch").empty


def test_a_barred_cell_is_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three repeats was saturated: two blocks remain, and it is said; all were: no verdict."""
    cells = [variant(repeat, fabric=fabric) for repeat in (1, 2, 3) for fabric in ("ethernet", "opa")]
    compare = [{"by": "fabric", "baseline": "ethernet"}]

    def first_of_opa(record: Any) -> str:
        return (
            "its host was too busy" if record.cell.fabric["name"] == "opa" and record.cell.repeat == 1 else ""
        )

    monkeypatch.setattr(table, "why_saturated", first_of_opa)
    [row] = tables_of(tmp_path, cells, compare).conclusions.comparisons.to_dict("records")
    assert (row["n_blocks"], row["n_unused"], row["verdict"]) == (2, 1, "faster")
    assert row["left_out"] == "1 of 3 cells of opa (its host was too busy)"
    assert row["left_out"] in row["why"]

    def all_of_opa(record: Any) -> str:
        return "its host was too busy" if record.cell.fabric["name"] == "opa" else ""

    monkeypatch.setattr(table, "why_saturated", all_of_opa)
    [row] = tables_of(tmp_path, cells, compare).conclusions.comparisons.to_dict("records")
    assert (row["verdict"], row["why"]) == ("none", "No verdict: its host was too busy.")
    assert pd.isna(row["ratio"])
