"""What a training step must have sent. Pure functions, in payload bytes."""

from collections.abc import Sequence

from fabricbench.cell import Cell
from fabricbench.fabrics.traffic import NOTHING, Formula, allreduce, together


def of_steps(cell: Cell, buckets: Sequence[int], buffers: Sequence[int], steps: int) -> Formula:
    """`steps` times an all-reduce per bucket, and a broadcast per coalesced group of buffers (bytes each)."""
    reduced = [
        allreduce(cell.backend, cell.environment, cell.gpus, cell.ranks_per_node, size) for size in buckets
    ]
    sent = [broadcast(cell.backend["engine"], cell.gpus, size) for size in buffers]
    return together([*reduced, *sent]).times(steps)


def broadcast(engine: str, ranks: int, size: float) -> Formula:
    """Rank 0's `size` bytes to all: Gloo's is a binomial tree; of others, any of tree, chain or flat."""
    if ranks < 2:
        return NOTHING
    tree = dict.fromkeys(binomial_tree(ranks), (size, 1))
    if engine == "gloo":
        return Formula("binomial-tree broadcast", ((tree,),))
    chain = {(rank, rank + 1): (size, 1) for rank in range(ranks - 1)}
    flat = {(0, rank): (size, 1) for rank in range(1, ranks)}
    return Formula("broadcast, the library's choice", ((tree, chain, flat),))


def binomial_tree(ranks: int) -> list[tuple[int, int]]:
    """(parent, child) of every message from rank 0: in round i, the first 2^i ranks send 2^i further."""
    pairs, have = [], 1
    while have < ranks:
        pairs += [(rank, rank + have) for rank in range(min(have, ranks - have))]
        have *= 2
    return pairs
