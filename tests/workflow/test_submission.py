"""The real Snakemake with its Slurm executor, in front of stand-ins for Slurm's commands."""

import json
import os
import sys
from pathlib import Path

import pytest
from campaigns import Campaign
from jobs import own, sbatch_options

from fabricbench import slurm_job
from fabricbench.campaign import Cluster
from fabricbench.grid import read_grid

pytestmark = pytest.mark.slow

CONFIG = {
    "campaign": "tiny",
    "cluster": {
        "kind": "slurm",
        "nodes": 2,
        "gpus_per_node": 2,
        "nodelist": "n[0-3]",
        "placement": ["packed", "spread"],
        # A name that Snakemake would take for Python's, did it evaluate it.
        "slurm": {"partition": "all", "memory": "all", "options": ["--mail-type=FAIL"]},
    },
    "fabrics": {"slow": {"kind": "ethernet-tcp", "interface": "eth0"}},
    "backends": {"mpi": {"engine": "mpi"}},
    "gpus": [1, 4],
    "repeats": 2,
    "workloads": {"cfd": {"kind": "cfd", "cells": [4, 4, 4]}},
}

# Would take every job and refuses it then, so that a call ends at once; what it was asked is kept.
SBATCH = """#!{python}
import json, sys
if "--test-only" in sys.argv:
    sys.exit()
with open({log!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
sys.exit("refused by a stand-in")
"""
NO_SLURM = {
    "leftovers": "def end_leftovers(grid, folder, *, results):\n    yield 'nothing was left'\n",
    "cautions": "def of_site(partitions, status_command):\n    return []\n",
}


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in for sbatch writes what it was asked, a line each."""
    commands, log = tmp_path / "bin", tmp_path / "sbatch.log"
    commands.mkdir()
    (commands / "sbatch").write_text(SBATCH.format(python=sys.executable, log=str(log)))
    for name in ("squeue", "sinfo", "sacct", "sacctmgr", "sshare", "scontrol", "scancel"):
        (commands / name).write_text("#!/bin/sh\n")
    for command in commands.iterdir():
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    return log


def campaign(folder: Path, **cluster: object) -> Campaign:
    """A campaign on Slurm, with nothing of an earlier call to end."""
    made = Campaign(folder / "campaign", CONFIG | {"cluster": CONFIG["cluster"] | cluster})
    for name, text in NO_SLURM.items():
        (made.folder / "src" / "fabricbench" / f"{name}.py").write_text(text)
    return made


def test_every_cell_is_submitted_once_as_it_asks_and_in_order(submitted, tmp_path):
    """One job for each cell, in the grid's order, with what the cell asks for and nothing else."""
    made = campaign(tmp_path)
    output = made.snakemake(ok=False, profile="profiles/slurm")
    assert "nothing was left" in output
    grid = read_grid(made.results / "grid.json")
    asked = [json.loads(line) for line in submitted.read_text().splitlines()]
    assert [_comment(words) for words in asked] == [
        f"rule_cell_wildcards_{cell.id.replace('/', '_')}" for cell in grid.cells
    ]
    cluster = Cluster.from_json(grid.campaign["cluster"])
    for words, cell in zip(asked, grid.cells, strict=True):
        job = slurm_job.resources(cluster, cell.cell, cell.timeout_s)
        assert sbatch_options(job) == _own(words)
    assert {word for words in asked for word in words if word.startswith("--nodelist")} == {
        *("--nodelist=n0", "--nodelist=n0,n1", "--nodelist=n0,n2"),
    }


def test_a_partial_page_says_what_is_missing(submitted, tmp_path):
    """A call of which every job was refused still leaves a page."""
    made = campaign(tmp_path)
    made.snakemake(ok=False, profile="profiles/slurm")
    assert "cfd/slow-mpi-4-spread-r1" in (made.page.parent / "partial.html").read_text(encoding="utf-8")


def test_the_wrong_profile_is_one_line(submitted, tmp_path):
    """Nothing is submitted and nothing measured here."""
    output = campaign(tmp_path).snakemake(ok=False)
    assert "call snakemake with --profile profiles/slurm" in output
    assert "Traceback" not in output
    assert not submitted.exists()


def test_an_allocation_needs_an_allocation(submitted, tmp_path, monkeypatch):
    """Outside of one, a line says how to get it; a dry run works anywhere."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    made = campaign(tmp_path)
    config = {**CONFIG, "cluster": {"kind": "allocation", "nodes": 2, "gpus_per_node": 2}}
    made.write(json.dumps(config))
    output = made.snakemake(ok=False, profile="profiles/allocation")
    assert "this is no Slurm allocation; get one, as `salloc --exclusive --nodes=2`" in output
    made.snakemake("-n", profile="profiles/allocation")


def _comment(words: list[str]) -> str:
    return words[words.index("--comment") + 1]


def _own(words: list[str]) -> list[str]:
    return own([word for word in words if not word.startswith("--wrap=")])
