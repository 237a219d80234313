"""Jobs that a killed Snakemake left behind: they would run beside those that its successor submits."""

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from fabricbench import scheduler
from fabricbench.errors import LaunchError
from fabricbench.grid import Grid
from fabricbench.launch.job import CELL_COMMENT
from fabricbench.postmortem import comment_of, of_folder, settle_failures
from fabricbench.slurm_words import Job

POLL_S = (1.0, 5.0)
"""Between two looks at running jobs: at first, and at most."""
LATE_S = 120.0
"""How long after its time limit a job may still be there: Slurm looks at limits once a minute or so."""
MOST_LOOKS = 20
"""After that many a cancelled job that still waits won't go away by itself."""
MOST_NAMED = 5


def end_leftovers(
    grid: Grid, folder: Path, *, results: Path | None = None, sleep: Callable[[float], None] = time.sleep
) -> Iterator[str]:
    """Cancel what an earlier call of Snakemake in `folder` left waiting, and wait for what runs.

    A cell that completes meanwhile leaves its record as usual and isn't measured again; of those that failed
    the scheduler's reason is written. Yields lines that say what is done, as it is done. Does nothing while
    another call holds Snakemake's lock (one with --nolock can't be known). `results`: the folder of all
    results, `folder`/results if None. Raises LaunchError where Slurm doesn't answer, since cells may then be
    measured twice, and where a job doesn't end at its time limit.
    """
    if not scheduler.installed() or is_locked(folder):
        return
    left = [job for job in of_folder(scheduler.queue(), folder) if job.active]
    if not left:
        return
    cells = {comment_of(cell.id): cell.id for cell in grid.cells}
    waiting = [job for job in left if job.waiting]
    running = [job for job in left if not job.waiting]
    if waiting:
        _cancel(waiting)
        yield f"cancelled {_named(waiting, cells)}, left waiting in Slurm's queue by an earlier call"
    if running:
        until = _by_when(running)
        yield f"waiting for {_named(running, cells)}, left running by an earlier call{until}"
    yield from _wait(folder, cells, {job.id for job in running}, sleep)
    yield from settle_failures(
        grid, results or folder / "results", folder, without={job.id for job in waiting}
    )


def is_locked(folder: Path) -> bool:
    """Whether a call of Snakemake in this working directory holds its lock, or left it there."""
    locks = folder / ".snakemake" / "locks"
    return locks.is_dir() and any(locks.iterdir())


def _wait(
    folder: Path, cells: dict[str, str], told: set[str], sleep: Callable[[float], None]
) -> Iterator[str]:
    """Wait until no job is left; a line for each that ends, and for one that started after all."""
    pause, (_, most) = POLL_S[0], POLL_S
    known: dict[str, Job] = {}
    for look in count():
        now = of_folder(scheduler.queue(), folder)
        left = {job.id: job for job in now if job.active}
        ended = {job.id: job for job in now if not job.active}
        for number in [number for number in known if number not in left]:
            state = ended[number].state if number in ended else "gone"
            yield f"{_named([known.pop(number)], cells)}: {state}"
        if not left:
            return
        if again := [job for job in left.values() if job.waiting]:  # requeued, or not yet gone
            if look > MOST_LOOKS:
                raise LaunchError(
                    f"{_named(again, cells)}, left waiting by an earlier call, can't be cancelled; `scancel "
                    f"{again[0].id}`, or tell the cluster's administrators"
                )
            _cancel(again)
        if late := [job for job in left.values() if _is_late(job)]:
            raise LaunchError(
                f"{_named(late, cells)}, left by an earlier call, should have ended by its time limit and is "
                f"still {late[0].state}; `scancel {late[0].id}`, or tell the cluster's administrators"
            )
        if started := [job for job in left.values() if not job.waiting and job.id not in told]:
            yield f"waiting for {_named(started, cells)}, which had just started{_by_when(started)}"
        known |= {number: job for number, job in left.items() if not job.waiting}
        told |= known.keys()
        sleep(pause)
        pause = min(most, 1.5 * pause)


def _cancel(waiting: Iterable[Job]) -> None:
    """Cancel jobs that have no node; one that just started is left, if Slurm can tell it from the others."""
    by_kind: dict[bool, list[str]] = {}
    for job in waiting:
        by_kind.setdefault(job.state == "PENDING", []).append(job.id)
    for pending, ids in by_kind.items():
        scheduler.cancel(ids, only_waiting=pending)


def _is_late(job: Job) -> bool:
    """Whether a started job is there long after its limit; a suspended one has no end."""
    if not job.ended or job.waiting or job.state == "SUSPENDED":
        return False
    over = datetime.now(UTC) - datetime.fromisoformat(job.ended)
    return over.total_seconds() > LATE_S


def _by_when(jobs: list[Job]) -> str:
    """Until when, at most, they may run."""
    ends = [datetime.fromisoformat(job.ended) for job in jobs if job.ended]
    return f" (until {max(ends).astimezone():%H:%M} at most)" if len(ends) == len(jobs) else ""


def _named(jobs: list[Job], cells: dict[str, str]) -> str:
    """`2 jobs (12: train/…, 13: …)`; a cell that the grid doesn't name any more is named by its comment."""
    each = [f"{job.id}: {cells.get(job.comment, job.comment.removeprefix(CELL_COMMENT))}" for job in jobs]
    shown = ", ".join(each[:MOST_NAMED]) + (", …" if len(each) > MOST_NAMED else "")
    return f"job {shown}" if len(jobs) == 1 else f"{len(jobs)} jobs ({shown})"
