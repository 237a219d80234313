"""The configuration: what is accepted, what is normalised, and the line that each mistake gives."""

import copy
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fabricbench import config_train
from fabricbench.config import load_config, parse_config
from fabricbench.config_schema import schema, schema_mistakes
from fabricbench.errors import ConfigError
from fabricbench.grid import expand
from fabricbench.units import parse_bytes, parse_duration, parse_rate, parse_share, parse_sizes

ROOT = Path(__file__).resolve().parents[1]

PROFILE = {"images_per_s": 130.9, "batch": 64, "source": "a test"}
BASE: dict[str, Any] = {
    "cluster": {"nodes": 2, "gpus_per_node": 2},
    "fabrics": {"ethernet": {"interface": "eth0", "rate": "2.5 Gbit/s"}},
    "backends": {"gloo": {"engine": "gloo"}, "mpi": {"engine": "mpi"}},
    "gpus": [1, 4],
    "workloads": {
        "vgg16": {"kind": "train", "model": "vgg16", "device": "replay", "profile": PROFILE},
        "messages": {"kind": "micro"},
        "euler": {"kind": "cfd"},
    },
}


@pytest.fixture(autouse=True)
def _few_models(monkeypatch: pytest.MonkeyPatch) -> None:
    names = frozenset({"squeezenet1_1", "vgg11", "vgg16", "vgg19", "inception_v3", "resnet18"})
    monkeypatch.setattr(config_train, "classifiers", lambda: names)


def changed(path: str, value: Any, base: dict[str, Any] = BASE) -> dict[str, Any]:
    """A copy of a configuration with the value at a dotted path replaced."""
    config = copy.deepcopy(base)
    *parents, last = path.split(".")
    place = config
    for key in parents:
        place = place.setdefault(key, {})
    place[last] = value
    return config


HOST = changed("cluster", {"kind": "host", "gpus_per_node": 4}, changed("fabrics.ethernet.interface", "lo"))


def mistakes(config: dict[str, Any]) -> list[str]:
    """The lines that a configuration's mistakes give."""
    with pytest.raises(ConfigError) as caught:
        parse_config(config)
    return str(caught.value).splitlines()


MISTAKES = [
    # unknown, missing and wrongly typed keys
    ("fabrics.ethernet.rats", "1 Gbit/s", ": unknown key; did you mean 'rate'?"),
    ("workload", {}, ": unknown key; did you mean 'workloads'?"),
    ("workloads.vgg16.modle", "x", ": unknown key; did you mean 'model'?"),
    ("workloads.messages.bucket_mb", 1, ": unknown key; known: kind, gpus,"),
    ("workloads.vgg16.profile", {"images_per_s": 1, "batch": 1}, ".source: missing; Where"),
    ("workloads.new", {"kind": "train"}, ".model: missing; An image classifier of torchvision"),
    ("workloads.new", {"model": "x"}, ".kind: missing; train: PyTorch DDP"),
    ("workloads.new", {"kind": "trian", "foo": 1}, ".kind: 'trian' is not known; did you mean 'train'?"),
    ("workloads.new", {"kind": "train", "model": "vgg16", "device": "replay"}, ".profile: missing; device"),
    ("workloads.vgg16.profile", None, ": null: device replay needs {images_per_s"),
    ("workloads.euler.device", "replay", ": 'replay' is not known; known: cpu"),
    ("workloads.euler.steps", 1.5, ": 1.5 is not a whole number; write a whole number"),
    ("workloads.euler.cells", [8, 8], ": [8, 8] must have at least 3 values"),
    ("backends.gloo.engine", "glo", ": 'glo' is not known; did you mean 'gloo'?"),
    ("accept_failures", "yes", ": 'yes' is not true or false; write true or false"),
    ("gpus", 4, ": 4 is not a list; write [4]"),
    ("gpus", ["4"], ".0: '4' is not a whole number; write it without quotes or unit"),
    ("repeats", 0, ": 0 must be at least 1"),
    ("repeats", None, ": null is not a whole number; give it a value, or leave the key out"),
    ("campaign", 2024, ": 2024 is not text; quote it: \"2024\""),
    ("environment", {"A": 1.1}, ".A: 1.1 is not text or a whole number; quote it: \"1.1\""),
    ("environment", {"A": 1.0}, ".A: 1.0 is not text or a whole number; quote it: \"1.0\""),
    ("environment", {"A": True}, ".A: true is not text or a whole number; quote it: \"true\""),
    ("environment", {"A": ["x"]}, ".A: ['x'] is not text or a whole number; write one value, without the "
     "list: 'x'"),
    ("environment", {"A": {"x": 1}}, ".A: {x: 1} is not text or a whole number; write one value"),
    ("environment", {"1A": "x"}, ".1A: not a usable name; a variable's name"),
    ("cluster.kind", "slrum", ": 'slrum' is not known; did you mean 'slurm'?"),
    ("cluster.kind", "pbs", ": 'pbs' is not known; known: emulated, host, slurm, allocation"),
    ("cluster.scale", {"bytes": 0.5}, ".bytes: 0.5 must be at least 1"),
    # characters that no text may hold
    ("fabrics", {"e\n": {"interface": "eth0", "rate": 1e9}}, ": key 'e\\n' holds the control character"),
    ("campaign", "t\n", ": 't\\n' holds the control character '\\n'; remove it"),
    ("environment", {"A\n": "x"}, ": key 'A\\n' holds the control character '\\n'; remove it"),
    ("environment", {"A": "x\0y"}, ".A: 'x\\x00y' holds the control character '\\x00'; remove it"),
    ("environment", {"A": "\ud800"}, ".A: '\\ud800' holds the control character '\\ud800'; remove it"),
    ("workloads.vgg16.model", "vgg16\t", ": 'vgg16\\t' holds the control character '\\t'; remove it"),
    # variables
    ("environment", {"PMI_RANK": 1}, ".PMI_RANK: set by whoever starts the ranks; remove it"),
    ("environment", {"PMIX_RANK": None}, ".PMIX_RANK: set by whoever starts the ranks; remove it"),
    ("workloads.euler.environment", {"FABRICBENCH_RUNNER": 1}, ".FABRICBENCH_RUNNER: set by whoever starts "),
    ("fabrics.ethernet.environment", {"PYTHONHOME": "/"}, ".PYTHONHOME: ranks run by this tool's own Python"),
    ("backends.mpi.environment", {"OMP_NUM_THREADS": 4}, ".OMP_NUM_THREADS: set from the workload's thre"),
    ("environment", {"A": "x={iface}"}, ".A: {iface} is no token; did you mean {interface}?"),
    ("environment", {"A": "{adapter:x}"}, ".A: {adapter:x} is no token; did you mean {adapter"),
    ("environment", {"A": "{Units:port}"}, ".A: {Units:port} is no token; did you mean {unit:port}?"),
    ("backends.mpi.environment", {"A": "{adapter}"}, ".A: fabric ethernet: no adapter is named for {adap"),
    ("backends.mpi.environment", {"A": "{unit}"}, ".A: fabric ethernet: no adapter is named for {unit}"),
    # names
    ("campaign", "a" * 61, f": '{'a' * 56}... is not a usable name; use at most 60 characters"),
    ("campaign", "a/b", ": 'a/b' is not a usable name; use letters"),
    ("fabrics.a b", {"interface": "eth1", "rate": 1e9}, ": not a usable name; use letters"),
    ("workloads", {True: {"kind": "micro"}}, ": key true is not text; quote the name"),
    ("workloads.vgg16.model", "vgg61", ": 'vgg61' is not a classifier of torchvision; did you mean 'vgg16'?"),
    ("workloads.vgg16.fabrics", ["ethernte"], ".0: 'ethernte' is not defined; did you mean 'ethernet'?"),
    ("workloads.vgg16.backends", ["nccl"], ".0: 'nccl' is not defined; known: gloo, mpi"),
    ("except", [{"fabric": "ethernte"}], ".0.fabric: 'ethernte' matches nothing; did you mean 'ethernet'?"),
    ("only", [{"gpus": [1, 3]}], ".0.gpus: 3 matches nothing; known: 1, 4"),
    ("only", [{}], ".0: {} must have at least 1 key"),
    ("except", [{"batch": 48}], ".0.batch: 48 matches nothing; known: 32"),
    ("only", [{"model": ["vgg61"]}], ".0.model: 'vgg61' matches nothing; did you mean 'vgg16'?"),
    ("compare", [{"by": "batch", "baseline": 64}],
     ".0.by: 'batch' has one value in every workload; give it as a list (batch: [a, b]) to compare its "),
    ("workloads.vgg16.model", ["vgg16", "vgg61"],
     ".1: 'vgg61' is not a classifier of torchvision; did you mean 'vgg16'?"),
    ("workloads.vgg16.batch", [], ": [] must have at least 1 values"),
    ("workloads.vgg16.batch", [32, 0], ".1: 0 must be at least 1"),
    ("workloads.vgg16.except", [{"repeat": 9}], ".0.repeat: 9 matches nothing; known: 1, 2, 3"),
    # interfaces
    ("fabrics.ethernet.interface", "^lo", ": '^lo' is a pattern of NCCL's"),
    ("fabrics.ethernet.interface", "=eth0", ": '=eth0' is a pattern of NCCL's"),
    ("fabrics.ethernet.interface", "^lo,docker0", ": '^lo,docker0' is a pattern of NCCL's; write the plain"),
    ("fabrics.ethernet.interface", "eth0,eth1", ": 'eth0,eth1' is more than one name; write a list: [eth0, "),
    ("fabrics.ethernet.interface", "10.0.0.5", ": '10.0.0.5' is an address"),
    ("fabrics.ethernet.interface", "10.0.0.0/24", ": '10.0.0.0/24' is a subnet; write the interface's name"),
    ("fabrics.ethernet.interface", "fe80::1", ": 'fe80::1' is an address"),
    ("fabrics.ethernet.interface", "10.0", ": '10.0' is an address"),
    ("fabrics.ethernet.interface", "a" * 16, f": '{'a' * 16}' is too long"),
    ("fabrics.ethernet.interface", "lo", ": 'lo' is every node's own"),
    ("fabrics.ethernet.interface", ["eth0", "lo"], ": 'lo' is every node's own"),
    ("fabrics.ethernet.interface", ["eth0", "=eth1"], ".1: '=eth1' is a pattern of NCCL's"),
    ("fabrics.ethernet.interface", ["eth0", "eth0"], ".1: 'eth0' stands twice; remove one"),
    ("fabrics.ethernet.interface", [], ": [] must have at least 1 values"),
    ("fabrics.ethernet.interface", None, ": missing; name the links to make, as eth0"),
    ("fabrics.ethernet.kind", "roce", ": 'roce': every fabric of cluster.kind emulated is emulated; remove"),
    ("fabrics.ethernet.subnet", "10.0.0.0/24", ": '10.0.0.0/24': cluster.kind emulated makes its interfaces"),
    ("fabrics.ethernet.adapter", "mlx5_0", ": 'mlx5_0': cluster.kind emulated makes its interfaces"),
    ("fabrics.ethernet.provider", "tcp", ": 'tcp': cluster.kind emulated makes its interfaces"),
    ("fabrics.ethernet.ports_per_node", 2, ": 2, and 1 interfaces are named; emulated nodes have all"),
    ("fabrics.other", {"interface": "eth0", "rate": "1 Gbit/s"}, ".interface: 'eth0' is also fabric"),
    ("fabrics.other", {"interface": ["eth1", "eth0"], "rate": "1 Gbit/s"}, ".interface: 'eth0' is also fab"),
    # options of backends
    ("backends.gloo.gpudirect", True, ": true: engine gloo has no such option; it has: none; remove it"),
    ("backends.mpi.protocol", "LL", ": 'LL': engine mpi has no such option; it has: library, transport,"),
    ("backends.nccl", {"engine": "nccl", "library": "mpich"}, ".library: 'mpich': engine nccl has no such "),
    ("backends.mpi.library", "openmpi", ": 'openmpi' is not known; did you mean 'openmpi"),
    ("backends.mpi.transport", "tcp", ": 'tcp': library mpich sends by ofi or ucx; write one of these"),
    ("backends.mpi.gpudirect", False, ": false: with buffers: host no GPU memory is sent; write buffers:"),
    ("backends.nccl", {"engine": "nccl", "channels": 0}, ".channels: 0 must be at least 1"),
    ("backends.nccl", {"engine": "nccl", "channels": 65}, ".channels: 65 must be at most 64"),
    ("backends.nccl", {"engine": "nccl", "algorithm": "Rnig"}, ".algorithm: 'Rnig': 'Rnig' is not known to "),
    ("backends.nccl", {"engine": "nccl", "protocol": "^LL,LL28"}, ".protocol: '^LL,LL28': 'LL28' is not known"
     " to NCCL; did you mean 'LL128'?"),
    ("backends.nccl", {"engine": "nccl", "protocol": " "}, ".protocol: ' ' is empty; write it as NCCL takes"),
    ("backends.mpi.gpudirect", "off", ": 'off' is not true or false; write true or false"),
    # binding
    ("cluster.binding", "socket", ": 'socket' is not known; known: auto, core, none"),
    ("cluster.binding", 2, ": 2 is not text or a mapping of keys to values; quote it"),
    ("cluster.binding", {"cpus": "core"}, ".cpus: unknown key; did you mean 'cpu'?"),
    ("cluster.binding", {"cpu": [[0], [1, 0]]}, ".cpu: core 0 stands twice; give each local rank"),
    ("cluster.binding", {"cpu": [[0]]}, ".cpu: cores for 1 local ranks, and cluster.gpus_per_node is 2"),
    ("cluster.binding", {"near": "nci"}, ".near: 'nci' is not known; did you mean 'nic'?"),
    ("cluster.binding", {"near": "gpu"}, ".near: 'gpu': an emulated cluster has neither adapters nor GPUs"),
    ("cluster.binding", {"near": "nic"}, ".near: 'nic': an emulated cluster has neither adapters nor GPUs"),
    ("workloads.vgg16.device", "cuda", ": 'cuda' is for real machines; on an emulated cluster use replay"),
    # comparisons
    ("compare", [{"by": "fabric", "baseline": "ethernot"}], ".0.baseline: 'ethernot' is no fabric here; did"),
    ("compare", [{"by": "library", "baseline": "mvapich"}], ".0.baseline: 'mvapich' is no library here"),
    ("compare", [{"by": "fabrics", "baseline": "ethernet"}], ".0.by: 'fabrics' is not known; did you "),
    ("compare", [{"by": "fabric", "baseline": "ethernet"}] * 2, ".1.by: 'fabric' is there twice; keep one"),
    ("margin", "0 %", ": '0 %': must be above 0"),
    ("margin", "5 percent", ": '5 percent': "),
    ("pair_within", "0 s", ": '0 s': must be above 0"),
    # quantities
    ("fabrics.ethernet", {"interface": "eth0"}, ".rate: missing; an emulated link needs its rate"),
    ("fabrics.ethernet.rate", 25, ": 25: below 1 kbit/s; a number without a unit is bit/s"),
    ("fabrics.ethernet.rate", "3 GB/s", ": '3 GB/s': 'GB/s' counts bytes; write bits"),
    ("fabrics.ethernet.rate", "fast", ": 'fast': is not a rate; write it as 25 Gbit/s"),
    ("fabrics.ethernet.delay", "5 parsec", ": '5 parsec': unit 'parsec' is not one of ns, us"),
    ("fabrics.ethernet.loss", 1, ": 1: must be from 0 to below 1"),
    ("workloads.euler.timeout", 0, ": 0: must be above 0"),
    ("workloads.messages.sizes", "4 MB..1 KB", ": '4 MB..1 KB': the range goes down; write 1 KB"),
    ("fabrics.ethernet.rate", "1e307 Gbit/s", ": '1e307 Gbit/s': above 1000 Tbit/s"),
    ("fabrics.ethernet.rate", float("inf"), ": inf is not a finite number; write one"),
    ("fabrics.ethernet.delay", "1e308 h", ": '1e308 h': above 8760 h"),
    ("fabrics.ethernet.delay", "2 min", ": '2 min': above 60 s"),
    ("workloads.euler.timeout", "1e308 h", ": '1e308 h': above 8760 h"),
    ("workloads.euler.cfl", 10**40, f": 1{'0' * 40} is too large"),
    ("workloads.messages.sizes", "1e308 GB", ": '1e308 GB': above 1024 GB"),
    ("workloads.messages.sizes", "1 B..1e300 GB", ": '1 B..1e300 GB': above 1024 GB"),
    ("workloads.messages.sizes", [1e300], ".0: 1e+300 is too large; write"),
    ("cluster.scale", {"bytes": 1e308}, ".bytes: 1e+308 is too large"),
    ("cluster.scale", {"bytes": 1e6, "time": 1e6}, ""),
    ("repeats", 10**9, ": 1000000000 must be at most 1000"),
    # what doesn't fit together
    ("workloads.vgg16.ranks_per_node", 4, ": 4 is above cluster.gpus_per_node, 2"),
    ("workloads.euler.process_grid", [2, 2, 2], ": [2, 2, 2] is for 8 ranks, gpus is [1, 4]"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "rest"), MISTAKES)
def test_mistake_is_one_line(path: str, value: Any, rest: str) -> None:
    """A mistake gives exactly one line, which names key path, value and mend."""
    lines = mistakes(changed(path, value))
    assert len(lines) == 1
    assert lines[0].startswith(
        f"config: {path}{rest}" if rest else "config: fabrics.ethernet.rate: '2.5 Gbit"
    )


SLURM = {
    **BASE,
    "cluster": {"kind": "slurm", "nodes": 2, "gpus_per_node": 2},
    "fabrics": {
        "ethernet": {"kind": "ethernet-tcp", "interface": "eth2", "rate": "25 Gbit/s"},
        "infiniband": {"kind": "infiniband", "adapter": "mlx5_0", "rate": "200 Gbit/s"},
    },
}
IB = "fabrics.infiniband"


@pytest.mark.parametrize(
    ("path", "value", "rest"),
    [
        ("fabrics.new", {"interface": "eth3"}, ".kind: missing; what the network is: ethernet-tcp, roce,"),
        ("fabrics.ethernet.kind", "emulated", ": 'emulated': cluster.kind slurm has real networks; say "),
        ("fabrics.ethernet.kind", "ethernet", ": 'ethernet' is not known; did you mean 'ethernet-tcp'?"),
        ("fabrics.new", {"kind": "roce"}, ": missing: where it is; write interface, subnet or adapter"),
        ("fabrics.new", {"kind": "roce", "subnet": "10.0.0.0/24"}, ".subnet: '10.0.0.0/24': roce needs "),
        ("fabrics.ethernet.subnet", "10.0.0", ": '10.0.0' is not a network; write address/prefix, as 10.0.0"),
        ("fabrics.ethernet.subnet", "10.0.0.5", ": '10.0.0.5' is one address, and every node needs "),
        ("fabrics.ethernet.subnet", ["10.0.0.0/24"], ": ['10.0.0.0/24'] is not text; write one value, "
         "without the list: '10.0.0.0/24'"),
        ("fabrics.ethernet.subnet", "0.0.0.0/0", ": '0.0.0.0/0' holds every address, so it chooses no "),
        ("fabrics.ethernet.subnet", "127.0.0.0/8", ": '127.0.0.0/8' is loopback"),
        ("fabrics.ethernet.subnet", "::1", ": '::1' is loopback"),
        ("fabrics.ethernet.subnet", "224.0.0.0/8", ": '224.0.0.0/8' is multicast"),
        ("fabrics.ethernet.subnet", "ff02::/16", ": 'ff02::/16' is multicast"),
        ("fabrics.ethernet.subnet", "fe80::/64", ": 'fe80::/64' is link-local"),
        ("fabrics.ethernet.subnet", "fe80::%eth0/64", ": 'fe80::%eth0/64' is link-local"),
        ("fabrics.ethernet.interface", "lo", ": 'lo' is loopback, which reaches no other node"),
        ("fabrics.ethernet.interface", ["10.0.0.0/24"], ".0: '10.0.0.0/24' is a subnet; write subnet: 10"),
        (f"{IB}.environment", {"A": "{unit}"}, ".A: fabric infiniband: {unit} is the number of an adapter"),
        ("fabrics.ethernet.interface", "10.0.0.5", ": '10.0.0.5' is an address; write the interface's "),
        (f"{IB}.adapter", "mlx5_0:1", ": 'mlx5_0:1' has a port; write adapter: mlx5_0, port: 1"),
        (f"{IB}.adapter", "=mlx5_0", ": '=mlx5_0' is a pattern of NCCL's"),
        (f"{IB}.adapter", "mlx5_0,mlx5_1", ": 'mlx5_0,mlx5_1' is more than one name; write a list: [mlx5_0,"),
        (f"{IB}.adapter", ["mlx5_0", "mlx5_1"], ""),
        (f"{IB}.ports_per_node", 2, ": 2 is above the 1 names given; name each port"),
        (f"{IB}.provider", "psm2", ": 'psm2' doesn't carry infiniband; known: verbs;ofi_rxm, mlx"),
        (f"{IB}.delay", "1 us", ": only emulated fabrics have it; remove it"),
        ("cluster.scale", {"bytes": 2}, ": only an emulated cluster is a scale model; remove it"),
        ("fabrics.new", {"kind": "roce", "interface": "eth2", "rate": "10 Gbit/s"}, ".interface: 'eth2' is "),
        ("fabrics.new", {"kind": "infiniband", "adapter": ["mlx5_0"]}, ".adapter: 'mlx5_0' is also "),
    ],
)  # fmt: skip
def test_real_networks_are_described_whole(path: str, value: Any, rest: str) -> None:
    """On a cluster's own networks a mistake is one line as well."""
    lines = mistakes(changed(path, value, SLURM))
    assert len(lines) == 1
    assert lines[0].startswith(
        f"config: {path}{rest}" if rest else f"config: {IB}.ports_per_node: missing; 2"
    )


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("fabrics.ethernet.kind", "roce",
         "fabrics.ethernet.kind: 'roce': every fabric of cluster.kind host is ethernet-tcp; remove it"),
        ("fabrics.ethernet.adapter", "mlx5_0",
         "fabrics.ethernet.adapter: 'mlx5_0': cluster.kind host has lo; remove it"),
        ("fabrics.ethernet.delay", 0, "fabrics.ethernet.delay: only emulated fabrics have it; remove it"),
        ("cluster.scale", {"bytes": 2},
         "cluster.scale: only an emulated cluster is a scale model; remove it"),
        ("cluster.nodes", 2, "cluster.nodes: 2: kind host is this one machine; write 1"),
    ],
)  # fmt: skip
def test_host_refuses_what_is_emulated(path: str, value: Any, line: str) -> None:
    """A host has neither shaping nor scale nor other nodes."""
    assert mistakes(changed(path, value, HOST)) == [f"config: {line}"]


def test_all_mistakes_are_told_at_once() -> None:
    """Several mistakes give one line each."""
    config = changed("fabrics.ethernet.rats", 1, changed("repeats", 0, changed("gpus", [])))
    assert [line.split(":")[1].strip() for line in mistakes(config)] == [
        "fabrics.ethernet.rats",
        "gpus",
        "repeats",
    ]


def test_defaults() -> None:
    """What isn't given has the schema's default, also within what is given."""
    campaign = parse_config(BASE)
    assert (campaign.name, campaign.repeats, campaign.accept_failures) == ("default", 3, False)
    assert campaign.cluster.kind == "emulated"
    assert campaign.cluster.binding == {"cpu": "auto", "memory": "auto", "near": "auto"}
    fabric = campaign.fabrics["ethernet"]
    assert (fabric.kind, fabric.interface, fabric.ports_per_node) == ("emulated", ("eth0",), 1)
    assert (fabric.subnet, fabric.adapter, fabric.port, fabric.provider) == (None, (), 1, None)
    assert vars(campaign.cluster.scale) == {"bytes": 1, "time": 1}
    workload = campaign.workloads["vgg16"]
    assert (workload.gpus, workload.repeats, workload.ranks_per_node) == ((1, 4), 3, 2)
    assert (workload.threads_per_rank, workload.timeout_s) == (1, 300)
    assert workload.fabrics == ("ethernet",)
    assert workload.backends == ("gloo", "mpi")


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("vgg16", {"model": "vgg16", "batch": 32, "image_size": 224, "profile": PROFILE, "fixed_cost": 0.0,
                   "precision": "fp32",
                   "bucket_mb": 25, "first_bucket_mb": 1, "bucket_view": True, "static_graph": False,
                   "broadcast_buffers": False, "warmup": 5, "warmup_most": 50, "steps": 10,
                   "steps_most": 1000, "budget": 30.0, "width": 0.02, "extra_steps": 5}),
        ("euler", {"case": "vortex", "cells": [64, 64, 64], "process_grid": None, "cfl": 0.5, "warmup": 2,
                   "steps": 20}),
        ("messages", {"operations": ["pingpong", "stream", "allreduce"], "iterations": 10, "warmup": 2,
                      "sizes": [2**n for n in range(10, 23, 2)]}),
    ],
)  # fmt: skip
def test_params_are_what_the_kind_defines(name: str, params: dict[str, Any]) -> None:
    """A workload's params hold its kind's keys with their defaults, and nothing of the grid."""
    assert parse_config(BASE).workloads[name].params == params


def test_real_compute_has_no_profile() -> None:
    """A profile that device cpu doesn't use is no part of the workload."""
    workload = parse_config(changed("workloads.vgg16.device", "cpu")).workloads["vgg16"]
    assert "profile" not in workload.params


@pytest.mark.parametrize(("given", "size"), [({}, 299), ({"image_size": 128}, 128)])
def test_inception_takes_larger_images(given: dict[str, int], size: int) -> None:
    """Inception v3 needs 299 pixels, unless a size is given."""
    workload = {"kind": "train", "model": "inception_v3", **given}
    assert parse_config(changed("workloads.new", workload)).workloads["new"].params["image_size"] == size


def test_scale_divides_the_links() -> None:
    """A link runs at the real rate divided by both scales, as a whole number of bit/s."""
    fabric = parse_config(changed("cluster.scale", {"bytes": 128, "time": 2})).fabrics["ethernet"]
    assert (fabric.rate_bit_s, fabric.link_bit_s) == (2_500_000_000, 9_765_625)
    assert isinstance(fabric.link_bit_s, int)


def test_host_needs_no_rate() -> None:
    """A host's interface is what it is; without a rate there's none."""
    fabric = parse_config(changed("fabrics.ethernet", {"interface": "lo"}, HOST)).fabrics["ethernet"]
    assert (fabric.kind, fabric.interface) == ("ethernet-tcp", ("lo",))
    assert (fabric.rate_bit_s, fabric.link_bit_s) == (None, None)


def test_one_network_under_two_names() -> None:
    """The A/A control: two fabrics with one definition share an interface."""
    config = changed("fabrics.again", {"interface": "eth0", "rate": 2.5e9})
    fabrics = parse_config(config).fabrics
    assert fabrics["again"].definition == fabrics["ethernet"].definition


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "roce", "interface": "eth2", "rate": "25 Gbit/s"},
        {"kind": "ethernet-tcp", "interface": ["eth2", "eth3"], "ports_per_node": 2, "rate": "25 Gbit/s"},
        {"kind": "infiniband", "adapter": "mlx5_0", "port": 2, "rate": "100 Gbit/s"},
    ],
)
def test_one_wire_used_in_two_ways(other: dict[str, Any]) -> None:
    """TCP and RDMA, or one port and two, over the same wire are compared; so are two ports of an adapter."""
    assert set(parse_config(changed("fabrics.other", other, SLURM)).fabrics) > {"other"}


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [
        ({"interface": ["eno1", "eth0"], "ports_per_node": 1}, (("eno1", "eth0"), None, 1)),
        ({"interface": ["eth0", "eth1"], "ports_per_node": 2}, (("eth0", "eth1"), None, 2)),
        ({"interface": "10.0.0.7/24"}, ((), "10.0.0.0/24", 1)),
        ({"subnet": "fd00::/64"}, ((), "fd00::/64", 1)),
        ({"subnet": "10.0.0.0/16", "ports_per_node": 2}, ((), "10.0.0.0/16", 2)),
    ],
)
def test_where_a_network_is(fabric: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """By one name, by names that differ between nodes, by several ports, by subnet."""
    campaign = parse_config(changed("fabrics.ethernet", {"kind": "ethernet-tcp", **fabric}, SLURM))
    found = campaign.fabrics["ethernet"]
    assert (found.interface, found.subnet, found.ports_per_node) == expected


def test_emulated_ports_are_all_used() -> None:
    """An emulated node has every link that is named."""
    fabric = parse_config(changed("fabrics.ethernet.interface", ["eth0", "eth1"])).fabrics["ethernet"]
    assert (fabric.interface, fabric.ports_per_node) == (("eth0", "eth1"), 2)


@pytest.mark.parametrize(
    ("value", "binding"),
    [
        ("core", {"cpu": "core", "memory": "auto", "near": "auto"}),
        ("none", {"cpu": "none", "memory": "none", "near": "none"}),
        ({"near": "none"}, {"cpu": "auto", "memory": "auto", "near": "none"}),
        ({"cpu": [[0, 1], [2]]}, {"cpu": [[0, 1], [2]], "memory": "auto", "near": "auto"}),
    ],
)
def test_binding_is_a_word_or_a_mapping(value: Any, binding: dict[str, Any]) -> None:
    """A word is for cpu, `none` for all; whatever is written, the campaign has all three."""
    assert parse_config(changed("cluster.binding", value)).cluster.binding == binding


def test_backend_options() -> None:
    """What was given, and the defaults of the engine that don't depend on the fabric."""
    nccl = {"engine": "nccl", "gpudirect": False, "protocol": "^LL128", "channels": 4}
    backends = parse_config(changed("backends.nccl", nccl)).backends
    assert backends["gloo"].options == {}
    assert backends["mpi"].options == {"library": "mpich", "buffers": "host"}
    ring = {"engine": "ring", "library": "openmpi4", "buffers": "device", "gpudirect": True}
    options = {"library": "openmpi4", "buffers": "device", "gpudirect": True, "launch": "pmix"}
    assert parse_config(changed("backends.ring", ring, SLURM)).backends["ring"].options == options
    assert backends["nccl"].options == {"gpudirect": False, "protocol": "^LL128", "channels": 4}


@pytest.mark.parametrize("value", ["Ring", "^Tree", "Ring,NVLSTree", "^CollnetDirect,PAT"])
def test_lists_of_nccls_names(value: str) -> None:
    """NCCL takes lists of names, also of those to leave out."""
    backend = {"engine": "nccl", "algorithm": value}
    assert parse_config(changed("backends.nccl", backend)).backends["nccl"].options["algorithm"] == value


@pytest.mark.parametrize(
    "value", ["{x}", "{foo}", '{"unit": 1}', "{wildcards.cell}", "{interface", "{adapters.x}", "a\n\tb"]
)
def test_other_braces_are_the_users(value: str) -> None:
    """Braces that no token was meant by are passed on, and so are lines and tabs."""
    assert parse_config(changed("environment", {"A": value})).environment == {"A": value}


def test_tokens_that_a_fabric_fills() -> None:
    """The port by its key or a number; parameters of Open MPI's PMIx are the user's."""
    values = {"A": "{adapter:port} {adapter:2} {interface} {address}", "PMIX_MCA_gds": "hash"}
    assert (
        parse_config(changed(f"{IB}.environment", values, SLURM)).fabrics["infiniband"].environment == values
    )


def test_a_plugin_that_breaks_the_tables_way() -> None:
    """NCCL_NET_PLUGIN beside the table's NCCL_NET is a mistake; with a NCCL_NET of one's own it isn't."""
    fabric = {"kind": "slingshot", "interface": "hsn0", "adapter": "cxi0"}
    config = changed("fabrics.slingshot", fabric, changed("backends.nccl", {"engine": "nccl"}, SLURM))
    config["environment"] = {"NCCL_NET_PLUGIN": "ofi"}
    [line] = mistakes(config)
    assert line.startswith(
        "config: environment.NCCL_NET_PLUGIN: fabric slingshot: 'ofi' keeps NCCL from finding NCCL_NET="
    )
    config["backends"]["nccl"]["environment"] = {"NCCL_NET": "Libfabric"}
    assert parse_config(config)


@pytest.mark.parametrize("name", ["grid.json", "tables", "logs", "partial"])
def test_reserved_workloads(name: str) -> None:
    """What else lies in a campaign's folder is no workload's name."""
    config = {**BASE, "workloads": {name: {"kind": "micro"}}}
    assert mistakes(config) == [
        f"config: workloads.{name}: this name is taken in the folder of results; take another"
    ]


@pytest.mark.parametrize(("key", "value"), [("campaign", "t\n"), ("environment", {"A\n": "x"})])
def test_schema_refuses_names_that_end_a_line(key: str, value: Any) -> None:
    """`$` in a pattern would also match before a last newline."""
    assert schema_mistakes(changed(key, value))


def test_mends_keep_what_was_written(tmp_path: Path) -> None:
    """A variable's value that YAML makes a number of is quoted with the zeros that it had."""
    path = tmp_path / "c.yaml"
    path.write_text("environment: {A: 1.10, B: 2.00}\n")
    assert mistakes(BASE | load_config([path])) == [
        'config: environment.A: 1.10 is not text or a whole number; quote it: "1.10"',
        'config: environment.B: 2.00 is not text or a whole number; quote it: "2.00"',
    ]


@pytest.mark.parametrize("name", ["on", "no", "off", "null", "1e3", "010", "1.10"])
def test_quoted_names_stay_names(name: str, tmp_path: Path) -> None:
    """A fabric may have any name that YAML would turn into something else, once quoted."""
    path = tmp_path / "c.yaml"
    path.write_text(f'fabrics: {{"{name}": {{interface: "e{name}", rate: 1 Gbit/s}}}}\n')
    fabric = parse_config(BASE | load_config([path])).fabrics[name]
    assert fabric.interface == (f"e{name}",)


def test_ordered_dicts_and_key_order() -> None:
    """The order of keys and the type of mappings make no difference."""

    def turned(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return OrderedDict((key, turned(item)) for key, item in reversed(value.items()))

    assert parse_config(turned(BASE)) == parse_config(BASE)
    assert str(parse_config(turned(BASE)).to_json()) == str(parse_config(BASE).to_json())


def test_unknown_torchvision_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torchvision isn't installed, any model's name passes."""
    monkeypatch.setattr(config_train, "classifiers", lambda: frozenset())
    assert parse_config(changed("workloads.vgg16.model", "vgg61"))


SHIPPED = [
    ROOT / "config" / "config.yaml",
    *(path for name in ("examples", "published") for path in sorted((ROOT / "config" / name).glob("*.yaml"))),
]


@pytest.mark.parametrize("path", SHIPPED, ids=[path.name for path in SHIPPED])
def test_shipped_configurations_are_valid(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every configuration that is shipped parses, and its grid has cells."""
    monkeypatch.setattr(config_train, "classifiers", lambda: frozenset())
    assert expand(parse_config(load_config([path])), lambda *_: "").cells


def test_parsing_imports_nothing_heavy() -> None:
    """Parsing and expanding the default imports no torch, numpy, numba, pandas or mpi4py."""
    code = (
        "import sys; from pathlib import Path;"
        "from fabricbench.config import *; from fabricbench.grid import expand;"
        f"expand(parse_config(load_config([Path({str(ROOT / 'config/config.yaml')!r})])), lambda *_: '');"
        "print({'torch', 'torchvision', 'numpy', 'numba', 'pandas', 'mpi4py'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: {c: 1, c: 2}\n", "2: key 'c' stands twice (also in line 2)"),
        ("on: 1\n", "1: key 'on' is a boolean to YAML; quote it: \"on\""),
        ("a:\n  010: 1\n", "2: key '010' is a number to YAML; quote it: \"010\""),
        ("null: 1\n", "1: key 'null' is nothing to YAML; quote it: \"null\""),
        ("1.5: 1\n", "1: key '1.5' is a number to YAML; quote it: \"1.5\""),
        ("a: [eth0, no]\n", "1: 'no' is a boolean to YAML; write false, or if it is a text, quote it: "
         "\"no\""),
        ("a: yes\n", "1: 'yes' is a boolean to YAML; write true, or if it is a text, quote it: \"yes\""),
        ("a: 12:30:00\n", "1: '12:30:00' is a number to YAML; write a time with its unit, as 90 s, or if it "
         "is a text, quote it: \"12:30:00\""),
        ("a: 010\n", "1: '010' is a number to YAML; write the number in plain digits, or if it is a text, "
         "quote it: \"010\""),
        ("a: -.inf\n", "1: '-.inf' is a number to YAML; write a finite number, or if it is a text, quote it: "
         "\"-.inf\""),
        ("b: 1\na: &a [*a]\n", "2: an alias below stands for this, which holds the alias; remove it there"),
        ("a: &a {e: *a}\n", "1: an alias below stands for this, which holds the alias; remove it there"),
        ("a: " + "{e: " * 900 + "1" + "}" * 900, "1: nested more than 50 levels deep; write it flatter"),
        ("a: " + "1" * 5000, "1: a number of 5000 digits is too long; write a smaller one"),
        ("a: &a [1,1,1,1,1,1,1]\n" + "".join(
            f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in pairwise("abcdefg")
         ), "6: more than 100000 values, with those of aliases; write fewer"),
        ("a: !!int abc\n", "1: tag !!int is not for configurations; remove it"),
        ("a: !!bool 'abc'\n", "1: tag !!bool is not for configurations; remove it"),
        ("a: !!timestamp abc\n", "1: tag !!timestamp is not for configurations; remove it"),
        ("a: !!binary aGk=\n", "1: tag !!binary is not for configurations; remove it"),
        ("a: !!set {b}\n", "1: tag !!set is not for configurations; remove it"),
        (f"a: !!int '{'9' * 5000}'\n", "1: tag !!int is not for configurations; remove it"),
        ("!!int 'a': 1\n", "1: key 'a' has a tag; remove it"),
        ("a: 2026-01-01\n", "1: '2026-01-01' is a date to YAML; quote it: \"2026-01-01\""),
        ("a: [1\nb: 2\n", "2: did not find expected ',' or ']'"),
    ],
)  # fmt: skip
def test_yaml_traps(tmp_path: Path, text: str, line: str) -> None:
    """Doubled keys, and words that YAML turns into something else, are mistakes with file and line."""
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config([path])
    assert str(caught.value) == f"{path}:{line}"


def test_yaml_leaves_plain_values(tmp_path: Path) -> None:
    """Numbers, true and false, quoted words, anchors and merged mappings stay what they are."""
    path = tmp_path / "c.yaml"
    path.write_text("a: &x {b: 1, c: 1.0, d: true, e: 'on', f: 1e3}\ng: {<<: *x, b: 2}\nh: 1.1e+9\n")
    assert load_config([path]) == {
        "a": {"b": 1, "c": 1.0, "d": True, "e": "on", "f": "1e3"},
        "g": {"b": 2, "c": 1.0, "d": True, "e": "on", "f": "1e3"},
        "h": 1.1e9,
    }


def test_later_files_win(tmp_path: Path) -> None:
    """Files are merged key by key; lists and scalars of the later one replace."""
    one, two, empty = tmp_path / "1.yaml", tmp_path / "2.yaml", tmp_path / "3.yaml"
    one.write_text("a: {b: 1, c: [1, 2]}\nd: 1\n")
    two.write_text("a: {c: [3]}\ne: 2\n")
    empty.write_text("# nothing\n")
    assert load_config([one, two, empty]) == {"a": {"b": 1, "c": [3]}, "d": 1, "e": 2}


@pytest.mark.parametrize(("text", "what"), [(None, "can't be read: No such"), ("[1]", "must be a mapping")])
def test_files_that_are_no_configuration(tmp_path: Path, text: str | None, what: str) -> None:
    """A file that is missing or no mapping is one line that names it."""
    path = tmp_path / "c.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config([path])
    assert str(caught.value).startswith(f"{path}: {what}")


@pytest.mark.parametrize(
    ("parse", "texts", "value"),
    [
        (
            parse_rate,
            ["25Gbit", "25 Gbit/s", "25 Gb/s", "25Gbps", 25e9, 25_000_000_000, "25e9"],
            25_000_000_000,
        ),
        (parse_rate, ["400 Mbit", "0.4 Gbit/s"], 400_000_000),
        (parse_duration, ["5 us", "5us", "5 µs", 5e-6, "0.005 ms", "5e-6"], 5e-6),
        (parse_duration, ["5 min", 300, "300 s"], 300),
        (parse_share, ["0.1 %", "0.1%", 0.001, "1e-3"], 0.001),
        (parse_bytes, ["64 KB", "64KiB", 65536, "65536 B"], 65536),
    ],
)
def test_spelling_of_quantities_is_no_difference(parse: Any, texts: list[Any], value: float) -> None:
    """One quantity in several spellings is one number."""
    assert {parse(text) for text in texts} == {value}


@pytest.mark.parametrize(
    ("value", "sizes"),
    [
        ("1 KB..16 KB", [1024, 4096, 16384]),
        ("1 KB..8 KB", [1024, 4096, 8192]),
        ("64 KB", [65536]),
        (["4 KB", 8, "1 KB", 8], [8, 1024, 4096]),
    ],
)
def test_sizes(value: Any, sizes: list[int]) -> None:
    """Sizes are a range that holds its end, one size, or a list."""
    assert parse_sizes(value, 4) == sizes


def keys_of(part: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any], bool]]:
    """(path, description, whether required) of every key in a schema."""
    if isinstance(part, dict):
        required = set(part.get("required", [])) | set(part.get("then", {}).get("required", []))
        if "const" not in str(part.get("properties", "")):
            for name, value in part.get("properties", {}).items():
                yield f"{path}.{name}", value, name in required
        for name, value in part.items():
            yield from keys_of(value, f"{path}.{name}")


@pytest.mark.parametrize(("path", "key", "required"), list(keys_of(schema())))
def test_schema_describes_every_key(path: str, key: dict[str, Any], required: bool) -> None:
    """Every key in the schema has a description, and a default unless it is required."""
    assert key["description"]
    assert required or "default" in key


def test_schema_is_valid() -> None:
    """The schema itself is JSON Schema draft 2020-12."""
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(schema())


def test_fabrics_are_compared_with_the_first_by_name_unless_the_config_says_otherwise():
    """Comparisons, margin and the length of a block have defaults."""
    campaign = parse_config(BASE)
    assert [vars(one) for one in campaign.compare] == [{"by": "fabric", "baseline": "ethernet"}]
    assert (campaign.margin, campaign.pair_within_s, campaign.seed) == (0.05, 3600, 1)
    asked = [{"by": "backend", "baseline": "mpi"}, {"by": "library", "baseline": "mpich"}]
    campaign = parse_config(BASE | {"compare": asked, "margin": "2 %", "pair_within": "30 min"})
    assert [vars(one) for one in campaign.compare] == asked
    assert (campaign.margin, campaign.pair_within_s) == (0.02, 1800)


def test_tags_as_programs_write_them_are_read(tmp_path):
    """`!!int "2"` is 2, and `!!bool "true"` is true."""
    path = tmp_path / "config.yaml"
    path.write_text('a: !!int "2"\nb: !!bool "true"\nc: !!float "0.5"\nd: !!str 2\n')
    assert load_config([path]) == {"a": 2, "b": True, "c": 0.5, "d": "2"}


def test_a_comparison_along_a_parameter_names_one_of_its_values() -> None:
    """Numbers and switches as they are written; another value is a mistake that names those there are."""
    config = changed("workloads.vgg16.batch", [32, 64])
    config["compare"] = [{"by": "batch", "baseline": 64}]
    assert [vars(one) for one in parse_config(config).compare] == [{"by": "batch", "baseline": "64"}]
    config["compare"] = [{"by": "batch", "baseline": 48}]
    assert mistakes(config) == ["config: compare.0.baseline: '48' is no batch here; known: 32, 64"]
