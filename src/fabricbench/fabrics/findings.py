"""What is asked of nodes, what they have, and what is said of them: the data that all checks share."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fabricbench.fabrics.node import NodeFacts

LEVELS = ("problem", "warning", "note", "ok")


@dataclass(frozen=True)
class Finding:
    """What one check says of one or several nodes."""

    check: str
    nodes: tuple[str, ...]
    level: str
    """ok, note, warning or problem."""
    text: str
    mend: str | None = None
    """What to do; None only when all is well."""


@dataclass(frozen=True)
class Node:
    """What was asked of one node."""

    facts: NodeFacts
    software: Mapping[str, Any] | None = None
    """What `fabrics.visit.software` found; None where it wasn't asked."""
    reach: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Rail ("ethernet", "ethernet rail 1") → peer → fields of `Reach`."""


Nodes = Mapping[str, Node]
"""By name, in the order of the cluster."""


@dataclass(frozen=True)
class Use:
    """A fabric and a backend that cells bring together, with the variables that they set."""

    fabric: str
    backend: Mapping[str, Any]
    environment: Mapping[str, str]
    device: str


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a campaign's cells want of the nodes."""

    cluster: str
    nodes: int = 1
    fabrics: tuple[Mapping[str, Any], ...] = ()
    uses: tuple[Use, ...] = ()
    ranks_per_node: int = 1
    """The most ranks that share cores; all of a cell's where its nodes are emulated on one machine."""
    threads_per_rank: int = 1
    """The threads of each of those ranks."""
    busiest_engine: str = "mpi"
    """The engine of those ranks, which may have threads of its own."""
    busiest_kind: str = "micro"
    """The kind of workload of those ranks."""
    local_ranks: int = 1
    """The most ranks of one node, emulated or not."""
    binding: Mapping[str, Any] = field(default_factory=dict)
    delay: bool = False
    """Whether a link's delay, jitter or loss is to be emulated."""

    @property
    def engines(self) -> set[str]:
        """The engines that cells run on."""
        return {use.backend["engine"] for use in self.uses}

    @property
    def uses_cuda(self) -> bool:
        """Whether any cell computes on a GPU."""
        return any(use.device == "cuda" for use in self.uses)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Equal findings of several nodes as one; problems first, else in the order of the checks."""
    same: dict[Finding, list[str]] = defaultdict(list)
    for finding in findings:
        same[replace(finding, nodes=())].extend(finding.nodes)
    merged = [replace(finding, nodes=tuple(dict.fromkeys(nodes))) for finding, nodes in same.items()]
    return sorted(merged, key=_badness)


def _badness(finding: Finding) -> int:
    return LEVELS.index(finding.level)
