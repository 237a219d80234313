"""How soon 16 replayed ranks make their first step, and what that is made of.

    .venv/bin/python benchmarks/start.py [RUNS]

16 ranks of Gloo on 8 emulated nodes, alternated with `python -c "import torch"`, the yardstick that tells how
fast this machine is at the moment. Prints medians of 15 runs with 95 % intervals (order statistics). The
first step is the first that reduces gradients: steps without DDP, which are measured before it, count too.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from overhead import CELLS, phases

CELL = CELLS["replay, Gloo, 16 ranks on 8 nodes"]
PARTS = {
    "launch to the first step with DDP": "to_first_ddp_step",
    "launch to the first step": "to_first_step",
    "launch to ranks that have met": "to_ranks_up",
    "imports": "import",
    "waiting for nodes after that": "wait_for_nodes",
    "fork to ranks that have met": "ranks_up",
}


def import_torch() -> float:
    """Seconds of a process that imports torch and ends."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.perf_counter() - began


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % interval of the median by order statistics (all values for fewer than 6)."""
    ordered, count = sorted(values), len(values)
    outside = max(0, int((count - 1.96 * count**0.5) / 2))
    return ordered[outside], ordered[count - 1 - outside]


def main() -> None:
    """Print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    phases(CELL)  # the model's layers come into the cache, and files into memory
    found: dict[str, list[float]] = {"python -c 'import torch'": []}
    for _ in range(runs):
        found["python -c 'import torch'"].append(import_torch())
        known = phases(CELL)
        for name, phase in PARTS.items():
            found.setdefault(name, []).append(known[phase])
    print(f"| {runs} runs | median s | 95 % interval |\n|---|---|---|")
    for name, values in found.items():
        low, high = interval(values)
        print(f"| {name} | {statistics.median(values):.2f} | {low:.2f} to {high:.2f} |")


if __name__ == "__main__":
    main()
