"""Ranks in jobs of a real Slurm cluster, whose prolog would choose another network."""

import dataclasses
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cells import CFD, MICRO, a_backend
from processes import descendants, wait_until
from sites import left, on_nodes, record_path, run_cell, state, steps, submit, wait

from fabricbench.cell import Cell
from fabricbench.launch.starters import starter
from fabricbench.record import Record, failure_path
from fabricbench.testbed.cluster import Cluster, why_unavailable
from fabricbench.testbed.spec import Spec

pytestmark = pytest.mark.slow

PROLOG = """#!/bin/sh
echo export GLOO_SOCKET_IFNAME=opa0
echo export FI_TCP_IFACE=opa0
echo export UCX_NET_DEVICES=opa0
"""
ENDLESS = MICRO | {"iterations": 10**7}
TWO = ("--nodes=2", "--exclusive")
WHOLE = ("--nodes=4", "--exclusive")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """A cluster of four nodes, and a folder that they share."""
    if reason := why_unavailable():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("site")
    prolog = folder / "prolog.sh"
    prolog.write_text(PROLOG)
    prolog.chmod(0o755)
    spec = Spec(shared=(tmp_path_factory.getbasetemp(),), slurm_options=(f"TaskProlog={prolog}",))
    with Cluster.up(spec) as cluster:
        yield cluster, folder


GOOD = {
    "gloo": on_nodes("micro", "gloo"),
    "pmi2": on_nodes("cfd"),
    "mpirun": on_nodes("micro", backend=a_backend("mpi", launch="mpirun")),
    "spread": on_nodes("micro", site={"placement": "spread"}),
    "one rank": on_nodes("cfd", ranks=1, nodes=1),
}
BAD = {
    "raises": on_nodes("cfd", params=CFD | {"cfl": 40.0}),
    "no such launch": on_nodes(backend=a_backend("mpi", launch="pmi9")),
    "too many nodes": on_nodes(ranks=5, nodes=5),
    "no end": on_nodes(params=ENDLESS),
}


@pytest.fixture(scope="module")
def ran(site: tuple[Cluster, Path]) -> dict[str, Record]:
    """What cells left that ran one after the other in one job, the bad before the good."""
    cluster, folder = site
    cells = BAD | GOOD
    limits = {"no end": "6"}
    inside = {"one rank": ["srun", "-n1", "--cpu-bind=q"]}  # as Snakemake starts jobs of one task
    commands = [
        [*inside.get(name, []), *run_cell(cell, folder, "--timeout", limits.get(name, "60"))]
        for name, cell in cells.items()
    ]
    job = submit(cluster, folder, commands, *WHOLE)
    assert wait(cluster, job, 150) in ("COMPLETED", "FAILED")
    assert steps(cluster) == ""
    assert not (folder / ".work").exists()
    return {name: left(cell, folder) for name, cell in cells.items()}


@pytest.mark.parametrize("name", GOOD)
def test_ranks_land_where_the_cell_says(ran: dict[str, Record], name: str) -> None:
    """By each way to start them: as many a node as asked, their bytes on the cell's fabric alone."""
    cell, record = GOOD[name], ran[name]
    assert record.status == "ok", record.reason
    hosts = ["n0", "n2"] if name == "spread" else ["n0", "n1"][: cell.nodes]
    assert sorted({host for entry in record.provenance["ranks"] for host in entry["host"]}) == hosts
    assert sorted(record.evidence["nodes"]) == hosts
    for interfaces in record.evidence["nodes"].values():
        assert interfaces["opa0"]["tx_bytes"] < 10_000
        assert cell.nodes == 1 or interfaces["eth0"]["tx_bytes"] > 100_000


@pytest.mark.parametrize("name", GOOD)
def test_a_prolog_chooses_no_network(ran: dict[str, Record], name: str) -> None:
    """What a site's prolog sets is taken back for every rank, and the record says what that was."""
    for entry in ran[name].provenance["ranks"]:
        hydra = {"FI_TCP_IFACE"} if name == "mpirun" else set()  # which hands the cell's own on by itself
        assert {"GLOO_SOCKET_IFNAME", "UCX_NET_DEVICES", "FI_TCP_IFACE"} - hydra == set(entry["unset"])
        assert entry["environment"] == GOOD[name].environment


def test_a_record_says_in_which_job_it_was_made(ran: dict[str, Record]) -> None:
    """Its number, nodes and limits, and what else ran."""
    job = ran["gloo"].provenance["job"]
    assert (job["cluster"], job["partition"], job["nodes"], job["restarts"]) == (
        "testbed",
        "batch",
        "n[0-3]",
        0,
    )
    assert job["others"] == {"jobs": 0, "nodes": 0}
    assert job["time_limit_s"] == 600
    assert job["submitted"] <= job["started"]


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("raises", "failed", "the flow is wrong"),
        ("no such launch", "failed", "backends.mpi.launch: pmi9: srun can't load it"),
        ("too many nodes", "failed", "takes 5 nodes, and this job has 4"),
        ("no end", "timeout", "stopped after its time-out of 6 s"),
    ],
)
def test_what_went_wrong_is_one_line(ran: dict[str, Record], name: str, status: str, reason: str) -> None:
    """And what came after it in the same job ran undisturbed."""
    record = ran[name]
    assert (record.status, reason in record.reason) == (status, True), record.reason
    assert "\n" not in record.reason


def test_the_ranks_of_a_node_see_all_the_jobs_gpus(site: tuple[Cluster, Path]) -> None:
    """So that each can take its own, and a step of few nodes can be had in a job of many."""
    cluster, folder = site
    cell = on_nodes("micro", "gloo", device="cuda")
    nodes, shell = ["n1", "n2"], ["sh", "-c", "echo $SLURMD_NODENAME $SLURM_PROCID $CUDA_VISIBLE_DEVICES"]
    argv = starter(cell, gpus=True).command(cell, nodes, shell).argv
    submit(cluster, folder, [argv], "--wait", "--gres=gpu:2", f"--output={folder}/gpus.log", *WHOLE)
    lines = sorted(line.partition(": ")[2] for line in (folder / "gpus.log").read_text().splitlines())
    assert [line for line in lines if line.startswith("n")] == [
        "n1 0 0,1",
        "n1 1 0,1",
        "n2 2 0,1",
        "n2 3 0,1",
    ]


def ranks(cluster: Cluster) -> dict[str, int]:
    """The ranks that run on the cluster, by name."""
    assert cluster._keeper
    names = descendants(cluster._keeper.pid).items()
    return {name: pid for pid, name in names if name.startswith("fb-rank-")}


def measuring(site: tuple[Cluster, Path], repeat: int, **changes: Any) -> tuple[Cell, str]:
    """An endless cell in a job of its own, whose ranks have met."""
    cluster, folder = site
    cell = dataclasses.replace(on_nodes(params=ENDLESS, **changes), repeat=repeat)
    job = submit(cluster, folder, [run_cell(cell, folder, "--timeout", "100")], *TWO)
    wait_until(lambda: list(folder.glob(f".work/{record_path(cell, folder).stem}-*/met")))
    return cell, job


@pytest.mark.parametrize("launch", ["pmi2", "mpirun"])
def test_a_killed_rank_is_the_cause(site: tuple[Cluster, Path], launch: str) -> None:
    """Whatever the others say of a broken connection."""
    cluster, folder = site
    cell, job = measuring(site, 2, backend=a_backend("mpi", launch=launch))
    os.kill(ranks(cluster)["fb-rank-2"], signal.SIGKILL)
    wait(cluster, job)
    who = "rank 2" if launch == "pmi2" else "a rank"
    assert left(cell, folder).reason == f"{who} on n1 was killed by SIGKILL"
    assert not ranks(cluster)


def test_a_cancelled_job_says_so_and_leaves_nothing(site: tuple[Cluster, Path]) -> None:
    """Before Slurm's KillWait is over, 3 s here."""
    cluster, folder = site
    cell, job = measuring(site, 3)
    cluster.run(["scancel", job], check=True)
    assert wait(cluster, job) == "CANCELLED"
    assert "told to end by SIGTERM" in left(cell, folder).reason
    wait_until(lambda: not ranks(cluster))


def test_a_killed_runner_leaves_no_rank(site: tuple[Cluster, Path]) -> None:
    """Its launcher ends the step; the next try removes the folder that it left."""
    cluster, folder = site
    cell, job = measuring(site, 4)
    assert cluster._keeper
    own = f"{record_path(cell, folder).stem}-{job}-"  # a step of the test before may be about to end
    step = next(pid for pid in descendants(cluster._keeper.pid) if _runs(pid, "fabricbench.launch.step", own))
    os.kill(int(Path(f"/proc/{step}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    wait(cluster, job)
    wait_until(lambda: not ranks(cluster) and steps(cluster) == "")
    assert "not finished" in left(cell, folder).reason
    failure_path(record_path(cell, folder)).unlink()
    again = submit(cluster, folder, [run_cell(cell, folder, "--timeout", "4")], *TWO)
    wait(cluster, again)
    assert left(cell, folder).status == "timeout", left(cell, folder).reason
    assert not (folder / ".work").exists()
    assert state(cluster, again) == "FAILED"


def _runs(pid: int, *words: str) -> bool:
    try:
        return all(word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() for word in words)
    except OSError:
        return False
