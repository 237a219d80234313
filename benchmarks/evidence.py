"""Counters against formula: a ring all-reduce of 100 MB on 4 emulated nodes, per engine and repeat.

    .venv/bin/python benchmarks/evidence.py [REPEATS]

Prints a Markdown table: what eth0 of the four nodes sent, over the payload and over the formula (the payload
with its packets' headers; acknowledgements and retransmissions are what remains).
"""

import dataclasses
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from cells import a_cell

from fabricbench.fabrics.traffic import on_the_wire
from fabricbench.record import Record, read_record
from fabricbench.runner import run_cell

SIZE, NODES = 100_000_000, 4
RING = {
    "mpi": {
        "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring",
        "MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM": "tsp_ring",
    },
    "ring": {},
    "gloo": {},
}


def measured(engine: str, repeat: int) -> list[tuple[float, float]]:
    """Per node, bytes sent over the payload and over the formula."""
    params = {"operations": ["allreduce"], "sizes": [SIZE], "iterations": 1, "warmup": 0}
    cell = a_cell("micro", engine, params=params, gpus=NODES, nodes=NODES, repeat=repeat)
    cell = dataclasses.replace(cell, environment={**cell.environment, **RING[engine]})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{Record(cell=cell, code_key='', status='ok').id}.json"
        if run_cell(cell, "", path, timeout_s=600, accept_failures=False, neighbours=[]):
            sys.exit("the cell failed")
        evidence = read_record(path).evidence
    rows = []
    for node, formula in evidence["formula"]["nodes"].items():
        declared, payload = evidence["declared"][node], formula["tx_bytes"][0]
        sent = evidence["nodes"][node]["eth0"]["tx_bytes"]
        rows.append((sent / payload, sent / on_the_wire(payload, formula["tx_messages"], declared["unit"])))
    return rows


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    lines = ["| engine | over the payload | over the formula |", "|---|---|---|"]
    for engine in ("mpi", "gloo"):
        rows = [row for repeat in range(repeats) for row in measured(engine, repeat + 1)]
        spans = [f"{min(column):.4f}–{max(column):.4f}" for column in zip(*rows, strict=True)]
        lines.append(f"| {engine} | {' | '.join(spans)} |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
