"""Campaigns inside one allocation of a real Slurm: cells are steps on the same nodes, one at a time."""

import copy
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest
from processes import wait_until
from sites import steps
from slurm_campaigns import SlurmCampaign

from fabricbench.testbed import Cluster

pytestmark = pytest.mark.slow

PROFILE = "profiles/allocation"
MICRO = {
    **{"kind": "micro", "operations": ["allreduce"], "sizes": ["1 MB"], "warmup": 0, "iterations": 12},
    **{"gpus": [2], "ranks_per_node": 1},
}
CONFIG: dict[str, Any] = {
    "campaign": "tiny",
    "cluster": {"kind": "allocation", "nodes": 4, "gpus_per_node": 2},
    "fabrics": {
        "ethernet": {"kind": "ethernet-tcp", "interface": "eth0", "rate": "100 Mbit/s"},
        "omnipath": {"kind": "ethernet-tcp", "interface": "opa0", "rate": "400 Mbit/s"},
    },
    "backends": {"mpi": {"engine": "mpi"}},
    "repeats": 1,
    "workloads": {"micro": MICRO},
}
BAD = {
    **{"kind": "cfd", "case": "vortex", "cells": [16, 16, 8], "cfl": 40.0, "steps": 3},
    **{"gpus": [4], "fabrics": ["ethernet"], "repeats": 1, "only": [{"placement": "packed"}]},
}
ENDLESS = MICRO | {
    **{"iterations": 10**7, "timeout": "4 s", "fabrics": ["omnipath"], "repeats": 1},
    "only": [{"placement": "packed"}],
}
FAILING = {"bad/ethernet-mpi-4-r1", "endless/omnipath-mpi-2-r1"}


def config_with(workloads: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    """A copy of the config with other workloads or other keys of its cluster."""
    found = copy.deepcopy(CONFIG)
    found["cluster"] |= cluster
    return found | {"workloads": workloads or found["workloads"]}


@pytest.fixture(scope="module")
def allocation(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What salloc sets for a shell in an allocation of all four nodes, which outlives a node's death."""
    told = tmp_path_factory.mktemp("allocation") / "environment"
    script = f"env -0 > {told}.part && mv {told}.part {told} && exec cat"
    command = ["salloc", "--nodes=4", "--exclusive", "--no-kill", "sh", "-c", script]
    # It lasts until its standard input is closed, at the end of the block.
    with cluster.popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL):
        wait_until(told.exists)
        every = dict(line.split("=", 1) for line in told.read_text().split("\0") if "=" in line)
        yield {name: value for name, value in every.items() if name.startswith("SLURM")}


@pytest.fixture(autouse=True)
def _mended(request: pytest.FixtureRequest) -> None:
    """The allocation is kept from one test to the next, so the cluster isn't mended after each."""


@pytest.fixture(scope="module", autouse=True)
def _mended_at_the_end(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.mend()


@pytest.fixture(scope="module")
def inside(
    cluster: Cluster, allocation: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[dict], SlurmCampaign]:
    """Make a campaign whose Snakemake runs inside the allocation."""

    def make(config: dict) -> SlurmCampaign:
        campaign = SlurmCampaign(cluster, tmp_path_factory.mktemp("inside") / "campaign", config)
        campaign.environment = allocation
        return campaign

    return make


class Steps:
    """Looks at what runs in the allocation, again and again."""

    def __init__(self, cluster: Cluster) -> None:
        """Begin with `with`."""
        self.cluster = cluster
        self.most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._ended.wait(0.2):
            names = [line.split()[1] for line in steps(self.cluster).splitlines()]
            self.most = max(self.most, sum(name.startswith("fabricbench-") for name in names))

    def __enter__(self) -> "Steps":
        """Look from now on."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """No longer."""
        self._ended.set()
        self._thread.join()


@pytest.fixture(scope="module")
def measured(cluster: Cluster, inside: Callable[[dict], SlurmCampaign]) -> tuple[SlurmCampaign, Steps]:
    """A campaign of two blocks along two axes, in which one cell fails and one has no end."""
    workloads = {"micro": MICRO | {"repeats": 2}, "bad": BAD, "endless": ENDLESS}
    axes = [{"by": "fabric", "baseline": "ethernet"}, {"by": "placement", "baseline": "packed"}]
    campaign = inside(config_with(workloads, placement=["packed", "spread"]) | {"compare": axes})
    with Steps(cluster) as seen:
        campaign.snakemake(profile=PROFILE, ok=False)
    return campaign, seen


def tables(campaign: SlurmCampaign, name: str) -> pd.DataFrame:
    """One of the partial report's tables."""
    return pd.read_parquet(campaign.results / "partial" / f"{name}.parquet")


def test_cells_run_one_at_a_time_in_the_grids_order(measured: tuple[SlurmCampaign, Steps]) -> None:
    """Never two steps at a time, also after a cell that failed and one that ran into its time-out."""
    campaign, seen = measured
    assert seen.most == 1
    assert set(campaign.failures()) == FAILING
    assert "the flow is wrong" in campaign.failures()["bad/ethernet-mpi-4-r1"]
    assert "stopped after its time-out of 4 s" in campaign.failures()["endless/omnipath-mpi-2-r1"]
    grid = json.loads((campaign.results / "grid.json").read_text())
    cells = tables(campaign, "cells").sort_values("start")
    drawn = [entry["id"] for entry in grid["cells"]]
    assert list(cells["cell"]) == drawn
    assert (cells["start"].iloc[1:].to_numpy() >= cells["end"].iloc[:-1].to_numpy()).all()
    assert (cells["overlaps"].fillna(0) == 0).all()
    assert steps(campaign.cluster) == ""
    assert not (campaign.results / ".work").exists()


def test_all_cells_are_compared_in_blocks(measured: tuple[SlurmCampaign, Steps]) -> None:
    """Fabrics back to back on the same nodes, placements within a block: every cell has its partner."""
    campaign, _ = measured
    found = tables(campaign, "comparisons")
    micro = found[found["workload"] == "micro"]
    assert set(micro["by"]) == {"fabric", "placement"}
    assert micro["paired"].all()
    assert (micro["n_blocks"] == 2).all()
    assert (micro["n_unused"] == 0).all()
    cells = tables(campaign, "cells").set_index("cell")
    micro = cells[cells["workload"] == "micro"]
    assert micro.groupby("placement")["node_set"].unique().map(list).to_dict() == {
        "packed": ["n0,n1"],
        "spread": ["n0,n2"],
    }
    assert (micro["evidence"] == "verified").all()
    assert micro["job"].nunique() == 1
    assert (micro["others"] == 0).all()


def test_a_killed_snakemake_leaves_no_rank(cluster: Cluster, inside: Callable[[dict], SlurmCampaign]) -> None:
    """SIGKILL ends the cell with it; the next call in the same allocation measures what is missing alone."""
    workloads = {"micro": MICRO | {"fabrics": ["omnipath"], "repeats": 2, "iterations": 150}}
    campaign = inside(config_with(workloads, nodes=3, exclude="n0"))
    with subprocess.Popen(
        campaign.command(profile=PROFILE), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        wait_until(lambda: campaign.records() and "fabricbench-" in steps(cluster))
        process.kill()
    wait_until(lambda: steps(cluster) == "")
    first = campaign.records()
    campaign.snakemake("--unlock", profile=PROFILE)
    assert campaign.measure(profile=PROFILE) == {f"micro/omnipath-mpi-2-r{n}" for n in (1, 2)} - first
    assert len(first) == 1
    table = pd.read_parquet(campaign.results / "tables" / "cells.parquet")
    assert list(table["node_set"]) == ["n1,n2", "n1,n2"]


def test_outside_it_is_one_line(cluster: Cluster, inside: Callable[[dict], SlurmCampaign]) -> None:
    """It says how to get an allocation."""
    campaign = inside(CONFIG)
    campaign.environment = {}
    (line,) = refusals(campaign)
    assert line.startswith("cluster.kind: allocation: this is no Slurm allocation; get one, as `salloc")


def test_in_too_small_an_allocation_it_is_one_line(inside: Callable[[dict], SlurmCampaign]) -> None:
    """It names the nodes that there are, and the keys that take some away."""
    (line,) = refusals(inside(config_with(nodes=4, exclude="n1")))
    assert line.startswith(
        "cluster.nodes: 4: this allocation (n[0-3]) has 3 that cluster.exclude leave; get a larger one"
    )


def test_a_module_that_is_not_there_fails_the_cell(inside: Callable[[dict], SlurmCampaign]) -> None:
    """`module load` by itself stops nothing; a cell without its modules isn't measured."""
    campaign = inside(config_with(modules=["nope"]) | {"only": [{"fabric": "ethernet"}]})
    campaign.snakemake(profile=PROFILE, ok=False)
    (reason,) = campaign.failures().values()
    assert reason.startswith("cluster.modules: nope: not loaded on this node, where none is loaded; see that")


def test_the_others_run_on_when_a_node_dies(
    cluster: Cluster, inside: Callable[[dict], SlurmCampaign]
) -> None:
    """A cell that needs more nodes than are left fails and says so; smaller ones are measured."""
    workload = MICRO | {"fabrics": ["omnipath"], "gpus": [2, 4]}
    campaign = inside(config_with({"micro": workload}))
    cluster.crash("n1")
    cluster.wait_for("down", ["n1"], timeout_s=90)
    campaign.snakemake(profile=PROFILE, ok=False)
    assert campaign.records() == {"micro/omnipath-mpi-2-r1"}
    assert tables(campaign, "cells").set_index("gpus")["node_set"][2] == "n0,n2"
    (reason,) = campaign.failures().values()
    assert reason.startswith("this cell takes 4 nodes, and this job has 3 for it (n0,n2,n3)")


def refusals(campaign: SlurmCampaign) -> list[str]:
    """What a call says that runs nothing."""
    said = campaign.snakemake(profile=PROFILE, ok=False)
    assert "Traceback" not in said
    assert campaign.records() == set()
    return [line.strip() for line in said.splitlines() if line.strip().startswith("cluster.")]
