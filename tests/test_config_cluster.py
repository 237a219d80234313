"""What a config says of a cluster's nodes and of Slurm."""

from typing import Any

import pytest

from fabricbench.campaign import Cluster, Slurm
from fabricbench.config import parse_config
from fabricbench.errors import ConfigError
from fabricbench.nodelist import expand_nodelist

REAL = {"ethernet": {"kind": "ethernet-tcp", "interface": "eth2"}}
EMULATED = {"ethernet": {"interface": "eth2", "rate": "1 Gbit/s"}}


def config(cluster: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """Messages by MPI over Ethernet, on a cluster of this kind."""
    kind = cluster.get("kind", "slurm")
    return {
        "cluster": {"kind": kind, "nodes": 4, "gpus_per_node": 2} | cluster,
        "fabrics": REAL if kind in ("slurm", "allocation") else EMULATED,
        "backends": {"mpi": {"engine": "mpi"}},
        "workloads": {"messages": {"kind": "micro", "gpus": [2]}},
    } | parts


def mistakes(cluster: dict[str, Any], **parts: Any) -> list[str]:
    """What is wrong, line by line."""
    with pytest.raises(ConfigError) as error:
        parse_config(config(cluster, **parts))
    return str(error.value).splitlines()


@pytest.mark.parametrize(
    ("cluster", "line"),
    [
        (
            {"kind": "emulated", "slurm": {"partition": "gpu"}},
            "slurm: only cluster.kind slurm has it; remove",
        ),
        (
            {"kind": "allocation", "slurm": {"account": "a"}},
            "slurm: only cluster.kind slurm has it; remove it",
        ),
        ({"kind": "allocation", "concurrent_cells": 2}, "concurrent_cells: only cluster.kind slurm has it"),
        ({"kind": "emulated", "nodelist": "n0"}, "nodelist: only cluster.kind slurm and allocation has it"),
        (
            {"nodelist": "n[0-3"},
            "nodelist: 'n[0-3' is no list of nodes: its brackets don't match; write it as",
        ),
        ({"nodelist": ["n0", "n0"]}, "nodelist.1: node 'n0' stands twice; remove one"),
        ({"nodelist": "n[0-1]", "exclude": "n[0-7]"}, "exclude: 'n[0-7]' leaves no node of cluster.nodelist"),
        ({"exclude": "n0;rm"}, "exclude: 'n0;rm' names no node"),
        ({"placement": "spraed"}, "placement: 'spraed' is not known; did you mean 'spread'?"),
        (
            {"placement": ["packed", "spread"]},
            "placement: spread: Slurm alone doesn't say which nodes are far",
        ),
        ({"placement": ["packed", "far"]}, "placement: 'far' is not known"),
        ({"bootstrap": "lo"}, "bootstrap: 'lo' is loopback, which reaches no other node"),
        ({"bootstrap": "10.0.0.0/24"}, "bootstrap: '10.0.0.0/24' is a subnet; write the interface's name"),
        ({"modules": ["gcc openmpi"]}, "modules.0: 'gcc openmpi' is not one module's name"),
        ({"container": "-B"}, "container: '-B' is not an image"),
        ({"slurm": {"partitoin": "x"}}, "slurm.partitoin: unknown key; did you mean 'partition'?"),
        ({"slurm": {"account": 12}}, 'slurm.account: 12 is not text; quote it: "12"'),
        ({"slurm": {"partition": "'all'"}}, "slurm.partition: \"'all'\" is no name; write it plainly"),
        ({"slurm": {"gpu_type": "a100-80gb"}}, "slurm.gpu_type: 'a100-80gb': Snakemake's executor takes"),
        ({"slurm": {"memory": "lots"}}, "slurm.memory: 'lots': is not a size; write it as 64 GB, or all"),
        ({"slurm": {"memory": 64}}, "slurm.memory: 64: is a number of bytes, and less than a job needs"),
        (
            {"slurm": {"switches": "one"}},
            "slurm.switches: 'one' is not a number of switches, as 1 or 1@01:00",
        ),
        ({"slurm": {"setup": "3 minutes"}}, "slurm.setup: '3 minutes': unit 'minutes' is not one of"),
        ({"slurm": {"options": ["-p gpu"]}}, "slurm.options.0: '-p gpu': write cluster.slurm.partition, so"),
        ({"slurm": {"gpus_by": "gpu"}}, "slurm.gpus_by: 'gpu' is not known; did you mean 'gpus'?"),
    ],
)
def test_a_mistake_is_one_line_with_its_mend(cluster, line):
    """Key, value and what to write instead."""
    (said,) = mistakes(cluster)
    assert said.startswith(f"config: cluster.{line}")


@pytest.mark.parametrize(
    ("backend", "kind", "line"),
    [
        (
            {"engine": "gloo", "launch": "pmix"},
            "slurm",
            "'pmix': engine gloo has no such option; it has: none",
        ),
        ({"engine": "mpi", "launch": "pmix"}, "emulated", "'pmix': only cluster.kind slurm and allocation"),
    ],
)
def test_only_mpi_under_slurm_is_started_in_a_way_of_its_own(backend, kind, line):
    """`launch` elsewhere is a mistake."""
    (said,) = mistakes({"kind": kind}, backends={"it": backend})
    assert said.startswith(f"config: backends.it.launch: {line}")


def test_placements_can_be_compared_only_where_there_are_any():
    """`compare: placement` on an emulated cluster names none."""
    (said,) = mistakes({"kind": "emulated"}, compare=[{"by": "placement", "baseline": "packed"}])
    assert said == "config: compare.0.baseline: 'packed' is no placement here; there are none"


def test_everything_said():
    """Nodes in Slurm's notation, those excluded taken out; memory in MiB; a list of placements in order."""
    cluster = {
        **{"bootstrap": "eth0", "concurrent_cells": 3, "placement": ["spread", "packed"], "cpus_per_rank": 8},
        **{"nodelist": ["n[0-2]", "m1"], "exclude": "n1", "modules": ["gcc/13"], "container": "a.sif"},
        "slurm": {"memory": "64 GB", "switches": 1, "setup": "90 s", "options": ["--mail-type=END"]},
    }
    made = parse_config(config(cluster)).cluster
    assert (made.nodelist, made.exclude, made.placement) == (
        ("n0", "n2", "m1"),
        ("n1",),
        ("packed", "spread"),
    )
    assert (made.bootstrap, made.concurrent_cells, made.cpus_per_rank) == ("eth0", 3, 8)
    assert (made.modules, made.container) == (("gcc/13",), "a.sif")
    assert (made.slurm.memory, made.slurm.switches, made.slurm.setup_s) == (65536, "1", 90.0)
    assert made.slurm.options == ("--mail-type=END",)


def test_nothing_said():
    """The defaults: whole nodes, one cell at a time, packed, GPUs by gres, three minutes to set up."""
    made = parse_config(config({})).cluster
    assert made.slurm == Slurm()
    assert (made.placement, made.concurrent_cells, made.nodelist) == (("packed",), 1, ())
    assert (made.slurm.exclusive, made.slurm.requeue, made.slurm.gpus_by) == (True, False, "gres")


def test_a_cluster_is_read_back_as_it_was():
    """As a job on a node does, from the grid's file."""
    given = {"nodelist": "n[0-3]", "slurm": {"memory": "all", "options": ["--x"]}, "modules": ["a"]}
    campaign = parse_config(config(given))
    assert Cluster.from_json(campaign.to_json()["cluster"]) == campaign.cluster


def test_names_of_nodes_are_expanded_in_order():
    """As the notation has them."""
    assert expand_nodelist("h[001-002],x") == ["h001", "h002", "x"]
