"""What Slurm's commands print, as jobs and pools of nodes; the only place that knows the formats."""

import contextlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from fabricbench.nodelist import expand_nodelist

END = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
        *("PREEMPTED", "REVOKED", "TIMEOUT"),
    }
)
"""States of a job that is over. In every other one, be it of a later Slurm, it may go on."""
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
"""Those in which it has no node."""

# Characters that no comment holds, so that the comment may hold all others, a line's end as well.
FIELD, ROW = "\x1f", "\x1e"
SQUEUE = ("%i", "%T", "%r", "%N", "%u", "%P", "%V", "%S", "%e", "%l", "%Z", "%k")
SACCT = (
    *("JobIDRaw", "State", "Reason", "NodeList", "User", "Partition", "Submit", "Start", "End", "Timelimit"),
    *("WorkDir", "ExitCode", "SubmitLine", "Comment"),
)
SINFO = ("%P", "%D", "%c", "%m", "%G", "%f", "%l", "%s", "%N", "%T")
_NOTHING = frozenset({"", "(null)", "N/A", "None", "Unknown", "None assigned", "NONE"})
_UP = re.compile(r"idle|mixed|mix|allocated|alloc|completing|comp|planned|reserved", re.I)
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
        return self.state not in END

    @property
    def waiting(self) -> bool:
        """Whether it has no node yet."""
        return self.state in WAITING


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Nodes of a partition that are alike."""

    partition: str
    default: bool
    nodes: int
    cpus: int
    memory_mb: int
    gpus: Mapping[str, int]
    """By type; "" for those without."""
    features: frozenset[str]
    limit_s: float | None
    most_nodes: int | None = None
    """That one job may have; None without a limit."""
    names: frozenset[str] = field(default_factory=frozenset)
    up: bool = True


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


def parse_sinfo(text: str) -> list[Pool]:
    """The pools in what sinfo prints of the fields SINFO."""
    rows = (row.lstrip("\n").split(FIELD) for row in text.split(ROW))
    return [_pool(row) for row in rows if len(row) == len(SINFO)]


def _pool(row: Sequence[str]) -> Pool:
    partition, nodes, cpus, memory, gres, features, limit, size, names, state = row
    most = size.rpartition("-")[2]
    return Pool(
        partition=partition.rpartition("\n")[2].removesuffix("*"),
        default=partition.endswith("*"),
        nodes=whole(nodes),
        cpus=whole(cpus),
        memory_mb=whole(memory),
        gpus=gpus_of(gres),
        features=frozenset(name for name in features.split(",") if name and name != "(null)"),
        limit_s=seconds(limit),
        most_nodes=int(most) if most.isdigit() else None,
        names=node_names(names),
        up=bool(_UP.match(state)) and not state.endswith("*"),
    )


def gpus_of(gres: str) -> dict[str, int]:
    """`gpu:h200:2(S:0-1),shard:4` → {"h200": 2}."""
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *rest = part.strip().removeprefix("gres/").split(":")
        if name == "gpu":
            count = rest[-1] if rest and rest[-1].isdigit() else "1"
            kind = ":".join(rest[:-1] if rest and rest[-1].isdigit() else rest)
            found[kind] = found.get(kind, 0) + int(count)
    return found


def whole(text: str) -> int:
    """`4000+` → 4000, as sinfo marks the least of several."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0


def node_names(nodelist: str) -> frozenset[str]:
    """The nodes in Slurm's notation, in no order; none for what is no list."""
    try:
        return frozenset(expand_nodelist(nodelist))
    except ValueError:
        return frozenset()


def parse_config(text: str) -> dict[str, str]:
    """The settings in what `scontrol show config` prints, by name."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def parse_partitions(text: str) -> dict[str, dict[str, str]]:
    """The fields of every partition in what `scontrol show partition --oneliner` prints, by its name."""
    rows = (dict(re.findall(r"(\w+)=(\S*)", line)) for line in text.splitlines())
    return {row["PartitionName"]: row for row in rows if "PartitionName" in row}


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


def as_ended(job: Job) -> Job:
    """A job that is being cleared away with the state that it will have, where Slurm's reason tells it."""
    if job.state != "COMPLETING":
        return job
    return replace(job, state=_ENDS.get(job.reason, job.state))


_ENDS = {
    "TimeLimit": "TIMEOUT",
    "NodeDown": "NODE_FAIL",
    "NonZeroExitCode": "FAILED",
    "RaisedSignal": "FAILED",
    "OutOfMemory": "OUT_OF_MEMORY",
    "DeadLine": "DEADLINE",
}


def fields_of(job: Job) -> Mapping[str, object]:
    """What provenance keeps of a job."""
    kept = ("id", "state", "reason", "nodes", "partition", "submitted", "started", "ended", "time_limit_s")
    return {name: getattr(job, name) for name in (*kept, "exit_code", "restarts") if getattr(job, name)}
