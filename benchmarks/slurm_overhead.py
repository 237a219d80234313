"""What a cell costs on Slurm, by phase, from its job's start to the next one's, and what it has to cost.

    .venv/bin/python benchmarks/slurm_overhead.py [PAIRS [ENGINE ...]]

Needs root, and Slurm's programs: makes a testbed of two nodes, and on it runs Snakemake with profiles/slurm
for cells of two ranks on two nodes. In turn with each, on the same nodes, runs a peer: a plain sbatch of srun
with a program that imports the engine's library, meets, and has one barrier. Prints medians over the pairs
(15 unless said; one more comes before, uncounted), and Student's 95 % interval of the mean log ratio, as a
factor. Then the same cells as steps in one allocation, with profiles/allocation.

Moments of jobs are slurmctld's, those between are the record's and the peer's own: all of one clock here.
"""

import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from campaigns import ROOT
from slurm_campaigns import SLURM_TINY, SlurmCampaign

from fabricbench.analysis.compare import t_interval
from fabricbench.testbed import Cluster, Spec

PAIRS = 15
LONGEST_PAIR_S = 120.0
STARTS = 5
PEERS = {
    "mpi": """
import json, sys, time
began = time.time()
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
met = time.time()
if MPI.COMM_WORLD.rank == 0:
    open(sys.argv[1], "w").write(json.dumps({"began": began, "met": met}))
""",
    "gloo": """
import json, os, sys, time
began = time.time()
import torch.distributed as dist
rank = int(os.environ["SLURM_PROCID"])
dist.init_process_group("gloo", init_method="tcp://n0:29500", rank=rank, world_size=2)
dist.barrier()
met = time.time()
if rank == 0:
    open(sys.argv[1], "w").write(json.dumps({"began": began, "met": met}))
dist.destroy_process_group()
""",
}
MPI_OF_SRUN = {"mpi": "pmi2", "gloo": "none"}
EVENTS = {
    "submitted": r"_slurm_rpc_submit_batch_job: JobId=(\d+) ",
    "started": r"(?:sched: Allocate|_start_job: Started) JobId=(\d+) ",
    "ended": r"_job_complete: JobId=(\d+) done",
}
PHASES = {
    "job's start → runner (a batch script, Snakemake twice)": ("started", "runner"),
    "runner → ranks up": ("runner", "ranks_up"),
    "ranks up → first timed step": ("ranks_up", "first_step"),
    "first timed step → record": ("first_step", "record"),
    "record → job's end (Snakemake ends twice)": ("record", "ended"),
    "job's end → next job's start": ("ended", "next"),
    "**job's start → first timed step**": ("started", "first_step"),
    "**job's start → next job's start**": ("started", "next"),
}
PEER_PHASES = {
    "peer: job's start → program": ("started", "began"),
    "peer: job's start → met": ("started", "met"),
    "peer: job's start → next job's start": ("started", "next"),
}
STEP_PHASES = {
    "allocation: runner → first timed step": ("runner", "first_step"),
    "allocation: record → next runner": ("record", "next"),
    "**allocation: runner → next runner**": ("runner", "next"),
}
RATIOS = {
    "to the first timed step / peer's to met": (("started", "first_step"), ("started", "met")),
    "the same from the runner on": (("runner", "first_step"), ("started", "met")),
    "whole job / peer's": (("started", "next"), ("started", "next")),
}
Moments = dict[str, float]


def moments_of_jobs(log: Path) -> dict[str, Moments]:
    """UNIX times by job, as slurmctld wrote them; `next`: when the next one began."""
    jobs: dict[str, Moments] = {}
    for line in log.read_text().splitlines():
        for event, pattern in EVENTS.items():
            if match := re.search(pattern, line):
                moment = datetime.fromisoformat(line[1 : line.index("]")]).timestamp()
                jobs.setdefault(match[1], {})[event] = moment
    order = sorted((job for job in jobs.values() if "started" in job), key=lambda job: job["started"])
    for job, following in pairwise(order):
        job["next"] = following["started"]
    return jobs


def measure(engine: str, pairs: int, base: Path) -> tuple[list[Moments], list[Moments]]:
    """All moments of cells and of their peers, in pairs."""
    folder = base / engine
    with Cluster.up(Spec(nodes=2, shared=(base, ROOT))) as cluster:
        campaign = SlurmCampaign(cluster, folder, config(engine, "slurm", pairs + 1))
        (folder / "peer.py").write_text(PEERS[engine])
        plug = sbatch(cluster, folder, "--wrap=sleep 3600")
        call = [sys.executable, "-m", "snakemake", "--profile", "profiles/slurm"]
        with open(folder / "snakemake.log", "wb") as log:
            snakemake = cluster.popen(call, cwd=folder, stdout=log, stderr=log)
        peers = follow(cluster, folder, engine, plug, pairs + 1)
        cluster.run(["scancel", plug], check=True)
        sbatch_last(cluster, folder, peers)
        wait_for_end(cluster, peers, (pairs + 2) * LONGEST_PAIR_S)
        snakemake.kill()
        jobs = moments_of_jobs(cluster.folder / "log" / "slurmctld.log")
        cells = [json.loads(path.read_text()) for path in campaign.results.glob("micro/*-r*.json")]
    if len(cells) != pairs + 1:
        sys.exit(f"{len(cells)} of {pairs + 1} cells were measured: {folder}")
    measured = {cell["provenance"]["job"]["id"]: cell for cell in cells}
    sides: tuple[list[Moments], list[Moments]] = ([], [])
    for job, peer in list(peers.items())[1:]:
        sides[0].append(jobs[job] | of_record(measured[job]))
        sides[1].append(jobs[peer] | json.loads((folder / f"peer-{peer}.json").read_text()))
    return sides


def config(engine: str, kind: str, count: int) -> dict:
    """A campaign of so many equal cells."""
    return SLURM_TINY | {
        "cluster": {"kind": kind, "nodes": 2, "gpus_per_node": 1},
        "fabrics": {"fast": SLURM_TINY["fabrics"]["fast"]},
        "backends": {engine: {"engine": engine}},
        "workloads": {"micro": SLURM_TINY["workloads"]["micro"]},
        "repeats": count,
    }


def measure_in_allocation(engine: str, count: int, base: Path) -> list[Moments]:
    """All moments of cells in one allocation."""
    with Cluster.up(Spec(nodes=2, shared=(base, ROOT))) as cluster:
        campaign = SlurmCampaign(cluster, base / "allocation", config(engine, "allocation", count + 2))
        call = f"{sys.executable} -m snakemake --profile profiles/allocation"
        sbatch(cluster, campaign.folder, "--wait", "--time=60", f"--wrap={call}")
    cells = [json.loads(path.read_text()) for path in campaign.results.glob("micro/*-r*.json")]
    moments = sorted(map(of_record, cells), key=lambda cell: cell["runner"])
    for cell, following in pairwise(moments):
        cell["next"] = following["runner"]
    return moments[1:-1]


def of_record(cell: dict) -> Moments:
    """The moments that a record knows."""
    runner = datetime.fromisoformat(cell["start"]).timestamp()
    phases = cell["phases_s"]
    return {
        "runner": runner,
        "ranks_up": runner + phases["to_ranks_up"],
        "first_step": runner + phases["to_first_step"],
        "record": datetime.fromisoformat(cell["end"]).timestamp(),
    }


def sbatch(cluster: Cluster, folder: Path, *arguments: str) -> str:
    """Submit a job on both nodes; returns its number."""
    command = [
        "sbatch",
        "--parsable",
        "--exclusive",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--output=/dev/null",
    ]
    done = cluster.run([*command, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return str(done.stdout).strip()


def follow(cluster: Cluster, folder: Path, engine: str, plug: str, count: int) -> dict[str, str]:
    """After each job that Snakemake submits, submit its peer; returns job → peer.

    All have one name, and so run one after the other in this order, once the plug is gone.
    """
    peers: dict[str, str] = {}
    program = f"srun --mpi={MPI_OF_SRUN[engine]} {sys.executable} peer.py peer-$SLURM_JOB_ID.json"
    until = time.monotonic() + LONGEST_PAIR_S + 3 * count
    while len(peers) < count:
        if time.monotonic() > until:
            sys.exit(f"Snakemake submitted {len(peers)} of {count} jobs: {folder}/snakemake.log")
        time.sleep(0.1)
        jobs = moments_of_jobs(cluster.folder / "log" / "slurmctld.log")
        for job in jobs.keys() - peers.keys() - {*peers.values(), plug}:
            shown = cluster.run(["squeue", "-hj", job, "-o%j"], check=True, capture_output=True, text=True)
            name = f"--job-name={shown.stdout.strip()}"
            peers[job] = sbatch(cluster, folder, name, "--dependency=singleton", f"--wrap={program}")
    return peers


def sbatch_last(cluster: Cluster, folder: Path, peers: dict[str, str]) -> None:
    """One more job, whose start ends the last pair."""
    last = list(peers.values())[-1]
    shown = cluster.run(["squeue", "-hj", last, "-o%j"], check=True, capture_output=True, text=True)
    sbatch(cluster, folder, f"--job-name={shown.stdout.strip()}", "--dependency=singleton", "--wrap=true")


def wait_for_end(cluster: Cluster, peers: dict[str, str], longest_s: float) -> None:
    """Until the last pair is over and the next job has begun. Reads a file alone, which disturbs no job."""
    last = list(peers.values())[-1]
    until = time.monotonic() + longest_s
    while "next" not in moments_of_jobs(cluster.folder / "log" / "slurmctld.log")[last]:
        if time.monotonic() > until:
            sys.exit(f"no end after {longest_s:g} s")
        time.sleep(1.0)


def seconds(jobs: list[Moments], phase: tuple[str, str]) -> list[float]:
    return [job[phase[1]] - job[phase[0]] for job in jobs]


def ratio(cells: list[float], peers: list[float]) -> str:
    """The median ratio, and the interval of the mean log ratio of pairs, as factors."""
    logs = [math.log(cell / peer) for cell, peer in zip(cells, peers, strict=True)]
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = t_interval(statistics.mean(logs), error, len(logs) - 1, 0.95)
    return f"{math.exp(statistics.median(logs)):.2f} ({math.exp(low):.2f} to {math.exp(high):.2f})"


def start_of_snakemake() -> float:
    """Seconds that one start of Snakemake takes for its imports, and its end."""
    taken = []
    for _ in range(STARTS):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import snakemake.cli"], check=True)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as a user has it: modules are compiled once
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    print(f"python -c 'import snakemake.cli': {start_of_snakemake():.2f} s", flush=True)
    for engine in sys.argv[2:] or PEERS:
        with tempfile.TemporaryDirectory(prefix="fabricbench-overhead-") as base:
            cells, peers = measure(engine, pairs, Path(base))
            steps = measure_in_allocation(engine, pairs, Path(base))
        print(f"\n{engine}, {len(cells)} pairs\n\n| phase | median s | from | to |\n|---|---|---|---|")
        for jobs, phases in ((cells, PHASES), (peers, PEER_PHASES), (steps, STEP_PHASES)):
            for name, phase in phases.items():
                values = seconds(jobs, phase)
                columns = [statistics.median(values), min(values), max(values)]
                print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in columns) + " |")
        for name, (of_cell, of_peer) in RATIOS.items():
            print(f"\n{name}: {ratio(seconds(cells, of_cell), seconds(peers, of_peer))}", flush=True)


if __name__ == "__main__":
    main()
