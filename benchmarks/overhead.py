"""What a cell costs beside its measured region, by phase, for 1, 4 and 16 ranks on the emulated cluster.

    .venv/bin/python benchmarks/overhead.py

Prints a Markdown table of medians over 5 runs each. `import torch` alone is measured in the same run, as the
limit that no cell of Gloo can pass.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from cells import CFD, MICRO, PROFILE, TRAIN, a_cell

from fabricbench.cell import Cell
from fabricbench.record import Record, read_record
from fabricbench.runner import run_cell

RUNS = 5
REPLAY = TRAIN | {"image_size": 224, "profile": PROFILE}
SCALE = {"bytes": 64, "time": 1}
CELLS = {
    "messages, MPI, 4 ranks on 4 nodes": a_cell("micro", gpus=4, nodes=4),
    "messages, Gloo, 4 ranks on 4 nodes": a_cell("micro", "gloo", gpus=4, nodes=4, params=MICRO),
    "flow, MPI, 4 ranks on 4 nodes": a_cell("cfd", gpus=4, nodes=4, params=CFD),
    "replay, Gloo, 1 rank": a_cell(
        "train", "gloo", device="replay", gpus=1, nodes=1, params=REPLAY, scale=SCALE
    ),
    "replay, Gloo, 4 ranks on 2 nodes": a_cell(
        "train", "gloo", device="replay", gpus=4, ranks_per_node=2, params=REPLAY, scale=SCALE
    ),
    "replay, Gloo, 16 ranks on 8 nodes": a_cell(
        "train", "gloo", device="replay", gpus=16, nodes=8, ranks_per_node=2, params=REPLAY, scale=SCALE
    ),
}


def phases(cell: Cell) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{Record(cell=cell, code_key='', status='ok').id}.json"
        if run_cell(cell, "", path, timeout_s=600, accept_failures=False, neighbours=[]):
            sys.exit("the cell failed")
        return read_record(path).phases_s


def import_torch(module: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import torch, {module}"], check=True)
    return time.perf_counter() - began


def main() -> None:
    print("| cell | overhead s | import s | ranks meet s | the rest s |")
    print("|---|---|---|---|---|")
    for module in ("torch.distributed", "torch._dynamo"):
        seconds = statistics.median(import_torch(module) for _ in range(RUNS))
        print(f"| python -c 'import torch, {module}' | {seconds:.2f} | | | |", flush=True)
    for name, cell in CELLS.items():
        runs = [phases(cell) for _ in range(RUNS)]
        total = statistics.median(run["total"] - run["measured"] for run in runs)
        known = [statistics.median(run[phase] for run in runs) for phase in ("import", "ranks_up")]
        columns = [total, *known, total - sum(known)]
        print(f"| {name} | " + " | ".join(f"{seconds:.2f}" for seconds in columns) + " |", flush=True)


if __name__ == "__main__":
    main()
