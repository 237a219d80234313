"""Proof by force: real cells over real links, and bytes that really go elsewhere are caught."""

import dataclasses
import re
import sys
from pathlib import Path

import pytest
from cells import CFD, MICRO, PROFILE, TRAIN, a_cell

from fabricbench import runner
from fabricbench.cell import Cell
from fabricbench.launch.base import Command
from fabricbench.record import Record, failure_path, read_record

pytestmark = [pytest.mark.slow, pytest.mark.emulated, pytest.mark.usefixtures("namespaces")]

ALLREDUCE = {"operations": ["allreduce"], "sizes": [20_000_000], "iterations": 1, "warmup": 0}
WRONG = {
    "mpi": {"FI_TCP_IFACE": "opa0"},
    "ring": {"FI_TCP_IFACE": "opa0"},
    "gloo": {"GLOO_SOCKET_IFNAME": "opa0"},
}
RING = {
    "mpi": {
        "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "ring",
        "MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM": "tsp_ring",
    },
    "ring": {},
    "gloo": {},
}
FLOW = CFD | {"cells": [64, 64, 16], "steps": 24}
"""Halos of 2 · 64² · 2 cells · 40 bytes · 3 stages: 15 MB from each of two nodes."""


@pytest.fixture
def run(tmp_path):
    """Run a cell; returns what it left, wherever that is."""

    def run(cell: Cell) -> Record:
        path = tmp_path / f"{Record(cell=cell, code_key='code', status='ok').id}.json"
        status = runner.run_cell(
            cell, "code", path, timeout_s=120, accept_failures=False, neighbours=["eth0", "opa0"]
        )
        return read_record(path if status == 0 else failure_path(path))

    return run


def with_variables(cell: Cell, variables: dict[str, str]) -> Cell:
    """The cell with variables that a user adds."""
    return dataclasses.replace(cell, environment={**cell.environment, **variables})


@pytest.mark.parametrize("engine", ["mpi", "ring", "gloo"])
def test_a_ring_all_reduce_of_100_mb_is_counted_within_3_percent(run, engine):
    """Four nodes, the algorithm known: what the counters saw over what the formula says."""
    params = ALLREDUCE | {"sizes": [100_000_000]}
    cell = a_cell("micro", engine, params=params, gpus=4, nodes=4)
    record = run(with_variables(cell, RING[engine]))
    assert record.status == "ok", record.reason
    assert record.evidence["verdict"] == "verified"
    assert record.evidence["formula"]["algorithm"] == "ring all-reduce"
    assert 1.0 <= record.evidence["of_formula"] <= 1.03


@pytest.mark.parametrize(
    ("kind", "engine", "params"),
    [
        ("micro", "mpi", ALLREDUCE),
        ("micro", "gloo", ALLREDUCE),
        (
            "micro",
            "mpi",
            MICRO | {"operations": ["pingpong", "stream"], "sizes": [1_000_000], "iterations": 10},
        ),
        ("cfd", "mpi", FLOW),
        ("train", "gloo", TRAIN),
        ("train", "mpi", TRAIN),
        ("train", "ring", TRAIN),
    ],
)
def test_bytes_on_the_right_and_on_the_wrong_interface_are_told_apart(run, kind, engine, params):
    """As selected a cell is verified; pinned to another interface it is mislabelled, and where is named."""
    cell = a_cell(kind, engine, params=params)
    right = run(cell)
    assert (right.status, right.evidence["verdict"]) == ("ok", "verified"), right.evidence
    wrong = run(with_variables(cell, WRONG[engine]))
    assert wrong.status == "mislabelled"
    assert "opa0" in wrong.reason
    assert wrong.reason == wrong.evidence["because"]
    assert wrong.samples, "what was measured is kept with the failure"


def test_replayed_training_on_the_wrong_interface_is_caught(run):
    """Real buckets, so real bytes."""
    params = TRAIN | {"model": "vgg16", "profile": PROFILE, "steps": 2}
    cell = a_cell("train", "gloo", params=params, device="replay", scale={"bytes": 32, "time": 1})
    assert run(cell).evidence["verdict"] == "verified"
    assert run(with_variables(cell, WRONG["gloo"])).status == "mislabelled"


@pytest.mark.parametrize("engine", ["mpi", "gloo"])
def test_even_few_bytes_are_caught_on_the_wrong_interface(run, engine):
    """Half a megabyte proves no label, but on another interface it disproves one."""
    record = run(with_variables(a_cell("micro", engine), WRONG[engine]))
    assert record.status == "mislabelled"
    assert "opa0" in record.reason


def test_an_interface_that_a_user_made_up_is_one_line(run):
    """Before MPI looks for it."""
    record = run(with_variables(a_cell("micro", "mpi"), {"FI_TCP_IFACE": "eth9"}))
    assert record.status == "failed"
    line = r"FI_TCP_IFACE=eth9: no interface 'eth9' on n[01], which has lo, eth0, opa0, mgt0"
    assert re.search(line, record.reason), record.reason


def test_what_mpi_printed_before_it_ended_is_in_the_reason(run):
    """Not its exit status alone."""
    record = run(with_variables(a_cell("micro", "mpi"), {"FI_PROVIDER": "verbs"}))
    assert record.status == "failed"
    assert "OFI" in record.reason


def test_shared_memory_between_nodes_is_caught(run, monkeypatch):
    """Ranks on two nodes that talk through memory leave every interface still."""

    class OneMemory:
        in_a_job = False

        def command(self, cell: Cell, work: Path) -> Command:
            return Command([sys.executable, str(Path(__file__).parents[1] / "one_memory.py"), str(work)])

    monkeypatch.setitem(runner.LAUNCHERS, "emulated", OneMemory())
    record = run(a_cell("micro", "mpi", params=ALLREDUCE))
    assert record.status == "mislabelled"
    assert "shared memory" in record.reason


def test_one_node_proves_nothing_and_is_good(run):
    """Ranks of one node use no fabric."""
    record = run(a_cell("micro", "mpi", params=ALLREDUCE, nodes=1, ranks_per_node=2))
    assert (record.status, record.evidence["verdict"]) == ("ok", "not applicable")


def test_few_bytes_are_good_and_prove_nothing(run):
    """The verdict is recorded; the cell is a result."""
    record = run(a_cell("micro", "mpi"))
    assert (record.status, record.evidence["verdict"]) == ("ok", "too little to prove")


def two_rails() -> Cell:
    """Four ranks over two links per node."""
    fabric = a_cell().fabric | {"interface": ["eth0", "opa0"], "ports_per_node": 2}
    params = ALLREDUCE | {"sizes": [10_000_000], "iterations": 4}
    cell = a_cell("micro", "gloo", params=params, gpus=4, nodes=4, fabric=fabric)
    return with_variables(cell, {"GLOO_SOCKET_IFNAME": "eth0,opa0"})


def test_two_rails_share_the_bytes(run):
    """Gloo takes rails in turn, and both counters together are the formula."""
    record = run(two_rails())
    assert (record.status, record.evidence["verdict"]) == ("ok", "verified"), record.evidence
    seen = record.evidence["nodes"]["n0"]
    assert min(seen["eth0"]["tx_bytes"], seen["opa0"]["tx_bytes"]) > 20_000_000


def test_a_rail_that_stands_still_is_noticed(run):
    """A cell that declares two rails and uses one isn't verified."""
    record = run(with_variables(two_rails(), {"GLOO_SOCKET_IFNAME": "eth0"}))
    assert record.evidence["verdict"] == "unverified"
    assert "opa0 of n0, one of 2 rails" in record.evidence["because"]


def test_a_cell_records_what_its_libraries_said(run):
    """MPICH names its provider and the network that it chose."""
    words = run(a_cell("micro", "mpi")).evidence["words"]
    assert "libfabric provider: tcp - 10.77.0.0/24" in words


def test_an_mpi_library_other_than_the_backends_is_refused(run):
    """mpi4py here loads MPICH; a backend that says Open MPI 5 isn't measured with it."""
    cell = a_cell("micro", "mpi", backend={"name": "ompi", "engine": "mpi", "library": "openmpi5"})
    record = run(cell)
    assert record.status == "failed"
    assert "backends.ompi.library: openmpi5, and mpi4py loads MPICH" in record.reason
