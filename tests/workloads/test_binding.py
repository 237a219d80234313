"""Cores, memory and locality of each rank, on machines that are made up."""

import os

import pytest
from cells import a_cell

from fabricbench.errors import LaunchError
from fabricbench.fabrics.node import Rails
from fabricbench.workloads import binding
from fabricbench.workloads.seat import Seat

TWO_SOCKETS = {"0": [0, 1, 2, 3], "1": [4, 5, 6, 7]}
ETH0 = Rails(("eth0",), (), ("10.0.0.1",))


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Eight cores, and an affinity that is kept instead of set."""
    cores = set(range(8))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cores))

    def bind(_, wanted):
        cores.clear()
        cores.update(wanted)

    monkeypatch.setattr(os, "sched_setaffinity", bind)
    return cores


def facts(numa=TWO_SOCKETS, card=None, gpus=()):
    """A node's facts, as far as binding reads them."""
    return {
        "numa": numa,
        "interfaces": {"eth0": {"numa": card}},
        "adapters": {"mlx5_0": {"numa": 1}},
        "gpus": [{"numa": node} for node in gpus],
    }


def bound(local_rank=0, *, ranks=2, of_node=None, rails=ETH0, **wanted):
    """Bind one local rank of a node with `ranks` ranks, two nodes, MPI with one thread."""
    changes = {"launcher": "host", "gpus": 2 * ranks, "nodes": 2, "ranks_per_node": ranks}
    changes |= {key: wanted.pop(key) for key in ("device", "threads_per_rank") if key in wanted}
    cell = a_cell("micro", wanted.pop("engine", "mpi"), binding=wanted, **changes)
    os.sched_setaffinity(0, range(8))  # as before any binding
    seat = Seat(rank=local_rank, size=2 * ranks, node=0, local_rank=local_rank, store="")
    return binding.bind(cell, seat, of_node or facts(), rails)


def test_ranks_get_cores_of_their_own():
    """One core per thread, one after another."""
    assert bound(1, threads_per_rank=2)["cores"] == [2, 3]


def test_an_engines_own_thread_gets_a_core_as_well():
    """A rank of Gloo computes with one thread and moves bytes with another."""
    assert bound(1, engine="gloo")["cores"] == [2, 3]


def test_ranks_that_must_share_cores_are_not_bound():
    """auto leaves all cores to all ranks when there are too few; core refuses, with the mend."""
    assert bound(ranks=9)["cores"] == list(range(8))
    with pytest.raises(
        LaunchError, match="9 ranks of 1 cores each, and there are 8 cores here; set it to auto"
    ):
        bound(ranks=9, cpu="core")


def test_none_binds_nothing():
    """Every core is allowed."""
    assert bound(cpu="none")["cores"] == list(range(8))


def test_cores_may_be_named_by_local_rank():
    """As on machines whose GPUs and cores are numbered in another order."""
    assert bound(1, cpu=[[6, 7], [2]])["cores"] == [2]


@pytest.mark.parametrize(
    ("cpu", "words"),
    [([[0]], "cores of 1 local ranks, a node has 2"), ([[0], [9]], r"no core \[9\] here")],
)
def test_named_cores_that_do_not_exist_are_refused(cpu, words):
    """One line with the key and what there is."""
    with pytest.raises(LaunchError, match=f"cluster.binding.cpu: .*{words}"):
        bound(1, cpu=cpu)


def test_cores_near_the_card_come_first():
    """The card sits on the second socket, so the ranks do."""
    found = bound(0, of_node=facts(card=1))
    assert (found["cores"], found["numa"], found["card_numa"]) == ([4], [1], [1])
    assert bound(0, of_node=facts(card=1), near="none")["numa"] == [0]


def test_cores_near_the_ranks_gpu_come_before_those_near_the_card():
    """auto follows the GPU where the cell computes on one."""
    of_node = facts(card=0, gpus=[1, 0])
    found = bound(0, of_node=of_node, device="cuda")
    assert (found["numa"], found["gpu_numa"]) == ([1], 1)
    assert bound(0, of_node=of_node, device="cuda", near="nic")["numa"] == [0]
    assert bound(0, of_node=of_node)["gpu_numa"] is None


def test_an_adapters_place_counts_before_its_interfaces():
    """With EFA the interface is another card than the adapter that moves the bytes."""
    found = bound(0, of_node=facts(card=0), rails=Rails(("eth0",), ("mlx5_0",)))
    assert (found["numa"], found["card_numa"]) == ([1], [1])


@pytest.mark.parametrize(
    ("visible", "numa"), [("1,0", 0), ("0,1", 1), ("GPU-3f2a,GPU-77b1", None), ("6,7", None), ("1", 0)]
)
def test_gpus_are_counted_as_cuda_shows_them(monkeypatch, visible, numa):
    """Of those in CUDA_VISIBLE_DEVICES; by UUID, or hidden by a control group, their place isn't known."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert bound(0, of_node=facts(gpus=[1, 0]), device="cuda")["gpu_numa"] == numa


def test_each_rank_is_near_its_own_gpu():
    """Two GPUs on each socket: no core is given twice, and every rank is on its GPU's socket."""
    of_node = facts(gpus=[0, 0, 1, 1])
    found = [bound(rank, ranks=4, of_node=of_node, device="cuda") for rank in range(4)]
    assert [one["cores"] for one in found] == [[0], [1], [4], [5]]
    assert all(one["numa"] == [one["gpu_numa"]] for one in found)


def test_memory_follows_the_cores_where_that_means_something():
    """On one NUMA node there is nothing to bind, and `none` binds nothing."""
    assert bound(of_node=facts(numa={"0": list(range(8))}))["memory"] is None
    assert bound(memory="none")["memory"] is None


def test_memory_is_bound_and_read_back_from_the_kernel(monkeypatch):
    """`local` sets the policy of this very process to the NUMA node of its cores; undone after."""
    found = bound(memory="local", of_node=facts(numa={"0": list(range(8))}))
    assert found["memory"] == [0]
    binding.ctypes.CDLL(None).syscall(
        binding.SYSCALLS[binding.platform.machine()][0], binding.MPOL_DEFAULT, None, 0
    )


def test_memory_that_can_not_be_bound_is_refused_only_where_it_was_asked_for(monkeypatch):
    """On a machine whose system call isn't known: auto goes without, local says so."""
    monkeypatch.setattr(binding, "SYSCALLS", {})
    assert bound()["memory"] is None
    with pytest.raises(LaunchError, match=r"cluster.binding.memory: local: .* set it to auto"):
        bound(memory="local")
