"""The plan: how cells stand, what they take, and what is tidied up."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabricbench.config import parse_config
from fabricbench.errors import RecordError
from fabricbench.grid import Grid, GridCell, expand
from fabricbench.plan import accept, estimate, plan, remove_stale, render_plan, set_aside_unreadable
from fabricbench.record import Record, failure_path, read_record, write_record

CONFIG: dict[str, Any] = {
    "cluster": {"nodes": 2, "scale": {"bytes": 100, "time": 2}},
    "fabrics": {"ethernet": {"interface": "eth0", "rate": "10 Gbit/s"}},
    "backends": {"gloo": {"engine": "gloo"}},
    "gpus": [1, 2],
    "repeats": 2,
    "workloads": {
        "vgg16": {
            "kind": "train", "model": "vgg16", "device": "replay", "batch": 50, "warmup": 5, "steps": 3,
            "extra_steps": 2,
            "profile": {"images_per_s": 100, "batch": 50, "source": "a test"},
        },
        "messages": {
            "kind": "micro", "operations": ["pingpong"], "sizes": [50_000_000], "iterations": 1, "warmup": 0,
        },
    },
}  # fmt: skip


@pytest.fixture
def grid() -> Grid:
    """vgg16 on 1 and 2 GPUs and messages on 2, two repeats each; messages on 1 GPU is unsupported."""
    return expand(parse_config(CONFIG), code_key=lambda kind, launcher: "key")


def place(cell: GridCell, results: Path) -> Path:
    """Where a cell's record belongs."""
    return cell.path(results, "default")


def put(cell: GridCell, results: Path, status: str = "ok", seconds: int = 9, **fields: Any) -> Path:
    """Write a cell's record, or its failure beside its place."""
    times = {"start": "2026-01-01T00:00:00+00:00", "end": f"2026-01-01T00:00:{seconds:02d}+00:00"}
    record = Record(cell=cell.cell, code_key=cell.code_key, status=status, **times, **fields)
    path = place(cell, results) if status == "ok" else failure_path(place(cell, results))
    write_record(record, path)
    return path


def test_what_a_cluster_s_nodes_cost(tmp_path: Path) -> None:
    """Node-hours, the GPU-hours of whole nodes, and at most what the jobs' time limits allow."""
    cluster = {"kind": "slurm", "nodes": 2, "gpus_per_node": 4, "slurm": {"setup": "1 min"}}
    fabric = {"kind": "ethernet-tcp", "interface": "eth0"}
    vgg16 = {"kind": "train", "model": "vgg16", "device": "cuda", "gpus": [8], "timeout": "59 min"}
    config = CONFIG | {"cluster": cluster, "fabrics": {"ethernet": fabric}, "workloads": {"vgg16": vgg16}}
    made = expand(parse_config(config), code_key=lambda kind, launcher: "key")
    for cell in made.cells[:1]:
        put(cell, tmp_path, seconds=36)
    text = render_plan(plan(made, tmp_path))
    assert "to run: 1 cell, 36 s, 0.02 node-hours, 0.08 GPU-hours (as measured before)" in text
    assert text.count("; at most 2.00 node-hours by the time limits") == 1


def test_shared_nodes_cost_the_gpus_that_are_used(tmp_path: Path) -> None:
    """And emulated cells no account's."""
    cluster = {"kind": "slurm", "nodes": 2, "gpus_per_node": 4, "slurm": {"exclusive": False}}
    fabric = {"kind": "ethernet-tcp", "interface": "eth0"}
    vgg16 = {"kind": "train", "model": "vgg16", "device": "cuda", "gpus": [2]}
    config = CONFIG | {"cluster": cluster, "fabrics": {"ethernet": fabric}, "workloads": {"vgg16": vgg16}}
    made = plan(expand(parse_config(config), code_key=lambda kind, launcher: "key"), tmp_path)
    assert {cell.gpus_held for cell in made.cells} == {2}
    emulated = render_plan(plan(expand(parse_config(CONFIG), lambda kind, launcher: "key"), tmp_path))
    assert "GPU-hours" not in emulated
    assert "time limits" not in emulated


def test_states(grid: Grid, tmp_path: Path) -> None:
    """A cell is done, missing, unreadable, or as its failure says, with the end of its traceback."""
    put(grid.cells[0], tmp_path)
    put(grid.cells[1], tmp_path, status="timeout", reason="Traceback …\n  x\nno progress in 300 s\n")
    place(grid.cells[2], tmp_path).write_text('{"schema": 1, "ce')
    states = [(cell.state, cell.reason) for cell in plan(grid, tmp_path).cells]
    assert states[0] == ("done", "")
    assert states[1] == ("timeout", "no progress in 300 s")
    assert states[2][0] == "unreadable"
    assert "truncated" in states[2][1]
    assert states[3:] == [("missing", "")] * 3


def test_success_hides_an_older_failure(grid: Grid, tmp_path: Path) -> None:
    """A cell with a record is done, whatever failure still lies beside it, and that is no stale file."""
    put(grid.cells[0], tmp_path, status="failed", reason="x")
    put(grid.cells[0], tmp_path)
    result = plan(grid, tmp_path)
    assert result.cells[0].state == "done"
    assert result.stale == ()


@pytest.mark.parametrize(
    ("index", "seconds"),
    [
        (0, 4 + 2 * 8.0),  # messages: 50 MB there and back on 50 Mbit/s
        # vgg16: 5 + 3 + twice 2 + 2 steps of 50 images at 100 images/s, twice as long by the scale
        (1, 4 + 16 * 1.0),
    ],
)
def test_estimate_by_parameters(grid: Grid, index: int, seconds: float) -> None:
    """Without a record, the parameters say how long a cell takes."""
    assert estimate(grid.cells[index].cell) == pytest.approx(seconds)


def test_estimate_of_unknown_programs(grid: Grid) -> None:
    """Real compute of unknown speed is taken for some seconds."""
    assert estimate(replace(grid.cells[1].cell, device="cpu")) == 10


def test_measured_times_replace_estimates(grid: Grid, tmp_path: Path) -> None:
    """A cell's own record counts, then the mean of the same workload on as many GPUs, then the estimate."""
    first, second = [cell for cell in grid.cells if cell.cell.workload == "vgg16" and cell.cell.gpus == 2]
    put(first, tmp_path, seconds=30)
    cells = {cell.cell.id: cell for cell in plan(grid, tmp_path).cells}
    assert (cells[first.id].seconds, cells[first.id].measured) == (30, True)
    assert (cells[second.id].seconds, cells[second.id].measured) == (30, True)
    assert cells[second.id].node_hours == pytest.approx(2 * 30 / 3600)
    assert sum(cell.measured for cell in cells.values()) == 2


def test_stale_files_are_named_and_removed(grid: Grid, tmp_path: Path) -> None:
    """Records, failures and files set aside that no cell owns are stale; nothing else is touched."""
    kept = [put(grid.cells[0], tmp_path), put(grid.cells[1], tmp_path, status="failed", reason="x")]
    folder = tmp_path / "default"
    stale = [
        folder / "gone" / "a-b-1-r1-01234567.json",
        folder / "gone" / "a-b-1-r1-01234567.failed.json",
        folder / "vgg16" / "a-b-1-r1-01234567.json.unreadable",
    ]
    other = [folder / "grid.json", folder / "vgg16" / "notes.txt", folder / "tables" / "cells.csv"]
    for path in stale + other:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    result = plan(grid, tmp_path)
    assert set(result.stale) == set(stale)
    assert remove_stale(result) == result.stale
    assert all(path.exists() for path in kept + other)
    assert not any(path.exists() for path in stale)


def test_text_shows_what_matters(grid: Grid, tmp_path: Path) -> None:
    """The text has a line per workload, the cost of what is left, failures, unsupported and stale."""
    put(grid.cells[0], tmp_path)
    put(grid.cells[1], tmp_path, status="failed", reason="rank 1: ValueError: x")
    (tmp_path / "default" / "vgg16" / "a-b-1-r1-01234567.json").write_text("{}")
    text = render_plan(plan(grid, tmp_path))
    lines = {line.split()[0]: line.split() for line in text.partition("to run")[0].splitlines() if line}
    assert lines["messages"][1:6] == ["2", "1", "1", "0", "2"]
    assert lines["vgg16"][1:6] == ["4", "0", "3", "1", "1-2"]
    assert "to run: 5 cells" in text
    assert "estimated" in text
    assert f"{grid.cells[1].id}: failed: rank 1: ValueError: x" in text
    assert "messages on gloo over ethernet, 1 GPUs: a message needs two ranks" in text
    assert "a-b-1-r1-01234567.json" in text


def test_nothing_to_run(grid: Grid, tmp_path: Path) -> None:
    """When every cell is done the plan says so."""
    for cell in grid.cells:
        put(cell, tmp_path)
    assert "to run: nothing" in render_plan(plan(grid, tmp_path))


def test_unreadable_records_are_set_aside(grid: Grid, tmp_path: Path) -> None:
    """Truncated records and those of another cell make way, with a line each; good ones stay."""
    good, truncated, wrong = (place(cell, tmp_path) for cell in grid.cells[:3])
    put(grid.cells[0], tmp_path)
    truncated.parent.mkdir(parents=True, exist_ok=True)
    truncated.write_text(good.read_text()[:-20])
    wrong.write_text(good.read_text())
    lines = set_aside_unreadable(grid, tmp_path)
    assert len(lines) == 2
    assert all("set aside as" in line and "\n" not in line for line in lines)
    assert good.exists()
    for path in (truncated, wrong):
        assert not path.exists()
        assert path.with_name(path.name + ".unreadable").exists()
    assert set_aside_unreadable(grid, tmp_path) == []


@pytest.mark.parametrize("beginning", [None, "vgg16/"])
def test_accepting_a_failure(grid: Grid, tmp_path: Path, beginning: str | None) -> None:
    """An accepted failure is the cell's record, by any beginning of its id that names one failure."""
    cell = grid.cells[1]
    failure = put(cell, tmp_path, status="failed", reason="out of memory", provenance={"of_ranks": True})
    line = accept(grid, tmp_path, cell.id if beginning is None else beginning)
    assert line == f"accepted {cell.id}: failed: out of memory"
    assert not failure.exists()
    record = read_record(place(cell, tmp_path))
    assert (record.status, record.accepted, record.reason) == ("failed", True, "out of memory")
    planned = plan(grid, tmp_path)
    assert planned.cells[1].state == "done"
    assert f"{cell.id}: failed: out of memory" in render_plan(planned).partition("accepted failures")[2]


def test_what_did_not_come_of_the_ranks_is_not_accepted(grid: Grid, tmp_path: Path) -> None:
    """A cell that is running, was killed from outside or could not start is no result."""
    put(grid.cells[1], tmp_path, status="failed", reason="started, and not finished")
    with pytest.raises(RecordError, match="no outcome of its ranks"):
        accept(grid, tmp_path, grid.cells[1].id)
    assert not place(grid.cells[1], tmp_path).exists()


@pytest.mark.parametrize(
    ("cell_id", "line"),
    [
        ("", "which cell"),
        ("lattice", "no cell's id in campaign default starts with 'lattice'"),
        ("messages/", "no failure to accept"),
        ("vgg16/", "2 failed cells start so"),
    ],
)
def test_what_cannot_be_accepted(grid: Grid, tmp_path: Path, cell_id: str, line: str) -> None:
    """An unknown cell, one that hasn't failed, and an unclear beginning are one line each."""
    put(grid.cells[1], tmp_path, status="failed", reason="x")
    put(grid.cells[2], tmp_path, status="failed", reason="y")
    with pytest.raises(RecordError, match=line):
        accept(grid, tmp_path, cell_id)


def test_broken_failure_is_not_accepted(grid: Grid, tmp_path: Path) -> None:
    """A failure that can't be read stays where it is."""
    failure = put(grid.cells[1], tmp_path, status="failed", reason="x")
    failure.write_text(json.dumps({"schema": 1}))
    with pytest.raises(RecordError, match="not a whole record"):
        accept(grid, tmp_path, grid.cells[1].id)
    assert failure.exists()


def test_variants_have_lines_and_times_of_their_own(tmp_path: Path) -> None:
    """What one batch took says nothing of another."""
    config = CONFIG | {"workloads": {"vgg16": {**CONFIG["workloads"]["vgg16"], "batch": [100, 50]}}}
    made = expand(parse_config(config), code_key=lambda kind, launcher: "key")
    small = next(c for c in made.cells if c.cell.params["batch"] == 50 and c.cell.gpus == 2)
    put(small, tmp_path, seconds=30)
    found = plan(made, tmp_path)
    measured = {(c.cell.cell.params["batch"], c.cell.cell.gpus) for c in found.cells if c.measured}
    assert measured == {(50, 2)}
    lines = render_plan(found).splitlines()
    names = [line.split("  ")[0] for line in lines if line.startswith("vgg16")]
    assert names == ["vgg16, batch 50", "vgg16, batch 100"]
