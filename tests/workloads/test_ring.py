"""The ring all-reduce, over messages within one process."""

from itertools import pairwise

import numpy as np
import pytest
from wire import Wire, numbers, take_turns

from fabricbench.workloads.ring import WINDOW, ring_allreduce, segments


def reduced(ranks, count, segment_bytes, tag=0):
    """What every rank has after a ring all-reduce, and the wire."""
    wire = Wire(ranks)
    arrays = [numbers(rank, count) for rank in range(ranks)]
    take_turns(
        ring_allreduce(wire.comm(rank), arrays[rank], np.ndarray.__iadd__, np.empty, tag, segment_bytes)
        for rank in range(ranks)
    )
    return arrays, wire


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 64, 1001])
@pytest.mark.parametrize("segment_bytes", [8, 64, 10**6])
def test_every_rank_has_the_sum(ranks, count, segment_bytes):
    """Of any size, fewer elements than ranks too, in one segment a chunk or in more than fit the window."""
    arrays, _ = reduced(ranks, count, segment_bytes)
    expected = sum(numbers(rank, count) for rank in range(ranks))
    for array in arrays:
        assert (array == expected).all()


def test_each_rank_sends_two_n_minus_one_over_n_of_the_bytes_to_the_next():
    """And nothing to any other."""
    _, wire = reduced(4, 4096, 1024)
    assert dict(wire.sent) == {(rank, (rank + 1) % 4): 2 * 3 * 1024 * 8 for rank in range(4)}


def test_segments_cover_every_chunk_once_and_are_as_many_in_each():
    """Ranks agree on them without a word; the longest is no longer than allowed."""
    chunks = segments(1003, 4, 100)
    ends = [edge for chunk in chunks for edge in chunk]
    assert (ends[0][0], ends[-1][1]) == (0, 1003)
    assert all(before[1] == after[0] for before, after in pairwise(ends))
    assert {len(chunk) for chunk in chunks} == {3}
    assert max(high - low for low, high in ends) <= 100


def test_segments_are_passed_on_before_the_chunk_is_whole():
    """So that sums and transfers overlap: when one segment is added, it is on its way to the next rank."""
    wire = Wire(2)
    arrays = [numbers(rank, 4 * WINDOW) for rank in range(2)]
    rings = [
        ring_allreduce(wire.comm(rank), arrays[rank], np.ndarray.__iadd__, np.empty, 0, 8)
        for rank in range(2)
    ]
    waits = [next(ring) for ring in rings]
    before = wire.sent[0, 1]
    assert before == 2 * WINDOW * 8  # its own chunk, in segments of one element
    for ring, requests in zip(rings, waits, strict=True):
        assert requests[0].Test()
        next(ring)
    assert wire.sent[0, 1] == before + 8
