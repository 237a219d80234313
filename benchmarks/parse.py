"""What the Snakefile adds to Snakemake's own start: importing fabricbench, parsing the config, the grid.

    .venv/bin/python benchmarks/parse.py

Alternates a process that imports Snakemake alone (A) with one that also prepares the default campaign (B);
prints the median and range of B − A, and which heavy modules B has loaded (there should be none).
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

PAIRS = 15
ROOT = Path(__file__).resolve().parents[1]
ALONE = "import sys; sys.path.insert(0, 'src'); import snakemake.cli, snakemake.workflow"
PREPARED = (
    ALONE + "; import yaml; from fabricbench.config import load_config, parse_config; "
    "from fabricbench import workflow; from fabricbench.grid import expand; from pathlib import Path; "
    "grid = expand(parse_config(load_config([Path('config/config.yaml')]))); "
    "ids = [cell.id for cell in grid.cells]; "
    "print(*sorted({'torch', 'torchvision', 'numba', 'mpi4py', 'numpy', 'pandas'} & set(sys.modules)))"
)


def seconds(program: str) -> tuple[float, str]:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return time.perf_counter() - began, done.stdout.strip()


def main() -> None:
    seconds(ALONE), seconds(PREPARED)
    alone, added, heavy = [], [], set()
    for _ in range(PAIRS):
        a, _ = seconds(ALONE)
        b, loaded = seconds(PREPARED)
        alone.append(a)
        added.append(b - a)
        heavy |= set(loaded.split())
    low, *_, high = sorted(added)
    print(
        f"Snakemake alone {statistics.median(alone):.2f} s; fabricbench adds {statistics.median(added):.3f} s"
    )
    print(f"({low:.3f} to {high:.3f} over {PAIRS} pairs); heavy modules loaded: {sorted(heavy) or 'none'}")


if __name__ == "__main__":
    main()
