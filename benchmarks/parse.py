"""What the Snakefile adds to Snakemake's own start: importing fabricbench, parsing the config, the grid.

    .venv/bin/python benchmarks/parse.py

In 15 fresh processes, each after importing Snakemake (timed as well, for the ratio); prints medians and
ranges, and which heavy modules were loaded on top (there should be none). Then, for 2,000 cells on 1 to 512
GPUs of a cluster as that of the paper: a dry run with profiles/slurm, its time (on the clock, and of the CPU,
which depends less on what else runs) and memory; in turn with it, as what Snakemake takes anyway, a dry run
of as many jobs of a rule that has an output and a command alone; and what a job on a node parses.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

RUNS = 15
ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import sys, time
began = time.perf_counter()
import snakemake.cli, snakemake.workflow
alone, before = time.perf_counter(), set(sys.modules)
sys.path.insert(0, "src")
from pathlib import Path
from fabricbench.config import load_config, parse_config
from fabricbench.grid import expand
from fabricbench import workflow
ids = [cell.id for cell in expand(parse_config(load_config([Path("config/config.yaml")]))).cells]
added = time.perf_counter()
heavy = {"torch", "torchvision", "numba", "mpi4py", "numpy", "pandas"} & (set(sys.modules) - before)
print(alone - began, added - alone, *sorted(heavy))
"""

LARGE = """
campaign: large
cluster: {kind: slurm, nodes: 256, gpus_per_node: 2}
fabrics:
  ethernet: {kind: ethernet-tcp, interface: eth0, rate: 25 Gbit/s}
  omnipath: {kind: omnipath, interface: ib0, adapter: hfi1_0, provider: psm2, rate: 100 Gbit/s}
backends: {nccl: {engine: nccl}, gloo: {engine: gloo}}
gpus: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
repeats: 10
workloads:
  vgg16: &training {kind: train, model: vgg16, device: cuda}
  resnet18: {<<: *training, model: resnet18}
  resnet34: {<<: *training, model: resnet34}
  resnet50: {<<: *training, model: resnet50}
  resnet101: {<<: *training, model: resnet101}
"""
JOB = """
import sys, time
sys.path.insert(0, "src")
from pathlib import Path
began = time.perf_counter()
from fabricbench import workflow
workflow.prepare_job({"campaign": "large"}, Path("results")).resources
print(time.perf_counter() - began)
"""
LARGE_RUNS = 3
PLAIN = """
rule all:
    input: [f"results/large/vgg16/cell-{n}.json" for n in range(2000)]
rule cell:
    output: "results/large/{cell}.json"
    shell: "touch {output}"
"""


def large() -> None:
    """Time and memory of a dry run of 2,000 cells, and of what each of its jobs parses."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("Snakefile", "workflow", "profiles", "reports", "src"):
            (Path(folder) / name).symlink_to(ROOT / name)
        (Path(folder) / "large.yaml").write_text(LARGE)
        (Path(folder) / "plain.smk").write_text(PLAIN)
        ours = ["--profile", "profiles/slurm", "--configfile", "large.yaml"]
        plain = ["--snakefile", "plain.smk", "--executor", "slurm", "--jobs", "50"]
        runs = [(dry_run(ours, folder), dry_run(plain, folder)) for _ in range(LARGE_RUNS)]
        for name, side in (("profiles/slurm", 0), ("a plain rule", 1)):
            clock, cpu, mib = zip(*(pair[side] for pair in runs), strict=True)
            taken = f"{described(clock)}, CPU {described(cpu)}, {max(mib):.0f} MiB"
            print(f"dry run of 2,000 cells, {name}: {taken}")
        jobs = [
            float(
                subprocess.run(
                    [sys.executable, "-c", JOB], cwd=folder, check=True, capture_output=True
                ).stdout
            )
            for _ in range(RUNS)
        ]
        print(f"fabricbench in each job on a node: {described(jobs)}")


def dry_run(arguments: list[str], folder: str) -> tuple[float, float, float]:
    """Seconds on the clock, of the CPU, and MiB of a dry run."""
    began = time.perf_counter()
    run = subprocess.Popen(
        [sys.executable, "-m", "snakemake", "-n", *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(run.pid, 0)
    assert status == 0
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def described(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.3f} s ({min(seconds):.3f} to {max(seconds):.3f})"


def main() -> None:
    alone, added, heavy = [], [], set()
    for _ in range(RUNS):
        command = [sys.executable, "-c", PROGRAM]
        words = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
        alone.append(float(words[0]))
        added.append(float(words[1]))
        heavy |= set(words[2:])
    print(f"Snakemake's imports alone: {described(alone)}")
    print(f"fabricbench and the default grid on top: {described(added)}")
    print(f"heavy modules loaded on top: {', '.join(sorted(heavy)) or 'none'}")
    large()


if __name__ == "__main__":
    main()
