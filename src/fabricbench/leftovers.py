"""Jobs that a killed Snakemake left behind: they would run beside those that its successor submits."""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from fabricbench import scheduler
from fabricbench.campaign_lock import may_be_in_use
from fabricbench.errors import FabricbenchError, LaunchError
from fabricbench.grid import Grid, read_cells
from fabricbench.launch.job import CELL_COMMENT
from fabricbench.postmortem import comment_of, of_folder, settle_failures
from fabricbench.runner import WORK
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
    """Cancel what an earlier call of this campaign in `folder` left waiting, and wait for what runs.

    Only jobs of the grid's cells are touched; others of this folder that no campaign here names are told. A
    cell that completes meanwhile leaves its record as usual and isn't measured again; of all that failed,
    now or before, the scheduler's reason is written. Yields lines that say what is done, as it is done. Does
    nothing while Snakemake's own lock on the campaign stands, with which it won't go on. `results`: the
    folder of all results, `folder`/results if None. Whoever calls holds the campaign. Raises LaunchError
    where Slurm doesn't answer, since cells may then be measured twice.
    """
    results = results or folder / "results"
    campaign = grid.campaign["name"]
    if not scheduler.installed() or is_locked(folder, campaign):
        return
    cells = {comment_of(cell.id): cell.id for cell in grid.cells}
    left = [job for job in of_folder(scheduler.queue(), folder) if job.active]
    # Its job may be of another campaign that has the same cell, and runs.
    shared, known = _elsewhere(results, campaign) if left else (set(), set())
    cells = {comment: cell for comment, cell in cells.items() if comment not in shared}
    if strange := [job for job in left if job.comment not in {*cells, *known}]:
        ids = " ".join(job.id for job in strange[:MOST_NAMED])
        more = " …" if len(strange) > MOST_NAMED else ""
        named = _named(strange, cells)
        yield f"{named}: of this folder, but of no cell that is needed; `scancel {ids}{more}`"
    ours = [job for job in left if job.comment in cells]
    waiting = [job for job in ours if job.waiting]
    running = [job for job in ours if not job.waiting]
    if waiting:
        _cancel(waiting)
        yield f"cancelled {_named(waiting, cells)}, left waiting in Slurm's queue by an earlier call"
    if running:
        until = _by_when(running)
        yield f"waiting for {_named(running, cells)}, left running by an earlier call{until}"
    if ours:
        yield from _wait(folder, cells, {job.id for job in running}, sleep)
    yield from settle_failures(grid, results, folder, without={job.id for job in waiting})


def is_locked(folder: Path, campaign: str) -> bool:
    """Whether a call of Snakemake in this working directory holds a campaign's files, or left them locked."""
    ours = (f"results/{campaign}/", f"reports/{campaign}/")
    for lock in (folder / ".snakemake" / "locks").glob("*.lock"):
        try:
            with lock.open(encoding="utf-8", errors="replace") as lines:
                if any(line.startswith(ours) for line in lines):
                    return True
        except FileNotFoundError:
            continue
        except OSError:
            return True
    return False


def sweep(folder: Path) -> None:
    """Remove what killed cells left in a campaign's folder of work, once their jobs have ended.

    The next run of a cell removes its own; of one that is measured or named no more there is none.
    """
    by_job: dict[str, list[Path]] = {}
    for work in (folder / WORK).glob("*-*-*"):
        by_job.setdefault(work.name.rsplit("-", 2)[1], []).append(work)
    for number, folders in by_job.items():
        if number.isdigit() and scheduler.has_ended(number):
            for work in folders:
                shutil.rmtree(work, ignore_errors=True)


def _elsewhere(results: Path, campaign: str) -> tuple[set[str], set[str]]:
    """(comments of the cells of other campaigns that may be running, those of all other campaigns)."""
    running: set[str] = set()
    every: set[str] = set()
    for path in results.glob("*/grid.json"):
        if path.parent.name == campaign:
            continue
        try:
            comments = {comment_of(identity) for identity in read_cells(path)[1]}
        except FabricbenchError:
            continue
        every |= comments
        if may_be_in_use(path.parent):
            running |= comments
    return running, every


def _wait(
    folder: Path, cells: dict[str, str], told: set[str], sleep: Callable[[float], None]
) -> Iterator[str]:
    """Wait until no job of these cells is left; a line for each that ends, starts after all, or is late."""
    pause, (_, most) = POLL_S[0], POLL_S
    known: dict[str, Job] = {}
    late: set[str] = set()
    for look in count():
        now = [job for job in of_folder(scheduler.queue(), folder) if job.comment in cells]
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
        for job in left.values():
            if job.id not in late and _is_late(job):
                late.add(job.id)
                yield (
                    f"{_named([job], cells)} should have ended by its time limit and is still {job.state}: "
                    f"it is waited for; `scancel {job.id}` ends it, or tell the cluster's administrators"
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
