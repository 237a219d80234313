"""Cells run for real: what a record holds, and what each kind of failure leaves."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import pytest
from cells import CFD, MICRO, PROFILE, TRAIN, a_cell
from processes import descendants, wait_until

from fabricbench.cell import Cell
from fabricbench.code_key import code_key
from fabricbench.record import Record, by_metric, failure_path, read_record
from fabricbench.runner import run_cell

pytestmark = [pytest.mark.slow, pytest.mark.emulated, pytest.mark.usefixtures("namespaces")]


@pytest.fixture
def run(tmp_path):
    """Run a cell; returns its exit status and what it left."""

    def run(
        cell: Cell, timeout_s: float = 120, neighbours: tuple[str, ...] = ("opa0",)
    ) -> tuple[int, Record]:
        path = tmp_path / f"{Record(cell=cell, code_key='code', status='ok').id}.json"
        status = run_cell(
            cell, "code", path, timeout_s=timeout_s, accept_failures=False, neighbours=list(neighbours)
        )
        left = path if status == 0 else failure_path(path)
        assert [name for name in os.listdir(path.parent) if path.stem in name] == [left.name]
        return status, read_record(left)

    return run


def sent(record: Record, node: str, interface: str) -> int:
    """Bytes that a node sent over an interface in the timed region, by its counters."""
    return record.evidence["nodes"][node][interface]["tx_bytes"]


@pytest.mark.parametrize("engine", ["mpi", "gloo"])
def test_messages_cross_the_fabric_that_the_cell_names(run, engine):
    """The kernel's counters show the payload on eth0 of both nodes, and next to nothing on any other."""
    status, record = run(a_cell("micro", engine))
    assert status == 0, record.reason
    messages = MICRO["iterations"] + MICRO["warmup"]
    payload = 2 * messages * MICRO["sizes"][0]  # one ping or pong, and half of each all-reduce times two
    for node in ("n0", "n1"):
        assert payload <= sent(record, node, "eth0") <= 1.15 * payload + 20_000
        assert sent(record, node, "opa0") + sent(record, node, "mgt0") < 20_000
        assert sent(record, node, "lo") < 20_000


def test_ranks_of_one_node_do_not_use_the_fabric(run):
    """Two ranks on one node leave the fabric's counters still."""
    _, record = run(a_cell("micro", nodes=1, ranks_per_node=2))
    assert sent(record, "n0", "eth0") < 1_000


def test_a_record_says_what_was_measured_on_what(run):
    """Samples per size, shaping, and each rank's host, cores, threads, libraries and environment."""
    _, record = run(a_cell("micro"))
    assert {(series.metric, series.bytes) for series in record.samples} == {
        ("pingpong_s", 65536),
        ("allreduce_s", 65536),
    }
    assert all(len(series.values) == MICRO["iterations"] for series in record.samples)
    assert record.facts["checked"]
    assert record.evidence["emulation"]["link_bit_s"] == 400_000_000
    ranks = record.provenance["ranks"]
    assert [(entry["ranks"], entry["host"]) for entry in ranks] == [("0", ["n0"]), ("1", ["n1"])]
    assert all(entry["environment"]["FI_TCP_IFACE"] == "eth0" for entry in ranks)
    assert all(entry["threads"] == 1 and "MPICH" in entry["versions"]["mpi"] for entry in ranks)
    assert record.start < record.end


def test_bound_ranks_have_cores_of_their_own(run):
    """With enough cores every MPI rank gets its own."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two ranks need two cores to be bound")
    _, record = run(a_cell("micro", binding={"cpu": "core", "memory": "auto", "near": "auto"}))
    cores = [entry["cores"] for entry in record.provenance["ranks"]]
    assert [len(own) for own in cores] == [1, 1]
    assert cores[0] != cores[1]


def test_a_binding_that_cannot_be_is_refused(run):
    """`core` with more ranks than cores is a failure that says so."""
    many = len(os.sched_getaffinity(0)) + 1
    status, record = run(
        a_cell("micro", binding={"cpu": "core", "memory": "auto", "near": "auto"}, gpus=many, nodes=many)
    )
    assert status == 1
    assert "cluster.binding.cpu: core" in record.reason


def test_training_reduces_every_gradient_over_the_fabric(run):
    """DDP on two nodes: bytes on the wire are at least the gradients' (two ranks, half sent twice)."""
    status, record = run(a_cell("train", "gloo"))
    assert status == 0, record.reason
    gradients = 11_689_512 * 4
    assert record.facts["gradient_bytes"] == gradients
    assert record.facts["images_per_step"] == 4
    assert sent(record, "n0", "eth0") >= TRAIN["steps"] * gradients
    assert len(by_metric(record.samples, "step_s")[0].values) == TRAIN["steps"]
    assert [series.rank for series in by_metric(record.samples, "step_median_s")] == [0, 1]


def test_one_rank_trains_without_ddp(run):
    """T(1) is measured on the bare model."""
    _, record = run(a_cell("train", "gloo", gpus=1, nodes=1))
    assert record.facts["ddp"] is False
    assert record.facts["buckets"] == 0


def test_a_replayed_step_lasts_its_waits_and_sends_scaled_gradients(run):
    """16 ranks on 8 nodes: no step is shorter than the profile's compute, bytes are divided by the scale."""
    cell = a_cell(
        "train",
        "gloo",
        device="replay",
        gpus=16,
        nodes=8,
        ranks_per_node=2,
        scale={"bytes": 64, "time": 2},
        params=TRAIN | {"image_size": 224, "profile": PROFILE},
    )
    status, record = run(cell)
    assert status == 0, record.reason
    compute = TRAIN["batch"] / PROFILE["images_per_s"] * 2
    assert record.facts["compute_s"] == pytest.approx(compute)
    assert min(by_metric(record.samples, "step_s")[0].values) >= compute
    assert record.facts["gradient_bytes"] == pytest.approx(11_689_512 * 4 / 64, rel=0.001)
    assert len(record.evidence["nodes"]) == 8


@pytest.mark.parametrize(("ranks", "grid"), [(2, None), (4, None), (8, None), (4, [4, 1, 1]), (4, [1, 2, 2])])
def test_the_flow_is_the_same_on_any_number_of_ranks(run, ranks, grid):
    """Every decomposition gives one rank's error to round-off."""
    alone = run(a_cell("cfd", gpus=1, nodes=1))[1].facts["density_error"]
    params = CFD | {"process_grid": grid}
    status, record = run(a_cell("cfd", gpus=ranks, nodes=ranks, params=params))
    assert status == 0, record.reason
    assert record.facts["density_error"] == pytest.approx(alone, rel=1e-12)
    assert record.facts["dof_per_rank"] == 16 * 16 * 8 * 5 // ranks


def test_ranks_on_fewer_hosts_than_asked_fail(run):
    """A cell that says three nodes and has its ranks on two is no measurement."""
    status, record = run(a_cell("micro", nodes=3))
    assert status == 1
    assert "asks for 3 nodes, its ranks are on 2" in record.reason


def test_singletons_are_told_apart_from_a_world(tmp_path):
    """Without a launcher MPI makes worlds of size 1; the rank says that launcher and library don't match."""
    program = (
        "import sys; from fabricbench.cell import Cell; from fabricbench.workloads.ranks import meet\n"
        "from fabricbench.workloads.seat import Seat\n"
        "with meet(Cell.from_json(sys.argv[1]), Seat(0, 2, 0, 0, '')): pass\n"
    )
    command = [sys.executable, "-c", program, a_cell("micro").canonical()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "2 processes, each in a world of size 1" in done.stderr


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (a_cell("train", "gloo", params=TRAIN | {"model": "resnet51"}), "resnet51"),
        (a_cell("cfd", params=CFD | {"cells": [15, 15, 7]}), "the nearest that do: "),
        (a_cell("cfd", params=CFD | {"cfl": 40.0}), "the flow is wrong"),
    ],
    ids=["no such model", "mesh that doesn't divide", "diverged flow"],
)
def test_an_error_in_a_rank_is_the_reason(run, cell, reason):
    """The first failing rank's words are the reason, and its traceback is kept."""
    status, record = run(cell)
    assert (status, record.status) == (1, "failed")
    assert reason in record.reason
    assert "Traceback" in record.provenance["traceback"]


def test_a_cell_over_its_time_is_stopped(run):
    """The status is `timeout`, the reason names the limit."""
    status, record = run(a_cell("micro", params=MICRO | {"iterations": 10**6}), timeout_s=3)
    assert (status, record.status) == (1, "timeout")
    assert "time-out of 3 s" in record.reason


@pytest.mark.parametrize("engine", ["mpi", "gloo"])
def test_a_host_runs_ranks_on_its_loopback(run, engine):
    """kind host needs no namespaces; ports are found free, however many campaigns run."""
    status, record = run(on_host(a_cell("micro", engine)))
    assert status == 0, record.reason
    assert record.evidence["emulation"] is None


def test_measured_cells_never_overlap(tmp_path):
    """Two cells started together, as by two campaigns, are measured one after the other."""
    cells = [a_cell("micro", repeat=number) for number in (1, 2)]
    running = [subprocess.Popen(command(cell, tmp_path)) for cell in cells]
    assert [process.wait(120) for process in running] == [0, 0]
    first, second = sorted((read_record(path) for path in tmp_path.glob("*/*.json")), key=lambda r: r.start)
    assert first.end <= second.start


@pytest.mark.parametrize("launcher", ["emulated", "host"])
def test_a_killed_runner_takes_all_its_ranks_along(tmp_path, launcher):
    """After SIGKILL of the runner no process of the cell is left, and what it left says it didn't finish."""
    cell = on_host(a_cell("micro")) if launcher == "host" else a_cell("micro")
    cell = dataclasses.replace(cell, params=MICRO | {"iterations": 10**6})
    with subprocess.Popen(command(cell, tmp_path)) as runner:
        wait_until(lambda: len(descendants(runner.pid)) >= 3)  # the launcher, and two ranks
        family = descendants(runner.pid)
        runner.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in family))
    failure = next(tmp_path.glob("*/*.failed.json"))
    assert "not finished" in read_record(failure).reason


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_runner_told_to_end_ends_its_cell_and_says_so(tmp_path, number):
    """SIGTERM, as a scheduler sends it, or Ctrl-C leave the reason, no process, and nothing to accept."""
    cell = a_cell("micro", params=MICRO | {"iterations": 10**6})
    with subprocess.Popen(command(cell, tmp_path)) as runner:
        wait_until(lambda: len(descendants(runner.pid)) >= 3)
        family = descendants(runner.pid)
        runner.send_signal(number)
        assert runner.wait(30) == 1
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in family))
    record = read_record(next(tmp_path.glob("*/*.failed.json")))
    assert f"told to end by {number.name}" in record.reason
    assert not record.provenance["of_ranks"]


@pytest.mark.parametrize("engine", ["mpi", "gloo"])
def test_a_killed_rank_is_the_cause_whatever_its_neighbours_say(tmp_path, engine):
    """SIGKILL of one rank is the reason, not the broken connection that it is to the other."""
    cell = a_cell("micro", engine, params=MICRO | {"iterations": 10**6})
    with subprocess.Popen(command(cell, tmp_path)) as runner:
        wait_until(lambda: "fb-rank-1" in descendants(runner.pid).values())
        time.sleep(1)  # let it meet the other, whose connection then breaks
        names = {name: pid for pid, name in descendants(runner.pid).items()}
        os.kill(names["fb-rank-1"], signal.SIGKILL)
        assert runner.wait(60) == 1
    record = read_record(next(tmp_path.glob("*/*.failed.json")))
    assert record.reason == "rank 1 on node 1 was killed by SIGKILL"


def test_only_what_ranks_did_is_accepted_as_a_result(tmp_path, monkeypatch):
    """With accept_failures a failed rank is a result; a machine that can't start ranks is not."""
    cell = a_cell("cfd", params=CFD | {"cfl": 40.0})
    path = tmp_path / f"{Record(cell=cell, code_key='code', status='ok').id}.json"
    arguments = {"timeout_s": 60, "accept_failures": True, "neighbours": []}
    assert run_cell(cell, "code", path, **arguments) == 0
    assert read_record(path).accepted
    path.unlink()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("fabricbench.launch.base.sys.executable", "/nowhere/python")
    assert run_cell(cell, "code", path, **arguments) == 1
    assert not path.exists()


def on_host(cell: Cell) -> Cell:
    """The same cell on this machine's loopback."""
    fabric = cell.fabric | {
        "kind": "ethernet-tcp",
        "interface": ["lo"],
        "rate_bit_s": None,
        "link_bit_s": None,
    }
    environment = {name: value.replace("eth0", "lo") for name, value in cell.environment.items()}
    changes = {"fabric": fabric, "environment": environment, "launcher": "host"}
    return dataclasses.replace(cell, **changes, nodes=1, ranks_per_node=cell.gpus)


def command(cell: Cell, folder) -> list[str]:
    """What a Snakemake job calls."""
    record = Record(cell=cell, code_key=code_key(cell.kind, cell.launcher), status="ok").id
    arguments = ["run-cell", "--cell", cell.canonical(), "--record", str(folder / f"{record}.json")]
    return [sys.executable, "-m", "fabricbench", *arguments]
