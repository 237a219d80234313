"""A campaign's folder becomes one table that hides no cell and invents no number."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from records import make_cell, make_failure, make_grid, make_mislabelled, make_record, put

from fabricbench.analysis.scaling import curves
from fabricbench.analysis.stats import over_repeats
from fabricbench.analysis.table import FRAMES, Tables, collect, read_tables, write_tables
from fabricbench.errors import RecordError
from fabricbench.record import Series, failure_path
from fabricbench.workflow import TABLES


def only(tables: Tables) -> pd.Series:
    """The single row of a table."""
    assert len(tables.cells) == 1
    return tables.cells.iloc[0]


def dtypes(frame: pd.DataFrame) -> dict[str, str]:
    """Column names and dtypes, in order."""
    return {name: str(dtype) for name, dtype in frame.dtypes.items()}


def test_training_is_images_per_second_of_the_modelled_machine(tmp_path: Path) -> None:
    """A replayed step is divided by the time scale: 256 images per 2.0 s / 10 are 1280 images/s."""
    record = make_record(make_cell(), values=[1.0, 2.0, 9.0])
    put(record, tmp_path)
    row = only(collect(make_grid([record.cell]), tmp_path))
    assert (row["status"], row["value"], row["unit"], row["step_s"]) == ("ok", 1280.0, "images/s", 2.0)
    assert (row["duration_s"], row["overhead_s"]) == (9.0, 3.0)
    assert row["start"] == pd.Timestamp("2026-11-30T10:01:00Z")
    assert row["emulated"]
    assert not row["demonstration"]


def test_real_compute_is_never_divided_by_the_time_scale(tmp_path: Path) -> None:
    """A demonstration cell keeps the rate at which it really ran."""
    record = make_record(make_cell(device="cpu"), values=[2.0])
    put(record, tmp_path)
    row = only(collect(make_grid([record.cell]), tmp_path))
    assert (row["value"], row["demonstration"]) == (128.0, True)


def test_flow_is_dof_updates_per_second(tmp_path: Path) -> None:
    """552,960 DOF × 3 stages in 0.5 s are 3.31776 MDOF/s."""
    record = make_record(make_cell("cfd"), values=[0.5])
    put(record, tmp_path)
    row = only(collect(make_grid([record.cell]), tmp_path))
    assert row["value"] == pytest.approx(3.31776)
    assert row["unit"] == "MDOF/s"


@pytest.mark.parametrize(
    ("metric", "mbit_s"), [("allreduce_s", 48.0), ("stream_s", 32.0), ("pingpong_s", 32.0)]
)
def test_messages_are_bus_bandwidth_of_the_largest(tmp_path: Path, metric: str, mbit_s: float) -> None:
    """4 MB in 1 s over 4 ranks: 32 Mbit/s point to point, times 2(n-1)/n = 1.5 for an all-reduce."""
    series = [
        Series(metric=metric, unit="s", bytes=1_000, values=[0.5]),
        Series(metric=metric, unit="s", bytes=4_000_000, values=[0.1, 1.0, 3.0]),
    ]
    record = make_record(make_cell("micro"), samples=series)
    put(record, tmp_path)
    row = only(collect(make_grid([record.cell]), tmp_path))
    assert (row["value"], row["unit"]) == (pytest.approx(mbit_s), "Mbit/s")
    assert row["of_line_rate"] == pytest.approx(mbit_s / 50)


def test_messages_that_pass_in_a_burst_of_the_shaper_are_no_headline(tmp_path: Path) -> None:
    """Where the largest message is below what the shaper holds to its rate, there's a reason, no number."""
    samples = [Series(metric="stream_s", unit="s", bytes=65536, values=[0.001])]
    record = make_record(make_cell("micro"), samples=samples)
    put(record, tmp_path)
    tables = collect(make_grid([record.cell]), tmp_path)
    row = only(tables)
    assert (row["status"], pd.isna(row["value"])) == ("ok", True)
    assert "trustworthy from 262,144" in row["reason"]
    assert len(tables.samples) == 1


@pytest.mark.parametrize("status", ["failed", "timeout", "mislabelled"])
def test_a_failure_is_a_row_with_its_reason(tmp_path: Path, status: str) -> None:
    """A failure beside the record's place gives status and reason, no value and no samples."""
    record = make_failure(make_cell(), status, "rank 3: <script>")
    put(record, tmp_path)
    tables = collect(make_grid([record.cell]), tmp_path)
    row = only(tables)
    assert (row["status"], row["reason"], pd.isna(row["value"])) == (status, "rank 3: <script>", True)
    assert row["log"] == (tmp_path / "logs" / f"{record.id}.log").as_posix()
    assert tables.samples.empty


def test_an_accepted_failure_is_still_no_value(tmp_path: Path) -> None:
    """A failure that a person took as the result stays a failure, marked accepted."""
    record = replace(make_failure(make_cell(), "failed", "no such model"), accepted=True)
    put(record, tmp_path)
    row = only(collect(make_grid([record.cell]), tmp_path))
    assert (row["status"], row["accepted"]) == ("failed", True)


def test_a_record_wins_over_a_failure_left_beside_it(tmp_path: Path) -> None:
    """Success comes last, so a failure that it could not remove is ignored."""
    record = make_record(make_cell(), values=[1.0])
    path = put(record, tmp_path)
    failure_path(path).write_text("{")
    assert only(collect(make_grid([record.cell]), tmp_path))["status"] == "ok"


def test_a_cell_without_a_record_is_missing(tmp_path: Path) -> None:
    """A cell that never ran is a row, without a log; one that left only a log says so."""
    cell = make_cell()
    grid = make_grid([cell])
    row = only(collect(grid, tmp_path))
    assert (row["status"], row["log"]) == ("missing", "")
    log = tmp_path / "logs" / f"{grid['cells'][0]['id']}.log"
    log.parent.mkdir(parents=True)
    log.touch()
    assert "killed" in only(collect(grid, tmp_path))["reason"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:100],
        lambda text: "[]",
        lambda text: text.replace('"schema": 1', '"schema": 99'),
        lambda text: text.replace('"repeat": 1', '"repeat": 2'),
        lambda text: text.replace('"values": [1.5]', '"values": ["x"]'),
        lambda text: text.replace('"values": [1.5]', '"values": [NaN]'),
        lambda text: text.replace('"total": 9.0', '"total": "long"'),
        lambda text: text.replace('"images_per_step": 256', '"images_per_step": []'),
        lambda text: text.replace("2026-11-30T", "yesterday "),
    ],
)
def test_a_spoilt_record_is_unreadable_not_fatal(tmp_path: Path, spoil) -> None:
    """Truncated, foreign or altered records are rows of status unreadable; the rest is collected."""
    bad, good = make_record(make_cell(), values=[1.5]), make_record(make_cell(repeat=2), values=[1.5])
    path = put(bad, tmp_path)
    put(good, tmp_path)
    text = path.read_text()
    assert spoil(text) != text
    path.write_text(spoil(text))
    tables = collect(make_grid([bad.cell, good.cell]), tmp_path)
    assert list(tables.cells["status"]) == ["unreadable", "ok"]
    assert tables.cells["reason"][0]
    assert set(tables.samples["cell"]) == {good.id}


def test_an_ok_cell_without_samples_says_why_it_has_no_value(tmp_path: Path) -> None:
    """No samples, no number: the row stays ok and gives the reason."""
    for kind in ("train", "cfd", "micro"):
        record = make_record(make_cell(kind), samples=[])
        put(record, tmp_path)
        row = only(collect(make_grid([record.cell]), tmp_path))
        assert (row["status"], pd.isna(row["value"])) == ("ok", True)
        assert "no samples of" in row["reason"]


def test_unsupported_combinations_are_rows(tmp_path: Path) -> None:
    """What the grid ruled out stands in the table with its reason and the kinds known from its peers."""
    entry = {"workload": "vgg16", "fabric": "opa", "backend": "nccl", "gpus": 16, "reason": "needs CUDA"}
    row = collect(make_grid([make_cell()], [entry]), tmp_path).cells.iloc[1]
    assert (row["status"], row["reason"], row["kind"]) == ("unsupported", "needs CUDA", "train")
    assert pd.isna(row["repeat"])


def test_evidence_is_in_the_row(tmp_path: Path) -> None:
    """Verdict, sentence, share of the formula, rails and ports stand beside the value that they are about."""
    record = make_record(make_cell(), values=[1.0])
    put(record, tmp_path)
    row = only(collect(make_grid([record.cell]), tmp_path))
    assert (row["evidence"], row["of_formula"], row["rails"]) == ("verified", 1.04, "eth0")
    assert row["because"] == record.evidence["because"]
    assert row["ports_per_node"] == 1


def test_rails_say_where_nodes_differ(tmp_path: Path) -> None:
    """Interfaces that have other names on some nodes are told by node."""
    record = make_record(make_cell())
    record.evidence["rails"] = {"n0": ["eno1"], "n1": ["eno1"], "n2": ["eth0", "eth1"], "n3": ["eno1"]}
    put(record, tmp_path)
    assert only(collect(make_grid([record.cell]), tmp_path))["rails"] == "n0-n1, n3: eno1; n2: eth0, eth1"


def test_a_record_from_before_evidence_was_judged_still_reads(tmp_path: Path) -> None:
    """Without a verdict the columns are empty, the value stays, and a fabric without ports has one."""
    fabric = {name: make_cell().fabric[name] for name in ("name", "rate_bit_s", "link_bit_s")}
    cell = replace(make_cell(), fabric=fabric | {"interface": "eth0"}, binding="auto")
    put(make_record(cell, evidence={"nodes": {}, "emulation": None}), tmp_path)
    row = only(collect(make_grid([cell]), tmp_path))
    assert (row["status"], row["evidence"], row["because"], row["rails"]) == ("ok", "", "", "")
    assert pd.isna(row["of_formula"])
    assert row["ports_per_node"] == 1


def test_line_rate_is_of_all_ports_of_a_node(tmp_path: Path) -> None:
    """32 Mbit/s over two ports of 50 Mbit/s are 32 % of the node's line rate, in table and curves."""
    cell = make_cell("micro")
    cell = replace(cell, fabric=dict(cell.fabric) | {"ports_per_node": 2})
    samples = [Series(metric="stream_s", unit="s", bytes=4_000_000, values=[1.0])]
    put(make_record(cell, samples=samples), tmp_path)
    tables = collect(make_grid([cell]), tmp_path)
    assert only(tables)["of_line_rate"] == pytest.approx(0.32)
    assert list(curves(tables.cells, tables.samples)["of_line_rate"]) == pytest.approx([0.32])
    assert list(curves(tables.cells, tables.samples)["line_rate_bit_s"]) == [100e6]


@pytest.mark.parametrize("kept_as", ["failure", "accepted", "ok"])
@pytest.mark.parametrize("kind", ["train", "micro"])
def test_a_mislabelled_cell_enters_nothing(tmp_path: Path, kept_as: str, kind: str) -> None:
    """Its bytes went elsewhere: no sample, value, median, curve or difference, also if it is accepted.

    Nor if its status were ok against its own evidence.
    """
    bad, good = make_mislabelled(make_cell(kind, fabric="opa")), make_record(make_cell(kind))
    if kept_as == "accepted":
        bad = replace(bad, accepted=True)
    if kept_as == "ok":
        bad = replace(bad, status="ok", reason="")
    for record in (bad, good):
        put(record, tmp_path)
    tables = collect(make_grid([good.cell, bad.cell]), tmp_path)
    row = tables.cells.set_index("cell").loc[bad.id]
    assert (row["status"], row["evidence"]) == ("mislabelled", "mislabelled")
    assert "eth9 91.5 MB" in row["reason"]
    assert row["reason"] == row["because"]
    assert pd.isna(row["value"])
    assert pd.isna(row["step_s"])
    assert pd.isna(row["of_line_rate"])
    assert set(tables.samples["cell"]) == {good.id}
    assert set(over_repeats(tables.cells)["fabric"]) == {"ethernet"}
    assert set(curves(tables.cells, tables.samples)["fabric"]) <= {"ethernet"}
    assert tables.differences.empty


def test_samples_are_raw_and_indexed(tmp_path: Path) -> None:
    """Each raw sample is a row: unscaled, numbered within its series, with size and rank where known."""
    series = [
        Series(metric="step_s", unit="s", values=[1.0, 2.0], rank=0),
        Series(metric="step_max_s", unit="s", values=[3.0]),
    ]
    record = make_record(make_cell(), samples=series)
    put(record, tmp_path)
    samples = collect(make_grid([record.cell]), tmp_path).samples
    assert list(samples["value"]) == [1.0, 2.0, 3.0]
    assert list(samples["n"]) == [0, 1, 0]
    assert samples["rank"].isna().tolist() == [False, False, True]
    assert samples["bytes"].isna().all()


def test_facts_hold_provenance_once_per_distinct_value(tmp_path: Path) -> None:
    """Repeats that ran on the same hosts with the same versions share one provenance."""
    records = [make_record(make_cell(repeat=repeat)) for repeat in (1, 2)] + [make_record(make_cell(gpus=1))]
    for record in records:
        put(record, tmp_path)
    facts = collect(make_grid([record.cell for record in records]), tmp_path).facts
    assert [facts["cells"][record.id]["provenance"] for record in records] == [0, 0, 1]
    assert len(facts["provenance"]) == 2
    assert facts["cells"][records[0].id]["evidence"]["emulation"]["shaping"] == "tbf"


def test_tables_survive_the_disk_with_fixed_columns(tmp_path: Path) -> None:
    """Written tables read back the same, empty or not; the same input gives the same bytes, no leftovers."""
    record = make_record(make_cell("micro"))
    put(record, tmp_path)
    for grid in (make_grid([]), make_grid([make_cell()]), make_grid([record.cell])):
        tables = collect(grid, tmp_path)
        for name, columns in FRAMES.items():
            assert dtypes(getattr(tables, name)) == columns
        write_tables(tables, tmp_path / "a")
        write_tables(collect(grid, tmp_path), tmp_path / "b")
        read = read_tables(tmp_path / "a")
        for name in FRAMES:
            pd.testing.assert_frame_equal(getattr(read, name), getattr(tables, name))
        assert read.facts == tables.facts
        names = sorted(TABLES)
        assert sorted(path.name for path in (tmp_path / "a").iterdir()) == names
        for name in names:
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_tables_that_cannot_be_read_say_where(tmp_path: Path) -> None:
    """A folder without tables is one line that names it."""
    with pytest.raises(RecordError, match="tables can't be read"):
        read_tables(tmp_path)


def test_every_column_is_documented(tmp_path: Path) -> None:
    """docs/table.md names every column of every table."""
    records = [make_record(make_cell("micro", fabric=fabric)) for fabric in ("opa", "opa-again", "ethernet")]
    for record in records:
        put(record, tmp_path)
    concluded = vars(collect(make_grid([record.cell for record in records]), tmp_path).conclusions)
    text = (Path(__file__).parents[2] / "docs" / "table.md").read_text()
    for table, columns in (FRAMES | concluded).items():
        assert f"`{table}.parquet`" in text
        for name in columns:
            assert f"`{name}`" in text, (table, name)
