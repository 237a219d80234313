"""What the Snakefile adds to Snakemake's own start: importing fabricbench, parsing the config, the grid.

    .venv/bin/python benchmarks/parse.py

In 15 fresh processes, each after importing Snakemake (timed as well, for the ratio); prints medians and
ranges, and which heavy modules were loaded on top (there should be none).
"""

import statistics
import subprocess
import sys
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


def described(seconds: list[float]) -> str:
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


if __name__ == "__main__":
    main()
