"""Training cells run whole: what a record holds, and what the log says meanwhile."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cells import PROFILE, TRAIN, a_cell

from fabricbench.cell import Cell
from fabricbench.record import Record, by_metric, failure_path, read_record
from fabricbench.runner import run_cell

pytestmark = [pytest.mark.slow, pytest.mark.emulated, pytest.mark.usefixtures("namespaces")]

SMALL = TRAIN | {"model": "shufflenet_v2_x0_5"}
"""It has batch statistics, and 5 MB of gradients."""
SERIES = ("s", "min_s", "max_s", "slowest_rank", "median_s")


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Cell], Record]:
    """Run a cell; returns what it left, wherever that is."""

    def run(cell: Cell) -> Record:
        path = tmp_path / f"{Record(cell=cell, code_key='code', status='ok').id}.json"
        status = run_cell(cell, "code", path, timeout_s=200, accept_failures=False, neighbours=["opa0"])
        return read_record(path if status == 0 else failure_path(path))

    return run


def count(record: Record, metric: str) -> int:
    """How many samples a series has; 0 if there is none."""
    return sum(len(series.values) for series in by_metric(record.samples, metric))


def test_a_record_holds_steps_with_and_without_ddp_and_synchronisation(run: Any, capfd: Any) -> None:
    """Each with every reduction over ranks; and the facts of what was done. The log told how far it was."""
    record = run(a_cell("train", "gloo", params=SMALL | {"extra_steps": 2, "static_graph": True}))
    assert record.status == "ok", record.reason
    names = {series.metric for series in record.samples}
    assert names == {f"{part}_{name}" for part in ("step", "alone", "nosync") for name in SERIES}
    assert [count(record, f"{part}_s") for part in ("step", "alone", "nosync")] == [3, 2, 2]
    assert count(record, "nosync_median_s") == 2, "one per rank"
    facts = record.facts
    assert sum(facts["bucket_bytes"]) == facts["gradient_bytes"]
    assert facts["buckets"] == len(facts["bucket_bytes"]) > 1
    assert (facts["warmup_steps"], facts["stopped_by"], facts["broadcast_buffers"]) == (5, "steps", False)
    assert isinstance(facts["steady"], bool)
    assert facts["peak_memory_of"] == "process"
    assert facts["peak_memory_bytes"] > 50e6
    assert facts["loop_s"] >= sum(by_metric(record.samples, "step_s")[0].values)
    lines = capfd.readouterr().out.splitlines()
    for phase in ("without DDP", "warm-up", "measuring", "unsynchronised"):
        assert any(line.startswith(f"{phase}: step ") for line in lines), lines
    assert not any(line.startswith("progress: ") for line in lines), "told once"


def test_one_rank_s_steps_are_those_without_ddp(run: Any) -> None:
    """And nothing is synchronised."""
    record = run(a_cell("train", "gloo", gpus=1, nodes=1, params=SMALL))
    assert by_metric(record.samples, "alone_s")[0].values == by_metric(record.samples, "step_s")[0].values
    assert count(record, "nosync_s") == 0
    assert record.facts["bucket_bytes"] == []


def test_broadcast_buffers_are_in_what_must_have_been_sent(run: Any) -> None:
    """Rank 0's node sends them beside the gradients, and the counters agree with the formula."""
    record = run(
        a_cell("train", "gloo", params=SMALL | {"broadcast_buffers": True, "steps": 10, "steps_most": 10})
    )
    assert record.status == "ok", record.reason
    assert record.facts["broadcast_buffers"] is True
    assert "broadcast" in record.evidence["formula"]["algorithm"]
    sent = {host: node["tx_bytes"][0] for host, node in record.evidence["formula"]["nodes"].items()}
    assert sent["n0"] - sent["n1"] > 0
    assert record.evidence["verdict"] == "verified"


def test_images_of_a_folder_are_waited_for_outside_the_step(run: Any, tmp_path: Path) -> None:
    """A series of its own; an image that can't be read ends the cell with its name."""
    from PIL import Image

    (tmp_path / "images" / "cats").mkdir(parents=True)
    paths = [tmp_path / "images" / "cats" / f"{number}.png" for number in range(8)]
    for path in paths:
        Image.new("RGB", (64, 64), "teal").save(path)
    params = SMALL | {"images": str(tmp_path / "images"), "loader_workers": 1}
    record = run(a_cell("train", "gloo", params=params))
    assert record.status == "ok", record.reason
    assert count(record, "load_s") == count(record, "step_s")
    assert (record.facts["images"], record.facts["classes"]) == (8, 1)
    for path in paths:
        path.write_bytes(b"")
    record = run(a_cell("train", "gloo", params=params))
    assert record.status == "failed"
    assert "png can't be read as an image" in record.reason
    assert "\n" not in record.reason


def test_a_replayed_cell_goes_through_the_same_loop(run: Any) -> None:
    """Stopped by width or budget; the profile's time is a floor for all three series."""
    params = TRAIN | {"profile": PROFILE, "steps": 5, "steps_most": 1000, "width": 0.2}
    cell = a_cell("train", "gloo", device="replay", params=params, scale={"bytes": 64, "time": 4})
    record = run(cell)
    assert record.status == "ok", record.reason
    assert record.facts["stopped_by"] in ("width", "budget")
    compute_s = TRAIN["batch"] / PROFILE["images_per_s"] * 4
    for metric in ("step_s", "alone_s", "nosync_s"):
        assert min(by_metric(record.samples, metric)[0].values) >= compute_s
