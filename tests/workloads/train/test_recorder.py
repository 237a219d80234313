"""`fabricbench profile`: a real model's layers, timed."""

import json

import pytest

from fabricbench import profiles
from fabricbench.cli import main

pytestmark = pytest.mark.slow  # torch takes seconds to import


def test_a_profile_of_a_tiny_model_adds_up_and_can_be_replayed(tmp_path, capsys):
    """Layers' times are those of whole steps without hooks; the file is what a configuration may name."""
    path = tmp_path / "own.json"
    arguments = ["--model", "squeezenet1_0", "--batch", "2", "--image-size", "48", "--device", "cpu"]
    assert main(["profile", *arguments, "--steps", "3", "--out", str(path)]) == 0
    content = json.loads(path.read_text())
    layers = content["layers"]
    assert (len(layers), sum(layer["parameters"] for layer in layers)) == (26, 1_248_424)
    passes_s = sum(layer["forward_s"] + layer["backward_s"] for layer in layers)
    assert passes_s + content["optimiser_s"] == pytest.approx(content["step_s"])
    assert content["images_per_s"] == pytest.approx(2 / content["step_s"])
    assert content["hooked_step_s"] > 0
    assert "batch 2, torch" in content["source"]
    found = profiles.resolve(str(path), "squeezenet1_0", 2, 48)
    assert found["layers"] == layers
    assert "squeezenet" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--model", "vgg61", "--device", "cpu"], "--model vgg61: not a classifier of torchvision"),
        (["--model", "vgg16", "--batch", "0"], "--batch 0: must be at least 1"),
        (["--model", "vgg16"], "--device cuda: torch sees no GPU here; run it where one is, or take cpu"),
    ],
)
def test_what_can_t_be_recorded_is_one_line(tmp_path, capsys, monkeypatch, arguments, line):
    """With the option's name, and no traceback."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["profile", *arguments, "--out", str(tmp_path / "own.json")]) == 2
    assert capsys.readouterr().err == f"fabricbench: {line}\n"
