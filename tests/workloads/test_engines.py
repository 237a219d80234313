"""Every engine gives DDP the same gradients, and torch the same collectives: real ranks on real links."""

import os
import sys
from pathlib import Path

import pytest
from cells import a_backend, a_cell, a_fabric

from fabricbench import runner
from fabricbench.launch.base import Command
from fabricbench.record import Record, failure_path, read_record

pytestmark = [pytest.mark.slow, pytest.mark.emulated, pytest.mark.usefixtures("namespaces")]

PROGRAM = Path(__file__).parents[1] / "engines.py"
GPUS = len(list(Path("/dev").glob("nvidia[0-9]*")))
CASES = [(engine, "cpu", ranks) for engine in ("gloo", "mpi", "ring") for ranks in (2, 4)]
CASES += [(engine, "cuda", ranks) for engine in ("nccl", "mpi", "ring") for ranks in (2, 4) if ranks <= GPUS]


class Engines:
    """The launcher that runs tests/engines.py as training."""

    in_a_job = False

    def command(self, cell, work):
        """One process, as the real launchers are."""
        return Command([sys.executable, str(PROGRAM), str(work)])


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a cell of an engine; returns what it left."""
    for launcher in ("emulated", "host"):
        monkeypatch.setitem(runner.LAUNCHERS, launcher, Engines())

    def run(engine, device, ranks, breaks=False):
        place = {"gpus": ranks, "nodes": ranks, "device": device, "params": {"breaks": breaks}}
        if device == "cuda":  # on this machine, as GPUs reach no emulated link
            place |= {"launcher": "host", "nodes": 1, "ranks_per_node": ranks, "environment": {}}
            place |= {"fabric": a_fabric("ethernet-tcp", interface=["lo"])}
        cell = a_cell("train", engine, backend=a_backend(engine), **place)
        path = tmp_path / f"{Record(cell=cell, code_key='code', status='ok').id}.json"
        status = runner.run_cell(
            cell, "code", path, timeout_s=120, accept_failures=False, neighbours=["eth0"]
        )
        return read_record(path if status == 0 else failure_path(path))

    return run


@pytest.mark.parametrize(("engine", "device", "ranks"), CASES)
def test_two_steps_end_where_one_rank_on_the_whole_batch_ends(run, engine, device, ranks):
    """To a few roundings of double precision; and every collective that torch offers gives what it should."""
    record = run(engine, device, ranks)
    assert record.status == "ok", record.reason
    assert record.facts["wrong"] == []
    assert record.facts["away"] < 1e-14


@pytest.mark.parametrize("engine", ["mpi", "ring"])
def test_what_goes_wrong_in_mpi_is_one_line(run, engine):
    """It names the operation and the rank, in place of what torch makes of it."""
    record = run(engine, "cpu", 2, breaks=True)
    assert record.status == "failed"
    assert "send to rank 9 over MPI, rank 1: " in record.reason
    assert "\n" not in record.reason


def test_the_record_says_how_ranks_wait(run):
    """More ranks than cores look with sleeps between; the record has it beside the library's version."""
    record = run("mpi", "cpu", 2)
    cores = len(os.sched_getaffinity(0))
    assert record.provenance["ranks"][0]["versions"]["polling"] == (
        "polling with sleeps" if cores < 4 else "blocking"
    )
