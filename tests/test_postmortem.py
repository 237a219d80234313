"""A cell that left no reason gets the scheduler's; one that has a reason keeps it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records import CODE_KEY, make_cell

from fabricbench import scheduler
from fabricbench.cli import main
from fabricbench.errors import LaunchError
from fabricbench.grid import Grid, GridCell, write_grid
from fabricbench.postmortem import amended, comment_of, explanation, settle_failures
from fabricbench.record import Record, failure_path, read_record, write_record
from fabricbench.runner import UNFINISHED
from fabricbench.slurm_words import Job

CELLS = tuple(GridCell(make_cell(repeat=repeat, launcher="slurm"), CODE_KEY, 300.0) for repeat in (1, 2))
GRID = Grid({"name": "default", "cluster": {"kind": "slurm"}}, CELLS, ())
STARTED, ENDED = "2026-11-30T10:00:00+00:00", "2026-11-30T10:01:00+00:00"


def a_job(state: str, folder: Path | str = "/w", cell: GridCell = CELLS[0], **changes: Any) -> Job:
    """The job of a cell, on two nodes."""
    known: dict[str, Any] = {
        "id": "12",
        "comment": comment_of(cell.id),
        "workdir": str(folder),
        "nodes": "n[0-1]",
        "submitted": "2026-11-30T09:59:00+00:00",
        "started": STARTED,
        "ended": ENDED,
        "time_limit_s": 60.0,
    }
    return Job(state=state, **known | changes)


def slurm_has(monkeypatch: pytest.MonkeyPatch, *jobs: Job) -> None:
    """Let Slurm know these jobs."""
    monkeypatch.setattr(scheduler, "installed", lambda: True)
    monkeypatch.setattr(scheduler, "jobs", lambda: list(jobs))
    monkeypatch.setattr(scheduler, "show", lambda _: None)


def failed(folder: Path, reason: str, **changes: Any) -> Path:
    """Leave the first cell's failure record, as its runner does; returns its path."""
    path = failure_path(CELLS[0].path(folder / "results", "default"))
    fields: dict[str, Any] = {"status": "failed", "reason": reason, "start": "2026-11-30T10:00:10+00:00"}
    write_record(Record(cell=CELLS[0].cell, code_key=CODE_KEY, **fields | changes), path)
    return path


def settled(folder: Path) -> list[str]:
    """What is told."""
    return settle_failures(GRID, folder / "results", folder)


@pytest.mark.parametrize(
    "reason",
    [
        UNFINISHED,
        "the cell was told to end by SIGTERM",
        "whoever started this cell is gone",
        "the launcher was killed by SIGKILL and left no reason; see the log",
        "rank 1 on n1 was killed by SIGTERM",
    ],
)
@pytest.mark.parametrize(
    ("state", "status", "said"),
    [
        ("NODE_FAIL", "failed", "NODE_FAIL: Slurm job 12 lost a node of n[0-1]"),
        ("TIMEOUT", "timeout", "TIMEOUT: Slurm job 12 ran into its time limit of 1 min; raise the workload's "
         "timeout or cluster.slurm.setup"),
        ("CANCELLED", "failed", "CANCELLED: Slurm job 12 was cancelled"),
        ("PREEMPTED", "failed", "PREEMPTED: Slurm job 12 had to give way to another"),
        ("OUT_OF_MEMORY", "failed", "OUT_OF_MEMORY: Slurm job 12 needed more memory than it had; raise "
         "cluster.slurm.memory"),
    ],
)  # fmt: skip
def test_a_killed_runners_failure_gets_slurms_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str, state: str, status: str, said: str
) -> None:
    """It is amended, once, and says what Slurm knows of the job; it is no outcome of the ranks."""
    path = failed(tmp_path, reason, provenance={"job": {"id": "12", "others": {"jobs": 3}}, "of_ranks": True})
    slurm_has(monkeypatch, a_job(state, tmp_path, restarts=1, exit_code="0:15"))
    (line,) = settled(tmp_path)
    record = read_record(path)
    assert line == f"{CELLS[0].id}: {status}: {record.reason}"
    assert record.reason.startswith(said)
    assert (record.status, record.end) == (status, ENDED)
    job = record.provenance["job"]
    assert (job["state"], job["nodes"], job["restarts"], job["exit_code"]) == (state, "n[0-1]", 1, "0:15")
    assert (job["others"], record.provenance["of_ranks"]) == ({"jobs": 3}, False)
    assert settled(tmp_path) == []
    assert read_record(path) == record


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (a_job("CANCELLED", nodes=""), "CANCELLED: Slurm job 12 was cancelled, before it started"),
        (a_job("CANCELLED", by="alice"), "CANCELLED: Slurm job 12 was cancelled by user alice"),
        (a_job("BOOT_FAIL"), "BOOT_FAIL: Slurm job 12 got nodes that didn't boot (n[0-1])"),
        (a_job("FAILED", exit_code="3:0"),
         "FAILED: Slurm job 12 ended with exit status 3 before the cell could say why"),
        (a_job("FAILED", exit_code="0:9"),
         "FAILED: Slurm job 12 was ended by signal 9 before the cell could say why"),
        (a_job("DEADLINE"), "DEADLINE: Slurm job 12 reached its deadline"),
        (a_job("REVOKED"), "REVOKED: Slurm job 12 ended so"),
    ],
)  # fmt: skip
def test_a_job_that_left_nothing_gets_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: Job, said: str
) -> None:
    """One that never reached its runner has a failure record all the same, with cell, code key and reason."""
    slurm_has(monkeypatch, replace(job, workdir=str(tmp_path)))
    assert len(settled(tmp_path)) == 1
    record = read_record(failure_path(CELLS[0].path(tmp_path / "results", "default")))
    assert (record.cell, record.code_key, record.status) == (CELLS[0].cell, CODE_KEY, "failed")
    assert record.reason == said


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT", "FAILED", "PREEMPTED"])
def test_a_reason_of_the_ranks_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str) -> None:
    """A rank's exception is the reason, however the job ended after it."""
    path = failed(tmp_path, "rank 1 on n1: RuntimeError: NaN", provenance={"of_ranks": True})
    before = path.read_bytes()
    slurm_has(monkeypatch, a_job(state, tmp_path))
    assert settled(tmp_path) == []
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("rank 0 on n0: RuntimeError: connection reset by peer", "rank 0 on n0: RuntimeError: connection"),
        ("NODE_FAIL: srun: n1 failed", "srun: n1 failed"),
    ],
)
def test_a_dead_node_is_why_ranks_lost_each_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str, kept: str
) -> None:
    """Slurm's word comes first, and what was said before is kept."""
    path = failed(tmp_path, reason)
    slurm_has(monkeypatch, a_job("NODE_FAIL", tmp_path))
    settled(tmp_path)
    said = read_record(path).reason
    assert said.startswith(f"NODE_FAIL: Slurm job 12 lost a node of n[0-1]; before that: {kept}")
    assert settled(tmp_path) == []


@pytest.mark.parametrize(
    "job",
    [
        a_job("RUNNING"),
        a_job("PENDING", nodes=""),
        a_job("COMPLETED"),
        a_job("CANCELLED", workdir="/elsewhere"),
        a_job("CANCELLED", cell=CELLS[1], comment="rule_other"),
        a_job("TIMEOUT", ended="2026-11-30T10:00:05+00:00"),
    ],
)
def test_what_slurm_does_not_explain_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: Job
) -> None:
    """An active or completed job, another folder's or rule's, and one that ended before this failure."""
    path = failed(tmp_path, UNFINISHED)
    workdir = job.workdir if job.workdir != "/w" else str(tmp_path)
    slurm_has(monkeypatch, replace(job, workdir=workdir))
    assert settled(tmp_path) == []
    assert read_record(path).reason == UNFINISHED
    slurm_has(monkeypatch)
    assert settled(tmp_path) == []


def test_the_last_job_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A failure of an earlier run gives way to how a later job ended, once that had nodes."""
    earlier = {"status": "timeout", "end": "2026-11-30T09:00:00+00:00", "start": "2026-11-30T08:00:00+00:00"}
    path = failed(tmp_path, "stopped after its time-out of 300 s", **earlier)
    slurm_has(monkeypatch, a_job("CANCELLED", tmp_path, nodes=""))
    assert settled(tmp_path) == []
    first = a_job("TIMEOUT", tmp_path, id="9", submitted="2026-11-30T08:00:00+00:00")
    slurm_has(monkeypatch, first, a_job("NODE_FAIL", tmp_path))
    settled(tmp_path)
    record = read_record(path)
    assert (record.status, record.reason) == ("failed", "NODE_FAIL: Slurm job 12 lost a node of n[0-1]")
    assert record.start == STARTED


def test_a_cell_with_a_record_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Success comes last."""
    place = CELLS[0].path(tmp_path / "results", "default")
    write_record(Record(cell=CELLS[0].cell, code_key=CODE_KEY, status="ok"), place)
    slurm_has(monkeypatch, a_job("NODE_FAIL", tmp_path))
    assert settled(tmp_path) == []
    assert not failure_path(place).exists()


def test_a_job_being_cleared_away_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Right after scancel Slurm says COMPLETING, which is no end."""
    states = ["COMPLETING", "COMPLETING", "CANCELLED"]
    slurm_has(monkeypatch)
    monkeypatch.setattr(scheduler, "jobs", lambda: [a_job(states.pop(0), tmp_path)])
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert "CANCELLED: Slurm job 12" in settled(tmp_path)[0]


@pytest.mark.parametrize(
    ("reason", "state"), [("TimeLimit", "TIMEOUT"), ("NodeDown", "NODE_FAIL"), ("None", "")]
)
def test_one_that_is_cleared_away_for_long_tells_by_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str, state: str
) -> None:
    """A node that hangs holds it up; where Slurm gives no reason, nothing is claimed."""
    monkeypatch.setattr("fabricbench.postmortem.CLEARING_S", -1.0)
    slurm_has(monkeypatch, a_job("COMPLETING", tmp_path, reason=reason))
    monkeypatch.setattr(scheduler, "show", lambda _: a_job("COMPLETING", tmp_path, reason=reason))
    lines = settled(tmp_path)
    assert [f": {state}: Slurm job 12" in line for line in lines] == ([True] if state else [])


def test_without_slurm_nothing_is_raised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A controller that doesn't answer is one line; no Slurm at all, or another launcher, is none."""

    def silent() -> list[Job]:
        raise LaunchError("squeue: Slurm's controller doesn't answer")

    slurm_has(monkeypatch)
    monkeypatch.setattr(scheduler, "jobs", silent)
    assert settled(tmp_path) == ["why jobs ended can't be asked: squeue: Slurm's controller doesn't answer"]
    host = replace(GRID, campaign=GRID.campaign | {"cluster": {"kind": "host"}})
    assert settle_failures(host, tmp_path, tmp_path) == []
    monkeypatch.setattr(scheduler, "installed", lambda: False)
    assert settled(tmp_path) == []


def test_an_unreadable_failure_is_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is left for a person, and the other cells are gone through."""
    failed(tmp_path, UNFINISHED).write_text("{")
    other = a_job("TIMEOUT", tmp_path, CELLS[1], id="13")
    slurm_has(monkeypatch, a_job("NODE_FAIL", tmp_path), other)
    broken, line = settled(tmp_path)
    assert "its failure can't be completed" in broken
    assert line.startswith(f"{CELLS[1].id}: timeout: TIMEOUT: Slurm job 13")


def test_the_command_settles_a_grid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`fabricbench post-mortem` finds results and working directory as Snakemake has them."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "results" / "default" / "grid.json"
    write_grid(GRID, path)
    slurm_has(monkeypatch, a_job("TIMEOUT", tmp_path))
    assert main(["post-mortem", "--grid", "results/default/grid.json"]) == 0
    assert "TIMEOUT: Slurm job 12" in capsys.readouterr().out


def test_a_log_that_is_there_is_named(tmp_path: Path) -> None:
    """Where the cell couldn't say why, the job's own output may."""
    log = tmp_path / "12.log"
    log.touch()
    assert explanation(a_job("FAILED", exit_code="1:0", log=str(log))).endswith(f"; see {log}")
    assert amended(CELLS[0], None, a_job("FAILED")).provenance["job"]["id"] == "12"
