"""Cells that fail: the rest stays intact, the page says why, and only they run again."""

import os
import signal
import subprocess
import sys
import time

import pytest
from campaigns import Campaign
from processes import descendants, ranks_of, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.emulated]

# 2 × 300 × 21 ms: far longer than the test lets it live.
LONG = {
    "kind": "micro",
    "sizes": [262144],
    "operations": ["pingpong"],
    "iterations": 300,
    "fabrics": ["slow"],
}

# A time step far beyond stability: the flow's own check fails in every rank.
DIVERGES = {"kind": "cfd", "case": "vortex", "cells": [8, 8, 2], "cfl": 40.0, "steps": 9, "fabrics": ["slow"]}


def assert_only_failed(campaign: Campaign, slug: str, reason: str) -> None:
    """The others have records, the partial page says why this one failed, and it alone is left to do."""
    assert slug not in campaign.records()
    assert len(campaign.records()) == 4
    page = (campaign.page.parent / "partial.html").read_text(encoding="utf-8")
    assert slug in page
    assert reason in page
    assert not campaign.page.exists()
    left = campaign.snakemake("-n")
    assert left.count("missing output files") <= 3
    assert [line for line in left.splitlines() if line.startswith("Job ") and slug in line]
    assert len([line for line in left.splitlines() if line.startswith("Job ") and "-r1-" in line]) == 1


def test_a_rank_that_raises_fails_its_cell_alone(campaign, tiny):
    """An error in a rank is the reason on the page; mended, its cell alone is measured, the page whole."""
    tiny["workloads"]["odd"] = DIVERGES
    broken = campaign(tiny)
    output = broken.snakemake(ok=False)
    assert "Not all cells could be measured" in output
    assert_only_failed(broken, "odd/slow-mpi-2-r1", "the flow is wrong")
    tiny["workloads"]["odd"] = DIVERGES | {"cfl": 0.5}
    broken.write(tiny)
    assert broken.measure() == {"odd/slow-mpi-2-r1"}
    assert broken.page.exists()
    assert not (broken.page.parent / "partial.html").exists()


def test_a_failed_cell_runs_again_at_the_next_call_until_it_is_accepted(campaign, tiny):
    """Without a manual step the next call tries again; `fabricbench accept` makes the failure the result."""
    tiny["workloads"]["odd"] = DIVERGES
    broken = campaign(tiny)
    broken.snakemake(ok=False)
    failure = next(broken.results.glob("odd/*.failed.json"))
    first = failure.stat().st_mtime_ns
    assert broken.measure(ok=False) == set()
    assert failure.stat().st_mtime_ns > first
    accept = [sys.executable, "-m", "fabricbench", "accept", "odd/slow-mpi-2-r1"]
    said = subprocess.run(accept, cwd=broken.folder, capture_output=True, text=True, check=True).stdout
    assert "accepted odd/slow-mpi-2-r1" in said
    broken.snakemake()
    assert "the flow is wrong" in broken.page.read_text(encoding="utf-8")
    assert "Nothing to be done" in broken.snakemake()


def test_accept_failures_in_the_config_takes_all(campaign, tiny):
    """`accept_failures: true` turns every failure into a result, and the campaign ends well."""
    tiny["workloads"]["odd"] = DIVERGES
    tiny["accept_failures"] = True
    broken = campaign(tiny)
    broken.snakemake()
    assert "the flow is wrong" in broken.page.read_text(encoding="utf-8")


def test_a_killed_rank_fails_its_cell_alone(campaign, tiny):
    """SIGKILL of one rank ends its cell at once; the page names rank and signal."""
    tiny["workloads"]["long"] = LONG
    killed = campaign(tiny)
    run = start(killed)
    os.kill(rank_of_long(run, 1), signal.SIGKILL)
    assert run.wait(120) != 0
    assert_only_failed(killed, "long/slow-mpi-2-r1", "rank 1 on node 1 was killed by SIGKILL")


def test_a_hanging_cell_is_stopped_at_its_time_out(campaign, tiny):
    """A cell whose rank stands still ends at its time-out, and the page says so."""
    tiny["workloads"]["long"] = {**LONG, "timeout": "15 s"}
    hanging = campaign(tiny)
    run = start(hanging)
    stopped = rank_of_long(run, 0)
    os.kill(stopped, signal.SIGSTOP)
    assert run.wait(120) != 0
    assert_only_failed(hanging, "long/slow-mpi-2-r1", "time-out of 15 s")
    assert not os.path.exists(f"/proc/{stopped}")


def test_a_killed_snakemake_leaves_nothing_running_and_nothing_doubled(campaign, tiny):
    """SIGKILL of Snakemake ends its cell too; after --unlock the next call measures what is missing."""
    tiny["workloads"]["long"] = {**LONG, "iterations": 100}
    killed = campaign(tiny)
    run = start(killed)
    rank_of_long(run, 0)
    family = descendants(run.pid)
    run.kill()
    run.wait()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in family))
    killed.snakemake("--unlock")
    killed.snakemake()
    assert len(killed.records()) == 5
    assert not list(killed.results.glob("*/.*"))


def test_a_full_disk_fails_the_cell_and_leaves_the_rest(campaign, tiny):
    """With no room for its record a cell fails with that reason, the others' stay; then it runs again."""
    full = campaign(tiny)
    (full.folder / "results").mkdir()
    script = full.folder / "full.py"
    script.write_text(FULL_DISK)
    mount = 'mount -t tmpfs -o size=1m tmpfs results && exec "$@"'
    command = ["unshare", "-Urm", "sh", "-c", mount, "sh", sys.executable, str(script)]
    done = subprocess.run(command, cwd=full.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# Runs where results/ is a disk of its own: measures four cells, fills it but for the room that a cell
# reserves for its failure, asks for a cell with a large record, then makes room.
FULL_DISK = """
import os, pathlib, subprocess, sys, yaml

def snakemake():
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/local"]
    return subprocess.run(command, capture_output=True, text=True)

def records():
    return {path: path.read_bytes() for path in pathlib.Path("results/tiny").glob("*/*-r1-*.json")}

def free():
    return os.statvfs("results").f_bavail * os.statvfs("results").f_frsize

config = pathlib.Path("config/config.yaml")
tiny = yaml.safe_load(config.read_text())
assert snakemake().returncode == 0
before = records()
assert len(before) == 4
tiny["workloads"]["large"] = dict(tiny["workloads"]["micro"], iterations=4000, fabrics=["slow"])
config.write_text(yaml.safe_dump(tiny))
filler = pathlib.Path("results/filler")
with filler.open("wb") as file:
    while free() > 90_000:
        file.write(bytes(4096))
        file.flush()
done = snakemake()
assert done.returncode != 0, done.stdout + done.stderr
assert {path: text for path, text in records().items() if ".failed" not in path.name} == before
page = pathlib.Path("reports/tiny/partial.html").read_text()
assert "large/slow-mpi-2-r1" in page and "No space left on device" in page
filler.unlink()
assert snakemake().returncode == 0
assert len(records()) == 5
"""


def start(campaign: Campaign) -> subprocess.Popen:
    """Run Snakemake in the background."""
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/local"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=campaign.folder, **quiet)


def rank_of_long(run: subprocess.Popen, rank: int) -> int:
    """The process number of a rank of the long cell, as soon as it measures."""
    wait_until(lambda: rank in ranks_of("long", run.pid))
    time.sleep(0.5)
    return ranks_of("long", run.pid)[rank]
