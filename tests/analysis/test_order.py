"""What the blocks turned out to be: read from starts and nodes, whatever was asked for."""

import pandas as pd
from tables import BLOCK_S, CELL_S, START, cells_of

from fabricbench.analysis.compare import Axis, Rules
from fabricbench.analysis.order import paired, repeats

AXES = [Axis("fabric", "ethernet")]


def test_repeats_with_their_time_and_nodes() -> None:
    """Two repeats of two cells: so many cells, from the first start to the last, on two node sets."""
    cells = cells_of({"ethernet": [1.0, 2.0], "opa": [3.0, 4.0]})
    cells["node_set"] = pd.Series(["n0", "n0,n1", "n0,n1,n2", "n0,n1,n2"], dtype="string")
    table = repeats(cells)
    assert list(table["repeat"]) == [1, 2]
    assert list(table["cells"]) == [2, 2]
    assert list(table["node_sets"]) == ["n0-n2; n0", "n0-n2; n0-n1"]
    assert table["first"].iloc[1] == START + pd.Timedelta(seconds=BLOCK_S)
    assert table["last"].iloc[1] == START + pd.Timedelta(seconds=BLOCK_S + CELL_S)


def test_cells_that_have_not_run_are_in_no_repeat() -> None:
    """Without a start there's nothing to say."""
    cells = cells_of({"ethernet": [1.0, 2.0]})
    assert repeats(cells.assign(start=pd.NaT)).empty
    assert list(repeats(cells.iloc[:0]).columns) == ["repeat", "cells", "first", "last", "node_sets"]


def test_pairs_of_a_comparison() -> None:
    """Three blocks, a minute apart within each; the fourth cell of one side is left over, with a reason."""
    cells = cells_of({"ethernet": [1.0, 1.0, 1.0, 1.0], "opa": [2.0, 2.0, 2.0]})
    (row,) = paired(cells, AXES, Rules()).to_dict("records")
    assert (row["by"], row["baseline"], row["other"], row["gpus"]) == ("fabric", "ethernet", "opa", 4)
    assert (row["blocks"], row["apart_s"], row["node_sets"]) == (3, CELL_S, "n0-n1")
    assert row["first"] == START
    assert row["last"] == START + pd.Timedelta(seconds=2 * BLOCK_S + CELL_S)
    assert (row["left_over"], row["why"]) == (1, "each cell near it has another partner")


def test_other_nodes_are_no_block() -> None:
    """Cells of two node sets form none, and all are left over."""
    cells = cells_of({"ethernet": [1.0, 1.0], "opa": [2.0, 2.0]})
    cells["node_set"] = cells["fabric"]
    (row,) = paired(cells, AXES, Rules()).to_dict("records")
    assert (row["blocks"], row["left_over"]) == (0, 4)
    assert row["why"] == "no cell of the other side ran on the same nodes"
    assert pd.isna(row["first"])


def test_nothing_to_pair_is_an_empty_table() -> None:
    """One fabric: no rows, the same columns."""
    table = paired(cells_of({"ethernet": [1.0]}), AXES, Rules())
    assert table.empty
    assert {"workload", "by", "blocks", "apart_s"} <= set(table.columns)
