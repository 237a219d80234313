"""What a killed Snakemake left in Slurm's queue is ended before its successor submits."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from test_postmortem import CELLS, GRID, a_job

from fabricbench import scheduler
from fabricbench.errors import LaunchError
from fabricbench.leftovers import end_leftovers
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
        monkeypatch.setattr(scheduler, "jobs", lambda: self.looks[0])
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


def test_cells_that_the_grid_names_no_more_are_ended_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Known by their comment and working directory; other jobs of this user are none of ours."""
    old = a_job("PENDING", tmp_path, comment="rule_cell_wildcards_old_cell-00000000", nodes="", ended="")
    strange = [
        a_job("PENDING", "/elsewhere", id="1"),
        a_job("RUNNING", tmp_path, id="2", comment="rule_train"),
    ]
    queue = Queue(monkeypatch, [old, *strange], strange)
    assert ended(tmp_path) == [
        "cancelled job 12: old_cell-00000000, left waiting in Slurm's queue by an earlier call"
    ]
    assert queue.cancelled == [(["12"], True)]


def test_nothing_is_touched_while_another_call_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its jobs aren't left over: Snakemake's lock says so. Nor is anything asked where there's no Slurm."""
    queue = Queue(monkeypatch, [a_job("PENDING", tmp_path, nodes="")])
    locks = tmp_path / ".snakemake" / "locks"
    locks.mkdir(parents=True)
    (locks / "0.output.lock").touch()
    assert ended(tmp_path) == queue.cancelled == []
    (locks / "0.output.lock").unlink()
    monkeypatch.setattr(scheduler, "installed", lambda: False)
    assert ended(tmp_path) == queue.cancelled == []


def test_no_leftovers_no_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One question, and none to accounts."""
    Queue(monkeypatch, [a_job("COMPLETED", tmp_path)])
    assert ended(tmp_path) == []


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (a_job("COMPLETING", ended="2026-11-30T10:01:00+00:00"), "should have ended by its time limit"),
        (a_job("PENDING", nodes="", ended=""), "can't be cancelled; `scancel 12`"),
    ],
)
def test_a_job_that_never_goes_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: Job, said: str
) -> None:
    """Nobody waits for ever, and no cell is measured beside itself."""
    monkeypatch.setattr("fabricbench.leftovers.LATE_S", -1e9)
    Queue(monkeypatch, [replace(job, workdir=str(tmp_path))])
    with pytest.raises(LaunchError, match=said):
        ended(tmp_path)
