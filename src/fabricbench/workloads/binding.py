"""Where a rank may run and allocate: cores, memory, and how near it is to its network card and GPU."""

import ctypes
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from fabricbench.cell import Cell
from fabricbench.cores import cores_per_rank
from fabricbench.errors import LaunchError
from fabricbench.fabrics.node import Rails
from fabricbench.workloads.seat import Seat

MPOL_DEFAULT, MPOL_BIND = 0, 2
SYSCALLS = {"x86_64": (238, 239), "aarch64": (237, 236)}
"""Numbers of set_mempolicy and get_mempolicy."""
MOST_NODES = 1024
AUTOMATIC = {"cpu": "auto", "memory": "auto", "near": "auto"}


def bind(cell: Cell, seat: Seat, facts: Mapping[str, Any], rails: Rails) -> dict[str, Any]:
    """Bind this rank as the cell says; returns what it got, for the record.

    cpu `auto` gives each rank of a machine cores of its own, for its threads and its engine's, while there
    are enough, and binds nothing when ranks share cores; `core` insists (LaunchError when too few); a list
    names the cores of each local rank. near: cores of the NUMA node of the rank's GPU or card come first.
    All emulated nodes are one machine, so their ranks are counted together.
    """
    wanted = AUTOMATIC | dict(cell.binding)
    numa = {int(node): cores for node, cores in facts["numa"].items()}
    available = sorted(os.sched_getaffinity(0))
    near = [
        [] if (node := _near(wanted["near"], cell, rank, facts, rails)) is None else numa.get(node, [])
        for rank in range(cell.ranks_per_node)
    ]
    cores = _cores(wanted["cpu"], cell, seat, available, near)
    os.sched_setaffinity(0, cores)
    if (given := sorted(os.sched_getaffinity(0))) != sorted(cores):
        raise LaunchError(f"rank {seat.rank} asked for cores {sorted(cores)}, the kernel gave {given}")
    own = {node for node, members in numa.items() if set(members) & set(given)}
    return {
        "cores": given,
        "numa": sorted(own),
        "memory": _bind_memory(wanted["memory"], own, len(numa), seat),
        "card_numa": _card_numa(facts, rails),
        "gpu_numa": _gpu_numa(cell, seat.local_rank, facts),
    }


def _cores(
    how: str | Sequence[Sequence[int]],
    cell: Cell,
    seat: Seat,
    available: list[int],
    near: Sequence[Sequence[int]],
) -> list[int]:
    """This rank's cores; `near`: for each local rank the cores that it should have first."""
    if not isinstance(how, str):
        if seat.local_rank >= len(how):
            raise LaunchError(
                f"cluster.binding.cpu: lists cores of {len(how)} local ranks, a node has "
                f"{cell.ranks_per_node}"
            )
        if missing := set(how[seat.local_rank]) - set(available):
            raise LaunchError(
                f"cluster.binding.cpu: local rank {seat.local_rank}: no core {sorted(missing)} here; "
                f"there are {sorted(available)}"
            )
        return list(how[seat.local_rank])
    ranks = seat.size if cell.launcher == "emulated" else cell.ranks_per_node
    index = seat.rank if cell.launcher == "emulated" else seat.local_rank
    width = cores_per_rank(cell.threads_per_rank, cell.backend["engine"], cell.kind)
    enough = ranks * width <= len(available)
    if how == "none" or (how == "auto" and not enough):
        return available
    if not enough:
        raise LaunchError(
            f"cluster.binding.cpu: core: {ranks} ranks of {width} cores each, and there are "
            f"{len(available)} cores here; set it to auto, or take fewer gpus"
        )
    free = list(available)
    own: list[int] = []
    for rank in range(index + 1):  # as every rank before this one chose, so that none is taken twice
        first = near[rank % cell.ranks_per_node]
        own = sorted(free, key=lambda core: (core not in first, core))[:width]
        free = [core for core in free if core not in own]
    return own


def _near(how: str, cell: Cell, local_rank: int, facts: Mapping[str, Any], rails: Rails) -> int | None:
    """The NUMA node whose cores come first; None where there is no such wish, or nothing is known."""
    if how in ("gpu", "auto") and (node := _gpu_numa(cell, local_rank, facts)) is not None:
        return node
    cards = _card_numa(facts, rails)
    return cards[local_rank % len(cards)] if how in ("nic", "auto") and cards and cell.nodes > 1 else None


def _card_numa(facts: Mapping[str, Any], rails: Rails) -> list[int | None]:
    """The NUMA node of each rail: of its adapter, where it has one, since that is what moves the bytes."""
    kind, names = ("adapters", rails.adapters) if rails.adapters else ("interfaces", rails.interfaces)
    return [facts[kind].get(name, {}).get("numa") for name in names]


def _gpu_numa(cell: Cell, local_rank: int, facts: Mapping[str, Any]) -> int | None:
    """The NUMA node of a local rank's GPU: those in CUDA_VISIBLE_DEVICES, or all, in order of local ranks.

    None where the numbers can't be known: GPUs named by UUID, or hidden by a scheduler's control group.
    """
    gpus = facts.get("gpus", [])
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(str(n) for n in range(len(gpus)))).split(",")
    if cell.device != "cuda" or not all(number.isdecimal() for number in visible):
        return None
    if local_rank >= len(visible) or int(visible[local_rank]) >= len(gpus):
        return None
    node: int | None = gpus[int(visible[local_rank])].get("numa")
    return node


def _bind_memory(how: str, own: set[int], nodes: int, seat: Seat) -> list[int] | None:
    """Allocate on the NUMA nodes of the rank's own cores only; returns them, or None where all are allowed.

    `auto` does so where it means something: several NUMA nodes, and the rank's cores on one of them.
    """
    if how == "none" or (how == "auto" and (nodes < 2 or len(own) != 1)):
        return None
    set_policy, get_policy = SYSCALLS.get(platform.machine(), (0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    mask = (ctypes.c_ulong * (MOST_NODES // 64))()
    for node in own:
        mask[node // 64] |= 1 << node % 64
    if not set_policy or libc.syscall(set_policy, MPOL_BIND, mask, MOST_NODES) != 0:
        if how == "auto":
            return None
        reason = os.strerror(ctypes.get_errno()) if set_policy else f"not known on {platform.machine()}"
        raise LaunchError(
            f"cluster.binding.memory: local: rank {seat.rank} can't set its memory policy ({reason}); "
            "set it to auto, or allow set_mempolicy in the container"
        )
    policy, got = ctypes.c_int(), (ctypes.c_ulong * (MOST_NODES // 64))()
    libc.syscall(get_policy, ctypes.byref(policy), got, MOST_NODES, None, 0)
    if policy.value != MPOL_BIND or list(got) != list(mask):
        raise LaunchError(f"rank {seat.rank} asked for memory of NUMA nodes {sorted(own)}, and didn't get it")
    return sorted(own)
