"""Cells in jobs of a real Slurm cluster, as Snakemake's jobs call them."""

import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cells import a_backend, a_cell, a_fabric

import fabricbench
from fabricbench.cell import Cell
from fabricbench.code_key import code_key
from fabricbench.fabrics.selection import environment
from fabricbench.record import Record, failure_path, read_record
from fabricbench.testbed.cluster import Cluster

SOURCE = str(Path(fabricbench.__file__).parents[1])


def on_nodes(
    kind: str = "micro", engine: str = "mpi", ranks: int = 4, nodes: int = 2, **changes: Any
) -> Cell:
    """A cell of so many ranks on so many nodes over the slower of the testbed's fabrics."""
    fabric = a_fabric("ethernet-tcp", provider="tcp", rate_bit_s=100_000_000, link_bit_s=None)
    backend = changes.pop("backend", a_backend(engine))
    fields = {
        "launcher": "allocation",
        "fabric": fabric,
        "gpus": ranks,
        "nodes": nodes,
        "ranks_per_node": ranks // nodes,
        "site": {"placement": "packed"},
    }
    cell = a_cell(kind, engine, **(fields | changes))
    own = environment(fabric, backend, "cpu") | changes.get("environment", {})
    return Cell(**(vars(cell) | {"backend": backend, "environment": own}))


def record_path(cell: Cell, folder: Path) -> Path:
    """Where its record belongs."""
    record = Record(cell=cell, code_key=code_key(cell.kind, cell.launcher), status="ok").id
    return folder / f"{record}.json"


def run_cell(cell: Cell, folder: Path, *options: str) -> list[str]:
    """What a Snakemake job calls."""
    arguments = ["run-cell", "--cell", cell.canonical(), "--record", str(record_path(cell, folder)), *options]
    return [sys.executable, "-m", "fabricbench", *arguments]


def submit(cluster: Cluster, folder: Path, commands: list[list[str]], *options: str) -> str:
    """One batch job that runs commands one after the other, however they end; returns its number."""
    script = folder / f"job-{time.monotonic_ns()}.sh"
    lines = [f"export PYTHONPATH={SOURCE}", *(shlex.join(command) for command in commands)]
    script.write_text("#!/bin/bash\n" + "\n".join(lines) + "\n")
    words = [
        "sbatch",
        "--parsable",
        f"--output={folder}/job.log",
        "--open-mode=append",
        *options,
        str(script),
    ]
    done = cluster.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(done.stdout.strip())


def state(cluster: Cluster, job: str) -> str:
    """The job's state, in Slurm's words."""
    done = cluster.run(
        ["squeue", "-h", "-j", job, "--states=all", "-o", "%T"], capture_output=True, text=True
    )
    return str(done.stdout.strip())


def wait(cluster: Cluster, job: str, seconds: float = 90) -> str:
    """Wait for a job's end; returns its state."""
    until = time.monotonic() + seconds
    while (now := state(cluster, job)) in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
        assert time.monotonic() < until, f"job {job} is still {now}"
        time.sleep(0.1)
    return now


def left(cell: Cell, folder: Path) -> Record:
    """What a cell left: its record, or its failure."""
    path = record_path(cell, folder)
    return read_record(path if path.exists() else failure_path(path))


def steps(cluster: Cluster) -> str:
    """All steps that run, but for those of batch scripts."""
    done = cluster.run(["squeue", "-h", "--steps", "-o", "%i %j"], stdout=subprocess.PIPE, text=True)
    return "\n".join(line for line in done.stdout.splitlines() if ".batch" not in line)
