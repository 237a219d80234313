"""Parameters that are lists: their combinations, and what the cells are called."""

from dataclasses import replace

import pytest
from cells import a_cell

from fabricbench.cell import Cell
from fabricbench.config_schema import schema
from fabricbench.variants import (
    AXES,
    PARAMETERS,
    Labels,
    combinations,
    label,
    resolve,
    side,
    text,
    words,
)


def trained(workload: str = "sweep", **params: object) -> Cell:
    """A training cell of a workload."""
    return replace(
        a_cell("train", "gloo"), workload=workload, params={"model": "vgg16", "batch": 32, **params}
    )


def test_every_choice_is_one_combination() -> None:
    """Lists multiply, the last axis first; a value given twice counts once; a list of one is its value."""
    params = {"model": ["vgg16", "resnet50"], "batch": [64, 32, 64], "bucket_mb": [25], "steps": 10}
    found = combinations("train", params)
    assert [(one["model"], one["batch"]) for one in found] == [
        ("vgg16", 64),
        ("vgg16", 32),
        ("resnet50", 64),
        ("resnet50", 32),
    ]
    assert {one["bucket_mb"] for one in found} == {25}
    assert combinations("train", {"model": "vgg16", "batch": 32}) == [{"model": "vgg16", "batch": 32}]


def test_a_list_that_is_no_axis_stays() -> None:
    """Sizes of messages are one cell's; nothing is known of other kinds' axes."""
    params = {"sizes": [1, 2], "operations": ["pingpong", "stream"]}
    assert combinations("micro", params) == [params]


def test_resolving_keeps_what_depends_on_nothing() -> None:
    """A profile that is given whole is the same for every combination."""
    params = {"model": "vgg16", "profile": {"images_per_s": 100.0, "batch": 64, "source": "a test"}}
    assert resolve(params) == params


def test_a_label_names_what_varies_alone() -> None:
    """In the order of the axes, in short words; a workload without variants keeps its name."""
    cells = [
        trained(batch=batch, precision=precision) for batch in (32, 64) for precision in ("fp32", "bf16")
    ]
    labels = Labels.of([*cells, trained("other")])
    assert labels.label(cells[1]) == "sweep, batch 32, bf16"
    assert labels.variant(cells[1]) == '{"batch":32,"precision":"bf16"}'
    assert (labels.label(trained("other")), labels.variant(trained("other"))) == ("other", "")
    assert labels.label(trained("never seen")) == "never seen"


def test_what_the_model_decides_is_not_in_its_label() -> None:
    """Inception's larger images need no words; sizes that vary of themselves do."""
    alone = [trained(model="vgg16", image_size=224), trained(model="inception_v3", image_size=299)]
    assert [Labels.of(alone).label(cell) for cell in alone] == ["sweep, vgg16", "sweep, inception_v3"]
    asked = [*alone, trained(model="inception_v3", image_size=224)]
    assert Labels.of(asked).label(asked[0]) == "sweep, vgg16, 224 px"


def test_cells_of_older_records_lack_parameters() -> None:
    """What a cell doesn't have isn't named."""
    cells = [trained(), trained(precision="bf16")]
    assert [Labels.of(cells).label(cell) for cell in cells] == ["sweep", "sweep, bf16"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("model", "vgg16", "vgg16"),
        ("batch", 64, "batch 64"),
        ("image_size", 224, "224 px"),
        ("precision", "bf16", "bf16"),
        ("channels_last", True, "channels last"),
        ("compile", False, "not compiled"),
        ("bucket_mb", 0.5, "0.5 MiB buckets"),
        ("first_bucket_mb", 1, "first bucket 1 MiB"),
        ("bucket_view", False, "no bucket views"),
        ("static_graph", True, "static graph"),
        ("broadcast_buffers", True, "buffers broadcast"),
    ],
)
def test_values_in_words(name: str, value: object, said: str) -> None:
    """Each is told from others without its parameter's name; as a side of a comparison it is the same."""
    assert words(name, value) == said
    assert side(name, text(value)) == said
    assert label("w", {name: value}) == f"w, {said}"


def test_a_fabric_s_side_is_its_name() -> None:
    """Only parameters have words."""
    assert side("fabric", "true") == "true"


def test_axes_are_parameters_that_matchers_and_comparisons_know() -> None:
    """The schema names every axis where it can be matched and compared."""
    known = schema()["$defs"]
    assert set(PARAMETERS) <= known["matcher"]["properties"].keys()
    assert set(PARAMETERS) <= set(known["comparison"]["properties"]["by"]["enum"])
    assert AXES.keys() == set(known["workload"]["properties"]["kind"]["enum"])


def test_axes_take_one_value_or_a_list() -> None:
    """What the schema has of them accepts both."""
    for kind, names in AXES.items():
        keys = schema()["$defs"][kind]["properties"]
        for name in names:
            assert name not in keys or "array" in str(keys[name])
