"""What must cross between nodes, against numbers worked out by hand."""

import pytest

from fabricbench.fabrics.traffic import (
    ALLREDUCE,
    NOTHING,
    Formula,
    allreduce,
    by_node,
    on_the_wire,
    point_to_point,
    together,
)

GLOO, NCCL, MPI = {"engine": "gloo"}, {"engine": "nccl"}, {"engine": "mpi"}
PINNED = {
    "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "recursive_doubling",
    "MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM": "sched_recursive_doubling",
}


def sent(formula: Formula, per_node: int, nodes: int) -> list[tuple[float, float]]:
    """[least, most] bytes that each node sends."""
    return [node.tx_bytes for node in by_node(formula, per_node, nodes)]


def test_a_ring_sends_two_n_minus_one_over_n_of_the_message_from_every_rank():
    """Four ranks on four nodes: 1.5 times the message out of each, and as much into it."""
    crossing = by_node(allreduce(GLOO, {}, 4, 1, 100), 1, 4)
    assert [node.tx_bytes for node in crossing] == [(150, 150)] * 4
    assert [node.rx_bytes for node in crossing] == [(150, 150)] * 4
    assert [node.tx_messages for node in crossing] == [6] * 4


def test_of_a_ring_over_several_ranks_a_node_one_leaves_each_node():
    """Eight ranks on four nodes: 2·7/8 of the message leaves each node, by its last rank."""
    assert sent(allreduce(GLOO, {}, 8, 2, 100), 2, 4) == [(175, 175)] * 4


def test_ranks_of_one_node_send_nothing_between_nodes():
    """All of a ring stays inside."""
    assert sent(allreduce(GLOO, {}, 4, 4, 100), 4, 1) == [(0, 0)]
    assert allreduce(MPI, {}, 1, 1, 100) == NOTHING


def test_recursive_doubling_sends_the_whole_message_log2_n_times():
    """Eight ranks on eight nodes: three messages out of each."""
    assert sent(allreduce(MPI, PINNED, 8, 1, 100), 1, 8) == [(300, 300)] * 8


def test_ranks_above_a_power_of_two_fold_in_and_out():
    """Three ranks: the first hands its message to the second and gets the result back from it."""
    nodes = by_node(allreduce(MPI, PINNED, 3, 1, 100), 1, 3)
    assert [node.tx_bytes[0] for node in nodes] == [100, 200, 100]
    assert [node.rx_bytes[0] for node in nodes] == [100, 200, 100]


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_halving_and_doubling_sends_as_much_as_a_ring(ranks):
    """For powers of two both send 2(n-1)/n from every rank."""
    everyone = range(ranks)
    halved = Formula("", ((ALLREDUCE["reduce_scatter_allgather"](everyone, 1000),),))
    ring = Formula("", ((ALLREDUCE["ring"](everyone, 1000),),))
    least = [[low for low, _ in sent(formula, 1, ranks)] for formula in (halved, ring)]
    assert least[0] == pytest.approx(least[1])


def test_what_mpi_may_choose_is_a_range():
    """Unpinned on four nodes: from 1.5 messages (ring) to two (recursive doubling)."""
    assert sent(allreduce(MPI, {}, 4, 1, 100), 1, 4) == [(150, 200)] * 4


def test_an_algorithm_is_known_when_both_calls_have_it():
    """Ranks that share cores make the non-blocking call, others the blocking one."""
    assert allreduce(MPI, PINNED, 4, 1, 100).algorithm == "recursive doubling all-reduce"
    for variable in PINNED:
        assert sent(allreduce(MPI, {variable: PINNED[variable]}, 4, 1, 100), 1, 4) == [(150, 200)] * 4


def test_engine_ring_is_a_ring_whatever_mpi_would_choose():
    """Over MPI's messages, by this program."""
    assert allreduce({"engine": "ring"}, PINNED, 4, 2, 100) == allreduce(GLOO, {}, 4, 2, 100)


def test_what_mpi_may_choose_includes_leaders_alone():
    """Two ranks a node: hierarchical algorithms send as little as the ring over nodes does."""
    assert sent(allreduce(MPI, {}, 4, 2, 100), 2, 2)[0][0] == 100
    flat = {"MPIR_CVAR_ENABLE_SMP_COLLECTIVES": "0"}
    assert sent(allreduce(MPI, flat | PINNED, 4, 2, 100), 2, 2) == [(200, 200)] * 2


def test_nccl_may_reduce_in_the_network_or_over_trees():
    """From one message (in-network) to two (trees) between nodes; exactly the ring's if that is pinned."""
    simple = NCCL | {"protocol": "Simple"}
    assert sent(allreduce(simple, {}, 8, 2, 100), 2, 4) == [(100, 200)] * 4
    assert sent(allreduce(simple | {"algorithm": "Ring"}, {}, 8, 2, 100), 2, 4) == [(175, 175)] * 4


def test_nccls_protocols_add_flags_to_the_data():
    """LL doubles the bytes, LL128 adds 8 to 120; unpinned, it may be any of them."""
    ring = NCCL | {"algorithm": "Ring"}
    assert sent(allreduce(ring | {"protocol": "LL"}, {}, 8, 2, 100), 2, 4) == [(350, 350)] * 4
    assert sent(allreduce(ring | {"protocol": "LL128"}, {}, 8, 2, 120), 2, 4)[0][0] == pytest.approx(224)
    assert sent(allreduce(ring, {}, 8, 2, 100), 2, 4) == [(175, 350)] * 4


def test_of_other_mpi_libraries_nothing_is_assumed():
    """A tree's leaf sends one message, a linear root one to every other rank."""
    open_mpi = MPI | {"library": "openmpi5"}
    assert sent(allreduce(open_mpi, PINNED, 4, 1, 100), 1, 4) == [(100, 300)] * 4


def test_parts_add_up_with_their_own_ranges():
    """A known part and an uncertain one: the least and the most of both, and all messages."""
    both = together([point_to_point(0, 3, 10, count=4), allreduce(MPI, {}, 4, 1, 100).times(2), NOTHING])
    assert sent(both, 1, 4) == [(340, 440), (300, 400), (300, 400), (300, 400)]
    assert both.algorithm == "point to point and all-reduce, MPI's choice"


def test_nothing_sent_is_nothing_together():
    """No operations, no bytes."""
    assert together([]) == NOTHING
    assert sent(NOTHING, 1, 2) == [(0, 0)] * 2


@pytest.mark.parametrize(
    ("payload", "messages", "unit", "counted"),
    [
        (0, 0, 1448, 0),
        (1448, 1, 1448, 1448 + 66),
        (1449, 1, 1448, 1449 + 2 * 66),
        (100, 10, 1448, 100 + 10 * 66),
        (2 * 1448, 1, 2 * 1448, 2 * 1448 + 66),
    ],
)
def test_a_counter_adds_headers_by_packet(payload, messages, unit, counted):
    """Full packets, and at least one per message; a veth's packets hold several segments."""
    assert on_the_wire(payload, messages, unit) == counted
