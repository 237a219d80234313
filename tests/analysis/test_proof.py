"""Counted bytes stand beside what should have been, and mislabelled cells first."""

from pathlib import Path

import pandas as pd
import pytest
from records import make_cell, make_failure, make_grid, make_mislabelled, make_record, make_small, put

from fabricbench.analysis.proof import congestion, counted, rails, verdicts, words_of_libraries
from fabricbench.analysis.table import Tables, collect
from fabricbench.record import Record


def tables_of(folder: Path, *records: Record) -> Tables:
    """Tables of some records."""
    for record in records:
        put(record, folder)
    return collect(make_grid([record.cell for record in records]), folder)


def test_verdicts_are_counted_over_cells_that_ran(tmp_path: Path) -> None:
    """Good and mislabelled cells count by verdict; what failed or never ran has none."""
    tables = tables_of(
        tmp_path,
        make_record(make_cell()),
        make_record(make_cell(gpus=1)),
        make_mislabelled(make_cell(repeat=2)),
        make_small(make_cell(repeat=3)),
        make_failure(make_cell(repeat=4), "failed", "x"),
        make_record(make_cell(repeat=5), evidence={}),
    )
    expected = {"verified": 1, "not applicable": 1, "mislabelled": 1, "too little to prove": 1, "": 1}
    assert verdicts(tables.cells) == expected


def test_bytes_stand_beside_the_formula(tmp_path: Path) -> None:
    """91.52 MB sent, less 400 bytes of an idle node, where the algorithm had to send 88 MB: 104 %."""
    tables = tables_of(tmp_path, make_record(make_cell()))
    table = counted(tables.cells, tables.facts)
    assert len(table) == 8
    first, lo = table.iloc[0], table.iloc[1]
    assert (first["node"], first["counter"], first["role"]) == ("n0", "eth0", "declared")
    assert (first["tx_bytes"], first["tx_baseline"], first["tx_low"]) == (91_520_000, 400, 88_000_000)
    assert first["tx_of_formula"] == pytest.approx((91_520_000 - 400) / 88_000_000)
    assert (lo["counter"], lo["role"], lo["tx_of_formula"]) == ("lo", "other", 0)


def test_ports_of_one_node_also_stand_together(tmp_path: Path) -> None:
    """Two rails that carry half each are 100 % together, in a row before their own."""
    record = make_record(make_cell(gpus=2))
    half = {"rx_bytes": 44_000_000, "tx_bytes": 44_000_000}
    evidence = record.evidence
    evidence["nodes"] = {"n0": {"lo": {"rx_bytes": 0, "tx_bytes": 0}, "a:1": half, "b:1": half}}
    evidence |= {"rails": {"n0": ["a:1", "b:1"]}, "baseline": {}}
    tables = tables_of(tmp_path, record)
    table = counted(tables.cells, tables.facts)
    assert list(table["counter"]) == ["a:1 + b:1", "a:1", "b:1", "lo"]
    assert list(table["role"]) == ["declared"] * 3 + ["other"]
    assert list(table["rx_of_formula"]) == [1.0, 0.5, 0.5, 0.0]
    assert table["rx_baseline"].isna().all()


def test_mislabelled_cells_come_first_and_a_formula_may_be_absent(tmp_path: Path) -> None:
    """What went wrong is met first; on one node there is no formula, and no share."""
    bad = make_mislabelled(make_cell())
    tables = tables_of(tmp_path, make_record(make_cell(gpus=1)), bad)
    table = counted(tables.cells, tables.facts)
    assert table["cell"].iloc[0] == bad.id
    elsewhere = table[table["counter"] == "eth9"].iloc[0]
    assert elsewhere["role"] == "other"
    assert elsewhere["tx_of_formula"] == pytest.approx(1.04)
    assert table.loc[table["cell"] != bad.id, "tx_of_formula"].isna().all()


def test_what_lies_under_an_interface_is_no_other_network(tmp_path: Path) -> None:
    """A bond's member sees the bond's bytes: its role says so."""
    record = make_record(make_cell(gpus=2))
    record.evidence["nodes"]["n0"]["eth1"] = {"rx_bytes": 90_000_000, "tx_bytes": 90_000_000}
    record.evidence["declared"] = {"n0": {"counters": ["eth0"], "same_wire": ["eth1"]}}
    tables = tables_of(tmp_path, record)
    roles = counted(tables.cells, tables.facts).set_index(["node", "counter"])["role"]
    assert roles["n0", "eth1"] == "same wire"


def test_congestion_and_words_are_told_once(tmp_path: Path) -> None:
    """Counters at zero are left out, and a line that many cells said stands once with their number."""
    tables = tables_of(tmp_path, *(make_record(make_cell(repeat=repeat)) for repeat in (1, 2)))
    found = congestion(tables.cells, tables.facts)
    assert [tuple(row)[1:] for row in found.itertuples(index=False)] == [("n0", "tcp_retransmits", 3)] * 2
    (line,) = words_of_libraries(tables.cells, tables.facts).to_dict("records")
    assert line == {"fabric": "ethernet", "backend": "gloo", "line": "gloo: Connecting over eth0", "cells": 2}


def test_rails_give_a_nodes_line_rate(tmp_path: Path) -> None:
    """Four ports of 25 Gbit/s are 100 Gbit/s a node; equal cells are one row."""
    records = [make_record(make_cell(repeat=repeat)) for repeat in (1, 2)]
    for record in records:
        record.cell.fabric["ports_per_node"] = 4
    (row,) = rails(tables_of(tmp_path, *records).cells).to_dict("records")
    assert (row["rails"], row["ports_per_node"], row["node_rate_bit_s"]) == ("eth0", 4, 100e9)
    assert row["node_link_bit_s"] == 200e6


def test_nothing_judged_is_empty(tmp_path: Path) -> None:
    """Records from before there was evidence, and none at all, give empty tables with their columns."""
    for records in ((), (make_record(make_cell(), evidence={}),)):
        tables = tables_of(tmp_path, *records)
        for table in (
            counted(tables.cells, tables.facts),
            congestion(tables.cells, tables.facts),
            words_of_libraries(tables.cells, tables.facts),
            rails(tables.cells),
        ):
            assert isinstance(table, pd.DataFrame)
            assert table.empty
            assert len(table.columns) >= 4
