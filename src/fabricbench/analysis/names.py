"""Names of nodes and cores in the order in which people count, with runs of them shortened."""

import re
from collections.abc import Iterable
from functools import lru_cache

_COUNTED = re.compile(r"(.*?)(\d+)(\D*)")


SPREAD = ", spread"


def way(backend: str, placement: str) -> str:
    """How ranks communicate and where they are: `mpi`, or `mpi, spread` on nodes far apart."""
    return f"{backend}{SPREAD}" if placement == "spread" else backend


@lru_cache(maxsize=65536)
def natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts n2 before n10, and regardless of case."""
    parts = re.findall(r"\d+|\D+", text.lower())
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def in_order(texts: Iterable[str]) -> list[str]:
    """Each text once, in natural order."""
    return sorted(set(texts), key=natural)


def condensed(names: Iterable[str]) -> str:
    """`n0, n1, n2, n5` as `n0-n2, n5`; a gap or another prefix ends a run."""
    return _condensed(tuple(names))


@lru_cache(maxsize=65536)
def _condensed(names: tuple[str, ...]) -> str:
    runs: list[tuple[str, str]] = []
    for name in in_order(names):
        if runs and name == _after(runs[-1][1]):
            runs[-1] = (runs[-1][0], name)
        else:
            runs.append((name, name))
    return ", ".join(first if first == last else f"{first}-{last}" for first, last in runs)


def _after(name: str) -> str | None:
    """The next name of a numbered series: n09 → n10; None for a name without a number."""
    found = _COUNTED.fullmatch(name)
    return found and f"{found[1]}{int(found[2]) + 1:0{len(found[2])}d}{found[3]}"


def by_node(values: Iterable[tuple[str, str]]) -> str:
    """What each node has, from pairs of node and text: one text if all agree, or `n0-n3: eno1; n4: eth0`."""
    nodes: dict[str, list[str]] = {}
    for node, text in values:
        nodes.setdefault(text, []).append(node)
    if len(nodes) == 1:
        return next(iter(nodes))
    groups = sorted(nodes.items(), key=lambda item: natural(in_order(item[1])[0]))
    return "; ".join(f"{condensed(names)}: {text or 'none'}" for text, names in groups)
