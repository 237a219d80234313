"""The proof that a cell's bytes crossed the fabric that it names: counters against what must have been sent.

Pure functions over plain data, run after the ranks have ended. The rule: verified means
formula ≤ declared counter ≤ 1.10 × formula (headers counted) + idle baseline, on every node that must send
or receive enough, with every other counter of the node under 10 % of it. TCP's acknowledgements of what came
the other way are allowed for as well: they are no part of the formula, and matter where one way is busy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log
from typing import Any

from fabricbench.fabrics.node import Rails
from fabricbench.fabrics.traffic import HEADERS_RDMA, HEADERS_TCP, Traffic, on_the_wire

VERIFIED, MISLABELLED, TOO_LITTLE = "verified", "mislabelled", "too little to prove"
NOT_APPLICABLE, UNVERIFIED = "not applicable", "unverified"

LEAST_BYTES = 10_000_000
"""Below this a cell proves nothing: other traffic of a real node may be as much."""
SLACK = 1.10
ELSEWHERE = 0.10
RAIL_SHARE = 0.10
"""A rail that carries less than this part of its share wasn't used."""
LARGEST_PACKET = 65_535
RDMA_MTU = 4096
WAYS = ("tx_bytes", "rx_bytes")

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """What the counters say, in a word and a sentence."""

    verdict: str
    because: str
    of_formula: float | None = None
    """The counter that is furthest from what the formula says, over it; headers are counted."""

    def to_json(self) -> dict[str, Any]:
        """As the record keeps it."""
        return vars(self)


def declare(fabric: Json, path: str, facts: Json, rails: Rails, segments: int | None) -> dict[str, Any]:
    """One node's part of the claim: which counters must carry the bytes, and how these count.

    `path`: tcp or rdma. `segments`: how many TCP segments one packet may hold, where the links are shaped.
    Returns counters (the declared ones), same_wire (others that lawfully see the same bytes: what lies
    under a VLAN or bond, the adapter under an interface), unit (payload bytes per counted packet), headers.
    """
    if path == "rdma":
        ports = [f"{adapter}:{fabric['port']}" for adapter in rails.adapters]
        return {"counters": ports, "same_wire": [], "unit": RDMA_MTU, "headers": HEADERS_RDMA}
    known = facts["interfaces"]
    under = _under(rails.interfaces, known)
    adapters = {known[name]["adapter"] for name in (*rails.interfaces, *under) if name in known} - {None}
    ports = [f"{name}:{port}" for name in sorted(adapters) for port in facts["adapters"][name]["ports"]]
    units = [_unit(known.get(name, {}), segments) for name in rails.interfaces]
    return {
        "counters": list(rails.interfaces),
        "same_wire": [*under, *ports],
        "unit": min(units, default=1448),
        "headers": HEADERS_TCP,
    }


def judge(evidence: Json, nodes: int) -> Verdict:
    """The verdict over a record's evidence: its nodes, baseline, declared and formula."""
    if nodes == 1:
        return Verdict(NOT_APPLICABLE, "one node: its ranks talk over loopback or shared memory, lawfully")
    formula = evidence.get("formula", {"nodes": {}})
    expected = {
        node: Traffic(
            tx_bytes=tuple(plain["tx_bytes"]),
            rx_bytes=tuple(plain["rx_bytes"]),
            tx_messages=plain["tx_messages"],
            rx_messages=plain["rx_messages"],
        )
        for node, plain in formula["nodes"].items()
    }
    most = max((_least(one, way) for one in expected.values() for way in WAYS), default=0.0)
    if most < LEAST_BYTES:
        text = f"at most {_mb(most)} must have left a node; below {_mb(LEAST_BYTES)} that proves nothing"
        return Verdict(TOO_LITTLE, text)
    ways = [
        (node, way)
        for node, one in expected.items()
        for way in sorted(WAYS, key=lambda way: -_least(one, way))
        if _least(one, way) >= LEAST_BYTES
    ]
    judged = [_judge_node(node, way, expected[node], evidence) for node, way in ways]
    # Of each node's two ways the busier: the other's bytes may be acknowledgements for a good part.
    busier = {node: one.of_formula for (node, _), one in reversed(list(zip(ways, judged, strict=True)))}
    ratios = [ratio for ratio in busier.values() if ratio]
    worst = max(ratios, key=_distance, default=None)
    for word in (MISLABELLED, UNVERIFIED):
        found = [one for one in judged if one.verdict == word]
        if found:
            return Verdict(word, found[0].because, found[0].of_formula)
    where = _listed(name for one in evidence["declared"].values() for name in one["counters"])
    ends = dict.fromkeys(f"{100 * ratio:.0f}" for ratio in (min(ratios), max(ratios)))
    span = f"{'–'.join(ends)} %"
    text = f"{where} carried {span} of what {formula['algorithm']} sends, up to {_mb(most)} a node"
    return Verdict(VERIFIED, text, worst)


def _judge_node(node: str, way: str, expected: Traffic, evidence: Json) -> Verdict:
    """One direction of one node."""
    declared = evidence["declared"][node]
    counted = {name: counts[way] for name, counts in evidence["nodes"].get(node, {}).items()}
    idle = {name: counts[way] for name, counts in evidence.get("baseline", {}).get(node, {}).items()}
    low, high = getattr(expected, way)
    messages = expected.tx_messages if way == "tx_bytes" else expected.rx_messages
    least = on_the_wire(low, messages, declared["unit"], declared["headers"])
    most = on_the_wire(high, messages, declared["unit"], declared["headers"])
    other_way = expected.rx_bytes if way == "tx_bytes" else expected.tx_bytes
    answers = declared["headers"] * other_way[1] / declared["unit"]
    names = declared["counters"]
    unread = [name for name in names if name not in counted]
    others = {
        name: max(0.0, count - idle.get(name, 0.0))
        for name, count in counted.items()
        if name not in names and name not in declared["same_wire"] and name != "lo"
    }
    busiest = max(others, key=others.__getitem__, default="")
    elsewhere = others.get(busiest, 0.0)
    verb = "sent" if way == "tx_bytes" else "received"
    if unread:
        if elsewhere >= low:
            return Verdict(
                MISLABELLED,
                f"on {node}, {busiest} {verb} {_mb(elsewhere)}, and {_listed(unread)} can't be read",
            )
        return Verdict(UNVERIFIED, f"on {node} the counter of {_listed(unread)} can't be read")
    carried = sum(counted[name] for name in names)
    spare = sum(idle.get(name, 0.0) for name in names)
    net = max(0.0, carried - spare)
    ratio = net / least if net < least else net / most if net > most else 1.0
    asked = f"{_mb(low)}" if high <= low * 1.01 else f"{_mb(low)} to {_mb(high)}"
    claim = f"{_listed(names)} of {node} {verb} {_mb(carried)} of the {asked} that it must have"
    if carried < low:
        if elsewhere >= ELSEWHERE * low:
            where = f"{busiest} {verb} {_mb(elsewhere)}"
        else:
            where = "no other interface did: shared memory, or an adapter that isn't counted"
        return Verdict(MISLABELLED, f"{claim}; {where}", ratio)
    for name in names:
        share = carried / len(names)
        if counted[name] < RAIL_SHARE * share:
            text = (
                f"{name} of {node}, one of {len(names)} rails, {verb} {_mb(counted[name])} of {_mb(carried)}"
            )
            return Verdict(UNVERIFIED, text, ratio)
    if elsewhere > ELSEWHERE * low:
        return Verdict(UNVERIFIED, f"{claim}, but {busiest} {verb} {_mb(elsewhere)} beside it", ratio)
    if carried > SLACK * most + answers + spare:
        return Verdict(UNVERIFIED, f"{claim}: other traffic, retransmissions or another algorithm", ratio)
    return Verdict(VERIFIED, "", ratio)


def _unit(interface: Json, segments: int | None) -> int:
    """Payload bytes per counted packet: a card counts segments, a veth packets as TCP makes them."""
    segment = int(interface.get("mtu") or 1500) - 52
    if interface.get("kind") != "veth":
        return segment
    return segment * (segments or max(1, LARGEST_PACKET // segment))


def _under(names: Iterable[str], known: Json) -> list[str]:
    """Devices below these interfaces: what a VLAN lies on, what a bond or bridge has as members."""
    found: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        for lower in known.get(waiting.pop(), {}).get("lower", []):
            if lower not in found:
                found[lower] = None
                waiting.append(lower)
    return list(found)


def _least(traffic: Traffic, way: str) -> float:
    return float(getattr(traffic, way)[0])


def _distance(ratio: float) -> float:
    return abs(log(ratio))


def _mb(count: float) -> str:
    return f"{count / 1e6:.3g} MB" if count < 1e8 else f"{count / 1e6:,.0f} MB"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
