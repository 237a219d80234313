"""A ring all-reduce over MPI point-to-point, as Baidu's (Gibiansky 2017; Patarasuk and Yuan 2009).

n elements over p ranks are p chunks. In p-1 steps every rank passes a chunk to the next and adds the one
that it gets; in p-1 more the sums go round. Chunks travel in segments: a segment is passed on as soon as it
is added, so that sums and transfers overlap.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from fabricbench.workloads.mpi_thread import Steps

SEGMENT_BYTES = 512 * 1024
WINDOW = 8
"""Segments that may arrive ahead of being added."""


def segments(count: int, ranks: int, most: int) -> list[list[tuple[int, int]]]:
    """(start, end) of every segment of every chunk of `count` elements; at most `most` elements each.

    Every chunk has as many segments as any other; some are empty where elements are few.
    """
    edges = [count * chunk // ranks for chunk in range(ranks + 1)]
    longest = max(high - low for low, high in pairwise(edges))
    each = max(1, -(-longest // most))
    return [
        [(low + (high - low) * part // each, low + (high - low) * (part + 1) // each) for part in range(each)]
        for low, high in pairwise(edges)
    ]


def ring_allreduce(
    comm: Any,
    array: Any,
    add: Callable[[Any, Any], object],
    scratch: Callable[[int], Any],
    tag: int = 0,
    segment_bytes: int = SEGMENT_BYTES,
) -> Steps:
    """Reduce `array` (flat, contiguous, the same length on every rank) over all ranks of `comm`, in place.

    `add(into, other)` reduces in place, and has done so when it returns; `scratch(count)` gives memory like
    the array's. Rings that are under way at once need different tags.
    """
    rank: int = comm.Get_rank()
    ranks: int = comm.Get_size()
    count = len(array)
    if ranks == 1 or count == 0:
        return
    chunks = segments(count, ranks, max(1, segment_bytes // array.itemsize))
    parts = len(chunks[0])
    before, after = (rank - 1) % ranks, (rank + 1) % ranks
    adding, turns = (ranks - 1) * parts, 2 * (ranks - 1) * parts
    window = min(WINDOW, parts)
    spare = [scratch(max(high - low for chunk in chunks for low, high in chunk)) for _ in range(window)]
    sends: list[Any] = [None] * turns
    receives: list[Any] = [None] * turns

    def sent(turn: int) -> tuple[int, int]:
        return chunks[(rank - turn // parts) % ranks][turn % parts]

    def received(turn: int) -> tuple[int, int]:
        return chunks[(rank - turn // parts - 1) % ranks][turn % parts]

    def send(turn: int) -> None:
        low, high = sent(turn)
        if high > low:
            sends[turn] = comm.Isend(array[low:high], after, tag)

    def receive(turn: int) -> Steps:
        low, high = received(turn)
        if high == low:
            return
        if turn < adding:
            into = spare[turn % window][: high - low]
        else:  # over what this rank sent when it was added, one round ago
            if (earlier := sends[turn - adding]) is not None:
                yield [earlier]
            into = array[low:high]
        receives[turn] = comm.Irecv(into, before, tag)

    for turn in range(window):
        yield from receive(turn)
    for turn in range(parts):
        send(turn)
    for turn in range(turns):
        if receives[turn] is not None:
            yield [receives[turn]]
            if turn < adding:
                low, high = received(turn)
                add(array[low:high], spare[turn % window][: high - low])
        if turn + parts < turns:
            send(turn + parts)
        if turn + window < turns:
            yield from receive(turn + window)
    yield [request for request in sends if request is not None]
