"""How long statistics take: 10,000 cells of 200 samples each, looked at one by one, then compared.

    .venv/bin/python benchmarks/analysis.py [CELLS [SAMPLES]]

Cells are drawn with a fixed seed: workloads of two backends and two GPU counts, each on four fabrics in ten
blocks, 1 % of them drifting and 1 % two-humped. Prints seconds by step, and the peak of memory in all.
"""

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from fabricbench.analysis.compare import Axis, compare
from fabricbench.analysis.control import control, decision, without_second_names
from fabricbench.analysis.threshold import from_gpus
from fabricbench.analysis.within import cell_flags, summary

FABRICS = {"ethernet": 1.0, "ethernet-again": 1.0, "opa": 1.02, "ib": 1.3}
BACKENDS, GPUS, BLOCKS = ("gloo", "mpi"), (4, 16), 10
NOISE = 0.03
CONTROLS = [("ethernet", "ethernet-again")]
AXES = [Axis("fabric", "ethernet"), Axis("backend", "gloo")]


def cells_of(count: int, rng: np.random.Generator) -> pd.DataFrame:
    per_workload = len(FABRICS) * len(BACKENDS) * len(GPUS) * BLOCKS
    index = np.arange(count)
    fabric = np.array(list(FABRICS))[index % len(FABRICS)]
    block = index // len(FABRICS) % BLOCKS
    backend = np.array(BACKENDS)[index // (len(FABRICS) * BLOCKS) % len(BACKENDS)]
    gpus = np.array(GPUS)[index // (len(FABRICS) * BLOCKS * len(BACKENDS)) % len(GPUS)]
    workload = [f"w{number}" for number in index // per_workload]
    names = zip(workload, fabric, backend, gpus, block, index, strict=True)
    table = pd.DataFrame(
        {
            "cell": [f"{w}/{f}-{b}-{g}-r{r + 1}-{i:08x}" for w, f, b, g, r, i in names],
            "workload": workload,
            "fabric": fabric,
            "backend": backend,
            "engine": backend,
            "gpus": gpus,
            "nodes": gpus // 2,
            "ranks_per_node": 2,
            "repeat": block + 1,
            "value": [100 * FABRICS[name] for name in fabric] * np.exp(rng.normal(0, NOISE, count)),
            "start": pd.Timestamp("2026-01-05", tz="UTC") + pd.to_timedelta(index * 30, unit="s"),
        }
    )
    table = table.assign(
        kind="train",
        device="replay",
        status="ok",
        unit="images/s",
        params="{}",
        demonstration=False,
        emulated=False,
        node_set="n0,n1",
        versions='{"torch":"2.14"}',
    )
    texts = dict.fromkeys(table.select_dtypes(["object", "str"]).columns, "string")
    return table.astype({**texts, **dict.fromkeys(("gpus", "nodes", "ranks_per_node", "repeat"), "Int64")})


def samples_of(cells: pd.DataFrame, each: int, rng: np.random.Generator) -> pd.DataFrame:
    count = len(cells)
    values = 1 + rng.normal(0, NOISE, (count, each))
    values[::100] *= np.linspace(1, 1.1, each)
    values[1::100] *= np.where(rng.random(each) < 0.4, 1.3, 1.0)
    return pd.DataFrame(
        {
            "cell": cells["cell"].repeat(each).reset_index(drop=True),
            "metric": pd.Series(["step_s"], dtype="string").repeat(count * each).reset_index(drop=True),
            "unit": pd.Series(["s"], dtype="string").repeat(count * each).reset_index(drop=True),
            "bytes": pd.array(np.zeros(count * each, dtype=int), dtype="Int64"),
            "rank": pd.array(np.zeros(count * each, dtype=int), dtype="Int32"),
            "n": np.tile(np.arange(each), count),
            "value": values.ravel(),
        }
    ).assign(bytes=pd.array([pd.NA], dtype="Int64").repeat(count * each))


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(what: str, step: Callable[..., Any], *given: Any) -> Any:
    began = time.perf_counter()
    found = step(*given)
    print(f"{what}: {time.perf_counter() - began:.1f} s, peak {peak_mb():.0f} MB")
    return found


def main() -> None:
    count, each = (int(word) for word in [*sys.argv[1:], *("10000", "200")[len(sys.argv) - 1 :]])
    rng = np.random.default_rng(1)
    cells = cells_of(count, rng)
    samples = samples_of(cells, each, rng)
    print(f"{count:,} cells of {each} samples, drawn: peak {peak_mb():.0f} MB")
    began = time.perf_counter()
    series = timed("within the runs", summary, samples)
    flags = cell_flags(series)
    controls = timed("controls", control, cells, CONTROLS, None, flags)
    cells = without_second_names(cells, CONTROLS)
    comparisons = timed("comparisons", compare, cells, AXES, None, flags)
    thresholds = timed("thresholds", from_gpus, comparisons)
    print(f"in all: {time.perf_counter() - began:.1f} s, peak {peak_mb():.0f} MB")
    print(f"{len(comparisons)} comparisons: {comparisons['verdict'].value_counts().to_dict()}")
    print(f"steadiness: {series['steadiness'].value_counts().to_dict()}; {len(thresholds)} thresholds")
    print(f"can decide: {decision(controls).can_decide}")


if __name__ == "__main__":
    main()
