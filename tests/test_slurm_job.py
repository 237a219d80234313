"""A cell as a job of Slurm."""

from dataclasses import replace
from typing import Any

import pytest
from cells import a_cell
from jobs import sbatch_options
from snakemake_executor_plugin_slurm.validation import get_forbidden_slurm_options

from fabricbench.campaign import Cluster, Scale, Slurm
from fabricbench.slurm_job import MACHINE, TAKEN, resources, sbatch_arguments, why_no_option

SITE = {"placement": "packed", "cpus_per_rank": 4, "exclusive": True}


def a_cluster(slurm: dict[str, Any] | None = None, **changes: Any) -> Cluster:
    """Eight nodes with two GPUs each."""
    fields: dict[str, Any] = {"kind": "slurm", "nodes": 8, "gpus_per_node": 2, "binding": {}}
    fields |= {"scale": Scale(bytes=1, time=1), "slurm": Slurm(**(slurm or {}))}
    return Cluster(**(fields | changes))


def asked(cluster: Cluster, timeout_s: float = 300.0, **changes: Any) -> list[str]:
    """sbatch's options for two ranks on each of two nodes, unless `changes` say otherwise."""
    fields: dict[str, Any] = {"gpus": 4, "ranks_per_node": 2, "launcher": "slurm", "site": SITE}
    return sbatch_options(resources(cluster, a_cell(**(fields | changes)), timeout_s))


ONE = {"gpus": 1, "nodes": 1, "ranks_per_node": 1}


def test_ranks_land_as_asked():
    """Nodes, ranks, ranks on each node and cores of each rank are all said, so that none is guessed."""
    words = asked(a_cluster())
    assert {"--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--cpus-per-task=4"} <= set(words)


def test_one_rank_is_no_step_of_snakemake_s_own():
    """A cell of one rank is submitted as any other job, and still started in the batch script itself."""
    job = resources(a_cluster(), a_cell(**ONE, site=SITE), 300.0)
    assert job["mpi"] == ""
    assert "tasks" not in job
    assert {"--nodes=1", "--ntasks=1", "--ntasks-per-node=1"} <= set(asked(a_cluster(), **ONE))


@pytest.mark.parametrize(
    ("timeout_s", "setup_s", "minutes"), [(300, 180, "8"), (301, 180, "9"), (90, 0, "2")]
)
def test_the_time_limit_is_longer_than_the_time_out(timeout_s, setup_s, minutes):
    """Time-out and set-up, in minutes, rounded up."""
    words = asked(a_cluster({"setup_s": setup_s}), timeout_s)
    assert words[words.index("-t") + 1] == minutes


def test_nothing_is_said_that_the_config_leaves_open():
    """Partition, account, memory and the like are a profile's to say, so their keys are absent."""
    job = resources(a_cluster(), a_cell(site=SITE), 300.0)
    assert not {"slurm_partition", "slurm_account", "qos", "constraint", "mem_mb", "gres", "gpu"} & job.keys()


def test_what_the_config_says_is_asked():
    """Each key becomes its option."""
    slurm = {"partition": "all", "account": "a1", "qos": "high", "constraint": "ib&v100", "memory": 1000}
    words = asked(a_cluster(slurm | {"reservation": "mine", "switches": "1@10", "exclusive": False}))
    text = " ".join(words)
    for part in ("-p all", "-A a1", "--qos=high", "-C ib&v100", "--mem 1000", "--reservation=mine"):
        assert part in text
    assert "--switches=1@10" in words
    assert "--exclusive" not in words


def test_a_failed_node_restarts_a_cell_only_if_asked():
    """Slurm's own restart is off by default."""
    assert "--no-requeue" in asked(a_cluster())
    assert "--requeue" in asked(a_cluster({"requeue": True}))


def test_all_memory_reaches_sbatch_past_the_executor():
    """`memory: all` is --mem=0, which the executor would drop as a resource and refuse as an option."""
    assert "--mem=0" in asked(a_cluster({"memory": "all"}))


@pytest.mark.parametrize(
    ("slurm", "options"),
    [
        ({}, ["--gres=gpu:2"]),
        ({"gpu_type": "h100"}, ["--gres=gpu:h100:2"]),
        ({"gpus_by": "gpus"}, ["--gpus-per-node=2"]),
        ({"gpus_by": "gpus", "gpu_type": "h100"}, ["--gpus-per-node=h100:2"]),
        ({"gpus_by": "none", "gpu_type": "h100"}, []),
    ],
)
def test_gpus_are_asked_as_the_site_wants(slurm, options):
    """As many on every node, by either option, or not at all; never with counts of tasks that contradict."""
    words = asked(a_cluster(slurm), device="cuda")
    assert [word for word in words if "gres" in word or "gpu" in word] == options
    assert "--ntasks=4" in words


def test_a_cell_without_gpus_asks_for_none():
    """Also on nodes that have some."""
    assert not any("gpu" in word for word in asked(a_cluster()))


def test_listed_nodes_are_named_and_others_excluded():
    """Cells of one size get the same nodes, in the order of the list."""
    spread = {"site": SITE | {"placement": "spread"}}
    listed = a_cluster(nodelist=("n0", "n1", "n2", "n3"), exclude=("n9",))
    assert {"--nodelist=n0,n1", "--exclude=n9"} <= set(asked(listed))
    assert "--nodelist=n0,n2" in asked(listed, **spread)
    assert "--nodelist=n3,n0" in asked(a_cluster(nodelist=("n3", "n0", "n1")))


def test_nodes_of_a_failed_job_are_not_shut_out():
    """The executor excludes all nodes of a job of which one failed; ours comes last, and is in force."""
    assert [word for word in asked(a_cluster()) if word.startswith("--exclude")] == ["--exclude="]


def test_cells_wait_for_each_other_in_slurm_or_in_snakemake():
    """One at a time by a dependency; several by shares of a resource, of which just so many fit."""
    assert "--dependency=singleton" in asked(a_cluster())
    for many in (2, 3, 7, 1000):
        cluster = a_cluster(concurrent_cells=many)
        share = int(resources(cluster, a_cell(site=SITE), 1.0)["machine"])
        assert MACHINE // share == many
        assert "--dependency=singleton" not in asked(cluster)


@pytest.mark.parametrize("name", ["rack-J1", "a-n", "node-e", "my-C reservation's", "x --mem=3"])
def test_no_name_is_taken_for_an_option(name):
    """The executor looks for options anywhere in the text; what looks like one within a name gets past it."""
    assert f"--reservation={name}" in asked(a_cluster({"reservation": name}))


def test_user_s_options_come_last_as_they_are():
    """Each text is one option, with its blanks and quotes."""
    words = asked(a_cluster({"options": ("--mail-type=FAIL", "--licenses='a b'")}))
    assert words[-2:] == ["--mail-type=FAIL", "--licenses=a b"]


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        ("-p gpu", "cluster.slurm.partition"),
        ("-pgpu", "cluster.slurm.partition"),
        ("--mem=0", "cluster.slurm.memory"),
        ("--gres=gpu:2", "cluster.slurm.gpus_by"),
        ("-w n1", "cluster.nodelist"),
        ("--job-name=x", "executor"),
        ("exclusive", "no option"),
        ("--a --b", "more than one"),
        ("--comment='x", "quotes"),
    ],
)
def test_an_option_of_another_key_is_refused_with_that_key(text, mend):
    """So that nothing is asked twice."""
    assert mend in (why_no_option(text) or "")


def test_every_option_that_the_executor_refuses_is_refused_here():
    """Before anything is submitted, and with the key that is meant for it."""
    for pattern in get_forbidden_slurm_options():
        for form in pattern.split("|"):
            name = form.replace("[=\\s]", "").replace("\\s?", "").replace("\\s", "").lstrip("-")
            assert name in TAKEN


def test_what_is_tried_is_what_is_submitted():
    """Arguments for --test-only are those of the job, but for waiting on other cells."""
    slurm = {"partition": "p", "account": "a", "qos": "q", "constraint": "c", "memory": 5, "gpu_type": "h"}
    cell = a_cell(gpus=4, ranks_per_node=2, device="cuda", site=SITE)
    for more in ({}, {"memory": "all"}, {"gpus_by": "gpus"}):
        job = resources(a_cluster(slurm | more, nodelist=("n0", "n1")), cell, 60.0)
        assert sorted(sbatch_arguments(job)) == sorted(
            word for word in _long(sbatch_options(job)) if word != "--dependency=singleton"
        )


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"mem_mb_per_cpu": 500}, "--mem-per-cpu=500"),
        ({"mem_mb": 9, "mem_mb_per_cpu": 500}, "--mem-per-cpu=500"),
        ({"mem": "4GB"}, "--mem=4000"),
        ({"mem": "2 GiB"}, "--mem=2148"),
        ({"mem": "4GB", "mem_mb": 7}, "--mem=7"),
        ({"mem": "lots"}, ""),
        ({}, ""),
    ],
)
def test_memory_that_a_profile_gives_is_tried_too(given, asked):
    """In whichever of Snakemake's forms; a rule's own number comes before a text."""
    job = given | resources(a_cluster(), a_cell(site=SITE), 60.0)
    assert [word for word in sbatch_arguments(job) if word.startswith("--mem")] == ([asked] if asked else [])


def _long(words: list[str]) -> list[str]:
    """Every option as one word: -t 9 as --time=9."""
    names = {"-t": "--time", "-p": "--partition", "-A": "--account", "-C": "--constraint", "--mem": "--mem"}
    found = []
    for word in words:
        if found and found[-1] in names:
            found[-1] = f"{names[found[-1]]}={word}"
        else:
            found.append(word)
    return found


@pytest.mark.parametrize("kind", ["emulated", "host", "allocation"])
def test_cells_of_other_clusters_are_no_jobs(kind):
    """They have no resources of Slurm's."""
    assert resources(replace(a_cluster(), kind=kind), a_cell(), 60.0) == {}
