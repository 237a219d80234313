"""Why a cell without a record has none, in the scheduler's words, where its runner couldn't say so itself.

A job that was killed together with its runner, or never started one, leaves a failure record that says no
more than that the cell began, or none at all. Slurm knows: NODE_FAIL, TIMEOUT, CANCELLED, …
"""

import re
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from fabricbench import scheduler
from fabricbench.errors import LaunchError, RecordError
from fabricbench.grid import Grid, GridCell
from fabricbench.launch.job import CELL_COMMENT
from fabricbench.record import Record, failure_path, read_record, write_record
from fabricbench.runner import UNFINISHED
from fabricbench.slurm_words import Job, as_ended, fields_of

CLEARING_S = 15.0
"""How long a job that is being cleared away is waited for, to learn how it ended."""
POLL_S = 2.0

_STATE_WORD = re.compile(r"[A-Z][A-Z_]+: ")
_SETTLED = re.compile(r"\bSlurm job \d")
# What a runner or a rank says when somebody else ended it; all else is a reason of its own.
_ENDED_FROM_OUTSIDE = re.compile(
    rf"{re.escape(UNFINISHED)}|the cell was told to end by |whoever started this cell is gone"
    r"|.*was killed by SIG(TERM|KILL)|.*left no reason; see the log",
    re.DOTALL,
)
_ABOVE_RANKS = frozenset({"NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL"})
"""States that are why ranks fail as they do: the connection that a rank lost was to the node that died."""


def comment_of(cell_id: str) -> str:
    """The comment of a cell's job."""
    return CELL_COMMENT + cell_id.replace("/", "_")


def settle_failures(grid: Grid, results: Path, folder: Path, *, without: Collection[str] = ()) -> list[str]:
    """Write or amend the failure record of every cell that its last job explains; a line for each.

    `results`: the folder of all results. `folder`: Snakemake's working directory, by which (and by comment)
    a cell's jobs are known. `without`: jobs that explain nothing. Cells whose job is active, forgotten or
    done are left alone, as are failures with a reason of their own. Never raises for lack of Slurm.
    """
    if grid.campaign["cluster"]["kind"] != "slurm" or not scheduler.installed():
        return []
    campaign = grid.campaign["name"]
    open_cells = [cell for cell in grid.cells if not cell.path(results, campaign).exists()]
    if not open_cells:
        return []
    try:
        by_cell = _last_jobs(open_cells, folder, without)
    except LaunchError as error:
        return [f"why jobs ended can't be asked: {error}"]
    lines = []
    for cell in open_cells:
        try:
            line = _settle(cell, cell.path(results, campaign), by_cell)
        except (RecordError, OSError) as error:
            line = f"{cell.id}: its failure can't be completed: {error}"
        if line:
            lines.append(line)
    return lines


def of_folder(jobs: Iterable[Job], folder: Path) -> list[Job]:
    """The jobs that measure cells and were submitted from a working directory, in their order."""
    here = folder.resolve()
    return [
        job for job in jobs if job.comment.startswith(CELL_COMMENT) and Path(job.workdir).resolve() == here
    ]


def _last_jobs(cells: Iterable[GridCell], folder: Path, without: Collection[str]) -> dict[str, Job]:
    """The last job by comment; those that are just being cleared away are given time to end."""
    wanted = {comment_of(cell.id) for cell in cells}
    deadline = time.monotonic() + CLEARING_S
    while True:
        every = of_folder(scheduler.jobs(), folder)
        found = {job.comment: job for job in every if job.comment in wanted and job.id not in without}
        clearing = any(job.state == "COMPLETING" for job in found.values())
        if not clearing or time.monotonic() > deadline:
            return {comment: as_ended(job) for comment, job in found.items()}
        time.sleep(POLL_S)


def _settle(cell: GridCell, path: Path, by_comment: Mapping[str, Job]) -> str:
    """A line if the cell's failure was written or amended."""
    job = by_comment.get(comment_of(cell.id))
    failure = failure_path(path)
    record = read_record(failure) if failure.exists() else None
    if job is None or job.active or not explains(job, record):
        return ""
    shown = scheduler.show(job.id)
    if shown is not None and (shown.comment, shown.submitted) == (job.comment, job.submitted):
        state = job.state if shown.active else shown.state
        job = replace(shown, state=state, by=job.by, restarts=shown.restarts or job.restarts)
    if path.exists():  # it came while Slurm was asked
        return ""
    settled = amended(cell, record, job)
    write_record(settled, failure)
    return f"{cell.id}: {settled.status}: {settled.reason}"


def explains(job: Job, record: Record | None) -> bool:
    """Whether an ended job's state says more than the failure that it left."""
    if job.state == "COMPLETED":
        return False
    if record is None or _is_older(record, job):
        return True
    if record.start and job.ended and record.start > job.ended:
        return False  # of a later run that Slurm doesn't know
    if record.status != "failed" or _SETTLED.search(record.reason):
        return False
    if job.state == "FAILED":
        return record.reason == UNFINISHED
    if _STATE_WORD.match(record.reason) or _ENDED_FROM_OUTSIDE.match(record.reason):
        return True
    return job.state in _ABOVE_RANKS


def _is_older(record: Record, job: Job) -> bool:
    """Whether a failure is of a run before a job that got nodes, and so began a run of its own."""
    return bool(record.end and job.nodes and job.submitted > record.end)


def amended(cell: GridCell, record: Record | None, job: Job) -> Record:
    """The failure record with the scheduler's reason, and its details in provenance["job"]."""
    if record is not None and _is_older(record, job):
        record = None
    base = record or Record(cell=cell.cell, code_key=cell.code_key, status="failed", start=job.started)
    reason = f"{job.state}: {explanation(job)}"
    if record is not None and not _ENDED_FROM_OUTSIDE.match(record.reason):
        own = record.reason.removeprefix(f"{job.state}: ")
        reason += f"; before that: {own}"
    known = base.provenance.get("job") or {}
    known = known if str(known.get("id")) == job.id else {}
    return replace(
        base,
        status="timeout" if job.state == "TIMEOUT" else "failed",
        reason=reason,
        end=base.end or job.ended,
        provenance=base.provenance
        | {"job": {**fields_of(job), **known, "state": job.state}, "of_ranks": False},
    )


def explanation(job: Job) -> str:
    """What happened to an ended job, with the mend where there is one, as the rest of a line."""
    name = f"Slurm job {job.id}"
    match job.state:
        case "NODE_FAIL":
            return f"{name} lost a node of {job.nodes}" if job.nodes else f"{name} lost a node"
        case "BOOT_FAIL":
            return f"{name} got nodes that didn't boot{f' ({job.nodes})' if job.nodes else ''}"
        case "TIMEOUT":
            limit = "" if job.time_limit_s is None else f" of {job.time_limit_s / 60:g} min"
            mend = "raise the workload's timeout or cluster.slurm.setup"
            return f"{name} ran into its time limit{limit}; {mend}"
        case "OUT_OF_MEMORY":
            return f"{name} needed more memory than it had; raise cluster.slurm.memory"
        case "CANCELLED":
            by = f" by user {job.by}" if job.by else ""
            when = "" if job.nodes else ", before it started"
            return f"{name} was cancelled{by}{when}"
        case "PREEMPTED":
            return f"{name} had to give way to another; a QOS or partition without preemption avoids that"
        case "DEADLINE":
            return f"{name} reached its deadline"
        case "FAILED":
            return f"{name} {_exit(job.exit_code)} before the cell could say why{_see(job)}"
    return f"{name} ended so{_see(job)}"


def _exit(code: str) -> str:
    status, _, number = code.partition(":")
    if number not in ("", "0"):
        return f"was ended by signal {number}"
    return f"ended with exit status {status}" if status else "ended"


def _see(job: Job) -> str:
    return f"; see {job.log}" if job.log and Path(job.log).exists() else ""
