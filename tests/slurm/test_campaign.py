"""Whole campaigns on a real Slurm: what is measured where, what reruns, and what Slurm was asked for."""

import copy
import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from campaigns import ROOT
from slurm_campaigns import SlurmCampaign

from fabricbench.testbed import Cluster

pytestmark = pytest.mark.slow

FABRICS = {
    "ethernet": {"kind": "ethernet-tcp", "interface": "eth0", "rate": "100 Mbit/s"},
    "omnipath": {"kind": "ethernet-tcp", "interface": "opa0", "rate": "400 Mbit/s"},
}
MICRO = {
    **{"kind": "micro", "backends": ["mpi"], "operations": ["allreduce"], "sizes": ["1 MB"], "warmup": 0},
    **{"iterations": 12, "gpus": [2], "ranks_per_node": 1},
}
MAIN = {
    "campaign": "tiny",
    # Named, since Slurm is free to take others: those of the cell before are still about to end.
    "cluster": {"kind": "slurm", "nodes": 4, "gpus_per_node": 2, "nodelist": "n[0-3]"},
    "fabrics": FABRICS,
    "backends": {"mpi": {"engine": "mpi"}, "gloo": {"engine": "gloo"}},
    "repeats": 1,
    "workloads": {
        "ddp": {
            **{"kind": "train", "fabrics": ["omnipath"], "gpus": [1, 2, 4, 8]},
            **{"model": "squeezenet1_1", "batch": 1, "image_size": 64, "steps": 3, "steps_most": 3},
            **{"extra_steps": 2, "except": [{"backend": "mpi", "gpus": [1, 2, 8]}]},
        },
        "cfd": {
            **{"kind": "cfd", "backends": ["mpi"], "fabrics": ["omnipath"], "gpus": [4]},
            **{"case": "uniform", "cells": [32, 64, 64], "warmup": 1, "steps": 15},
        },
        "micro": MICRO,
    },
}
NODES = {
    "ddp/omnipath-gloo-1-r1": "n0",
    "ddp/omnipath-gloo-2-r1": "n0",
    "ddp/omnipath-gloo-4-r1": "n0,n1",
    "ddp/omnipath-gloo-8-r1": "n0,n1,n2,n3",
    "ddp/omnipath-mpi-4-r1": "n0,n1",
    "cfd/omnipath-mpi-4-r1": "n0,n1",
    "micro/ethernet-mpi-2-r1": "n0,n1",
    "micro/omnipath-mpi-2-r1": "n0,n1",
}
"""Cells, and the nodes on which their ranks belong."""
MODULES = Path("/usr/share/modules/init/bash")


class Calls:
    """A copy of a measured campaign, and the cells whose jobs Slurm saw at each call of Snakemake."""

    def __init__(self, cluster: Cluster, measured: SlurmCampaign, folder: Path) -> None:
        """Copy it, with its records and Snakemake's own memory of them."""
        shutil.copytree(measured.folder, folder)
        self.campaign = SlurmCampaign.on(cluster, folder)

    def __call__(self, config: dict[str, Any] | None = None, *arguments: str, ok: bool = True) -> set[str]:
        """Measure what is missing: the cells of the jobs that this brought to Slurm."""
        if config is not None:
            self.campaign.write(config)
        before = {job["JobId"] for job in self.campaign.jobs_seen()}
        self.said = self.campaign.snakemake(*arguments, ok=ok)
        self.jobs = [job for job in self.campaign.jobs_seen() if job["JobId"] not in before]
        return {cell_of(job) for job in self.jobs}


def cell_of(job: dict[str, str]) -> str:
    """workload/slug of a cell's job, by its comment."""
    return job["Comment"].removeprefix("rule_cell_wildcards_").replace("_", "/", 1)[:-9]


def changed(config: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    """A copy of a config with other keys of its cluster."""
    found = copy.deepcopy(config)
    found["cluster"] |= cluster
    return found


def cells_of(campaign: SlurmCampaign) -> pd.DataFrame:
    """The campaign's table of cells, by workload/slug."""
    table = pd.read_parquet(campaign.results / "tables" / "cells.parquet")
    return table.set_index(table["cell"].str[:-9])


def record_of(campaign: SlurmCampaign, cell: str, suffix: str = "") -> dict[str, Any]:
    """The record of a cell, or with `.failed` its failure."""
    (path,) = campaign.results.glob(f"{cell}-{'[0-9a-f]' * 8}{suffix}.json")
    return json.loads(path.read_text())


def errors(text: str) -> list[str]:
    """What Snakemake prints before it does anything, less its own opening line."""
    return [line for line in text.splitlines() if re.match(r"(cluster|workloads|fabrics)\.", line.strip())]


@pytest.fixture(scope="module")
def measured(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> SlurmCampaign:
    """A campaign that was measured from its first cell to the page; tests change copies of it."""
    campaign = SlurmCampaign(cluster, tmp_path_factory.mktemp("measured") / "campaign", MAIN)
    campaign.snakemake()
    return campaign


def test_every_cell_is_measured_where_it_was_asked_to(measured: SlurmCampaign) -> None:
    """Training on 1 to 8 ranks, the flow solver, messages: as many ranks on each node as asked.

    That they are numbered node by node is asserted in each cell, at its roll call.
    """
    assert measured.records() == set(NODES)
    assert measured.failures() == {}
    for cell, nodes in NODES.items():
        record = record_of(measured, cell)
        hosts = nodes.split(",")
        entries = record["provenance"]["ranks"]
        assert sorted({host for entry in entries for host in entry["host"]}) == hosts, cell
        assert sorted(record["evidence"]["nodes"]) == hosts, cell
        assert record["cell"]["ranks_per_node"] * len(hosts) == record["cell"]["gpus"], cell
    assert len(measured.jobs_seen()) == len(NODES)
    assert {job["JobState"] for job in measured.jobs_seen()} == {"COMPLETED"}
    assert {cell_of(job): job["NodeList"] for job in measured.jobs_seen()}[
        "cfd/omnipath-mpi-4-r1"
    ] == "n[0-1]"


def test_the_table_says_in_which_job_and_on_which_nodes(measured: SlurmCampaign) -> None:
    """Job, nodes, placement and company of every cell, and bytes proven on the fabric that it names."""
    table = cells_of(measured)
    jobs = {cell_of(job): job["JobId"] for job in measured.jobs_seen()}
    assert table["job"].to_dict() == jobs
    assert table["node_set"].to_dict() == NODES
    assert set(table["placement"]) == {"packed"}
    assert not table["emulated"].any()
    assert table["evidence"].to_dict() == {
        cell: "verified" if "," in nodes else "not applicable" for cell, nodes in NODES.items()
    }
    assert (table["restarts"] == 0).all()
    assert (table["others"] == 0).all()


def test_one_cell_measures_at_a_time_in_the_grids_order(measured: SlurmCampaign) -> None:
    """With concurrent_cells 1 no two jobs run at once, and they start as the grid draws them."""
    table = cells_of(measured).sort_values("start")
    assert (table["overlaps"] == 0).all()
    assert (table["start"].iloc[1:].to_numpy() >= table["end"].iloc[:-1].to_numpy()).all()
    grid = json.loads((measured.results / "grid.json").read_text())
    drawn = [f"{entry['cell']['workload']}" for entry in grid["cells"]]
    assert [cell.partition("/")[0] for cell in table.index] == drawn


def test_the_page_is_of_real_networks(measured: SlurmCampaign) -> None:
    """Nothing is marked EMULATED, the proof is counted, and nothing ran beside a cell."""
    page = " ".join(re.sub(r"<[^>]*>", " ", measured.page.read_text()).split())
    assert "EMULATED" not in page
    assert "6 of 8 cells: the bytes were counted on the fabric that the cell names" in page
    assert "None of 8 cells ran at the same time as another, or as jobs of others on the cluster." in page
    assert "--profile profiles/slurm" in page


def test_only_invalidated_cells_become_jobs(
    cluster: Cluster, measured: SlurmCampaign, tmp_path: Path
) -> None:
    """Nothing for who pays or how it is shown; exactly a changed fabric's cells, and those that are new."""
    calls = Calls(cluster, measured, tmp_path / "copy")
    template = calls.campaign.folder / "reports" / "templates" / "index.html.j2"
    template.write_text(template.read_text().replace("</body>", "<p>renewed</p></body>"))
    paid = {"account": "physics", "setup": "4 min"}
    assert calls(changed(MAIN, slurm=paid, concurrent_cells=2)) == set()
    assert "<p>renewed</p>" in calls.campaign.page.read_text()

    other = changed(MAIN, concurrent_cells=2, nodelist=None)
    other["fabrics"]["ethernet"]["rate"] = "200 Mbit/s"
    other["workloads"]["cfd"]["gpus"] = [2, 4]
    # Cells of eight seconds and more, on half of the nodes, so that what runs beside them fits on the others.
    other["workloads"]["long"] = MICRO | {"fabrics": ["omnipath"], "repeats": 2, "iterations": 400}
    assert calls(other) == {
        *("micro/ethernet-mpi-2-r1", "cfd/omnipath-mpi-2-r1"),
        *("long/omnipath-mpi-2-r1", "long/omnipath-mpi-2-r2"),
    }
    assert len(calls.jobs) == 4
    table = cells_of(calls.campaign)
    together = [
        (one, two)
        for one, two in itertools.combinations(table.index, 2)
        if table["start"][one] < table["end"][two] and table["start"][two] < table["end"][one]
    ]
    assert together
    for cell in table.index:
        assert table["overlaps"][cell] == sum(cell in pair for pair in together)
        assert table["others"][cell] == 0  # what ran beside was the campaign's own
    for one, two in together:
        assert not set(table["node_set"][one].split(",")) & set(table["node_set"][two].split(","))
    page = " ".join(re.sub(r"<[^>]*>", " ", calls.campaign.page.read_text()).split())
    assert f"{(table['overlaps'] > 0).sum()} of 11 cells ran at the same time as another; comparisons" in page

    assert calls(MAIN) == set()
    assert len(cells_of(calls.campaign)) == len(NODES)


@pytest.fixture
def module_shell(tmp_path: Path) -> Callable[[list[str]], list[str]]:
    """A login shell with environment modules, among them `net/1`, in which a command runs."""
    if not MODULES.exists():
        pytest.skip("no environment modules here: apt-get install environment-modules")
    files = tmp_path / "modulefiles" / "net"
    files.mkdir(parents=True)
    (files / "1").write_text(
        "#%Module1.0\n"
        "setenv GLOO_SOCKET_IFNAME mgt0\nsetenv UCX_NET_DEVICES mgt0\n"
        f"prepend-path PYTHONPATH {tmp_path / 'site'}\n"
        "setenv NET_HOME /opt/net\n"
    )
    # What every Python that is started with the module's path leaves: which rank it is, and what it sees.
    (tmp_path / "site").mkdir()
    (tmp_path / "seen").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import os, json, socket\n"
        "if 'SLURM_PROCID' in os.environ and 'PMI_RANK' in os.environ:\n"
        f"    with open(f'{tmp_path / 'seen'}/{{os.environ[\"PMI_RANK\"]}}', 'w') as file:\n"
        "        json.dump([socket.gethostname(), os.environ.get('NET_HOME')], file)\n"
    )
    start = f'. {MODULES}; module use {tmp_path / "modulefiles"}; exec "$@"'
    return lambda argv: ["bash", "-c", start, "bash", *argv]


def test_what_the_config_asks_for_reaches_slurm_and_the_ranks(
    cluster: Cluster, tmp_path: Path, module_shell: Callable[[list[str]], list[str]]
) -> None:
    """Nodes, GPUs, time, partition as scontrol shows them; modules on every rank; without GPUs no cell."""
    config = changed(
        MAIN,
        nodelist="n[0-3]",
        placement=["packed", "spread"],
        modules=["net"],
        slurm={
            **{"partition": "batch", "account": "physics", "constraint": "eth", "memory": "2 GB"},
            **{"options": ["--nice=7", "--begin=now"], "setup": "1 min"},
        },
    )
    config["fabrics"] = {"omnipath": FABRICS["omnipath"]}
    config["workloads"] = {
        "micro": MICRO | {"timeout": "2 min"},
        "gpu": {
            **MAIN["workloads"]["ddp"],  # type: ignore[dict-item]
            **{"device": "cuda", "backends": ["gloo"], "gpus": [2], "except": [], "timeout": "30 s"},
        },
    }
    campaign = SlurmCampaign(cluster, tmp_path / "campaign", config)
    command = campaign.command()
    inner = command.index("--") + 1
    done = subprocess.run(
        [*command[:inner], *module_shell(command[inner:])], capture_output=True, text=True, timeout=300
    )
    said = done.stdout + done.stderr
    assert done.returncode, said
    jobs = {cell_of(job): shown(cluster, job["JobId"]) for job in campaign.jobs_seen()}
    assert set(jobs) == {
        "micro/omnipath-mpi-2-r1",
        "micro/omnipath-mpi-2-spread-r1",
        "gpu/omnipath-gloo-2-r1",
    }
    for job in jobs.values():
        assert (job["Partition"], job["Features"], job["Nice"]) == ("batch", "eth", "7")
        assert (job["OverSubscribe"], job["Requeue"], job["MinMemoryNode"]) == ("NO", "0", "2G")
    micro, gpu = jobs["micro/omnipath-mpi-2-r1"], jobs["gpu/omnipath-gloo-2-r1"]
    assert (micro["NodeList"], jobs["micro/omnipath-mpi-2-spread-r1"]["NodeList"]) == ("n[0-1]", "n[0,2]")
    assert (micro["NumNodes"], micro["NumTasks"], micro["NtasksPerN:B:S:C"]) == ("2", "2", "1:0:*:*")
    assert (gpu["NumNodes"], gpu["NumTasks"], gpu["NtasksPerN:B:S:C"]) == ("1", "2", "2:0:*:*")
    assert (micro["TimeLimit"], gpu["TimeLimit"]) == ("00:03:00", "00:02:00")
    assert gpu["TresPerNode"] == "gres:gpu:2"
    assert "TresPerNode" not in micro
    reason = campaign.failures()["gpu/omnipath-gloo-2-r1"]
    assert "device: cuda: 2 ranks on this node, and torch sees 0 GPUs" in reason
    assert "\n" not in reason
    seen = {path.name: json.loads(path.read_text()) for path in (tmp_path / "seen").iterdir()}
    assert seen == {"0": ["n0", "/opt/net"], "1": [seen["1"][0], "/opt/net"]}
    packed = record_of(campaign, "micro/omnipath-mpi-2-r1")
    assert packed["provenance"]["modules"] == ["net/1"]
    assert {"GLOO_SOCKET_IFNAME", "UCX_NET_DEVICES"} <= set(packed["provenance"]["unset"])
    assert packed["evidence"]["verdict"] == "verified"


def shown(cluster: Cluster, job: str) -> dict[str, str]:
    """The fields of `scontrol show job`."""
    done = cluster.run(["scontrol", "show", "job", "-o", job], capture_output=True, text=True, check=True)
    return dict(word.split("=", 1) for word in done.stdout.split() if "=" in word)


@pytest.mark.parametrize(
    ("cluster_keys", "profile", "line"),
    [
        (
            {"slurm": {"partition": "gpu"}},
            "profiles/slurm",
            "cluster.slurm.partition: gpu: no such partition; there are batch, debug",
        ),
        (
            {},
            "profiles/local",
            "cluster.kind: slurm: its cells are started as jobs of Slurm, not by Snakemake's executor local; "
            "call snakemake with --profile profiles/slurm",
        ),
    ],
)
def test_bad_input_is_one_line_and_no_job(
    slurm_campaign: Callable[[dict], SlurmCampaign], cluster_keys: dict, profile: str, line: str
) -> None:
    """It names the key and its mend, before anything is submitted."""
    campaign = slurm_campaign(changed(MAIN, **cluster_keys))
    said = campaign.snakemake(profile=profile, ok=False)
    found = errors(said)
    assert len(found) == 1, said
    assert found[0].strip().startswith(line)
    assert "Traceback" not in said
    assert campaign.jobs_seen() == []


def test_doctor_works_on_the_login_node_and_inside_an_allocation(cluster: Cluster, tmp_path: Path) -> None:
    """On the login node its software; in an allocation every node, and the link that is broken."""
    import yaml

    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(MAIN))

    def doctor(*before: str) -> tuple[int, dict[str, Any]]:
        argv = [*before, sys.executable, "-m", "fabricbench", "doctor", "--json", "--config", str(config)]
        env = {"PYTHONPATH": str(ROOT / "src")}
        done = cluster.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
        assert done.stdout.startswith("{"), done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)

    status, told = doctor()
    assert (status, list(told["nodes"])) == (0, ["hub"])
    (finding,) = (each for each in told["findings"] if each["check"] == "allocation")
    assert finding["mend"].startswith("salloc --nodes=4 ")
    cluster.link("n2", "opa0", up=False)
    status, told = doctor("salloc", "--nodes=4", "--exclusive")
    assert (status, list(told["nodes"])) == (1, ["n0", "n1", "n2", "n3"])
    problems = [each for each in told["findings"] if each["level"] == "problem"]
    assert problems
    assert all("opa0" in each["text"] or "omnipath" in each["text"] for each in problems), problems
    assert any(each["nodes"] == ["n2"] for each in problems)
    fine = [each for each in told["findings"] if each["level"] == "ok"]
    everywhere = {each["check"] for each in fine if len(each["nodes"]) == 4}
    assert {"interface ethernet", "MTU ethernet"} <= everywhere
