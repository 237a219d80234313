"""Synthetic grids and records for tests, drawn with fixed seeds."""

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fabricbench.cell import Cell, cell_id
from fabricbench.record import Record, Series, failure_path, write_record

CODE_KEY = "0123456789abcdef"
LINK_BIT_S = {"ethernet": 50e6, "opa": 200e6, "opa-again": 200e6}
"""As shaped: 25 and 100 Gbit/s divided by S·D = 500."""
PARAMS: dict[str, dict[str, Any]] = {
    "train": {
        "model": "vgg16",
        "batch": 64,
        "profile": {"images_per_s": 227.0, "batch": 64, "source": "Horovod README benchmark, 2017, Pascal"},
    },
    "cfd": {"case": "taylor-green", "cells": [48, 48, 48]},
    "micro": {"sizes": [1024, 16384, 262144, 4194304]},
}


def make_cell(kind: str = "train", **changes: Any) -> Cell:
    """A cell on ethernet over gloo, 4 GPUs, one per node; `fabric` and `backend` are given by name."""
    fabric = changes.pop("fabric", "ethernet")
    backend = changes.pop("backend", "mpi" if kind == "cfd" else "gloo")
    gpus = changes.pop("gpus", 4)
    link = LINK_BIT_S.get(fabric, 50e6)
    cell = Cell(
        workload={"train": "vgg16", "cfd": "euler", "micro": "messages"}[kind],
        kind=kind,
        params=PARAMS[kind],
        fabric={
            "name": fabric,
            "kind": "ethernet" if fabric == "ethernet" else "omnipath",
            "interface": "eth0",
            "rate_bit_s": link * 500,
            "link_bit_s": link,
            "delay_s": 0.0,
            "jitter_s": 0.0,
            "loss": 0.0,
        },
        backend={"name": backend, "engine": backend},
        environment={"GLOO_SOCKET_IFNAME": "eth0"},
        launcher="emulated",
        binding="auto",
        gpus=gpus,
        nodes=gpus,
        ranks_per_node=1,
        threads_per_rank=1,
        device="replay" if kind == "train" else "cpu",
        scale={"bytes": 50, "time": 10},
        repeat=1,
    )
    return replace(cell, **changes)


def make_record(cell: Cell, values: list[float] | None = None, **changes: Any) -> Record:
    """An ok record of a cell; `values` are its step_s (train, cfd), else samples are drawn by its id."""
    draw = random.Random(cell_id(cell, CODE_KEY))
    samples = _messages(cell, draw) if cell.kind == "micro" else _steps(cell, draw, values)
    record = Record(
        cell=cell,
        code_key=CODE_KEY,
        status="ok",
        samples=samples,
        facts=_facts(cell),
        evidence=_evidence(cell),
        provenance=_provenance(cell),
        phases_s={"namespaces": 0.2, "import": 1.8, "ranks_up": 0.6, "measured": 6.0, "total": 9.0},
        start=f"2026-11-30T10:{cell.repeat:02d}:00+00:00",
        end=f"2026-11-30T10:{cell.repeat:02d}:09+00:00",
    )
    return replace(record, **changes)


def make_failure(cell: Cell, status: str, reason: str) -> Record:
    """A record of a cell that failed."""
    return make_record(cell, status=status, reason=reason, samples=[], facts={}, evidence={})


def make_grid(cells: Iterable[Cell], unsupported: Iterable[dict[str, Any]] = ()) -> dict[str, Any]:
    """The plain content of grid.json for some cells."""
    cells = list(cells)
    return {
        "schema": 1,
        "campaign": {
            "name": "default",
            "cluster": {"kind": "emulated", "nodes": 16, "scale": {"bytes": 50, "time": 10}},
            "fabrics": {cell.fabric["name"]: {"rate_bit_s": cell.fabric["rate_bit_s"]} for cell in cells},
        },
        "cells": [
            {
                "id": cell_id(cell, CODE_KEY),
                "cell": json.loads(cell.canonical()),
                "code_key": CODE_KEY,
                "timeout_s": 300,
            }
            for cell in cells
        ],
        "unsupported": list(unsupported),
    }


def put(record: Record, results: Path) -> Path:
    """Write a record, or a failure beside its place, and its log; returns the path."""
    path = results / f"{record.id}.json"
    if record.status != "ok" and not record.accepted:
        path = failure_path(path)
    write_record(record, path)
    log = results / "logs" / f"{record.id}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"log of {record.id}\n")
    return path


def campaign_cells(repeats: int = 3) -> Iterator[Cell]:
    """The cells of a campaign much like the default one."""
    for repeat in range(1, repeats + 1):
        for fabric in ("ethernet", "opa", "opa-again"):
            for gpus in (1, 4, 16):
                vgg = make_cell(fabric=fabric, gpus=gpus, repeat=repeat)
                yield vgg
                yield replace(vgg, workload="resnet50", params=dict(vgg.params) | {"model": "resnet50"})
            for gpus in (1, 2):
                yield make_cell("cfd", fabric=fabric, gpus=gpus, repeat=repeat)
            for backend in ("gloo", "mpi"):
                yield make_cell("micro", fabric=fabric, gpus=4, backend=backend, repeat=repeat)


def write_campaign(results: Path) -> dict[str, Any]:
    """A whole campaign on disk with one failed, one timed-out and one missing cell; returns its grid."""
    cells = list(campaign_cells())
    bad = {
        7: ("failed", "rank 3 on n3: RuntimeError: connection closed by peer [10.0.0.4]:41234"),
        31: ("timeout", "no end within 300 s; ranks 0-15 were in step 12"),
    }
    for index, cell in enumerate(cells):
        if index in bad:
            put(make_failure(cell, *bad[index]), results)
        elif index != len(cells) - 1:
            put(make_record(cell), results)
    unsupported = {"workload": "euler", "fabric": "opa", "backend": "nccl", "gpus": 2}
    return make_grid(cells, [unsupported | {"reason": "nccl needs a CUDA device; device is cpu"}])


def _steps(cell: Cell, draw: random.Random, values: list[float] | None) -> list[Series]:
    """Steps of rank 0, the extremes over ranks, and a median per rank."""
    given = values if values is not None else [_step_s(cell) * draw.gauss(1, 0.01) for _ in range(30)]
    block = 1.0 if values is not None else draw.gauss(1, 0.02)
    steps = [value * block for value in given]
    ranks = range(cell.gpus if steps else 0)
    medians = [
        Series(metric="step_median_s", unit="s", values=[sorted(steps)[len(steps) // 2]], rank=rank)
        for rank in ranks
    ]
    halo = [Series(metric="halo_wait_s", unit="s", values=[v * 0.1 for v in steps], rank=0)]
    return [
        Series(metric="step_s", unit="s", values=steps, rank=0),
        Series(metric="step_min_s", unit="s", values=[value * 0.99 for value in steps]),
        Series(metric="step_max_s", unit="s", values=[value * 1.01 for value in steps]),
        *medians,
        *(halo if cell.kind == "cfd" else []),
    ]


def _step_s(cell: Cell) -> float:
    """A plausible raw step: compute, plus what the wire can't hide."""
    n, link = cell.gpus, cell.fabric["link_bit_s"]
    if cell.kind == "cfd":
        return 0.4 / n + (0 if n == 1 else 3e6 / link)
    gradient_bit = {"vgg16": 553e6, "resnet50": 102e6}[cell.workload] * 8 / cell.scale["bytes"]
    compute = {"vgg16": 0.28, "resnet50": 0.18}[cell.workload] * cell.scale["time"]
    wire = 2 * (n - 1) / n * gradient_bit / link
    return compute + max(0.0, wire - 0.6 * compute)


def _messages(cell: Cell, draw: random.Random) -> list[Series]:
    link, n = cell.fabric["link_bit_s"] * 0.96, cell.gpus
    latency = 60e-6 if cell.backend["name"] == "gloo" else 25e-6
    factor = {"pingpong_s": 1.0, "stream_s": 1.0, "allreduce_s": 2 * (n - 1) / n}
    return [
        Series(
            metric=metric,
            unit="s",
            bytes=size,
            rank=0,
            values=[
                (latency + factor[metric] * max(0, size - 24000) * 8 / link) * draw.lognormvariate(0, 0.05)
                for _ in range(20)
            ],
        )
        for metric in factor
        for size in (1024, 4096, 16384, 65536, 262144, 1048576, 4194304)
    ]


def _facts(cell: Cell) -> dict[str, Any]:
    if cell.kind == "train":
        return {"images_per_step": 64 * cell.gpus, "gradient_bytes": 553_430_000, "buckets": 6}
    if cell.kind == "cfd":
        return {"dof": 552_960, "dof_per_rank": 552_960 // cell.gpus, "stages_per_step": 3}
    return {}


def _evidence(cell: Cell) -> dict[str, Any]:
    nodes = {
        f"n{node}": {
            "eth0": {"rx_bytes": 88_000_000 + node, "tx_bytes": 88_100_000 + node},
            "lo": {"rx_bytes": 0, "tx_bytes": 0},
        }
        for node in range(cell.nodes)
    }
    emulation = {
        "shaping": "tbf",
        "link_bit_s": cell.fabric["link_bit_s"],
        "burst_bytes": 1250,
        "delay": "not emulated: this kernel has no netem",
        "trustworthy_from_bytes": 262144,
    }
    return {"nodes": nodes, "emulation": emulation}


def _provenance(cell: Cell) -> dict[str, Any]:
    rank = {
        "ranks": f"0-{cell.gpus - 1}" if cell.gpus > 1 else "0",
        "host": [f"n{node}" for node in range(cell.nodes)],
        "cpu": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
        "threads": 1,
        "affinity": [0, 1],
        "versions": {"torch": "2.9.1+cpu", "mpi4py": "4.1.1", "mpich": "5.0.0", "numpy": "2.4.6"},
        "environment": dict(cell.environment),
        "unset": ["NCCL_SOCKET_IFNAME"],
    }
    return {
        "fabricbench": "0.1.0",
        "revision": "4f2c9d1",
        "python": "3.11.2",
        "kernel": "6.12.8-amd64",
        "ranks": [rank],
    }
