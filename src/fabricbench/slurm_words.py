"""What Slurm's commands print, as jobs: pure functions, and the only place that knows their formats."""

import contextlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

ACTIVE = frozenset(
    {
        *("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"),
        *("REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT", "STAGE_OUT"),
    }
)
"""States of a job that Slurm isn't done with."""
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
"""Those in which it has no node."""

# Characters that no comment holds, so that the comment may hold all others, a line's end as well.
FIELD, ROW = "\x1f", "\x1e"
SQUEUE = ("%i", "%T", "%r", "%N", "%u", "%P", "%V", "%S", "%e", "%l", "%Z", "%k")
SACCT = (
    *("JobIDRaw", "State", "Reason", "NodeList", "User", "Partition", "Submit", "Start", "End", "Timelimit"),
    *("WorkDir", "ExitCode", "SubmitLine", "Comment"),
)
_NOTHING = frozenset({"", "(null)", "N/A", "None", "Unknown", "None assigned", "NONE"})
_ONE_JOB = re.compile(r"(\w[\w:/]*)=(.*?)(?=\s+\w[\w:/]*=|\s*$)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as Slurm tells of it; texts are "" and numbers None where it doesn't."""

    id: str
    state: str
    """One word, such as PENDING or NODE_FAIL."""
    reason: str = ""
    """Why it waits, or ended so: PartitionTimeLimit, NonZeroExitCode, …"""
    comment: str = ""
    workdir: str = ""
    nodes: str = ""
    """In Slurm's notation: n[0-1]."""
    user: str = ""
    partition: str = ""
    submitted: str = ""
    started: str = ""
    ended: str = ""
    """ISO 8601, UTC. Of a running job `ended` is when its time limit will end it, of a pending one `started`
    is a guess of Slurm's."""
    time_limit_s: float | None = None
    """None also where there is none."""
    exit_code: str = ""
    """`code:signal`."""
    restarts: int | None = None
    by: str = ""
    """Who cancelled it, where accounts say so."""
    log: str = ""

    @property
    def active(self) -> bool:
        """Whether it waits, runs, or is about to be cleared away."""
        return self.state in ACTIVE

    @property
    def waiting(self) -> bool:
        """Whether it has no node yet."""
        return self.state in WAITING


def parse_squeue(text: str) -> list[Job]:
    """The jobs in what squeue prints with the format of `queue`."""
    rows = (row.lstrip("\n").split(FIELD, len(SQUEUE) - 1) for row in text.split(ROW))
    return [_of_squeue(row) for row in rows if len(row) == len(SQUEUE)]


def _of_squeue(row: Sequence[str]) -> Job:
    number, state, reason, nodes, user, partition, submitted, started, ended, limit, workdir, comment = row
    return Job(
        id=number.rpartition("\n")[2],  # a line of its own names the cluster where there are several
        state=state,
        reason=_text(reason),
        comment=_text(comment),
        workdir=workdir,
        nodes=_text(nodes),
        user=user,
        partition=partition,
        submitted=moment(submitted),
        started=moment(started),
        ended=moment(ended),
        time_limit_s=seconds(limit),
    )


def parse_sacct(text: str) -> list[Job]:
    """The jobs in what `sacct -nPXD` prints of the fields of `accounts`; of a requeued job its last run."""
    found: dict[str, Job] = {}
    for line in text.splitlines():
        row = line.split("|")
        if len(row) < len(SACCT) or not row[0].isdigit():
            continue
        # A command line or comment may hold the separator: what is in front of them doesn't.
        fixed, rest = row[: len(SACCT) - 2], "|".join(row[len(SACCT) - 2 :])
        job = _of_sacct(fixed, rest)
        if before := found.get(job.id):
            job = replace(job, restarts=(before.restarts or 0) + 1)
        found[job.id] = job
    return list(found.values())


def _of_sacct(row: Sequence[str], rest: str) -> Job:
    number, state, reason, nodes, user, partition, submitted, started, ended, limit, workdir, code = row
    word, _, by = state.partition(" by ")
    return Job(
        id=number,
        state=word,
        reason=_text(reason),
        comment=_comment(rest),
        workdir=workdir,
        nodes=_text(nodes),
        user=user,
        partition=partition,
        submitted=moment(submitted),
        started=moment(started),
        ended=moment(ended),
        time_limit_s=seconds(limit),
        exit_code=code,
        restarts=0,
        by=by,
    )


def _comment(text: str) -> str:
    """The comment from `SubmitLine|Comment`: accounts keep comments only where a site asked for that."""
    line, _, comment = text.rpartition("|")
    if comment or "--comment" not in line:
        return comment
    with contextlib.suppress(ValueError):
        words = shlex.split(line)
        for word, following in zip(words, [*words[1:], ""], strict=True):
            if word == "--comment":
                return following
            if word.startswith("--comment="):
                return word.removeprefix("--comment=")
    return line.partition("--comment")[2].lstrip(" =").partition(" ")[0]  # it had lost its quotes


def fields(line: str) -> dict[str, str]:
    """`JobId=5 JobName=a … NodeList=n[0-1]` to its fields; of a name that occurs twice the first."""
    found: dict[str, str] = {}
    for name, value in _ONE_JOB.findall(line.strip()):
        found.setdefault(name, value.strip())
    return found


def parse_scontrol(text: str) -> Job | None:
    """The job in what `scontrol show job -o` prints; None where that is none."""
    found = fields(text)
    if "JobId" not in found or "JobState" not in found:
        return None
    # A comment may look like a field; what Slurm prints behind it doesn't.
    comment = re.search(r"\sComment=(.*?)\s+(?:StdErr|Power|MailUser|SystemComment)=", text, re.DOTALL)
    return Job(
        id=found["JobId"],
        state=found["JobState"],
        reason=_text(found.get("Reason", "")),
        comment=comment[1].strip() if comment else "",
        workdir=found.get("WorkDir", ""),
        nodes=_text(found.get("NodeList", "")),
        user=found.get("UserId", "").partition("(")[0],
        partition=found.get("Partition", ""),
        submitted=moment(found.get("SubmitTime", "")),
        started=moment(found.get("StartTime", "")),
        ended=moment(found.get("EndTime", "")),
        time_limit_s=seconds(found.get("TimeLimit", "")),
        exit_code=found.get("ExitCode", ""),
        restarts=int(found["Restarts"]) if found.get("Restarts", "").isdigit() else None,
        log=_text(found.get("StdOut", "")),
    )


def moment(text: str) -> str:
    """Slurm's local time as ISO 8601 in UTC; "" for what is no time."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat()
    except ValueError:
        return ""


def seconds(text: str) -> float | None:
    """A duration in Slurm's notation (minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s); None for what is none."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if found is None:
        return None
    days, *parts = (None if part is None else int(part) for part in found.groups())
    given = [part for part in parts if part is not None]
    if days is not None:
        hours, minutes, rest = [*given, 0, 0][:3]
        return float(((days * 24 + hours) * 60 + minutes) * 60 + rest)
    hours, minutes, rest = {1: [0, *given, 0], 2: [0, *given], 3: given}[len(given)]
    return float((hours * 60 + minutes) * 60 + rest)


def _text(value: str) -> str:
    return "" if value.strip() in _NOTHING else value.strip()


def one_line(text: str) -> str:
    """Slurm's messages without the programs' names in front."""
    lines = [re.sub(r"^(?:\w+: )?(?:error: )?", "", line.strip()) for line in text.splitlines()]
    return "; ".join(line for line in lines if line and not line.startswith('Try "'))


def fields_of(job: Job) -> Mapping[str, object]:
    """What provenance keeps of a job."""
    kept = ("id", "state", "reason", "nodes", "partition", "submitted", "started", "ended", "time_limit_s")
    return {name: getattr(job, name) for name in (*kept, "exit_code", "restarts") if getattr(job, name)}
