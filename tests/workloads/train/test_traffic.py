"""What training must have sent."""

from cells import a_cell

from fabricbench.fabrics.traffic import by_node
from fabricbench.workloads.train.traffic import binomial_tree, broadcast, of_steps


def test_a_ring_per_bucket_and_step() -> None:
    """Two ranks: each sends every bucket once per step."""
    cell = a_cell("train", "gloo")
    for node in by_node(of_steps(cell, [1000, 500], [], 7), 1, 2):
        assert node.tx_bytes == (7 * 1500, 7 * 1500)


def test_buffers_go_from_rank_0_to_all() -> None:
    """Broadcast before each step, beside the all-reduce."""
    cell = a_cell("train", "gloo")
    first, second = by_node(of_steps(cell, [1000], [100, 8], 2), 1, 2)
    assert first.tx_bytes[0] - second.tx_bytes[0] == 2 * 108


def test_a_binomial_tree_reaches_every_rank_once() -> None:
    """Also where they aren't a power of two; in round i the first 2^i ranks send."""
    assert binomial_tree(6) == [(0, 1), (0, 2), (1, 3), (0, 4), (1, 5)]
    for ranks in range(1, 20):
        assert sorted(child for _, child in binomial_tree(ranks)) == list(range(1, ranks))


def test_a_library_s_broadcast_may_be_any() -> None:
    """From one message out of rank 0's node (a chain) to one per rank."""
    node = by_node(broadcast("nccl", 4, 10), 1, 4)[0]
    assert node.tx_bytes == (10, 30)


def test_one_rank_sends_nothing() -> None:
    """It has no DDP, so no buckets."""
    assert by_node(of_steps(a_cell("train", "gloo", gpus=1, nodes=1), [], [], 5), 1, 1)[0].tx_bytes == (0, 0)
