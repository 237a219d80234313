"""What shaped links carry: ping-pong and one-way stream by size, as a share of the payload ceiling.

    .venv/bin/python benchmarks/links.py [MBIT_PER_S ...]

The ceiling is rate × 1448/1514: what a TCP segment of one Ethernet frame carries of its bytes on the link.
Needs a quiet machine; prints a Markdown table of medians over all samples.
"""

import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from cells import MICRO, a_cell

from fabricbench.record import Record, read_record
from fabricbench.runner import run_cell

SIZES = [4096, 16384, 65536, 262144, 1048576, 4194304]
CEILING = 1448 / 1514


def shares(engine: str, mbit_s: int) -> dict[tuple[str, int], float]:
    """Median throughput over the ceiling, by operation and size."""
    cell = a_cell("micro", engine)
    fabric = cell.fabric | {"rate_bit_s": mbit_s * 10**6, "link_bit_s": mbit_s * 10**6}
    params = MICRO | {"operations": ["pingpong", "stream"], "sizes": SIZES, "iterations": 20, "warmup": 2}
    cell = a_cell("micro", engine, fabric=fabric, params=params)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{Record(cell=cell, code_key='', status='ok').id}.json"
        if run_cell(cell, "", path, timeout_s=600, accept_failures=False, neighbours=[]):
            sys.exit("the cell failed")
        samples = read_record(path).samples
    ceiling = mbit_s * 1e6 * CEILING
    return {
        (series.metric, series.bytes or 0): (series.bytes or 0)
        * 8
        / statistics.median(series.values)
        / ceiling
        for series in samples
    }


def main() -> None:
    rates = [int(text) for text in sys.argv[1:]] or [50, 100, 400]
    print("| Mbit/s | engine | operation | " + " | ".join(f"{size >> 10} KB" for size in SIZES) + " |")
    print("|---|---|---|" + "---|" * len(SIZES))
    for mbit_s in rates:
        for engine in ("mpi", "gloo"):
            measured = shares(engine, mbit_s)
            for metric in ("pingpong_s", "stream_s"):
                row = " | ".join(f"{100 * measured[metric, size]:.1f} %" for size in SIZES)
                print(f"| {mbit_s} | {engine} | {metric.removesuffix('_s')} | {row} |", flush=True)


if __name__ == "__main__":
    main()
