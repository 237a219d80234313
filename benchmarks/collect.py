"""10,000 records of 200 steps each, read, aggregated, compared and written as tables: seconds and memory.

    .venv/bin/python benchmarks/collect.py [FOLDER]

Made-up records (2 fabrics × 10 backends × 5 GPU counts × 20 workloads × 5 repeats) are written to FOLDER, or
to a temporary one, once; then `fabricbench collect` runs as a process of its own, as Snakemake calls it.
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from records import make_cell, make_grid, make_record

from fabricbench.record import write_record

ROOT = Path(__file__).resolve().parents[1]
COLLECT = """
import json, sys, time
from pathlib import Path
began = time.perf_counter()
from fabricbench.analysis.table import collect
grid = json.loads(Path(sys.argv[1], "grid.json").read_text())
tables = collect(grid, Path(sys.argv[1]))
assert len(tables.cells) == 10_000 and len(tables.conclusions.comparisons) == 1_000
print(time.perf_counter() - began)
"""


def write(folder: Path) -> None:
    """The records and their grid, unless they are there."""
    if (folder / "grid.json").exists():
        return
    draw = random.Random(1)
    cells = [
        make_cell(workload=f"w{w}", backend=f"b{b}", fabric=fabric, gpus=gpus, repeat=repeat)
        for w in range(20)
        for b in range(10)
        for fabric in ("ethernet", "opa")
        for gpus in (1, 2, 4, 8, 16)
        for repeat in range(1, 6)
    ]
    os.fsync = lambda _: None
    for cell in cells:
        record = make_record(cell, [draw.gauss(1, 0.02) for _ in range(200)])
        by_rank = [series for series in record.samples if series.metric == "step_median_s"]
        record.samples = [record.samples[0], *by_rank]
        write_record(record, folder / f"{record.id}.json")
    (folder / "grid.json").write_text(json.dumps(make_grid(cells)))


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary)
        write(folder)
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-c", COLLECT, str(folder)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
        print("| what | s | peak, GB |\n|---|---|---|")
        print(f"| read, aggregate and compare | {float(done.stdout):.1f} | {memory:.2f} |", flush=True)
        began = time.perf_counter()
        arguments = ["collect", "--grid", str(folder / "grid.json"), "--tables", str(folder / "tables")]
        subprocess.run([sys.executable, "-m", "fabricbench", *arguments], env=environment, check=True)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
        print(f"| the whole `collect`, tables written | {time.perf_counter() - began:.1f} | {memory:.2f} |")


if __name__ == "__main__":
    main()
