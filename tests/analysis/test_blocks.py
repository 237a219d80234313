"""Blocks are found by what ran where and when; each cell has one partner, and what has none says why."""

import numpy as np
import pandas as pd
import pytest
from tables import START, cells_of, with_ids

from fabricbench.analysis.blocks import Blocks, find, held_equal, version_difference


def found(cells: pd.DataFrame, **options) -> Blocks:
    """Blocks of fabrics against ethernet."""
    return find(cells, "fabric", "ethernet", **options)


def at(*minutes: float) -> pd.Series:
    """Starts, in minutes after the first."""
    return START + pd.Series(pd.to_timedelta(minutes, unit="min"))


def repeats(blocks: Blocks, cells: pd.DataFrame) -> list[list[int]]:
    """Which repeats are paired, as [baseline's, other's], in order of the block's number."""
    repeat = cells.set_index("cell")["repeat"]
    pairs = blocks.pairs[["baseline_cell", "other_cell"]]
    return [[int(repeat[one]), int(repeat[two])] for one, two in pairs.itertuples(index=False)]


def test_each_block_holds_one_cell_of_either_side() -> None:
    """Three blocks of three fabrics: two comparisons of three pairs, a minute or two apart, none left."""
    cells = cells_of({"ethernet": [1, 2, 3], "opa": [1, 2, 3], "ib": [1, 2, 3]})
    blocks = found(cells)
    assert blocks.comparisons["other"].tolist() == ["ib", "opa"]
    assert blocks.pairs.groupby("comparison")["block"].apply(list).tolist() == [[1, 2, 3]] * 2
    assert blocks.pairs.groupby("comparison")["apart_s"].max().tolist() == [120, 60]
    assert blocks.unpaired.empty
    assert repeats(blocks, cells) == [[1, 1], [2, 2], [3, 3]] * 2


def test_partners_of_another_node_set_are_none() -> None:
    """Minutes apart but on other nodes: no pair, and why."""
    cells = cells_of({"ethernet": [1, 2], "opa": [1, 2]})
    cells["node_set"] = ["n0,n1", "n0,n1", "n0,n1", "n2,n3"]
    blocks = found(cells)
    assert repeats(blocks, cells) == [[1, 1]]
    assert blocks.unpaired[["side", "why"]].values.tolist() == [
        ["baseline", "each cell near it has another partner"],
        ["other", "no cell of the other side ran on the same nodes"],
    ]


def test_partners_of_another_hour_are_none() -> None:
    """61 minutes apart is too far by default, and near enough if so decided."""
    cells = cells_of({"ethernet": [1], "opa": [1]})
    cells["start"] = at(0, 61)
    assert found(cells).pairs.empty
    assert set(found(cells).unpaired["why"]) == {
        "no cell of the other side started on the same nodes within 3600 s"
    }
    assert len(found(cells, pair_within_s=3660).pairs) == 1


@pytest.mark.parametrize(
    ("column", "why"), [("node_set", "its nodes aren't recorded"), ("start", "its start isn't recorded")]
)
def test_what_isnt_recorded_is_no_pair(column, why) -> None:
    """Without nodes or start, by column or by cell, nothing shows that two cells were close together."""
    cells = cells_of({"ethernet": [1], "opa": [1]})
    for table in (cells.drop(columns=column), cells.assign(**{column: None})):
        assert found(table).pairs.empty
        assert set(found(table).unpaired["why"]) == {why}


def test_order_blocks_come_before_nearness() -> None:
    """Random order inside blocks: ethernet 1, opa 1, opa 2, ethernet 2 close together pair by block."""
    cells = cells_of({"ethernet": [1, 2], "opa": [1, 2]})
    cells["start"] = at(0, 9, 8, 1)
    assert repeats(found(cells), cells) == [[1, 1], [2, 2]]
    swapped = cells.assign(block=pd.array([1, 2, 2, 1], dtype="Int64"))
    assert repeats(found(swapped), swapped) == [[1, 2], [2, 1]], "the recorded block before the repeat"


def test_without_order_the_nearest_start_is_the_partner() -> None:
    """Repeats that say nothing: partners are chosen for the least time between starts over all pairs."""
    cells = cells_of({"ethernet": [1, 2, 3], "opa": [1, 2, 3]})
    cells["repeat"] = pd.array([1, 2, 3, 4, 5, 6], dtype="Int64")
    cells["start"] = at(0, 10, 20, 21, 1, 12)
    blocks = found(cells)
    assert repeats(blocks, cells) == [[1, 5], [2, 6], [3, 4]]
    assert blocks.pairs["apart_s"].tolist() == [60, 120, 60]


def test_the_nearest_of_several_is_the_partner() -> None:
    """One cell, and others half an hour before, a minute before, and 20 minutes after it."""
    cells = cells_of({"ethernet": [1], "opa": [1, 2, 3]}, repeat=9)
    cells["start"] = at(30, 0, 29, 50)
    assert found(cells).pairs["apart_s"].tolist() == [60]


def test_as_many_pairs_as_possible() -> None:
    """A nearer partner is passed over where that leaves another cell alone."""
    cells = cells_of({"ethernet": [1, 2], "opa": [1, 2]})
    cells["start"] = at(0, 50, 50, 105)
    cells["repeat"] = pd.array([1, 2, 2, 3], dtype="Int64")
    assert repeats(found(cells), cells) == [[1, 2], [2, 3]]


def test_one_to_one() -> None:
    """Three cells against one: one pair, two remain and say that they have no partner left."""
    cells = cells_of({"ethernet": [1, 2, 3], "opa": [1]})
    blocks = found(cells)
    assert len(blocks.pairs) == 1
    assert blocks.unpaired["why"].tolist() == ["each cell near it has another partner"] * 2


def test_only_good_cells_are_paired() -> None:
    """A failed cell, and one without a value, are nobody's partner."""
    cells = cells_of({"ethernet": [1, 2, 3], "opa": [1, 2, 3]})
    cells.loc[0, "status"] = "failed"
    cells.loc[4, "value"] = np.nan
    blocks = found(cells)
    assert repeats(blocks, cells) == [[3, 3], [2, 1]] or repeats(blocks, cells) == [[2, 1], [3, 3]]
    assert blocks.unpaired.empty


def test_cells_of_different_versions_are_no_pair() -> None:
    """After an upgrade in mid-campaign, old is paired with old and new with new."""
    cells = cells_of({"ethernet": [1, 2], "opa": [1, 2]})
    cells["versions"] = ['{"torch":"1"}', '{"torch":"2"}', '{"torch":"2"}', '{"torch":"1"}']
    assert repeats(found(cells), cells) == [[1, 2], [2, 1]]
    assert repeats(found(cells, allow_versions=True), cells) == [[1, 1], [2, 2]]
    one = cells[cells["repeat"] == 1]
    assert set(found(one).unpaired["why"]) == {"the cells near it ran with other library versions"}
    assert found(one).comparisons["versions_differ"].tolist() == ["torch: 1 / 2"]


def test_only_what_both_name_can_differ() -> None:
    """A library that one side has and the other hasn't is another way to communicate, not another version."""
    assert version_difference('{"torch":"1","mpi":"5"}', '{"torch":"1"}') == ""
    assert (
        version_difference('{"torch":"1","mpi":"5"}', '{"torch":"2","mpi":"4"}') == "mpi: 5 / 4, torch: 1 / 2"
    )
    assert version_difference("", '{"torch":"1"}') == ""
    assert version_difference("torch 1", "torch 2") == "versions: torch 1 / torch 2"


def test_library_text_counts_where_the_axis_doesnt_name_it() -> None:
    """Fabrics measured with two MPI libraries differ in more than the fabric; backends do by their nature."""
    cells = cells_of({"ethernet": [1], "opa": [1]})
    cells["library"] = ["MPICH 4", "MPICH 5"]
    assert found(cells).comparisons["versions_differ"].tolist() == ["library: MPICH 4 / MPICH 5"]
    backends = with_ids(cells.assign(fabric="opa", backend=["gloo", "mpi"], engine=["gloo", "mpi"]))
    by_backend = find(backends, "backend", "gloo")
    assert by_backend.comparisons["versions_differ"].tolist() == [""]
    assert len(by_backend.pairs) == 1


def test_the_axis_and_what_it_determines_arent_held_equal() -> None:
    """By fabric everything but the fabric; by backend not the engine; by GPUs not the nodes."""
    cells = cells_of({"ethernet": [1]})
    assert "fabric" not in held_equal(cells, "fabric")
    assert "params" in held_equal(cells, "fabric")
    assert not {"backend", "engine"} & set(held_equal(cells, "backend"))
    assert not {"gpus", "nodes", "ranks_per_node"} & set(held_equal(cells, "gpus"))


def test_emulated_is_never_set_against_real() -> None:
    """Cells that differ in anything held equal make no comparison."""
    cells = cells_of({"ethernet": [1], "opa": [1]})
    for column, values in (("emulated", [True, False]), ("params", ["{}", '{"a":1}']), ("unit", ["a", "b"])):
        assert found(cells.assign(**{column: values})).comparisons.empty


def by_placement() -> pd.DataFrame:
    """Two repeats of packed and of spread cells of one fabric, on other nodes, a minute apart."""
    cells = cells_of({"packed": [1, 2], "spread": [1, 2]})
    nodes = cells["fabric"].map({"packed": "n0,n1", "spread": "n0,n2"})
    return with_ids(cells.assign(placement=cells["fabric"], fabric="opa", node_set=nodes))


def test_placements_are_compared_on_other_nodes() -> None:
    """That the nodes differ is the question; a block is then what ran close together."""
    cells = by_placement()
    blocks = find(cells, "placement", "packed")
    assert blocks.comparisons[["baseline", "other", "fabric"]].values.tolist() == [
        ["packed", "spread", "opa"]
    ]
    assert repeats(blocks, cells) == [[1, 1], [2, 2]]
    assert blocks.unpaired.empty
    sets = cells.set_index("cell")["node_set"]
    assert {(sets[one], sets[two]) for one, two in blocks.pairs[["baseline_cell", "other_cell"]].values} == {
        ("n0,n1", "n0,n2")
    }


def test_placements_that_were_the_same_nodes_are_no_pair() -> None:
    """Nothing then differs but the name; the other repeat, on other nodes, still is one."""
    cells = by_placement()
    cells.loc[(cells["placement"] == "spread") & (cells["repeat"] == 2), "node_set"] = "n0,n1"
    blocks = find(cells, "placement", "packed")
    assert len(blocks.pairs) == 1
    assert "packed and spread ran on the same nodes" in set(blocks.unpaired["why"])
    same = find(cells.assign(node_set="n0,n1"), "placement", "packed")
    assert same.pairs.empty
    assert set(same.unpaired["why"]) == {"packed and spread ran on the same nodes"}


def test_fabrics_are_compared_at_one_placement() -> None:
    """A packed cell of one fabric is never set against a spread one of another."""
    assert "placement" in held_equal(by_placement(), "fabric")
