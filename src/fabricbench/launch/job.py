"""The Slurm job that this process runs in: its nodes, which of them a cell takes, and who runs beside it.

What a job is told by variables is little where Snakemake's jobstep removed them, so Slurm is asked.
"""

import os
import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fabricbench.errors import LaunchError
from fabricbench.nodelist import expand_nodelist

ASK_S = 60.0
"""How long squeue or scontrol may take: a busy controller answers late."""
CELL_COMMENT = "rule_cell_wildcards_"
"""How Snakemake's Slurm executor begins the comment of a job that measures a cell; the cell's id follows."""
_FIELD = re.compile(r"(?:^|\s)([A-Za-z][\w:/]*)=(\S*)")


def job_id(environment: Mapping[str, str]) -> str:
    """The number of this job; LaunchError outside one."""
    if found := environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID"):
        return found
    raise LaunchError(
        "cluster.kind: slurm: this isn't a Slurm job; run Snakemake with --profile profiles/slurm, or set "
        "cluster.kind: allocation and run it inside salloc or sbatch with --profile profiles/allocation"
    )


def ask(*command: str) -> str | None:
    """What a command of Slurm's prints; None where it fails, is missing or doesn't answer in time."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=ASK_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def show(job: str) -> dict[str, str]:
    """The fields of `scontrol show job`; {} where it doesn't answer."""
    return fields(ask("scontrol", "show", "job", "--oneliner", job) or "")


def fields(line: str) -> dict[str, str]:
    """`JobId=5 JobName=a … NodeList=n[0-1]` to its fields; of a name that occurs twice the first."""
    found: dict[str, str] = {}
    for name, value in _FIELD.findall(line):
        found.setdefault(name, value)
    return found


def job_nodes(environment: Mapping[str, str], shown: Mapping[str, str]) -> list[str]:
    """The job's nodes in Slurm's order: by SLURM_JOB_NODELIST, else as scontrol tells.

    A job with --no-kill outlives a node that dies: the variable still names it, scontrol doesn't.
    """
    told = shown.get("NodeList", "")
    told = "" if told == "(null)" else told
    try:
        alive = expand_nodelist(told)
        names = expand_nodelist(environment.get("SLURM_JOB_NODELIST") or told)
    except ValueError as error:
        raise LaunchError(f"the nodes of this Slurm job: {error}") from None
    names = [name for name in names if name in alive] or names
    if not names:
        raise LaunchError(
            "the nodes of this Slurm job can't be found: SLURM_JOB_NODELIST isn't set, and "
            "`scontrol show job` doesn't tell; add scontrol to PATH"
        )
    return names


def choose(nodes: Sequence[str], count: int, placement: str, only: str = "", exclude: str = "") -> list[str]:
    """The `count` nodes of a cell: the first of those allowed (packed), or evenly spaced ones (spread).

    `only` and `exclude` are in Slurm's notation; an empty `only` allows all. So all cells of one size run
    on the same nodes. Raises LaunchError when too few are allowed.
    """
    wanted, unwanted = _named("nodelist", only), _named("exclude", exclude)
    allowed = [node for node in nodes if (not wanted or node in wanted) and node not in unwanted]
    if len(allowed) < count:
        asked = "".join(f", cluster.{key}: {text}" for key, text in named(only, exclude) if text)
        raise LaunchError(
            f"this cell takes {count} nodes, and this job has {len(allowed)} for it ({_few(nodes)}{asked}); "
            "ask for a larger job, or leave out GPU counts"
        )
    if placement == "spread":
        return [allowed[number * len(allowed) // count] for number in range(count)]
    return allowed[:count]


def named(only: str, exclude: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """The two keys that choose nodes, with what they say."""
    return ("nodelist", only), ("exclude", exclude)


def _named(key: str, text: str) -> set[str]:
    try:
        return set(expand_nodelist(text)) if text else set()
    except ValueError as error:
        raise LaunchError(f"cluster.{key}: {error}") from None


def _few(names: Sequence[str]) -> str:
    return ",".join(names) if len(names) <= 4 else f"{names[0]} to {names[-1]}, {len(names)} nodes"


def job_provenance(environment: Mapping[str, str]) -> dict[str, Any]:
    """Which job a cell ran in, and how much else ran then; what Slurm doesn't tell is left out."""
    job = job_id(environment)
    running = ask("squeue", "--noheader", "--states=RUNNING", "--format=%A %D %j")
    told = about(show(job), job, running)
    return {"id": job, "cluster": environment.get("SLURM_CLUSTER_NAME", "")} | told


def about(shown: Mapping[str, str], job: str, running: str | None) -> dict[str, Any]:
    """The facts of a job from scontrol's fields, and from lines `job nodes name` of all jobs that run.

    Cells of the same call of Snakemake, whose jobs share a name, aren't others: the table knows them.
    """
    found: dict[str, Any] = {}
    if shown:
        found = {
            "partition": shown.get("Partition", ""),
            "nodes": shown.get("NodeList", ""),
            "restarts": int(shown.get("Restarts", "0")),
            "submitted": _moment(shown.get("SubmitTime", "")),
            "started": _moment(shown.get("StartTime", "")),
            "time_limit_s": seconds(shown.get("TimeLimit", "")),
        }
    if running is not None:
        lines = [words for line in running.splitlines() if len(words := line.split(None, 2)) >= 2]
        name = shown.get("JobName", "") if shown.get("Comment", "").startswith(CELL_COMMENT) else ""
        busy = [int(nodes) for other, nodes, *named in lines if other != job and named != [name]]
        found["others"] = {"jobs": len(busy), "nodes": sum(busy)}
    return found


def seconds(text: str) -> int | None:
    """A time as Slurm writes it (`days-hours:minutes:seconds`); None for UNLIMITED and the like."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if not match:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def _moment(text: str) -> str | None:
    """Slurm's local time, in UTC as records have it."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="milliseconds")
    except ValueError:
        return None


def steps_left(job: str, name: str, steps: Collection[str]) -> list[str]:
    """The steps of a job (`5.0`) that still run, of those under a name and those known by number."""
    told = ask("squeue", "--steps", "--noheader", "--format=%i %j", f"--jobs={job}") or ""
    listed = [line.split(None, 1) for line in told.splitlines() if line.strip()]
    return [step for step, *named in listed if named == [name] or step in steps]


def tasks_per_node(nodes: int, ranks: int) -> str:
    """SLURM_TASKS_PER_NODE for as many ranks on each node."""
    return f"{ranks}(x{nodes})" if nodes > 1 else str(ranks)


def outside_of_steps(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without Slurm's variables but those that say which job this is.

    Left alone, those of a batch script or of a step around this process are options to every srun: they
    started two ranks where four were asked for, and nest a step in a step.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in _IDS or not name.startswith(("SLURM_", "SRUN_", "SBATCH_", "SALLOC_"))
    }


_IDS = {
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTER_NAME", "SLURM_WORKING_CLUSTER", "SLURM_CONF"),
    *("SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST", "SLURM_TOPOLOGY_ADDR"),
}


def this_environment() -> dict[str, str]:
    """The environment of this process, as for a new step."""
    return outside_of_steps(os.environ)
