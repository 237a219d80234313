"""A cell's identity."""

import dataclasses

import pytest
from cells import a_cell

from fabricbench.cell import Cell, canonical_json, cell_id


def test_canonical_json_has_one_text_per_meaning():
    """Order of keys is no difference."""
    assert (
        canonical_json({"b": 1, "a": [1, 2]}) == canonical_json({"a": [1, 2], "b": 1}) == '{"a":[1,2],"b":1}'
    )


def test_a_cell_comes_back_from_its_json():
    """`from_json` undoes `canonical`."""
    assert Cell.from_json(a_cell().canonical()) == a_cell()


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Cell)])
def test_every_field_is_part_of_the_identity(field):
    """Changing any field makes another record."""
    changed = {**vars(a_cell()), field: {"name": "other", "engine": "x"}}
    if field in ("workload", "repeat"):
        changed[field] = "other"
    assert cell_id(Cell(**changed), "code") != cell_id(a_cell(), "code")


def test_the_code_is_part_of_the_identity():
    """The same cell measured by other code is another record."""
    assert cell_id(a_cell(), "one") != cell_id(a_cell(), "two")


def test_real_compute_on_scaled_links_is_a_demonstration():
    """Only replayed cells, and messages, are models of a scaled cluster."""
    scaled = {"scale": {"bytes": 128, "time": 2}}
    assert a_cell("cfd", **scaled).demonstration
    assert not a_cell("cfd").demonstration
    assert not a_cell("train", device="replay", **scaled).demonstration
    assert not a_cell("micro", **scaled).demonstration
