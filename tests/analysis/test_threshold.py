"""From which size on a fabric matters: the verdict there and at every larger size."""

import numpy as np
import pandas as pd
import pytest
from tables import cells_of, samples_of

from fabricbench.analysis.compare import Axis, compare
from fabricbench.analysis.threshold import from_bytes, from_gpus, per_size
from fabricbench.analysis.within import summary


def verdicts(by_gpus: dict[int, str], **same) -> pd.DataFrame:
    """Comparisons with given verdicts, as `compare` gives them."""
    rows = [
        {"gpus": gpus, "nodes": max(1, gpus // 2), "verdict": verdict, "workload": "vgg16", "backend": "gloo"}
        for gpus, verdict in by_gpus.items()
    ]
    return pd.DataFrame(rows).assign(by="fabric", baseline="ethernet", other="opa", **same)


@pytest.mark.parametrize(
    ("given", "matters_from", "equivalent_up_to", "why"),
    [
        ({1: "equivalent", 4: "faster", 16: "faster"}, 4, 1, "at 1 the verdict is equivalent"),
        ({4: "faster", 16: "faster", 1: "faster"}, 1, None, "from the smallest that was compared on"),
        (
            {1: "equivalent", 4: "undecided", 16: "faster"},
            16,
            1,
            "at 4 the verdict is undecided, so it may matter there already",
        ),
        ({1: "faster", 4: "equivalent", 16: "faster"}, 16, None, "at 4 the verdict is equivalent"),
        ({1: "faster", 4: "slower", 16: "faster"}, 16, None, "at 4 the verdict is slower"),
        ({1: "equivalent", 4: "equivalent"}, None, 4, "at the largest, 4, the verdict is equivalent"),
        ({4: "faster", 16: "undecided"}, None, None, "at the largest, 16, the verdict is undecided"),
    ],
)
def test_the_smallest_from_which_on_it_stays_so(given, matters_from, equivalent_up_to, why) -> None:
    """The same verdict up to the largest size; what is undecided is neither."""
    table = from_gpus(verdicts(given))
    assert len(table) == 1
    row = table.iloc[0]
    assert (row["smallest"], row["largest"]) == (min(given), max(given))
    for name, expected in (("matters_from", matters_from), ("equivalent_up_to", equivalent_up_to)):
        assert pd.isna(row[name]) if expected is None else row[name] == expected
    assert row["why"] == why
    assert row["direction"] == ("" if matters_from is None else given[max(given)])


def test_layouts_of_one_size_must_agree() -> None:
    """4 GPUs on 2 nodes and on 4: faster on one and equivalent on the other doesn't count as faster."""
    table = pd.concat([verdicts({4: "faster", 16: "faster"}), verdicts({4: "equivalent"})])
    row = from_gpus(table).iloc[0]
    assert row["matters_from"] == 16
    assert "mixed" in row["why"]


def test_each_comparison_has_its_own() -> None:
    """Workloads aren't mixed; no comparisons give no rows."""
    table = pd.concat([verdicts({1: "faster"}), verdicts({1: "slower"}, model_or_case="b")])
    assert from_gpus(table)["direction"].tolist() == ["faster", "slower"]
    empty = from_gpus(compare(cells_of({"ethernet": [1]}), [Axis("fabric", "ethernet")]))
    assert empty.empty
    assert "matters_from" in empty


def test_from_which_message_size_on() -> None:
    """Latency is equal and bandwidth fourfold: equivalent up to 16 KB, faster from 64 KB on."""
    rng = np.random.default_rng(1)
    cells = cells_of({"ethernet": np.ones(5), "opa": np.ones(5)}, kind="micro", unit="Mbit/s")
    parts = []
    for size in 4 ** np.arange(5, 11):
        rates = {"ethernet": 1e8, "opa": 4e8}
        times = {
            cell: (0.01 + size / rates[fabric]) * np.exp(rng.normal(0, 0.005)) * np.ones(7)
            for cell, fabric in zip(cells["cell"], cells["fabric"], strict=True)
        }
        parts.append(samples_of(times, "pingpong_s").assign(bytes=size))
    series = summary(pd.concat(parts, ignore_index=True).astype({"bytes": "Int64"}))
    rows = per_size(cells, series)
    assert len(rows) == 10 * 6
    comparisons = compare(rows, [Axis("fabric", "ethernet")])
    assert len(comparisons) == 6
    assert (comparisons["n_blocks"] == 5).all()
    row = from_bytes(comparisons).iloc[0]
    assert (row["metric"], row["equivalent_up_to"], row["matters_from"]) == ("pingpong_s", 16384, 65536)
    assert row["direction"] == "faster"
    trusted = per_size(cells, series, dict.fromkeys(cells["cell"], 16384.0))
    barred = compare(trusted, [Axis("fabric", "ethernet")]).set_index("bytes")
    assert barred["verdict"].eq("none").tolist() == [True, True, False, False, False, False]
    assert barred["why"][1024] == "No verdict: 1,024 bytes; shaping is trustworthy from 16,384."
    drifting = rows.assign(steadiness=np.where(rows["bytes"] == 1024, "drifting", "steady"))
    flagged = compare(drifting, [Axis("fabric", "ethernet")]).set_index("bytes")["flags"]
    assert flagged[1024] == "drifting: 5 of 5 cells of ethernet, drifting: 5 of 5 cells of opa"
    assert (flagged.drop(1024) == "").all()
