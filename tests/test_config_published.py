"""Which published rates a config repeats: resolved to their values, and a line for each mistake."""

import copy
from pathlib import Path
from typing import Any

import pytest

from fabricbench.config import load_config, parse_config
from fabricbench.errors import ConfigError

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "config" / "published" / "horovod-25g.yaml"
RAW = load_config([CONFIG])


def changed(path: str, value: Any) -> dict[str, Any]:
    """The config with another value at a dotted path."""
    config: dict[str, Any] = copy.deepcopy(RAW)
    *parents, last = path.split(".")
    place: Any = config
    for key in parents:
        place = place[int(key) if isinstance(place, list) else key]
    place[int(last) if isinstance(place, list) else last] = value
    return config


def mistake(path: str, value: Any) -> str:
    """The one line that a changed config gives."""
    with pytest.raises(ConfigError) as caught:
        parse_config(changed(path, value))
    return str(caught.value)


def test_rates_are_resolved_with_what_was_fitted() -> None:
    """Six of the reference's rates, each with its one-GPU rate; three of them were fitted."""
    published = parse_config(RAW).published
    assert published is not None
    assert published.unresolved == 0.025
    rates = {(rate.model, rate.fabric): rate for rate in published.rates}
    assert len(rates) == 6
    vgg = rates["vgg16", "tcp"]
    assert (vgg.images_per_s, vgg.one_gpu_images_per_s, vgg.gpus, vgg.batch) == (1308.7, 130.9, 16, 64)
    assert {key: rate.fits for key, rate in rates.items() if rate.fits} == {
        ("vgg16", "tcp"): "effective",
        ("vgg16", "rdma"): "effective",
        ("inception_v3", "rdma"): "fixed_cost",
    }


def test_rates_without_cells_are_left_out() -> None:
    """Another batch is another measurement."""
    published = parse_config(changed("workloads.resnet101.batch", 32)).published
    assert published is not None
    assert {rate.model for rate in published.rates} == {"vgg16", "inception_v3"}


def test_fabrics_may_have_other_names() -> None:
    """`roce: rdma` says which of the reference's it is."""
    config = changed("fabrics.roce", RAW["fabrics"]["rdma"])
    del config["fabrics"]["rdma"]
    config["compare"] = []
    config["published"] = {**RAW["published"], "fabrics": {"tcp": "tcp", "roce": "rdma"}, "fitted": []}
    published = parse_config(config).published
    assert published is not None
    assert {rate.fabric for rate in published.rates} == {"tcp", "roce"}


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("published.reference", "horovod-2018", "published.reference: 'horovod-2018' is no file of "
         "reports/references; did you mean 'horovod-2017'?"),
        ("published.engine", "ncl", "published.engine: 'ncl' has no rates in horovod-2017; "
         "did you mean 'nccl'?"),
        ("published.fabrics.tcpp", "tcp", "published.fabrics.tcpp: no such fabric here; did you mean 'tcp'?"),
        ("published.fabrics.tcp", "tpc", "published.fabrics.tcp: 'tpc' is no fabric of the reference; "
         "did you mean 'tcp'?"),
        ("published.fitted.0.model", "vgg61", "published.fitted.0.model: 'vgg61' has no published rate; "
         "did you mean 'vgg16'?"),
        ("published.fitted.0.fabric", "rmda", "published.fitted.0.fabric: 'rmda' has no published rate; "
         "did you mean 'rdma'?"),
        ("published.fitted.2.fits", "fixed", "published.fitted.2.fits: 'fixed' is not known; "
         "did you mean 'fixed_cost'?"),
        ("published.fitted.2", {"model": "inception_v3", "fabric": "tcp", "fits": "effective"},
         "published.fitted.2.fits: effective is fitted twice; keep one rate for it"),
        ("published.fitted.2", {"model": "vgg16", "fabric": "rdma", "fits": "fixed_cost"},
         "published.fitted.2: vgg16 over rdma is there twice; a rate can fit one value"),
        ("gpus", [8], "published: no workload trains one of inception_v3, resnet101, vgg16 as the "
         "reference did: by replay, batch 64 on 16 GPUs, 4 per node"),
        ("workloads.vgg16.batch", 32, "published.fitted: vgg16 over rdma is no cell of the grid; "
         "measure it, too"),
        ("fabrics.tcp.effective", "26 Gbit/s", "fabrics.tcp.effective: '26 Gbit/s' is above the line rate of "
         "'25 Gbit/s'; write what was reached of it, or leave it out"),
        ("fabrics.tcp.effective", "13.8 GB/s", "fabrics.tcp.effective: '13.8 GB/s': 'GB/s' counts bytes; "
         "write bits, as 25 Gbit/s (1 byte is 8 bit)"),
        ("fabrics.tcp.interface", "eth1", "fabrics.tcp.interface: 'eth1' is also fabric 'rdma' with another "
         "effective; give it another interface, or the same effective (the same definition is "
         "an A/A control)"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(path: str, value: Any, line: str) -> None:
    """Key, value and mend."""
    assert mistake(path, value) == f"config: {line}"


def test_links_are_shaped_to_what_is_reached() -> None:
    """13.8 Gbit/s over S·D; the line rate is kept beside it."""
    config = changed("cluster.scale", {"bytes": 100, "time": 2})
    config["fabrics"]["tcp"]["effective"] = "13.8 Gbit/s"
    fabric = parse_config(config).fabrics["tcp"]
    assert (fabric.rate_bit_s, fabric.effective_bit_s, fabric.link_bit_s) == (
        25_000_000_000,
        13_800_000_000,
        69_000_000,
    )
    del config["fabrics"]["tcp"]["effective"]
    fabric = parse_config(config).fabrics["tcp"]
    assert (fabric.effective_bit_s, fabric.link_bit_s) == (None, 125_000_000)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "config" / "published").glob("*.yaml")), ids=lambda path: path.stem
)
def test_real_clusters_have_no_effective_rate(path: Path) -> None:
    """There the network reaches what it reaches."""
    config = load_config([path])
    config["cluster"] = {"kind": "slurm", "nodes": 4, "gpus_per_node": 4}
    with pytest.raises(ConfigError) as caught:
        parse_config(config)
    lines = str(caught.value).splitlines()
    effective = [name for name, fabric in config["fabrics"].items() if "effective" in fabric]
    for name in effective:
        assert f"config: fabrics.{name}.effective: only emulated fabrics have it; remove it" in lines
