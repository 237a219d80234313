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
LEAST_BYTES_EMULATED = 2_000_000
"""The same for nodes that the cell made itself, on which nothing else runs."""
LEAST_TO_MISS = 100_000
"""Payload bytes from which on their absence from a counter is no rounding."""
SLACK = 1.10
ELSEWHERE = 0.10
SLACK_BELOW = 0.90
"""An RDMA cell whose adapter's interface carries this part of its bytes fell back to TCP."""
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
    under a VLAN or bond, the adapter under an interface), fall_back (interfaces of an RDMA adapter, whose
    TCP its port may count as well), unit (payload bytes per counted packet) and headers.
    """
    known = facts["interfaces"]
    if path == "rdma":
        ports = [f"{adapter}:{fabric['port']}" for adapter in rails.adapters]
        fall_back = [name for name in known if known[name]["adapter"] in rails.adapters]
        rdma = {"unit": RDMA_MTU, "headers": HEADERS_RDMA}
        return {"counters": ports, "same_wire": [], "fall_back": fall_back} | rdma
    under = _under(rails.interfaces, known)
    adapters = {known[name]["adapter"] for name in (*rails.interfaces, *under) if name in known} - {None}
    ports = [f"{name}:{port}" for name in sorted(adapters) for port in facts["adapters"][name]["ports"]]
    units = [_unit(known.get(name, {}), segments) for name in rails.interfaces]
    return {
        "counters": list(rails.interfaces),
        "same_wire": [*under, *ports],
        "fall_back": [],
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
    least = LEAST_BYTES_EMULATED if evidence.get("emulation") else LEAST_BYTES
    if most < least:
        few = (
            _contradiction(_way(node, way, one, evidence)) for node, one in expected.items() for way in WAYS
        )
        text = f"at most {_mb(most)} must have left a node; below {_mb(least)} that proves nothing"
        return next((found for found in few if found), Verdict(TOO_LITTLE, text))
    ways = [
        (node, way)
        for node, one in expected.items()
        for way in sorted(WAYS, key=lambda way: -_least(one, way))
        if _least(one, way) >= least
    ]
    judged = [_verdict(_way(node, way, expected[node], evidence)) for node, way in ways]
    # Of each node's two ways the busier: the other's bytes may be acknowledgements for a good part.
    busier = {node: one.of_formula for (node, _), one in reversed(list(zip(ways, judged, strict=True)))}
    ratios = [ratio for ratio in busier.values() if ratio]
    for word in (MISLABELLED, UNVERIFIED):
        found = [one for one in judged if one.verdict == word]
        if found:
            return Verdict(word, found[0].because, found[0].of_formula)
    where = _listed(name for one in evidence["declared"].values() for name in one["counters"])
    ends = dict.fromkeys(f"{100 * ratio:.0f}" for ratio in (min(ratios), max(ratios)))
    text = (
        f"{where} carried {'–'.join(ends)} % of what {formula['algorithm']} sends, up to {_mb(most)} a node"
    )
    return Verdict(VERIFIED, text, max(ratios, key=_distance))


@dataclass(frozen=True)
class _Way:
    """One direction of one node: what must have passed, and what each counter saw."""

    node: str
    verb: str
    low: float
    """Payload bytes at least."""
    wire: tuple[float, float]
    """Least and most with headers."""
    answers: float
    """Acknowledgements of the other way, at most."""
    counted: Mapping[str, float]
    idle: Mapping[str, float]
    declared: Json

    @property
    def names(self) -> list[str]:
        return list(self.declared["counters"])

    @property
    def carried(self) -> float:
        return sum(self.counted[name] for name in self.names)

    @property
    def spare(self) -> float:
        """What the declared counters would have seen on an idle node."""
        return sum(self.idle.get(name, 0.0) for name in self.names)

    @property
    def ratio(self) -> float:
        """The counter less its baseline over the nearer end of the formula; 1 within it."""
        net, (least, most) = max(0.0, self.carried - self.spare), self.wire
        return net / least if net < least else net / most if net > most else 1.0

    def busiest(self, besides: Iterable[str] = ()) -> tuple[str, float]:
        """The counter that isn't declared, nor one of `besides`, with the most bytes above its baseline."""
        left_out = {*self.names, *besides, "lo"}
        others = {
            name: max(0.0, count - self.idle.get(name, 0.0))
            for name, count in self.counted.items()
            if name not in left_out
        }
        name = max(others, key=others.__getitem__, default="")
        return name, others.get(name, 0.0)


def _way(node: str, way: str, expected: Traffic, evidence: Json) -> _Way:
    """One direction of one node."""
    declared = evidence["declared"][node]
    tx = way == "tx_bytes"
    low, high = expected.tx_bytes if tx else expected.rx_bytes
    other_high = (expected.rx_bytes if tx else expected.tx_bytes)[1]
    messages = expected.tx_messages if tx else expected.rx_messages
    unit, headers = declared["unit"], declared["headers"]
    return _Way(
        node=node,
        verb="sent" if tx else "received",
        low=low,
        wire=(on_the_wire(low, messages, unit, headers), on_the_wire(high, messages, unit, headers)),
        answers=headers * other_high / unit,
        counted={name: counts[way] for name, counts in evidence["nodes"].get(node, {}).items()},
        idle={name: counts[way] for name, counts in evidence.get("baseline", {}).get(node, {}).items()},
        declared=declared,
    )


def _contradiction(way: _Way) -> Verdict | None:
    """Few bytes can't prove a label, but their absence can disprove it: other traffic only adds to a counter.

    Mislabelled if they were seen elsewhere; unverified if nowhere, since a card's counters may lag.
    """
    if way.low < LEAST_TO_MISS or any(name not in way.counted for name in way.names):
        return None
    if way.carried >= way.low:
        return None
    text = f"{_claim(way)}; {_where(way)}"
    _, elsewhere = way.busiest()
    seen = elsewhere >= SLACK_BELOW * way.low
    return Verdict(MISLABELLED if seen else UNVERIFIED, text, way.ratio)


def _verdict(way: _Way) -> Verdict:
    """The rule; each step names what it saw."""
    same_wire = way.declared["same_wire"]
    if unread := [name for name in way.names if name not in way.counted]:
        name, elsewhere = way.busiest(same_wire)
        unreadable = f"the counter of {_listed(unread)} can't be read"
        if elsewhere >= way.low:
            return Verdict(MISLABELLED, f"on {way.node}, {name} {way.verb} {_mb(elsewhere)}; {unreadable}")
        return Verdict(UNVERIFIED, f"on {way.node} {unreadable}")
    claim = _claim(way)
    if way.carried < way.low:
        return Verdict(MISLABELLED, f"{claim}; {_where(way)}", way.ratio)
    for name in way.declared["fall_back"]:
        if way.counted.get(name, 0.0) - way.idle.get(name, 0.0) >= SLACK_BELOW * way.low:
            text = f"{claim}, but as TCP: {name} {way.verb} {_mb(way.counted[name])}"
            return Verdict(MISLABELLED, text, way.ratio)
    if way.spare > ELSEWHERE * way.low:
        text = f"{claim}, and would carry {_mb(way.spare)} in that time when idle"
        return Verdict(UNVERIFIED, text, way.ratio)
    for name in way.names:
        if way.counted[name] < RAIL_SHARE * way.carried / len(way.names):
            text = (
                f"{name} of {way.node}, one of {len(way.names)} rails, {way.verb} "
                f"{_mb(way.counted[name])} of {_mb(way.carried)}"
            )
            return Verdict(UNVERIFIED, text, way.ratio)
    name, elsewhere = way.busiest(same_wire)
    if elsewhere > ELSEWHERE * way.low:
        return Verdict(UNVERIFIED, f"{claim}, but {name} {way.verb} {_mb(elsewhere)} beside it", way.ratio)
    if way.carried > SLACK * way.wire[1] + way.answers + way.spare:
        text = f"{claim}: other traffic, retransmissions or another algorithm"
        return Verdict(UNVERIFIED, text, way.ratio)
    return Verdict(VERIFIED, "", way.ratio)


def _claim(way: _Way) -> str:
    least = f"{_mb(way.low)}{'' if way.wire[1] <= way.wire[0] * 1.01 else ' or more'}"
    names = _listed(way.names)
    return f"{names} of {way.node} {way.verb} {_mb(way.carried)} of the {least} that it must have"


def _where(way: _Way) -> str:
    """Where the missing bytes were seen; an adapter under the interface counts here, since it isn't TCP's."""
    name, elsewhere = way.busiest()
    if elsewhere >= ELSEWHERE * way.low:
        return f"{name} {way.verb} {_mb(elsewhere)}"
    return "no other counter saw them: shared memory, or an adapter that isn't counted"


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
