"""What training's parameters may be together; a parameter is one value or, as an axis, a list of them."""

import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from fabricbench.config_schema import did_you_mean, in_yaml, shown
from fabricbench.image_folder import why_no_images
from fabricbench.torchvision_models import classifiers

_IMAGE_SIZE = {"inception_v3": 299}
_USUAL_SIZE = 224
_COMPUTING = {"channels_last": False, "compile": False}
"""What says how numbers are computed, with the default: without meaning on a device that computes none."""
_REPLAY_ALONE = ("profile", "fixed_cost")
_COMPILED_FIRST_MB = 1
"""MiB of gradients after which torch.compile cuts its first graph, whatever DDP's first bucket is."""
_HERE = ("emulated", "host")
"""Clusters whose ranks run on the machine that reads the configuration."""


def used(params: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The parameters that can change a measurement on this device."""
    unused = (*_COMPUTING, "images", "loader_workers") if device == "replay" else _REPLAY_ALONE
    return {key: value for key, value in params.items() if key not in unused}


def image_size(model: Any) -> dict[str, int]:
    """`image_size` where a model's isn't the usual one; of several models, where it is the same for all.

    Where theirs differ, each has its own, once there is one model per cell.
    """
    sizes = {_IMAGE_SIZE.get(each, _USUAL_SIZE) for _, each in values("", model) if isinstance(each, str)}
    return {"image_size": sizes.pop()} if len(sizes) == 1 and sizes != {_USUAL_SIZE} else {}


def values(key: str, value: Any) -> list[tuple[str, Any]]:
    """(path, value) of a parameter's values: its own key, or key.0, key.1, … of a list."""
    if isinstance(value, list):
        return [(f"{key}.{index}", item) for index, item in enumerate(value)]
    return [(key, value)]


def mistakes(params: Mapping[str, Any], device: str, cluster: str) -> Iterator[tuple[str, str]]:
    """(key, what is wrong and its mend) of parameters that satisfy the schema."""
    yield from _models(params)
    for key, usual in _COMPUTING.items():
        for path, value in values(key, params[key]):
            if device == "replay" and value != usual:
                text = f"{in_yaml(value)}: device replay computes nothing; leave it out, or take cuda or cpu"
                yield path, text
    for path, value in values("precision", params["precision"]):
        if device == "cpu" and value == "tf32":
            yield path, "'tf32' is a GPU's; on device cpu use fp32 or bf16"
    yield from _compiled(params, device, cluster)
    if device == "replay" and params["profile"] is None:
        yield "profile", "null: device replay needs {images_per_s, batch, source}"
    for most, least in (("warmup_most", "warmup"), ("steps_most", "steps")):
        if params[most] < params[least]:
            yield most, f"{params[most]} is below {least}, {params[least]}; raise it"
    folder = params["images"]
    if device != "replay" and folder is not None and cluster in _HERE and (why := why_no_images(folder)):
        yield "images", f"{shown(folder)} {why}; mend it, or leave it out for synthetic images"


def _models(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    known = classifiers()
    for path, model in values("model", params["model"]):
        if known and model not in known:
            hint = did_you_mean(model, sorted(known))
            yield path, f"{shown(model)} is not a classifier of torchvision; {hint}"


def _compiled(params: Mapping[str, Any], device: str, cluster: str) -> Iterator[tuple[str, str]]:
    """torch.compile's needs; where the ranks run elsewhere, they look for the compiler themselves."""
    if device == "replay" or not any(value for _, value in values("", params["compile"])):
        return
    if any(value for _, value in values("", params["static_graph"])):
        yield "compile", "true: not together with static_graph; measure them in two workloads"
    for path, size in values("bucket_mb", params["bucket_mb"]):
        if size < _COMPILED_FIRST_MB:
            yield path, f"{size} is below {_COMPILED_FIRST_MB}, where torch.compile cuts first; raise it"
    compiler = os.environ.get("CXX") or "g++"
    if device == "cpu" and cluster in _HERE and shutil.which(compiler.split()[0]) is None:
        text = f"true: on a CPU it needs a C++ compiler, and {compiler!r} isn't here; install it, set CXX"
        yield "compile", f"{text}, or leave it out"
