"""What an algorithm must have sent: bytes and messages between ranks, and from node to node.

Pure functions, in payload bytes: what a counter adds to them (headers, by packet) is `on_the_wire`.
Patterns follow the algorithms' definitions: ring (Patarasuk and Yuan 2009), recursive doubling, and
recursive halving and doubling (Rabenseifner 2004; Thakur et al. 2005, also for other than powers of two).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

Pattern = Mapping[tuple[int, int], tuple[float, int]]
"""(source rank, destination rank) → (payload bytes, messages)."""

HEADERS_TCP = 14 + 20 + 20 + 12
"""Ethernet, IPv4, and TCP with time stamps: what a packet on a network interface has beside its payload."""
HEADERS_RDMA = 8 + 12 + 16 + 4
"""InfiniBand's local route, base transport and extended headers, and the invariant CRC."""


@dataclass(frozen=True)
class Traffic:
    """What one node sends and receives: (least, most) payload bytes, and the fewest messages."""

    tx_bytes: tuple[float, float] = (0.0, 0.0)
    rx_bytes: tuple[float, float] = (0.0, 0.0)
    tx_messages: int = 0
    rx_messages: int = 0

    def plus(self, other: "Traffic") -> "Traffic":
        """Both, one after the other."""
        return Traffic(
            (self.tx_bytes[0] + other.tx_bytes[0], self.tx_bytes[1] + other.tx_bytes[1]),
            (self.rx_bytes[0] + other.rx_bytes[0], self.rx_bytes[1] + other.rx_bytes[1]),
            self.tx_messages + other.tx_messages,
            self.rx_messages + other.rx_messages,
        )


@dataclass(frozen=True)
class Formula:
    """What a measured region sent: parts one after another, each one pattern, or one of several."""

    algorithm: str
    parts: tuple[tuple[Pattern, ...], ...] = ()

    def times(self, count: int) -> "Formula":
        """The same, `count` times over."""
        parts = tuple(tuple(_times(pattern, count) for pattern in part) for part in self.parts)
        return Formula(self.algorithm, parts)


NOTHING = Formula("no messages")


def point_to_point(source: int, to: int, size: float, count: int = 1) -> Formula:
    """`count` messages of `size` bytes."""
    return Formula("point to point", (({(source, to): (size * count, count)},),))


def together(formulas: Iterable[Formula]) -> Formula:
    """Several, one after another."""
    several = [formula for formula in formulas if formula.parts]
    if not several:
        return NOTHING
    names = " and ".join(dict.fromkeys(formula.algorithm for formula in several))
    return Formula(names, tuple(part for formula in several for part in formula.parts))


def by_node(formula: Formula, per_node: int, nodes: int) -> list[Traffic]:
    """What crosses between nodes, per node, for ranks that are numbered node by node."""
    total = [Traffic() for _ in range(nodes)]
    for part in formula.parts:
        crossing = [_crossing(pattern, per_node, nodes) for pattern in part]
        total = [
            known.plus(_bounds([alternative[node] for alternative in crossing]))
            for node, known in enumerate(total)
        ]
    return total


def on_the_wire(payload: float, messages: int, unit: int, headers: int = HEADERS_TCP) -> float:
    """Bytes on a counter that sees packets of at most `unit` payload bytes, each with its headers.

    The least there can be: full packets, at least one per message, and no acknowledgement.
    """
    if payload <= 0:
        return 0.0
    return payload + headers * max(messages, ceil(payload / unit))


# --- all-reduce ------------------------------------------------------------------------------------------


def ring(ranks: Sequence[int], size: float) -> dict[tuple[int, int], tuple[float, int]]:
    """Each rank passes 2(n-1)/n of `size` on to the next."""
    n = len(ranks)
    if n < 2:
        return {}
    sent = 2 * (n - 1) / n * size, 2 * (n - 1)
    return {(rank, ranks[(place + 1) % n]): sent for place, rank in enumerate(ranks)}


def recursive_doubling(ranks: Sequence[int], size: float) -> dict[tuple[int, int], tuple[float, int]]:
    """Whole messages to partners at distances 1, 2, 4, …; the ranks above a power of two fold in and out."""
    inner, pattern = _fold(ranks, size)
    distance = 1
    while distance < len(inner):
        for place, rank in enumerate(inner):
            _add(pattern, rank, inner[place ^ distance], size)
        distance *= 2
    return pattern


def halving_doubling(ranks: Sequence[int], size: float) -> dict[tuple[int, int], tuple[float, int]]:
    """Reduce-scatter by recursive halving, then all-gather by recursive doubling: 2(n-1)/n of `size` each."""
    inner, pattern = _fold(ranks, size)
    distance, part = 1, size / 2
    while distance < len(inner):
        for place, rank in enumerate(inner):
            for _ in ("reduce-scatter", "all-gather"):
                _add(pattern, rank, inner[place ^ distance], part)
        distance, part = 2 * distance, part / 2
    return pattern


ALLREDUCE = {
    "ring": ring,
    "recursive_doubling": recursive_doubling,
    "reduce_scatter_allgather": halving_doubling,
}
"""By the names that MPICH gives them in MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM."""
IALLREDUCE = {
    "tsp_ring": ring,
    "sched_recursive_doubling": recursive_doubling,
    "sched_reduce_scatter_allgather": halving_doubling,
}
"""By the names in MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM, of the non-blocking all-reduce."""


def allreduce(
    backend: Mapping[str, object], environment: Mapping[str, str], ranks: int, per_node: int, size: float
) -> Formula:
    """One all-reduce of `size` bytes over all ranks, as far as the engine lets its algorithm be known.

    Gloo's is a ring, and engine ring's. MPICH's is what its variables pin (one for the blocking call, one for
    the other, which ranks that share cores use), or else any of those it chooses from, flat or between the
    nodes' leaders alone. Of other MPI libraries nothing is assumed: from one message per node
    to one per pair of ranks. NCCL's is a ring if pinned, or between one message (reduced inside the
    network) and two (a tree), with what its protocol adds.
    """
    everyone, leaders = range(ranks), range(0, ranks, per_node)
    if ranks < 2:
        return NOTHING
    if backend["engine"] in ("gloo", "ring"):
        return _one("ring all-reduce", ring(everyone, size))
    if backend["engine"] == "nccl":
        return _nccl(backend, everyone, leaders, size)
    if backend.get("library", "mpich") != "mpich":
        least = dict.fromkeys(ring(leaders, size), (size, 1))
        most = {(a, b): (size, 1) for a in everyone for b in everyone if a != b}
        return Formula("all-reduce, the library's choice", ((least, most),))
    flat = per_node == 1 or environment.get("MPIR_CVAR_ENABLE_SMP_COLLECTIVES") == "0"
    pinned = {
        ALLREDUCE.get(environment.get("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "")) if flat else None,
        IALLREDUCE.get(environment.get("MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM", "")),
    }
    if len(pinned) == 1 and None not in pinned:
        (name,) = (name for name, make in ALLREDUCE.items() if make in pinned)
        return _one(f"{name.replace('_', ' ')} all-reduce", ALLREDUCE[name](everyone, size))
    groups = [everyone] if flat else [everyone, leaders]
    choices = tuple(make(group, size) for group in groups for make in ALLREDUCE.values())
    return Formula("all-reduce, MPI's choice", (choices,))


def _nccl(backend: Mapping[str, object], everyone: range, leaders: range, size: float) -> Formula:
    """LL sends as many flags as data, LL128 8 flags in 128 bytes; which is used, is known if pinned."""
    protocol = str(backend.get("protocol", "")).upper()
    added = {"SIMPLE": (1.0, 1.0), "LL": (2.0, 2.0), "LL128": (128 / 120, 128 / 120)}.get(protocol, (1, 2))
    if str(backend.get("algorithm", "")).lower() == "ring":
        rings = tuple(ring(everyone, size * factor) for factor in dict.fromkeys(added))
        return Formula("ring all-reduce", (rings,))
    between = ring(leaders, size)
    ends = ((added[0] * size, 1), (2 * added[1] * size, 2))
    return Formula("all-reduce, NCCL's choice", (tuple(dict.fromkeys(between, end) for end in ends),))


def _one(algorithm: str, pattern: Pattern) -> Formula:
    return Formula(algorithm, ((pattern,),))


def _fold(ranks: Sequence[int], size: float) -> tuple[list[int], dict[tuple[int, int], tuple[float, int]]]:
    """The power of two that takes part, and the messages of the others into it and back."""
    spare = len(ranks) - (1 << (len(ranks).bit_length() - 1))
    pattern: dict[tuple[int, int], tuple[float, int]] = {}
    for pair in range(spare):
        _add(pattern, ranks[2 * pair], ranks[2 * pair + 1], size)
        _add(pattern, ranks[2 * pair + 1], ranks[2 * pair], size)
    inner = [ranks[2 * pair + 1] for pair in range(spare)] + list(ranks[2 * spare :])
    return inner, pattern


def _add(pattern: dict[tuple[int, int], tuple[float, int]], source: int, to: int, size: float) -> None:
    known, count = pattern.get((source, to), (0.0, 0))
    pattern[source, to] = known + size, count + 1


def _times(pattern: Pattern, count: int) -> Pattern:
    return {pair: (size * count, messages * count) for pair, (size, messages) in pattern.items()}


def _crossing(pattern: Pattern, per_node: int, nodes: int) -> list[Traffic]:
    """Per node, what one pattern sends to and receives from other nodes."""
    sent, received = [[0.0, 0] for _ in range(nodes)], [[0.0, 0] for _ in range(nodes)]
    for (source, to), (size, messages) in pattern.items():
        here, there = source // per_node, to // per_node
        if here != there:
            for total in (sent[here], received[there]):
                total[0] += size
                total[1] += messages
    return [
        Traffic((out[0], out[0]), (into[0], into[0]), int(out[1]), int(into[1]))
        for out, into in zip(sent, received, strict=True)
    ]


def _bounds(alternatives: Sequence[Traffic]) -> Traffic:
    sent = [one.tx_bytes[0] for one in alternatives]
    received = [one.rx_bytes[0] for one in alternatives]
    return Traffic(
        (min(sent), max(sent)),
        (min(received), max(received)),
        min(one.tx_messages for one in alternatives),
        min(one.rx_messages for one in alternatives),
    )
