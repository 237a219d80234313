"""What was counted, beside what should have been: bytes by node and counter, and the ports of each fabric."""

from collections.abc import Iterator, Mapping
from math import nan
from typing import Any

import pandas as pd

Json = Mapping[str, Any]

DIRECTIONS = ("tx", "rx")
DECLARED, SAME_WIRE, OTHER = "declared", "same wire", "other"
COUNTED_COLUMNS = (
    "cell",
    "status",
    "node",
    "counter",
    "role",
    *(f"{way}_{what}" for way in DIRECTIONS for what in ("bytes", "baseline", "low", "high", "of_formula")),
)
RAIL_COLUMNS = (
    "fabric",
    "fabric_kind",
    "ports_per_node",
    "rails",
    "rate_bit_s",
    "node_rate_bit_s",
    "link_bit_s",
    "node_link_bit_s",
)


def verdicts(cells: pd.DataFrame) -> dict[str, int]:
    """Cells that ran to their end by the verdict on their evidence; "" for records without one."""
    judged = cells[cells["status"].isin(["ok", "mislabelled"])]
    return {str(verdict): int(n) for verdict, n in judged["evidence"].value_counts().items()}


def counted(cells: pd.DataFrame, facts: Json) -> pd.DataFrame:
    """One row per cell, node and counter, mislabelled cells first.

    `role` is declared (the fabric names it), same wire (lawfully sees the same bytes: what lies under a
    VLAN or a bond, the adapter under its interface) or other. tx and rx in bytes: as counted, `baseline`
    what the idle node would have carried, `low` and `high` what the algorithm had to move through the
    node, and `of_formula` (bytes - baseline) / low, headers in the one and not in the other. A node with
    several declared counters has a row for all together.
    """
    rows = []
    ordered = cells.sort_values("status", key=lambda column: column != "mislabelled", kind="stable")
    for cell, status in ordered[["cell", "status"]].itertuples(index=False):
        if status in ("ok", "mislabelled"):
            evidence = facts["cells"].get(cell, {}).get("evidence") or {}
            rows += [{"cell": cell, "status": status} | row for row in _of_cell(evidence)]
    return pd.DataFrame(rows, columns=list(COUNTED_COLUMNS))


def _of_cell(evidence: Json) -> Iterator[dict[str, Any]]:
    formula = (evidence.get("formula") or {}).get("nodes") or {}
    rails = evidence.get("rails") or {}
    for node, counters in (evidence.get("nodes") or {}).items():
        idle = (evidence.get("baseline") or {}).get(node) or {}
        declared = [name for name in rails.get(node) or [] if name in counters]
        same_wire = ((evidence.get("declared") or {}).get(node) or {}).get("same_wire") or []
        groups = [[name] for name in (*declared, *(name for name in counters if name not in declared))]
        if len(declared) > 1:
            groups.insert(0, declared)
        for names in groups:
            yield {
                "node": node,
                "counter": " + ".join(names),
                "role": DECLARED if names[0] in declared else SAME_WIRE if names[0] in same_wire else OTHER,
                **_both_ways(
                    [counters[name] for name in names],
                    [idle.get(name) or {} for name in names],
                    formula.get(node) or {},
                ),
            }


def _both_ways(counters: list[Json], idle: list[Json], formula: Json) -> dict[str, float]:
    found: dict[str, float] = {}
    for way in DIRECTIONS:
        key = f"{way}_bytes"
        low, high = formula.get(key) or (nan, nan)
        carried = sum(_number(counter.get(key)) for counter in counters)
        baseline = sum(_number(counter.get(key)) for counter in idle)
        spared = 0.0 if baseline != baseline else baseline
        found |= {
            key: carried,
            f"{way}_baseline": baseline,
            f"{way}_low": float(low),
            f"{way}_high": float(high),
            f"{way}_of_formula": (carried - spared) / low if low > 0 else nan,
        }
    return found


def congestion(cells: pd.DataFrame, facts: Json) -> pd.DataFrame:
    """One row per cell, node and counter of congestion that isn't zero."""
    rows = [
        (cell, node, name, count)
        for cell in cells["cell"]
        for node, counters in _evidence(facts, cell, "congestion").items()
        for name, count in counters.items()
        if count
    ]
    return pd.DataFrame(rows, columns=["cell", "node", "counter", "count"])


def words_of_libraries(cells: pd.DataFrame, facts: Json) -> pd.DataFrame:
    """What the libraries' own logs said of the network: each line once, with its cells."""
    lines = [
        (fabric, backend, line)
        for cell, fabric, backend in cells[["cell", "fabric", "backend"]].itertuples(index=False)
        for line in dict.fromkeys(_evidence(facts, cell, "words"))
    ]
    frame = pd.DataFrame(lines, columns=["fabric", "backend", "line"])
    return frame.groupby(["fabric", "backend", "line"], sort=False).size().reset_index(name="cells")


def rails(cells: pd.DataFrame) -> pd.DataFrame:
    """The ports that each fabric was found to have, with the rate of one and of a node's together."""
    known = cells[cells["rails"] != ""]
    columns = ["fabric", "fabric_kind", "ports_per_node", "rails", "rate_bit_s", "link_bit_s"]
    distinct = known[columns].drop_duplicates()
    ports = distinct["ports_per_node"].astype(float)
    return distinct.assign(
        node_rate_bit_s=distinct["rate_bit_s"] * ports, node_link_bit_s=distinct["link_bit_s"] * ports
    )[list(RAIL_COLUMNS)]


def _evidence(facts: Json, cell: str, key: str) -> Any:
    return facts["cells"].get(cell, {}).get("evidence", {}).get(key) or {}


def _number(value: Any) -> float:
    return nan if value is None else float(value)
