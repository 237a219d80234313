"""Cells for tests that need one by hand, as the grid would make it."""

from typing import Any

from fabricbench.cell import Cell
from fabricbench.fabrics.selection import environment

MICRO = {"operations": ["pingpong", "allreduce"], "sizes": [65536], "iterations": 3, "warmup": 1}
CFD = {"case": "vortex", "cells": [16, 16, 8], "process_grid": None, "cfl": 0.5, "warmup": 0, "steps": 3}
TRAIN = {
    **{"model": "resnet18", "batch": 2, "image_size": 32, "precision": "fp32", "channels_last": False},
    **{"bucket_mb": 25, "first_bucket_mb": 1, "bucket_view": True, "static_graph": False, "compile": False},
    **{"broadcast_buffers": False, "images": None, "loader_workers": 2, "warmup": 5, "warmup_most": 5},
    **{"steps": 3, "steps_most": 3, "budget": 30.0, "width": 0.0, "extra_steps": 2},
}
PROFILE = {"images_per_s": 6400.0, "batch": 64, "source": "made up: 10 ms a step"}


def a_fabric(kind: str = "emulated", **changes: Any) -> dict[str, Any]:
    """A fabric over eth0, as a cell has it; the names of interface and adapter are certain."""
    fabric: dict[str, Any] = {"name": "ethernet", "kind": kind, "interface": ["eth0"], "subnet": None}
    fabric |= {"adapter": [], "port": 1, "provider": None, "ports_per_node": 1, "rate_bit_s": 400_000_000}
    fabric |= {"link_bit_s": 400_000_000, "delay_s": 0.0, "jitter_s": 0.0, "loss": 0.0}
    return fabric | changes


def a_backend(engine: str, **options: Any) -> dict[str, Any]:
    """A backend of an engine, as a cell of the emulated cluster has it."""
    mpi = {"library": "mpich", "transport": "ofi", "buffers": "host"} if engine == "mpi" else {}
    return {"name": engine, "engine": engine, **mpi, **options}


def a_cell(kind: str = "micro", engine: str = "mpi", **changes: Any) -> Cell:
    """Two ranks on two nodes over a link of 400 Mbit/s, unless `changes` say otherwise."""
    fabric = a_fabric()
    backend = a_backend(engine)
    fields: dict[str, Any] = {
        "workload": kind,
        "kind": kind,
        "params": {"micro": MICRO, "cfd": CFD, "train": TRAIN}[kind],
        "fabric": fabric,
        "backend": backend,
        "environment": environment(fabric, backend, "cpu"),
        "launcher": "emulated",
        "binding": {"cpu": "auto", "memory": "auto", "near": "auto"},
        "gpus": 2,
        "nodes": 2,
        "ranks_per_node": 1,
        "threads_per_rank": 1,
        "device": "cpu",
        "scale": {"bytes": 1, "time": 1},
        "repeat": 1,
    }
    return Cell(**(fields | changes))
