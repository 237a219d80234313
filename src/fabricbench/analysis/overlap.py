"""Models of one training step: pure formulas, seconds, bytes and bit/s of the real machine.

Each is the compute of one GPU, what the network adds to it, and a fixed cost. They stand beside emulated
steps: what an emulation can't do better than they isn't worth emulating.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan

import numpy as np
from scipy.optimize import nnls

PAYLOAD = 1448 / 1514
"""Of an Ethernet frame of full size, the share that is a TCP segment's payload (time stamps on)."""
HALVINGS = 60
SLOWEST, FASTEST = 1e6, 1e13
"""Between these a rate is looked for, in bit/s."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One rank's step without a network, and what it has to send."""

    compute_s: float
    ready_s: Sequence[float]
    """When each bucket has its last gradient, from the step's start; ascending."""
    bucket_bytes: Sequence[float]
    """In the same order."""
    ranks: int


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One published step that a model's own unknowns are fitted to."""

    key: str
    """Of the rate that is unknown: the fabric's name."""
    bits: float
    """That a link carries in the step."""
    extra_s: float
    """What the step takes beyond one GPU's."""


def ring_bits(size_bytes: float, ranks: int) -> float:
    """Bits over each node's link in a ring all-reduce: 2(p-1)/p of the message.

    However many ranks a node has: a ring enters and leaves it once.
    """
    return 8 * size_bytes * 2 * (ranks - 1) / ranks


def overlapped_s(step: Step, link_bit_s: float, fixed_s: float) -> float:
    """A step of DDP: buckets are reduced in order, each as soon as it is ready and the link is free.

    `link_bit_s`: as on the wire, headers included.
    """
    free = 0.0
    for ready, size in zip(step.ready_s, step.bucket_bytes, strict=True):
        free = max(free, ready) + ring_bits(size, step.ranks) / (PAYLOAD * link_bit_s)
    return max(step.compute_s, free) + fixed_s


def link_for(step: Step, seconds: float, fixed_s: float) -> float:
    """The link's rate at which `overlapped_s` gives so many seconds; inf where compute alone takes longer."""
    if overlapped_s(step, FASTEST, fixed_s) >= seconds:
        return inf
    low, high = SLOWEST, FASTEST
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if overlapped_s(step, middle, fixed_s) < seconds else (middle, high)
    return high


def fit_without_overlap(
    seen: Sequence[Observation], known: Mapping[str, float], with_fixed: bool
) -> tuple[dict[str, float], float]:
    """(rate of each fabric in bit/s, fixed cost in s) of a step that reduces only after its compute.

    `known`: rates that no observation is for; the others are fitted, none below zero. NaN for all that is
    unknown where observations are fewer than that.
    """
    unknown = list(dict.fromkeys(one.key for one in seen if one.key not in known))
    if len(seen) < len(unknown) + with_fixed:
        return {**known, **dict.fromkeys(unknown, nan)}, nan
    matrix = np.zeros((len(seen), len(unknown) + with_fixed))
    left = np.zeros(len(seen))
    for row, one in enumerate(seen):
        left[row] = one.extra_s
        if one.key in known:
            left[row] -= one.bits / known[one.key]
        else:
            matrix[row, unknown.index(one.key)] = one.bits / 1e9  # so that all columns are of one size
        if with_fixed:
            matrix[row, -1] = 1.0
    found, _ = nnls(matrix, left) if matrix.size else (np.zeros(0), 0.0)
    rates = {key: 1e9 / found[at] if found[at] > 0 else inf for at, key in enumerate(unknown)}
    return {**known, **rates}, float(found[-1]) if with_fixed else 0.0
