"""Would a measurement on these nodes be what its config says? Pure checks on what was asked of the nodes.

Every check takes facts and gives findings. A finding that isn't `ok` has one mend. The checks are in
`checks_fabric`, `checks_machine` and `checks_software`; here is which of them are made, and when.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fabricbench.cores import cores_per_rank
from fabricbench.fabrics.checks_fabric import check_ends, check_fabric, check_reach, rail_name, rails_of
from fabricbench.fabrics.checks_machine import check_clocks, check_machines
from fabricbench.fabrics.checks_software import check_software
from fabricbench.fabrics.findings import Finding, Node, Nodes, Use, Wanted, in_order
from fabricbench.fabrics.node import NodeFacts, Rails
from fabricbench.fabrics.reach import reach

_MOST_NAMES = 4


def wanted(cluster: str, cells: Iterable[Any]) -> Wanted:
    """What cells of a grid want together; of ranks and threads, the most on one node."""
    fabrics: dict[str, Mapping[str, Any]] = {}
    uses: dict[str, Use] = {}
    nodes, local_ranks = 1, 1
    most = (1, 1, "mpi", "micro")
    binding: Mapping[str, Any] = {}
    for cell in cells:
        fabrics[cell.fabric["name"]] = cell.fabric
        use = Use(cell.fabric["name"], cell.backend, cell.environment, cell.device)
        uses.setdefault(repr(use), use)
        nodes = max(nodes, cell.nodes)
        ranks = cell.gpus if cluster == "emulated" else cell.ranks_per_node
        local_ranks = max(local_ranks, cell.ranks_per_node)
        most = max(most, (ranks, cell.threads_per_rank, cell.backend["engine"], cell.kind), key=_cores_of)
        binding = cell.binding
    return Wanted(
        cluster=cluster,
        nodes=nodes,
        fabrics=tuple(fabrics.values()),
        uses=tuple(uses.values()),
        ranks_per_node=most[0],
        threads_per_rank=most[1],
        busiest_engine=most[2],
        busiest_kind=most[3],
        local_ranks=local_ranks,
        binding=binding,
        delay=any(fabric["delay_s"] or fabric["jitter_s"] or fabric["loss"] for fabric in fabrics.values()),
    )


def examine(want: Wanted, nodes: Nodes) -> list[Finding]:
    """All checks of nodes; the worst first, equal findings of several nodes as one."""
    found: list[Finding] = []
    for fabric in want.fabrics:
        found += check_fabric(fabric, want, nodes)
    found += check_machines(want, nodes)
    found += check_software(want, nodes)
    return in_order(found)


def preflight(
    fabric: Mapping[str, Any], facts: NodeFacts, peers: Mapping[str, Sequence[str]] | None = None
) -> list[Finding]:
    """Problems and warnings of this node for a cell on this fabric, looked for before its ranks meet.

    `peers`: the other nodes' addresses on the fabric, in the order of their rails; they are tried unless
    this end has a problem already. Everything else takes a millisecond.
    """
    here = {facts["host"]: Node(facts)}
    rails, found = rails_of(fabric, here)
    if rails:
        found += check_ends(fabric, Wanted(cluster="any", fabrics=(fabric,)), here, rails)
        found += check_clocks(facts["host"], facts)
        if peers and not any(finding.level == "problem" for finding in found):
            tried = _try_peers(fabric, facts, rails[facts["host"]], peers)
            found += check_reach(fabric, {facts["host"]: Node(facts, reach=tried)}, rails)
    return [finding for finding in in_order(found) if finding.level in ("problem", "warning")]


def _try_peers(
    fabric: Mapping[str, Any], facts: NodeFacts, own: Rails, peers: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, Mapping[str, Any]]]:
    """How each peer answers on each rail: rail → peer → fields of `Reach`."""
    tried: dict[str, dict[str, Mapping[str, Any]]] = {}
    for index, (interface, address) in enumerate(zip(own.interfaces, own.addresses, strict=False)):
        names = {addresses[index]: peer for peer, addresses in peers.items() if index < len(addresses)}
        answers = reach(interface, address, list(names), facts["interfaces"][interface]["mtu"])
        tried[rail_name(fabric, index)] = {names[peer]: vars(answer) for peer, answer in answers.items()}
    return tried


def check_emulation(want: Wanted | None, unavailable: str | None, netem: bool | None) -> Iterator[Finding]:
    """Whether this machine can emulate fabrics; a problem only for a config that wants it."""
    here = ("this machine",)
    emulated = want is not None and want.cluster == "emulated"
    if unavailable:
        why, _, mend = unavailable.partition(": ")
        level = "problem" if emulated else "note"
        yield Finding("emulation", here, level, why, mend or "set cluster.kind: host in the config")
        return
    yield Finding("emulation", here, "ok", "nodes and shaped links can be made")
    if netem:
        yield Finding("netem", here, "ok", "delay, jitter and loss can be emulated")
    elif netem is False:
        asked = want is not None and want.delay
        text = "this kernel has no netem: delay, jitter and loss are not emulated"
        mend = "sudo modprobe sch_netem, or leave delay, jitter and loss out of the config"
        yield Finding("netem", here, "warning" if asked else "note", text, mend)


def check_answers(expected: Sequence[str], nodes: Nodes, words: Mapping[str, str]) -> Iterator[Finding]:
    """A problem for the nodes of an allocation that didn't answer.

    `words`: what each said instead; what no node can be told to have said is under "".
    """
    silent = [name for name in expected if name not in nodes]
    for name in silent:
        if said := words.get(name):
            yield _no_answer((name,), said)
    if rest := tuple(name for name in silent if not words.get(name)):
        yield _no_answer(rest, words.get("", ""))


def _no_answer(names: tuple[str, ...], said: str) -> Finding:
    listed = ",".join(names)
    who = listed if len(names) <= _MOST_NAMES else f"{len(names)} nodes"
    text = f"{who} didn't answer" + (f": {said}" if said else "")
    mend = f"srun --nodelist={listed} hostname must work; leave out what can't with --exclude={listed}"
    return Finding("node answers", names, "problem", text, mend)


def _cores_of(ranks: tuple[int, int, str, str]) -> int:
    count, threads, engine, kind = ranks
    return count * cores_per_rank(threads, engine, kind)
