"""What a killed Snakemake left in Slurm's queue is ended before its successor submits."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from test_postmortem import CELLS, GRID, a_job

from fabricbench import scheduler
from fabricbench.errors import LaunchError
from fabricbench.grid import Grid, write_grid
from fabricbench.leftovers import end_leftovers, sweep
from fabricbench.slurm_words import Job

SOON = (datetime.now(UTC) + timedelta(hours=1)).isoformat()


class Queue:
    """Slurm's queue, look after look; the last answer stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *looks: list[Job]) -> None:
        """Put it in Slurm's place."""
        self.looks = list(looks)
        self.cancelled: list[tuple[list[str], bool]] = []
        monkeypatch.setattr(scheduler, "installed", lambda: True)
        monkeypatch.setattr(scheduler, "queue", self.look)
        monkeypatch.setattr(scheduler, "jobs", lambda: self.looks[-1])
        monkeypatch.setattr(scheduler, "show", lambda _: None)
        monkeypatch.setattr(scheduler, "cancel", self.cancel)

    def look(self) -> list[Job]:
        """The next answer."""
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def cancel(self, ids: list[str], *, only_waiting: bool = False) -> None:
        """Only noted down."""
        self.cancelled.append((ids, only_waiting))


def ended(folder: Path, **options: Any) -> list[str]:
    """All lines."""
    return list(end_leftovers(GRID, folder, sleep=lambda _: None, **options))


def test_pending_jobs_are_cancelled_and_running_ones_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In lines that name the cells; one that ended badly gets its reason, the cancelled one none."""
    waits = a_job("PENDING", tmp_path, CELLS[1], id="13", nodes="", ended="")
    runs = a_job("RUNNING", tmp_path, ended=SOON)
    gone = replace(waits, state="CANCELLED")
    over = replace(runs, state="TIMEOUT", ended="2026-11-30T10:01:00+00:00")
    queue = Queue(monkeypatch, [waits, runs], [gone, runs], [gone, over])
    cancelled, waiting, end, settled = ended(tmp_path)
    assert queue.cancelled == [(["13"], True)]
    assert cancelled == f"cancelled job 13: {CELLS[1].id}, left waiting in Slurm's queue by an earlier call"
    assert waiting.startswith(f"waiting for job 12: {CELLS[0].id}, left running by an earlier call (until ")
    assert end == f"job 12: {CELLS[0].id}: TIMEOUT"
    assert settled.startswith(f"{CELLS[0].id}: timeout: TIMEOUT: Slurm job 12")


def test_a_job_that_starts_just_then_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Cancelling leaves alone what has started; that is told."""
    waits = a_job("PENDING", tmp_path, nodes="", ended="")
    runs = replace(waits, state="RUNNING", nodes="n0", ended=SOON)
    queue = Queue(monkeypatch, [waits], [runs], [replace(runs, state="COMPLETED")])
    _, started, end = ended(tmp_path)
    assert "which had just started" in started
    assert end == f"job 12: {CELLS[0].id}: COMPLETED"
    assert len(queue.cancelled) == 1


def test_requeued_and_held_jobs_are_cancelled_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`scancel --state=PENDING` would pass over a held one."""
    held = a_job("REQUEUE_HOLD", tmp_path, nodes="", ended="")
    queue = Queue(monkeypatch, [held], [])
    ended(tmp_path)
    assert queue.cancelled == [(["12"], False)]


def test_jobs_of_no_cell_are_told_and_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of this folder that no campaign names, with how to end them; others' are none of ours."""
    old = a_job("PENDING", tmp_path, comment="rule_cell_wildcards_old_cell-00000000", nodes="", ended="")
    strange = [
        a_job("PENDING", "/elsewhere", id="1"),
        a_job("RUNNING", tmp_path, id="2", comment="rule_train"),
    ]
    queue = Queue(monkeypatch, [old, *strange])
    assert ended(tmp_path) == [
        "job 12: old_cell-00000000: of this folder, but of no cell that is needed; `scancel 12`"
    ]
    assert queue.cancelled == []


@pytest.mark.parametrize("runs", [False, True])
def test_jobs_of_another_campaign_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: bool
) -> None:
    """Also of a cell that this one has as well, as long as the other one's call lives."""
    place = tmp_path / "results" / "other" / "grid.json"
    write_grid(Grid({"name": "other"}, (CELLS[1],), ()), place)
    both = a_job("PENDING", tmp_path, CELLS[1], nodes="", ended="")
    monkeypatch.setattr("fabricbench.leftovers.may_be_in_use", lambda folder: runs and folder == place.parent)
    queue = Queue(monkeypatch, [both], [])
    lines = ended(tmp_path)
    assert queue.cancelled == ([] if runs else [(["12"], True)])
    assert len(lines) == (0 if runs else 1)
    other = replace(GRID, cells=CELLS[:1])
    queue = Queue(monkeypatch, [both])
    assert list(end_leftovers(other, tmp_path)) == queue.cancelled == []


def test_nothing_is_touched_while_snakemake_has_a_lock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On this campaign's files; one on another's doesn't count. Nor is anything asked without a Slurm."""
    waits = a_job("PENDING", tmp_path, nodes="")
    queue = Queue(monkeypatch, [waits], [])
    lock = tmp_path / ".snakemake" / "locks" / "0.output.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("reports/x/index.html\nresults/default/train/a.json\n")
    assert ended(tmp_path) == queue.cancelled == []
    monkeypatch.setattr(scheduler, "installed", lambda: False)
    lock.unlink()
    assert ended(tmp_path) == queue.cancelled == []
    monkeypatch.setattr(scheduler, "installed", lambda: True)
    lock.write_text("results/default2/train/a.json\n")
    ended(tmp_path)
    assert queue.cancelled == [(["12"], True)]


def test_no_leftovers_no_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is cancelled or waited for."""
    Queue(monkeypatch, [a_job("COMPLETED", tmp_path)])
    assert ended(tmp_path) == []


def test_reasons_of_ended_jobs_are_kept_before_slurm_forgets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where nothing is left over: the call that submitted them may have been killed."""
    Queue(monkeypatch, [a_job("NODE_FAIL", tmp_path)])
    (line,) = ended(tmp_path)
    assert line.startswith(f"{CELLS[0].id}: failed: NODE_FAIL: Slurm job 12")


def test_a_job_that_can_not_be_cancelled_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody waits for ever, and no cell is measured beside itself."""
    Queue(monkeypatch, [a_job("PENDING", tmp_path, nodes="", ended="")])
    with pytest.raises(LaunchError, match="can't be cancelled; `scancel 12`"):
        ended(tmp_path)


def test_a_late_job_is_told_once_and_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Sites may let jobs run over their time limit."""
    late = a_job("COMPLETING", tmp_path)
    Queue(monkeypatch, [late], [late], [late], [replace(late, state="COMPLETED")])
    _, told, end = ended(tmp_path)
    assert "should have ended by its time limit and is still COMPLETING" in told
    assert end.endswith("COMPLETED")


def test_work_of_ended_jobs_is_swept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever cell it was of; a job that may still run keeps its own."""
    for name in ("train-a-r1-0123abcd-5-x1", "old-r1-0123abcd-5-x2", "train-a-r1-0123abcd-6-x3"):
        (tmp_path / ".work" / name / "deep").mkdir(parents=True)
    asked: list[str] = []
    monkeypatch.setattr(scheduler, "has_ended", lambda number: asked.append(number) or number == "5")
    sweep(tmp_path)
    assert [path.name for path in (tmp_path / ".work").iterdir()] == ["train-a-r1-0123abcd-6-x3"]
    assert sorted(asked) == ["5", "6"]
    sweep(tmp_path / "none")
