"""A made-up campaign that repeats the rates of horovod-2017, with records as cells would leave them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from campaigns import ROOT
from records import CODE_KEY, make_record, put

from fabricbench.config import load_config, parse_config
from fabricbench.grid import GridCell, expand
from fabricbench.record import Record

CONFIG = ROOT / "config" / "published" / "horovod-25g.yaml"
BUCKETS = {
    "vgg16": ([83.5e6, 411e6, 58.9e6], [0.334, 0.338, 1.0]),
    "resnet101": ([68e6, 68e6, 42e6], [0.45, 0.62, 1.0]),
    "inception_v3": ([67.5e6, 27.9e6], [0.52, 1.0]),
}
"""Bytes, and when they are ready as a share of a step's compute."""
EMULATED = {
    ("vgg16", "tcp"): 1310.0,
    ("vgg16", "rdma"): 1780.0,
    ("resnet101", "tcp"): 1720.0,
    ("resnet101", "rdma"): 1765.0,
    ("inception_v3", "tcp"): 1999.0,
    ("inception_v3", "rdma"): 2024.0,
}
"""Images/s that the made-up cells give in their first repeat; in the second 1 % more."""


def campaign_of(**changes: Any) -> Any:
    """The campaign of horovod-25g.yaml twice over, with made-up fits, and other values at its top level."""
    config = load_config([CONFIG]) | {"repeats": 2}
    config["fabrics"]["tcp"]["effective"] = "13.8 Gbit/s"
    config["fabrics"]["rdma"]["effective"] = "21.3 Gbit/s"
    for workload in config["workloads"].values():
        workload["fixed_cost"] = "8 ms"
    return parse_config(config | changes)


def record_of(cell: GridCell, images_per_s: float) -> Record:
    """A good record of a cell that trains at this rate (on the real machine's scale)."""
    own = cell.cell
    sizes, shares = BUCKETS[own.params["model"]]
    time_scale, bytes_scale = own.scale["time"], own.scale["bytes"]
    compute_s = own.params["batch"] / own.params["profile"]["images_per_s"] * time_scale
    images = own.params["batch"] * own.gpus
    facts = {
        "images_per_step": images,
        "gradient_bytes": round(sum(sizes) / bytes_scale),
        "buckets": len(sizes),
        "bucket_bytes": [round(size / bytes_scale) for size in sizes],
        "bucket_ready_s": [share * compute_s for share in shares],
        "compute_s": compute_s,
    }
    step_s = images / images_per_s * time_scale
    return make_record(own, [step_s] * 5, facts=facts, code_key=cell.code_key)


def put_campaign(
    results: Path, rates: Mapping[tuple[str, str], float] = EMULATED, **changes: Any
) -> dict[str, Any]:
    """Write the records of these rates and return the grid, as grid.json has it."""
    grid = expand(campaign_of(**changes), lambda kind, launcher: CODE_KEY)
    for cell in grid.cells:
        rate = rates.get((cell.cell.params["model"], cell.cell.fabric["name"]))
        if rate is not None:
            put(record_of(cell, rate * (0.99 + 0.01 * cell.cell.repeat)), results)
    cells = [
        {"id": cell.id, "cell": vars(cell.cell), "code_key": cell.code_key, "timeout_s": cell.timeout_s}
        for cell in grid.cells
    ]
    return {"schema": 1, "campaign": dict(grid.campaign), "cells": cells, "unsupported": []}


def faster(record: Record, share: float) -> Record:
    """The same record with its steps shorter by a share."""
    samples = [
        replace(series, values=[value / (1 + share) for value in series.values]) for series in record.samples
    ]
    return replace(record, samples=samples)
