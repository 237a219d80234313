"""The engines against each other and against the link, on four emulated nodes.

    .venv/bin/python benchmarks/engines.py ring|busbw|train|waits [PAIRS [MBIT_PER_S ...]]

ring    all-reduce of 100 MB, engine ring over the library's (mpi): time, alternated pairs of cells
busbw   all-reduce of 100 MB over gloo, mpi and ring: busbw as a share of the payload ceiling
train   images/s of replayed training, mpi over gloo and ring over gloo, alternated
waits   16 ranks on this machine's cores: a step whose MPI thread sleeps between looks, over one that spins

Ratios are medians of a cell over medians of its partner; the interval is Student's 95 % of the mean log
ratio. busbw is 2(n-1)/n · bytes / time, the ceiling rate × 1448/1514 (links.py). Needs a quiet machine.
"""

import math
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from cells import PROFILE, TRAIN, a_cell

from fabricbench import runner
from fabricbench.analysis.compare import t_interval
from fabricbench.cell import Cell
from fabricbench.launch import emulated
from fabricbench.launch.base import Command
from fabricbench.launch.leaving import report_launch_error
from fabricbench.record import Record, read_record
from fabricbench.workloads import ranks

SIZE, NODES = 100_000_000, 4
CEILING = 1448 / 1514
SPINNING = "--spinning"
FIXED = {"warmup": 5, "warmup_most": 5, "steps": 8, "steps_most": 8, "width": 0, "extra_steps": 2}
"""Of a training cell: so many steps, however they scatter."""


class Spinning:
    """The emulated launcher, its ranks told that each has cores of its own."""

    in_a_job = False

    def command(self, cell: Cell, work: Path) -> Command:
        """This program."""
        return Command([sys.executable, __file__, SPINNING, str(work)])


def cell_of(kind: str, engine: str, mbit_s: int, params: dict[str, Any], **more: Any) -> Cell:
    """A cell over four nodes, one rank each unless `more` says otherwise."""
    cell = a_cell(kind, engine)
    fabric = cell.fabric | {"rate_bit_s": mbit_s * 10**6, "link_bit_s": mbit_s * 10**6}
    return a_cell(kind, engine, fabric=fabric, params=params, **({"gpus": NODES, "nodes": NODES} | more))


def median(cell: Cell, metric: str) -> float:
    """Seconds: the median of a cell's samples."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{Record(cell=cell, code_key='', status='ok').id}.json"
        if runner.run_cell(cell, "", path, timeout_s=1200, accept_failures=False, neighbours=[]):
            sys.exit("the cell failed")
        record = read_record(path)
    if record.evidence["verdict"] != "verified":
        sys.exit(f"the cell's label is not proven: {record.evidence}")
    return statistics.median(next(s.values for s in record.samples if s.metric == metric))


def allreduce(engine: str, mbit_s: int) -> float:
    """Seconds of one all-reduce of 100 MB."""
    params = {"operations": ["allreduce"], "sizes": [SIZE], "iterations": 3, "warmup": 1}
    return median(cell_of("micro", engine, mbit_s, params), "allreduce_s")


def step(engine: str, mbit_s: int) -> float:
    """Seconds of one replayed step of ResNet-50, whose buckets are 25 MB as they are."""
    params = TRAIN | {"model": "resnet50", "image_size": 224, "batch": 64} | FIXED
    params |= {"profile": PROFILE | {"images_per_s": 357.0}}
    more = {"device": "replay", "scale": {"bytes": 4, "time": 4}}
    return median(cell_of("train", engine, mbit_s, params, **more), "step_max_s")


def crowded_step(spins: bool) -> float:
    """Seconds of one replayed step of 16 ranks."""
    params = TRAIN | {"model": "resnet18", "image_size": 224, "batch": 64} | FIXED
    params |= {"profile": PROFILE | {"images_per_s": 1200.0}}
    more = {"device": "replay", "scale": {"bytes": 16, "time": 1}, "gpus": 16, "ranks_per_node": 4}
    usual = runner.LAUNCHERS["emulated"]
    runner.LAUNCHERS["emulated"] = Spinning() if spins else usual
    try:
        return median(cell_of("train", "mpi", 400, params, **more), "step_max_s")
    finally:
        runner.LAUNCHERS["emulated"] = usual


def compared(what: str, one: Callable[[], float], other: Callable[[], float], pairs: int) -> None:
    """Print the ratio of two times over alternated pairs."""
    found = []
    for pair in range(pairs):
        first, second = (one, other) if pair % 2 == 0 else (other, one)
        times = {first: first(), second: second()}
        found.append((times[one], times[other]))
        print(f"  {times[one]:.3f} s, {times[other]:.3f} s", file=sys.stderr, flush=True)
    logs = [math.log(mine / others) for mine, others in found]
    spread = statistics.stdev(logs) / math.sqrt(pairs) if pairs > 1 else math.inf
    low, high = map(math.exp, t_interval(statistics.mean(logs), spread, max(1, pairs - 1), 0.95))
    mine, others = (statistics.median(column) for column in zip(*found, strict=True))
    print(
        f"| {what} | {pairs} | {mine:.3f} | {others:.3f} | {math.exp(statistics.mean(logs)):.3f} "
        f"({low:.3f}–{high:.3f}) |",
        flush=True,
    )


def main() -> None:
    what = sys.argv[1]
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    rates = [int(text) for text in sys.argv[3:]]
    if what == "busbw":
        print("| Mbit/s | engine | busbw, Mbit/s | of the ceiling |\n|---|---|---|---|")
        for mbit_s in rates or [100, 400]:
            for engine in ("gloo", "mpi", "ring"):
                seconds = statistics.median(allreduce(engine, mbit_s) for _ in range(pairs))
                busbw = 2 * (NODES - 1) / NODES * SIZE * 8 / seconds / 1e6
                share = 100 * busbw / (mbit_s * CEILING)
                print(f"| {mbit_s} | {engine} | {busbw:.1f} | {share:.1f} % |", flush=True)
        return
    print("| what | pairs | s | s of the other | ratio (95 %) |\n|---|---|---|---|---|")
    if what == "waits":
        compared(
            "16 ranks, sleeping over spinning",
            partial(crowded_step, False),
            partial(crowded_step, True),
            pairs,
        )
    for mbit_s in rates or [100, 400]:
        if what == "ring":
            name = f"ring over mpi, {mbit_s} Mbit/s"
            compared(name, partial(allreduce, "ring", mbit_s), partial(allreduce, "mpi", mbit_s), pairs)
        elif what == "train":
            for engine in ("mpi", "ring"):
                name = f"step of {engine} over gloo, {mbit_s} Mbit/s"
                compared(name, partial(step, engine, mbit_s), partial(step, "gloo", mbit_s), pairs)


if __name__ == "__main__":
    if sys.argv[1:2] == [SPINNING]:
        ranks.share_cores = lambda cell, places: False
        with report_launch_error(Path(sys.argv[2])):
            sys.exit(emulated.main(Path(sys.argv[2])))
    main()
