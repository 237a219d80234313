"""Training's parameters: lists as axes, and what means nothing on a device."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabricbench import config_train
from fabricbench.config import parse_config
from fabricbench.errors import ConfigError

PROFILE = {"images_per_s": 130.9, "batch": 64, "source": "a test"}
REPLAY = {"device": "replay", "profile": PROFILE}


@pytest.fixture(autouse=True)
def _few_models(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    names = frozenset({"vgg16", "resnet18", "inception_v3"})
    monkeypatch.setattr(config_train, "classifiers", lambda: names)
    monkeypatch.setenv("CXX", "sh")  # a compiler, as far as can be known
    return


def config(kind: str = "emulated", **given: Any) -> dict[str, Any]:
    """One workload on one fabric."""
    fabric = {"interface": "eth0"} | (
        {"rate": "1 Gbit/s"} if kind == "emulated" else {"kind": "ethernet-tcp"}
    )
    return {
        "cluster": {"kind": kind, "nodes": 2, "gpus_per_node": 1},
        "fabrics": {"ethernet": fabric},
        "backends": {"gloo": {"engine": "gloo"}},
        "gpus": [2],
        "workloads": {"net": {"kind": "train", "model": "resnet18", **given}},
    }


def params(kind: str = "emulated", **given: Any) -> dict[str, Any]:
    """What the workload's cells are made from."""
    return dict(parse_config(config(kind, **given)).workloads["net"].params)


def line(kind: str = "emulated", **given: Any) -> str:
    """The one mistake of a configuration, below the workload's name."""
    with pytest.raises(ConfigError) as seen:
        parse_config(config(kind, **given))
    (found,) = str(seen.value).splitlines()
    return found.removeprefix("config: workloads.net.")


def test_lists_stay_as_they_are_given() -> None:
    """A list is an axis; the grid makes cells of it."""
    found = params(model=["resnet18", "vgg16"], batch=[8, 16], precision=["fp32", "bf16"], bucket_view=[True])
    assert found["model"] == ["resnet18", "vgg16"]
    assert (found["batch"], found["precision"], found["bucket_view"]) == ([8, 16], ["fp32", "bf16"], [True])


def test_quantities_are_numbers() -> None:
    """Seconds, and a share."""
    found = params(budget="2 min", width="5 %")
    assert (found["budget"], found["width"]) == (120.0, 0.05)
    assert params(width=0)["width"] == 0
    assert params(**REPLAY, fixed_cost="30 ms")["fixed_cost"] == 0.03


def test_what_a_device_does_not_use_is_left_out() -> None:
    """So that it is no difference between cells."""
    real, replay = params(), params(**REPLAY)
    assert {"profile", "fixed_cost"} & set(real) == set()
    assert set(replay) - set(real) == {"profile", "fixed_cost"}
    assert set(real) - set(replay) == {"channels_last", "compile", "images", "loader_workers"}
    assert params(**REPLAY, images="nowhere", precision="fp32") == replay


def test_a_fixed_number_of_steps() -> None:
    """The same least and most."""
    found = params(steps=4, steps_most=4)
    assert (found["steps"], found["steps_most"]) == (4, 4)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"model": ["vgg16", "vgg61"]},
            "model.1: 'vgg61' is not a classifier of torchvision; did you mean 'v",
        ),
        ({"model": []}, "model: [] must have at least 1 values"),
        ({"batch": [8, 8]}, "batch: [8, 8] has a value twice; write each once"),
        ({"batch": [8, 0]}, "batch.1: 0 must be at least 1"),
        ({"batch": "8"}, "batch: '8' is not a whole number or a list; write it without quotes or unit"),
        ({"precision": "fp16"}, "precision: 'fp16' is not known; did you mean"),
        ({"precision": ["fp32", "fp16"]}, "precision.1: 'fp16' is not known; did you mean"),
        ({"compile": "yes"}, "compile: 'yes' is not true or false or a list; write true or false, without"),
        ({"precision": ["fp32", "tf32"]}, "precision.1: 'tf32' is a GPU's; on device cpu use fp32 or bf16"),
        ({**REPLAY, "channels_last": True}, "channels_last: true: device replay computes nothing"),
        ({**REPLAY, "compile": [False, True]}, "compile.1: true: device replay computes nothing"),
        ({"compile": True, "static_graph": [False, True]}, "compile: true: not together with static_graph"),
        ({"compile": True, "bucket_mb": [25, 0.5]}, "bucket_mb.1: 0.5 is below 1, where torch.compile cuts"),
        ({"device": "replay", "profile": None}, "profile: null: device replay needs"),
        ({"warmup": 4}, "warmup: 4 must be at least 5"),
        ({"warmup": 9, "warmup_most": 8}, "warmup_most: 8 is below warmup, 9; raise it"),
        ({"steps": 2}, "steps: 2 must be at least 3"),
        ({"steps": 9, "steps_most": 8}, "steps_most: 8 is below steps, 9; raise it"),
        ({"extra_steps": 1}, "extra_steps: 1 must be at least 2"),
        ({"budget": "30 sec"}, "budget: '30 sec': unit 'sec' is not one of"),
        ({"width": 2}, "width: 2: must be from 0 to below 1; for percent write the sign"),
        ({"images": "nowhere"}, "images: 'nowhere' is no folder on this machine; mend it, or leave it out"),
        ({"images": ""}, "images: '' must have at least 1 character"),
    ],
)
def test_a_mistake_is_one_line(given: dict[str, Any], said: str) -> None:
    """Key, value and mend; in a list by its place."""
    assert line(**given).startswith(said)


def test_an_image_size_for_unlike_models_may_be_given() -> None:
    """Then it holds for all."""
    assert params(model=["vgg16", "inception_v3"], image_size=224)["image_size"] == 224
    assert params(model=["inception_v3"])["image_size"] == 299


def test_a_missing_compiler_is_told_where_the_ranks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine; a cluster's nodes look for themselves."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert line(compile=True).startswith("compile: true: on a CPU it needs a C++ compiler, and 'no-such-")
    assert params("slurm", compile=True)["compile"] is True


def test_images_are_looked_for_where_the_ranks_run(tmp_path: Path) -> None:
    """A class folder with an image; a cluster's folder may be unknown on the login node."""
    assert line(images=str(tmp_path)).endswith(
        "each class is a folder of its images; mend it, or leave it out for synthetic images"
    )
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "notes.txt").touch()
    assert "has no folder with an image" in line(images=str(tmp_path))
    (tmp_path / "cats" / "1.JPEG").touch()
    assert params(images=str(tmp_path))["images"] == str(tmp_path)
    assert params("slurm", images="/scratch/images")["images"] == "/scratch/images"
