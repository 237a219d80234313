"""What carried the bytes, and what else differed: verdicts, counters and differences as people read them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fabricbench.analysis import proof
from fabricbench.analysis.table import MISLABELLED, Tables
from fabricbench.report import words
from fabricbench.report.panels import DataTable

MOST_COUNTER_ROWS = 2000
MOST_NAMED = 3
"""Unexpected differences that a pair's sentence spells out; the table has all."""
LONGEST_VALUE = 60

SAID_OF = {
    "too little to prove": "too little to prove",
    MISLABELLED: "mislabelled",
    "not applicable": "on one node, where there is nothing to prove",
    "unverified": "unverified",
    "": "not judged",
}


@dataclass(frozen=True)
class Claim:
    """A part of the sentence on what is verified."""

    text: str
    wrong: bool = False


@dataclass(frozen=True)
class Evidence:
    """The section on what was counted."""

    claims: list[Claim]
    counters: DataTable
    left_out: int
    """Rows of `counters` that are not on the page."""
    congestion: DataTable
    words: DataTable


@dataclass(frozen=True)
class Pair:
    """One comparison, with a sentence on what else differed."""

    title: str
    text: str
    clean: bool


@dataclass(frozen=True)
class Differed:
    """The section on what else differed."""

    pairs: list[Pair]
    """Those with an unexpected difference first."""
    table: DataTable

    @property
    def clean(self) -> int:
        """How many pairs differ in nothing but the fabric."""
        return sum(pair.clean for pair in self.pairs)


def claims(cells: pd.DataFrame) -> list[Claim]:
    """How much is verified: `58 of 66 cells: …` and what isn't; nothing where no cell ran to its end."""
    found = proof.verdicts(cells)
    total = sum(found.values())
    if not total:
        return []
    verified = f"{found.get('verified', 0):,} of {words.plural(total, 'cell')}"
    rest = [
        Claim(f"{found[verdict]:,} {said}", wrong=verdict == MISLABELLED)
        for verdict, said in SAID_OF.items()
        if found.get(verdict)
    ]
    return [Claim(f"{verified}: the bytes were counted on the fabric that the cell names"), *rest]


def evidence(tables: Tables) -> Evidence:
    """Counters beside the formula, congestion, and what libraries said."""
    counters, left_out = _counters(tables)
    return Evidence(
        claims=claims(tables.cells),
        counters=counters,
        left_out=left_out,
        congestion=_congestion(tables),
        words=_words(tables),
    )


def _counters(tables: Tables) -> tuple[DataTable, int]:
    counted = proof.counted(tables.cells, tables.facts)
    names = ["cell", "node", "counter", "role"]
    numbers = []
    for way, need in (("sent", "had to send"), ("received", "had to receive")):
        numbers += [f"{way}, bytes", f"{need}, bytes", f"{way} / formula", f"idle, {way}"]
    rows = [
        [
            str(row["cell"]),
            str(row["node"]),
            str(row["counter"]),
            str(row["role"]),
            *(text for way in proof.DIRECTIONS for text in _one_way(row, way)),
        ]
        for row in counted[:MOST_COUNTER_ROWS].to_dict("records")
    ]
    wrong = [row["status"] == MISLABELLED for row in counted[:MOST_COUNTER_ROWS].to_dict("records")]
    table = DataTable(
        [*names, *numbers],
        rows,
        frozenset(numbers),
        wrong=frozenset(at for at, bad in enumerate(wrong) if bad),
    )
    return table, len(counted) - len(rows)


def _one_way(row: Mapping[Any, Any], way: str) -> list[str]:
    low, high = words.count(row[f"{way}_low"]), words.count(row[f"{way}_high"])
    return [
        words.count(row[f"{way}_bytes"]),
        low if low == high else f"{low}–{high}",
        words.share(row[f"{way}_of_formula"]),
        words.count(row[f"{way}_baseline"]),
    ]


def _congestion(tables: Tables) -> DataTable:
    found = proof.congestion(tables.cells, tables.facts)
    rows = [
        [str(cell), str(node), str(counter), words.count(count)]
        for cell, node, counter, count in found[:MOST_COUNTER_ROWS].itertuples(index=False)
    ]
    return DataTable(["cell", "node", "counter", "count"], rows, frozenset({"count"}))


def _words(tables: Tables) -> DataTable:
    found = proof.words_of_libraries(tables.cells, tables.facts)
    rows = [
        [str(text) for text in (fabric, backend, line)] + [words.count(cells)]
        for fabric, backend, line, cells in found[:MOST_COUNTER_ROWS].itertuples(index=False)
    ]
    return DataTable(
        ["fabric", "backend", "line", "cells"], rows, frozenset({"cells"}), wrap=frozenset({"line"})
    )


def rails(cells: pd.DataFrame) -> DataTable:
    """Which interfaces or adapter ports each fabric used on a node, and what they carry together."""
    names = ["fabric", "kind", "interfaces or ports", "per node", "line rate of one", "of a node"]
    shaped = bool((cells["emulated"] & cells["link_bit_s"].notna()).any())
    rows = []
    for row in proof.rails(cells).to_dict("records"):
        texts = [row["fabric"], row["fabric_kind"], row["rails"], row["ports_per_node"]]
        rates = [row["rate_bit_s"], row["node_rate_bit_s"], *([row["node_link_bit_s"]] if shaped else [])]
        rows.append([str(text) for text in texts] + [words.bit_rate(rate) for rate in rates])
    numeric = frozenset({*names[3:], "of a node, as shaped"})
    return DataTable([*names, *(["of a node, as shaped"] if shaped else [])], rows, numeric)


def differed(differences: pd.DataFrame) -> Differed:
    """A sentence per compared pair, and all differences as a table."""
    key = ["workload", "backend", "gpus", "fabric", "baseline"]
    pairs = [
        _pair([str(part) for part in names], rows.to_dict("records"))
        for names, rows in differences.groupby(key, sort=False)
    ]
    rows = [
        [
            f"{row['workload']} · {row['backend']} · {row['gpus']}",
            f"{row['fabric']} / {row['baseline']}",
            str(row["kind"]),
            str(row["what"]),
            "yes" if row["expected"] else "no",
            str(row["this_side"]) or words.DASH,
            str(row["that_side"]) or words.DASH,
        ]
        for row in differences[differences["kind"] != "none"].to_dict("records")
    ]
    sides = ["fabric has", "baseline has"]
    names = ["workload · backend · GPUs", "fabric / baseline", "kind", "what", "expected", *sides]
    table = DataTable(names, rows, wrap=frozenset(sides))
    return Differed(sorted(pairs, key=_is_clean), table)


def _is_clean(pair: Pair) -> bool:
    return pair.clean


def _pair(names: list[str], rows: list[dict[Any, Any]]) -> Pair:
    workload, backend, gpus, fabric, baseline = names
    unexpected = [row for row in rows if not row["expected"]]
    said = [_said(row) for row in unexpected[:MOST_NAMED]]
    if len(unexpected) > MOST_NAMED:
        said.append(f"{len(unexpected) - MOST_NAMED} more in the table")
    text = f"{words.listed(said)}." if said else "nothing but the fabric."
    if congested := [_said(row) for row in rows if row["kind"] == "congestion"]:
        text += f" Congestion: {words.listed(congested)}."
    where = f"{workload} over {backend}, {words.plural(int(gpus), 'GPU')}: {fabric} against {baseline}"
    return Pair(where, text, clean=not unexpected)


def _said(row: Mapping[Any, Any]) -> str:
    """`kernel (6.13.0 against 6.12.8)`."""
    this, that = (_short(str(row[side])) for side in ("this_side", "that_side"))
    return f"{row['what']} ({this} against {that})"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE].rstrip()}…"
