"""What else differed between the two sides of a comparison, so that a reader sees if the fabric was alone.

A side is the good cells of one fabric, all repeats, at one workload, backend and GPU count; the other side
is the baseline fabric at the same. Each cell has facts; a fact whose distinct values over a side's cells
are not those of the other side is a difference.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import pandas as pd

from fabricbench.analysis.names import by_node, condensed, in_order, natural, way
from fabricbench.cell import Cell
from fabricbench.errors import ConfigError
from fabricbench.fabrics.selection import environment
from fabricbench.record import Record
from fabricbench.variants import Labels

Json = Mapping[str, Any]
Fact = tuple[str, str]
"""Its kind, one of KINDS, and what it is."""

DIFFERENCE_DTYPES = {
    "workload": "string",
    "backend": "string",
    "gpus": "Int64",
    "fabric": "string",
    "baseline": "string",
    "kind": "string",
    "what": "string",
    "this_side": "string",
    "that_side": "string",
    "expected": "bool",
}
KINDS = (
    "record",
    "environment",
    "version",
    "nodes",
    "machine",
    "binding",
    "configuration",
    "interface",
    "congestion",
    "none",
)
"""In the order of a pair's rows: what was chosen first, what came of it last."""
ABSENT = {"environment": "not set", "configuration": "none", "congestion": "not counted"}
"""What stands for a fact that a cell doesn't have; of the other kinds it is `not recorded`."""
NOT_RECORDED = "not recorded"
FOLLOWS_FROM_INTERFACE = ("name", "driver", "speed", "link layer")
"""What another interface may have otherwise without being a second change. Its MTU is somebody's setting."""


def differences(
    records: Iterable[Record], fabrics: Sequence[str], labels: Labels | None = None
) -> pd.DataFrame:
    """One row per difference of every compared pair; the baseline is the first of `fabrics`.

    `labels`: what the workloads' variants are called, each of which is a pair of its own. Only records of
    status ok count, and no demonstrations, since their fabrics aren't compared. `expected` marks what follows
    from the choice of the fabric. A pair without any other difference has one more row, of kind `none`.
    """
    labels = labels or Labels({})
    sides: dict[tuple[str, str, int, str], list[Record]] = {}
    for record in records:
        cell = record.cell
        if record.status == "ok" and not cell.demonstration:
            sides.setdefault(_key(cell, labels), []).append(record)
    baseline = fabrics[0] if fabrics else ""
    workloads = dict.fromkeys(workload for workload, *_ in sides)
    others = sorted({key[1:3] for key in sides})
    rows = []
    for workload, (backend, gpus), fabric in product(workloads, others, fabrics[1:]):
        this, that = (sides.get((workload, backend, gpus, name)) for name in (fabric, baseline))
        if this is None or that is None:
            continue
        pair = {"workload": workload, "backend": backend, "gpus": gpus, "fabric": fabric}
        rows += [pair | {"baseline": baseline} | found for found in _of_pair(this, that)]
    frame = pd.DataFrame(rows, columns=list(DIFFERENCE_DTYPES))
    return frame.astype(DIFFERENCE_DTYPES)


def between(
    this: Iterable[Record], that: Iterable[Record], names: tuple[str, str], labels: Labels | None = None
) -> pd.DataFrame:
    """The same for two campaigns, at each workload, backend, GPU count and fabric that both measured.

    `names`: of this and that side; they stand in the columns fabric ("opa of new") and baseline.
    """
    labels = labels or Labels({})
    sides: tuple[dict[Any, list[Record]], dict[Any, list[Record]]] = ({}, {})
    for records, side in zip((this, that), sides, strict=True):
        for record in records:
            side.setdefault(_key(record.cell, labels), []).append(record)
    rows = []
    for key in [key for key in sides[0] if key in sides[1]]:
        workload, backend, gpus, fabric = key
        pair = {"workload": workload, "backend": backend, "gpus": gpus}
        pair |= {"fabric": f"{fabric} of {names[0]}", "baseline": f"{fabric} of {names[1]}"}
        rows += [pair | found for found in _of_pair(sides[0][key], sides[1][key])]
    return pd.DataFrame(rows, columns=list(DIFFERENCE_DTYPES)).astype(DIFFERENCE_DTYPES)


def _key(cell: Cell, labels: Labels) -> tuple[str, str, int, str]:
    """What one side of a comparison of fabrics has in common."""
    return labels.label(cell), way(cell.backend["name"], cell.placement), cell.gpus, cell.fabric["name"]


def _of_pair(this: list[Record], that: list[Record]) -> list[dict[str, Any]]:
    """The rows of one pair: unexpected ones first, then by kind and name."""
    selecting = {name for record in (*this, *that) for name in _selected(record)}
    by_side = [[_facts(record) for record in side] for side in (this, that)]
    every = {fact for side in by_side for facts in side for fact in facts}
    values = {fact: [_distinct(fact, side) for side in by_side] for fact in every}
    moved = ("interface", "name") in every and not _same(values["interface", "name"])
    rows = []
    for fact, sides in values.items():
        if _same(sides) and sides[0] != [NOT_RECORDED]:
            continue
        kind, what = fact
        expected = (kind == "environment" and what in selecting) or (
            kind == "interface" and moved and what in FOLLOWS_FROM_INTERFACE
        )
        rows.append(_row(kind, what, *("; ".join(texts) for texts in sides), expected=expected))
    if all(row["expected"] for row in rows):
        rows.append(_row("none", "nothing but the fabric", "", "", expected=True))
    return sorted([*rows, *_congestion(this, that)], key=_order)


def _selected(record: Record) -> set[str]:
    """Variables that have the value which the table of fabrics and engines gives them, none of the user's."""
    cell = record.cell
    try:
        table = environment(cell.fabric, cell.backend, cell.device)
    except (ConfigError, KeyError):  # a record of another version, whose row is gone
        return set(cell.environment)
    return {name for name, value in cell.environment.items() if table.get(name) == value}


def _row(kind: str, what: str, this: str, that: str, *, expected: bool) -> dict[str, Any]:
    return {"kind": kind, "what": what, "this_side": this, "that_side": that, "expected": expected}


def _order(row: Json) -> tuple[bool, int, list[tuple[int, str]]]:
    return bool(row["expected"]), KINDS.index(str(row["kind"])), natural(str(row["what"]))


def _same(sides: Sequence[list[str]]) -> bool:
    return sides[0] == sides[1]


def _distinct(fact: Fact, side: list[dict[Fact, set[str]]]) -> list[str]:
    """The values of a fact over a side's cells, each once; a cell without it counts as its absence."""
    absent = {ABSENT.get(fact[0], NOT_RECORDED)}
    return in_order(text for facts in side for text in facts.get(fact) or absent)


def _facts(record: Record) -> dict[Fact, set[str]]:
    """All that one cell says of how it was run, by fact; several values where ranks or nodes differ."""
    found: dict[Fact, set[str]] = {}
    for kind, what, value in (
        *_of_environment(record),
        *_of_software(record.provenance),
        *_of_machines(record),
        *_of_binding(record),
        *_of_interfaces(record),
    ):
        if value not in (None, ""):
            found.setdefault((kind, what), set()).add(str(value))
    return found


Found = Iterator[tuple[str, str, Any]]


def _ranks(provenance: Json) -> list[Json]:
    return list(provenance.get("ranks") or [])


def _of_environment(record: Record) -> Found:
    """The effective variables as ranks recorded them, or else those that the cell asks for."""
    recorded = [ranks["environment"] for ranks in _ranks(record.provenance) if ranks.get("environment")]
    found: list[Json] = recorded or [record.cell.environment]
    for name in dict.fromkeys(name for variables in found for name in variables):
        for value in (variables.get(name) for variables in found):
            yield "environment", name, ABSENT["environment"] if value is None else value or "(empty)"


def _of_software(provenance: Json) -> Found:
    yield "record", "provenance", "recorded" if _ranks(provenance) else NOT_RECORDED
    for name in ("fabricbench", "revision", "python"):
        yield "version", name, provenance.get(name)
    for ranks in _ranks(provenance):
        for name, version in (ranks.get("versions") or {}).items():
            yield "version", str(name), version
        for path in ranks.get("hidden_config") or []:
            yield "configuration", "file outside the job", path


def _of_machines(record: Record) -> Found:
    provenance = record.provenance
    yield "nodes", "node set", condensed(_hosts(record))
    yield "nodes", "partition", (provenance.get("job") or {}).get("partition")
    for nodes in provenance.get("nodes") or [{"kernel": provenance.get("kernel")}]:
        for name in ("cpu", "kernel", "governor"):
            yield "machine", name, nodes.get(name)
        yield "machine", "clock source", nodes.get("clocksource")
        for gpu in nodes.get("gpus") or []:
            yield "machine", "GPU", gpu.get("name")
            yield "machine", "GPU driver", gpu.get("driver")
    for ranks in _ranks(provenance):
        yield "machine", "cpu", ranks.get("cpu")


def _hosts(record: Record) -> list[str]:
    """The nodes of a cell, from whatever names them."""
    listed = [host for nodes in record.provenance.get("nodes") or [] for host in nodes.get("hosts") or []]
    for ranks in [] if listed else _ranks(record.provenance):
        hosts = ranks.get("host") or []
        listed += [hosts] if isinstance(hosts, str) else hosts
    return [str(host) for host in listed or record.evidence.get("nodes") or []]


def _of_binding(record: Record) -> Found:
    """What was asked for, and the cores, memory and threads that ranks had."""
    wanted = record.cell.binding
    old = isinstance(wanted, str)  # of an earlier version
    asked = str(wanted) if old else ", ".join(f"{name} {how}" for name, how in sorted(wanted.items()))
    yield "binding", "binding asked for", asked
    yield "binding", "threads per rank asked for", record.cell.threads_per_rank
    for ranks in _ranks(record.provenance):
        yield "binding", "cores of a rank", condensed(str(core) for core in ranks.get("cores") or [])
        yield "binding", "memory of a rank", ranks.get("memory")
        yield "binding", "threads of a rank", ranks.get("threads")


def _of_interfaces(record: Record) -> Found:
    """Name and state of the interfaces and adapter ports that the fabric was to use, on all nodes."""
    rails = record.evidence.get("rails") or {}
    if not rails:
        return
    yield "interface", "name", by_node((node, ", ".join(names)) for node, names in rails.items())
    for nodes in record.provenance.get("nodes") or []:
        used = {name for host in nodes.get("hosts") or [] for name in rails.get(host) or []}
        for name in sorted(used):
            yield from _of_interface(nodes, name)


def _of_interface(nodes: Json, name: str) -> Found:
    interface = (nodes.get("interfaces") or {}).get(name)
    if interface:
        yield "interface", "driver", interface.get("driver")
        yield "interface", "MTU", interface.get("mtu")
        yield "interface", "speed", _rate(interface.get("speed_bit_s"))
    adapter_name, _, port_name = name.partition(":")
    adapter = (nodes.get("adapters") or {}).get(adapter_name)
    if adapter:
        port = (adapter.get("ports") or {}).get(port_name or "1") or {}
        yield "interface", "driver", adapter.get("driver")
        yield "interface", "speed", _rate(port.get("rate_bit_s"))
        yield "interface", "link layer", port.get("link_layer")


def _rate(bit_s: Any) -> str | None:
    return None if bit_s is None else f"{float(bit_s) / 1e9:g} Gbit/s"


def _congestion(this: list[Record], that: list[Record]) -> list[dict[str, Any]]:
    """Totals of each side that differ. What the network did is an outcome, so it is never unexpected."""
    counted = [_total_congestion(side) for side in (this, that)]
    rows = []
    for counter in sorted({*counted[0], *counted[1]}):
        totals = [side.get(counter) for side in counted]
        if any(totals) and totals[0] != totals[1]:
            texts = [
                ABSENT["congestion"] if total is None else _in_cells(total, len(side))
                for total, side in zip(totals, (this, that), strict=True)
            ]
            rows.append(_row("congestion", counter, *texts, expected=True))
    return rows


def _in_cells(total: int, cells: int) -> str:
    return f"{total:,} in {cells} cell{'s' if cells > 1 else ''}"


def _total_congestion(side: list[Record]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for record in side:
        for counters in (record.evidence.get("congestion") or {}).values():
            for name, count in counters.items():
                total[name] += count
    return dict(total)
