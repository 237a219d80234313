"""Profiles of real GPUs: found by a device's name or in a recorded file."""

import json

import pytest

from fabricbench import profiles

RECORDED = {
    "schema": 1,
    "model": "resnet18",
    "image_size": 64,
    "precision": "fp32",
    "batch": 8,
    "images_per_s": 400.0,
    "source": "recorded on a made-up GPU",
    "layers": [{"parameters": 10, "forward_s": 0.004, "backward_s": 0.014, "name": "conv1"}],
}


def test_a_device_s_name_stands_for_its_published_rate():
    """With the batch that it was measured with, and where it is from."""
    found = profiles.resolve("pascal", "vgg16", 64, 224)
    assert (found["images_per_s"], found["batch"]) == (130.9, 64)
    assert found["source"].startswith("horovod-readme 2017, one pascal, fp32, batch 64: ")
    assert "layers" not in found


def test_of_several_batches_the_nearest_is_taken():
    """Nearest by ratio."""
    assert profiles.resolve("v100", "resnet50", 64, 224)["batch"] == 64
    assert profiles.resolve("V100", "resnet50", 200, 224)["batch"] == 256


def test_precision_chooses_among_a_device_s_rates():
    """One GPU has other rates in TF32 and in bfloat16."""
    rates = [
        profiles.resolve("a100", "resnet50", 256, 224, name)["images_per_s"] for name in ("tf32", "bf16")
    ]
    assert rates == [938, 2470]


def test_an_estimate_says_that_it_is_one():
    """Where no rate was published, the reckoning stands in the source."""
    assert profiles.resolve("v100", "vgg16", 64, 224)["source"].startswith("ESTIMATED: ")


@pytest.mark.parametrize(
    ("device", "model", "line"),
    [
        (
            "h100",
            "vgg16",
            "no rate of a 'h100' is shipped, only of pascal, v100, a100; "
            "`fabricbench profile` records one on such a GPU",
        ),
        (
            "a100",
            "resnet50",
            "no rate of a a100 for resnet50 in fp32 is shipped, only for resnet50 in tf32, resnet50 in bf16; "
            "`fabricbench profile` records one on such a GPU",
        ),
    ],
)
def test_what_is_not_shipped_is_one_line_that_lists_what_is(device, model, line):
    """And says how to have another."""
    with pytest.raises(ValueError, match=r"^no rate of") as raised:
        profiles.resolve(device, model, 64, 224)
    assert str(raised.value) == line


def test_every_shipped_rate_has_a_source():
    """A published one where it was read, an estimated one how it was reckoned."""
    for rate in profiles.rates():
        assert rate.kind in ("published", "estimated")
        assert rate.url if rate.kind == "published" else rate.note
        assert rate.images_per_second > 0


def test_a_recorded_profile_comes_with_its_layers(tmp_path):
    """What a cell needs of it, and no more."""
    path = tmp_path / "own.json"
    path.write_text(json.dumps(RECORDED))
    found = profiles.resolve(str(path), "resnet18", 8, 64)
    layer = {"parameters": 10, "forward_s": 0.004, "backward_s": 0.014}
    assert found == {
        "images_per_s": 400.0,
        "batch": 8,
        "source": "recorded on a made-up GPU",
        "layers": [layer],
    }


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"model": "vgg16"}, "is of model vgg16, and this is resnet18; record one for it"),
        ({"image_size": 224}, "is of image_size 224, and this is 64; record one for it"),
        ({"schema": 2}, ": profile schema 2, this version reads 1"),
        ({"layers": []}, "has times or rates that aren't above 0; record it again"),
        ({"images_per_s": 0}, "has times or rates that aren't above 0; record it again"),
        ({"batch": None}, "is no profile; `fabricbench profile` records one on such a GPU"),
    ],
)
def test_an_unfit_file_is_one_line(tmp_path, change, line):
    """Which file, what is wrong, and how to mend it."""
    path = tmp_path / "own.json"
    path.write_text(json.dumps(RECORDED | change))
    with pytest.raises(ValueError, match=r"^/") as raised:
        profiles.resolve(str(path), "resnet18", 8, 64)
    assert str(raised.value).removeprefix(str(path)).strip() == line


def test_a_file_that_isn_t_there_is_one_line(tmp_path):
    """Nor a traceback for one that isn't JSON."""
    with pytest.raises(ValueError, match=r"none\.json can't be read: No such file or directory"):
        profiles.resolve(str(tmp_path / "none.json"), "resnet18", 8, 64)
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ValueError, match=r"bad\.json is no profile"):
        profiles.resolve(str(tmp_path / "bad.json"), "resnet18", 8, 64)


def test_a_mapping_is_what_it_is():
    """Given in full, nothing is looked up."""
    given = {"images_per_s": 1.0, "batch": 2, "source": "own"}
    assert profiles.resolve(given, "resnet18", 8, 64) == given
