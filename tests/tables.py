"""Tables of cells and samples with known ratios and noise, for tests of statistics."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

START = pd.Timestamp("2026-01-05 12:00", tz="UTC")
BLOCK_S = 600
"""From one block's start to the next."""
CELL_S = 60
"""From one cell's start to the next, within a block."""


def cells_of(values: Mapping[str, Any], **same: Any) -> pd.DataFrame:
    """Cells by fabric: its values by block, or a matrix whose rows are workloads w0, w1, …

    Block after block, the fabrics one after the other, on nodes n0 and n1; `same` sets whole columns.
    """
    frames = []
    for place, (fabric, given) in enumerate(values.items()):
        matrix = np.atleast_2d(np.asarray(given, dtype=float))
        workload, block = (index.ravel() for index in np.indices(matrix.shape))
        frames.append(
            pd.DataFrame(
                {
                    "workload": [f"w{number}" for number in workload],
                    "fabric": fabric,
                    "repeat": block + 1,
                    "value": matrix.ravel(),
                    "start": START + pd.to_timedelta(block * BLOCK_S + place * CELL_S, unit="s"),
                }
            )
        )
    table = pd.concat(frames, ignore_index=True).assign(
        kind="train",
        model_or_case="vgg16",
        backend="gloo",
        engine="gloo",
        gpus=4,
        nodes=2,
        ranks_per_node=2,
        device="replay",
        status="ok",
        demonstration=False,
        emulated=True,
        scale_bytes=128.0,
        scale_time=2.0,
        unit="images/s",
        params="{}",
        node_set="n0,n1",
        overlaps=0,
        others=None,
    )
    table = table.assign(**same)
    return with_ids(table)


def with_ids(table: pd.DataFrame) -> pd.DataFrame:
    """The table with an id per cell and the dtypes of a real one."""
    names = zip(*(table[name].astype(str) for name in ("workload", "fabric", "backend", "gpus")), strict=True)
    ids = [
        f"{workload}/{fabric}-{backend}-{gpus}-r{repeat}-{number:08x}"
        for number, ((workload, fabric, backend, gpus), repeat) in enumerate(
            zip(names, table["repeat"], strict=True)
        )
    ]
    texts = [name for name in table if table[name].dtype in ("object", "str")]
    integers = ("gpus", "nodes", "ranks_per_node", "repeat", "overlaps", "others")
    integers = tuple(name for name in integers if name in table)
    return table.assign(cell=ids).astype(
        {**dict.fromkeys([*texts, "cell"], "string"), **dict.fromkeys(integers, "Int64")}
    )


def samples_of(
    series: Mapping[str, Sequence[float] | npt.NDArray[Any]], metric: str = "step_s"
) -> pd.DataFrame:
    """Samples by cell of one metric of rank 0."""
    frames = [
        pd.DataFrame({"cell": cell, "n": np.arange(len(values)), "value": np.asarray(values, dtype=float)})
        for cell, values in series.items()
    ]
    table = pd.concat(frames, ignore_index=True).assign(metric=metric, unit="s", bytes=pd.NA, rank=pd.NA)
    return table.astype(
        {"cell": "string", "metric": "string", "unit": "string", "bytes": "Int64", "rank": "Int32"}
    )


def band(share: float, trials: int, sigmas: float = 4.0) -> float:
    """How far a share of that many independent trials may be from its expectation, by chance."""
    return sigmas * float(np.sqrt(share * (1 - share) / trials))
