"""`fabricbench select`: what each fabric and backend get, before anything is started."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from fabricbench.campaign import Campaign
from fabricbench.cli import main
from fabricbench.config import load_config, parse_config
from fabricbench.errors import ConfigError
from fabricbench.grid import expand
from fabricbench.select_view import render, selections

EXAMPLES = Path(__file__).resolve().parents[1] / "config" / "examples"


def example(name: str) -> Campaign:
    """A shipped configuration."""
    return parse_config(load_config([EXAMPLES / f"{name}.yaml"]))


def entry(name: str, fabric: str, backend: str) -> dict[str, Any]:
    """What a shipped configuration selects for one fabric and backend."""
    [found] = selections(example(name), [fabric], [backend])
    return found


@pytest.mark.parametrize(
    ("name", "fabric", "backend", "variable", "value"),
    [
        ("host", "loopback", "gloo", "GLOO_SOCKET_IFNAME", "lo"),
        ("paper", "ethernet", "nccl-no-gpudirect", "NCCL_SOCKET_IFNAME", "=eth0"),
        ("paper", "omnipath", "nccl", "PSM2_GPUDIRECT", "1"),
        ("paper", "omnipath", "mpi", "OMPI_MCA_mtl", "psm2"),
        ("h100-infiniband", "infiniband-1", "nccl", "NCCL_IB_HCA", "=mlx5_0:1"),
        ("h100-infiniband", "ethernet", "gloo", "GLOO_SOCKET_IFNAME", "{interface}"),
        ("h100-infiniband", "infiniband", "mpi", "UCX_NET_DEVICES",
         "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1,mlx5_6:1,mlx5_7:1,mlx5_8:1,mlx5_9:1"),
        ("slingshot", "slingshot", "nccl", "FI_CXI_DEVICE_NAME", "cxi0,cxi1,cxi2,cxi3"),
        ("slingshot", "slingshot", "nccl", "NCCL_NET", "AWS Libfabric"),
        ("slingshot", "slingshot", "nccl", "NCCL_PROTO", "^LL128"),
        ("slingshot", "slingshot", "nccl", "NCCL_NET_GDR_LEVEL", "PHB"),
    ],
)  # fmt: skip
def test_examples_select_their_networks(
    name: str, fabric: str, backend: str, variable: str, value: str
) -> None:
    """Each example tells the library which network to take, and its grid's cells have the same."""
    assert entry(name, fabric, backend)["environment"][variable] == value
    cells = [cell.cell for cell in expand(example(name), lambda *_: "").cells]
    of_pair = [c for c in cells if (c.fabric["name"], c.backend["name"]) == (fabric, backend)]
    assert {cell.environment[variable] for cell in of_pair} == {value}


def test_what_a_fabric_cannot_carry_has_its_reason() -> None:
    """No variables, but the reason; nothing that would prove it either."""
    found = entry("paper", "ethernet", "nccl")
    assert found["unsupported"].startswith("TCP stages GPU data")
    assert (found["environment"], found["path"], found["note"]) == ({}, None, None)


def test_workloads_that_differ_stand_apart() -> None:
    """One entry for each distinct outcome, with the workloads that it is for."""
    raw = load_config([EXAMPLES / "host.yaml"])
    raw["workloads"]["micro"]["environment"] = {"A": "b c", "GLOO_SOCKET_IFNAME": None}
    found = selections(parse_config(raw), backends=["gloo"])
    assert [(e["workloads"], e["environment"], e["unset"]) for e in found] == [
        (["micro"], {"A": "b c"}, ["GLOO_SOCKET_IFNAME"]),
        (["resnet18"], {"GLOO_SOCKET_IFNAME": "lo"}, []),
    ]
    assert "  A='b c'\n  unset GLOO_SOCKET_IFNAME  # yours; the table has lo\n" in render(found)
    said = "  # proven by the counters of the network interface"
    assert [line for line in render(found).splitlines() if line.startswith(said)] == [
        f"{said}, unless what is yours leads elsewhere",
        said,
    ]


def test_a_users_own_value_is_marked() -> None:
    """Beside a value that replaces the table's stands the table's, and scripts get it as well."""
    raw = load_config([EXAMPLES / "host.yaml"])
    raw["environment"] = {"GLOO_SOCKET_IFNAME": "eth7"}
    found = selections(parse_config(raw), backends=["gloo"])
    assert [each["replaced"] for each in found] == [{"GLOO_SOCKET_IFNAME": "lo"}]
    assert "  GLOO_SOCKET_IFNAME=eth7  # yours; the table has lo\n" in render(found)


def test_names_given_twice_are_shown_once() -> None:
    """A pair stands once, however often its names are given."""
    assert len(selections(example("host"), ["loopback"] * 2, ["gloo"] * 2)) == 1


def test_text_is_quoted_for_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed is what a shell would read back."""
    config = str(EXAMPLES / "slingshot.yaml")
    only = ["--fabric", "slingshot", "--backend", "nccl"]
    assert main(["select", "--config", config, *only]) == 0
    said = capsys.readouterr().out
    assert said.startswith("slingshot × nccl (resnet50)\n")
    assert "  NCCL_NET='AWS Libfabric'\n" in said
    words = (word.partition("=") for word in shlex.split(said, comments=True)[4:])
    assert main(["select", "--config", config, *only, "--json"]) == 0
    [plain] = json.loads(capsys.readouterr().out)
    assert {name: value for name, _, value in words} == plain["environment"]


def test_notes_and_tokens_are_visible() -> None:
    """A weak row is marked, and so is what only a node can fill in."""
    raw = load_config([EXAMPLES / "paper.yaml"])
    raw["fabrics"]["omnipath"]["provider"] = "opx"
    raw["fabrics"]["omnipath"]["adapter"] = ["hfi1_0", "hfi1_1"]
    raw["fabrics"]["omnipath"]["ports_per_node"] = 1
    said = render(selections(parse_config(raw), ["omnipath"], ["nccl"]))
    assert "  FI_OPX_HFI_SELECT='{unit}'\n" in said
    assert "# names in braces are found on each node" in said
    assert "# note: NCCL over OPX is the least documented row" in said
    assert "# proven by the counters of the adapter's port" in said


@pytest.mark.parametrize(("fabrics", "backends"), [(["omnipaht"], []), ([], ["omnipaht"])])
def test_unknown_names_are_mistakes(fabrics: list[str], backends: list[str]) -> None:
    """A name that the config doesn't have is one line."""
    with pytest.raises(ConfigError, match="omnipaht: the config has no such name; "):
        selections(example("paper"), fabrics, backends)


def test_the_papers_comparison_is_one_config() -> None:
    """NCCL with and without GPUDirect, MPI through the host and CUDA-aware, and Gloo all get cells."""
    cells = [cell.cell for cell in expand(example("paper"), lambda *_: "").cells]
    backends = {(c.backend["name"], c.device) for c in cells}
    gpu = {("nccl", "cuda"), ("nccl-no-gpudirect", "cuda"), ("gloo", "cuda"), ("mpi", "cuda")}
    assert backends >= gpu | {("mpi-cuda", "cuda"), ("mpi", "cpu"), ("gloo", "cpu")}
