"""What each rank ran on and with; kept once per distinct value, with its range of ranks."""

import json
import os
import platform
import socket
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import fabricbench
from fabricbench.cell import Cell

# Files outside the job that change what the libraries do.
HIDDEN_CONFIG = (
    "/etc/nccl.conf",
    "~/.nccl.conf",
    "/etc/openmpi/openmpi-mca-params.conf",
    "~/.openmpi/mca-params.conf",
    "/etc/ucx/ucx.conf",
    "~/.config/ucx/ucx.conf",
    "~/ucx.conf",
)


def runner_provenance(unset: list[str]) -> dict[str, Any]:
    """What is the same for all ranks of a cell: versions, kernel, revision, and what was unset."""
    return {
        "fabricbench": fabricbench.__version__,
        "revision": git_revision(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "unset": unset,
    }


def git_revision() -> str | None:
    """The checkout's commit, with `+` when its tracked files differ from it; None outside a checkout."""
    here = Path(__file__).parent
    try:
        revision = _git(here, "rev-parse", "--short=12", "HEAD")
        dirty = _git(here, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return revision + ("+" if dirty else "")


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def rank_provenance(cell: Cell, binding: dict[str, Any], library: dict[str, str]) -> dict[str, Any]:
    """One rank's machine, binding, libraries and effective environment."""
    return {
        "host": socket.gethostname(),
        "cpu": cpu_model(),
        **binding,
        "threads": int(os.environ.get("OMP_NUM_THREADS", "0")),
        "versions": library,
        "environment": {name: os.environ.get(name) for name in cell.environment},
        "hidden_config": [path for path in HIDDEN_CONFIG if Path(path).expanduser().exists()],
    }


def node_provenance(
    facts: Mapping[str, Any], interfaces: Iterable[str], adapters: Iterable[str]
) -> dict[str, Any]:
    """One node's host, clock, cores' governor, and what its rails are: driver, MTU, rate."""
    shown = ("driver", "kind", "mtu", "speed_bit_s", "numa")
    cards = {name: facts["interfaces"].get(name, {}) for name in interfaces}
    ports = {name: facts["adapters"].get(name, {}) for name in adapters}
    return {
        "host": facts["host"],
        **{name: facts.get(name) for name in ("cpu", "kernel", "clocksource", "governor")},
        "interfaces": {name: {key: of.get(key) for key in shown} for name, of in cards.items()},
        "adapters": {
            name: {key: of.get(key) for key in ("driver", "numa", "ports")} for name, of in ports.items()
        },
        "gpus": facts.get("gpus", []),
    }


def merge_nodes(per_node: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Nodes that are equal but for their names are kept once, with the names of all."""
    seen: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for node in per_node:
        rest = {name: value for name, value in node.items() if name != "host"}
        seen.setdefault(json.dumps(rest, sort_keys=True), (rest, []))[1].append(node["host"])
    return [{"hosts": hosts} | rest for rest, hosts in seen.values()]


def cpu_model() -> str:
    """The processor's name as the kernel gives it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def merge_ranks(per_rank: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entries that are equal but for their host are kept once, with their ranks ("0-3,8") and hosts.

    So a record of 512 ranks has as many entries as a node has distinct ranks.
    """
    seen: dict[str, tuple[dict[str, Any], list[int], list[str]]] = {}
    for rank, entry in enumerate(per_rank):
        rest = {name: value for name, value in entry.items() if name != "host"}
        _, ranks, hosts = seen.setdefault(json.dumps(rest, sort_keys=True), (rest, [], []))
        ranks.append(rank)
        hosts.append(entry["host"])
    return [
        {"ranks": rank_ranges(ranks), "host": list(dict.fromkeys(hosts))} | rest
        for rest, ranks, hosts in seen.values()
    ]


def rank_ranges(ranks: list[int]) -> str:
    """[0, 1, 2, 5] → "0-2,5"."""
    ranges: list[list[int]] = []
    for rank in ranks:
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
