"""Records appear whole or not at all, and are never misread."""

import json
import os

import pytest
from cells import a_cell

from fabricbench.errors import RecordError
from fabricbench.record import Record, Series, failure_path, read_record, write_atomically, write_record


@pytest.fixture
def record() -> Record:
    """A small good one."""
    samples = [Series(metric="pingpong_s", unit="s", values=[1e-4, 2e-4], bytes=1024)]
    return Record(cell=a_cell(), code_key="code", status="ok", samples=samples, facts={"checked": True})


def place(record: Record, folder):
    """Where the record belongs."""
    return folder / f"{record.id}.json"


def test_a_record_reads_as_it_was_written(record, tmp_path):
    """Reading gives back the same cell, samples and facts."""
    write_record(record, place(record, tmp_path))
    assert read_record(place(record, tmp_path)) == record


def test_the_schema_version_comes_first(record):
    """A reader of any version finds the schema before all else."""
    assert next(iter(record.to_json())) == "schema"


def test_a_record_cut_anywhere_is_refused(record, tmp_path):
    """Whatever byte it is cut at, a record is refused in one line that names the file."""
    path = place(record, tmp_path)
    write_record(record, path)
    whole = path.read_bytes()
    for length in range(len(whole) - 2):  # the last two bytes are the closing brace and a newline
        path.write_bytes(whole[:length])
        with pytest.raises(RecordError) as error:
            read_record(path)
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"status": "perfect"},
        {"code_key": "other"},
        {"cell": {}},
        {"samples": [{"metric": "x"}]},
        {"surprise": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_record_that_is_not_what_it_says_is_refused(record, tmp_path, change):
    """Another schema, an unknown status, another cell's digest, lacking or unknown fields are refused."""
    path = place(record, tmp_path)
    path.parent.mkdir()
    path.write_text(json.dumps(record.to_json() | change))
    with pytest.raises(RecordError):
        read_record(path)


def test_a_record_under_another_s_name_is_refused(record, tmp_path):
    """A record copied to another cell's place is refused."""
    path = tmp_path / "micro" / "ethernet-mpi-2-r1-00000000.json"
    write_record(record, path)
    with pytest.raises(RecordError, match="not the one its name says"):
        read_record(path)


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    """When the disk is full the old file stays whole, and no temporary one is left."""
    path = tmp_path / "file"
    path.write_text("old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_not_a_number_is_refused(record, tmp_path):
    """NaN never enters a record."""
    record.facts["rate"] = float("nan")
    with pytest.raises(ValueError, match="JSON"):
        write_record(record, place(record, tmp_path))


def test_a_failure_stands_beside_its_record(tmp_path):
    """The failure's name differs from the record's, in the same folder."""
    assert failure_path(tmp_path / "a-1.json") == tmp_path / "a-1.failed.json"
