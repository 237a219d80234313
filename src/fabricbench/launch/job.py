"""The Slurm job that this process runs in: what Slurm says of it, and of what runs beside it.

Nothing here decides where ranks run, so it isn't in the code key.
"""

import os
import re
from collections.abc import Collection, Mapping
from typing import Any

from fabricbench.errors import LaunchError
from fabricbench.scheduler import attempt
from fabricbench.slurm_words import parse_scontrol

CELL_COMMENT = "rule_cell_wildcards_"
"""How Snakemake's Slurm executor begins the comment of a job that measures a cell; the cell's id follows."""


def job_id(environment: Mapping[str, str], kind: str) -> str:
    """The number of this job; LaunchError outside one, with the mend for this kind of cluster."""
    if found := environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID"):
        return found
    mend = "run Snakemake with --profile profiles/slurm, or set cluster.kind: allocation"
    if kind == "allocation":
        mend = "run Snakemake inside sbatch or salloc, with --profile profiles/allocation"
    raise LaunchError(f"cluster.kind: {kind}: this isn't a Slurm job; {mend}")


def ask(*command: str) -> str | None:
    """What a command of Slurm's prints; None where it fails, is missing or doesn't answer in time."""
    try:
        status, printed, _ = attempt(command)
    except LaunchError:
        return None
    return printed if status == 0 else None


def show(job: str) -> str:
    """What `scontrol show job` prints; "" where it doesn't answer."""
    return ask("scontrol", "show", "job", "--oneliner", job) or ""


def job_provenance(environment: Mapping[str, str], job: str) -> dict[str, Any]:
    """What a job is, and how much of others ran as it did; what Slurm doesn't tell is left out."""
    running = ask("squeue", "--all", "--noheader", "--states=RUNNING", "--format=%U %D")
    told = about(show(job), others(running, ask("scontrol", "show", "config") or "", os.getuid()))
    return {"id": job, "cluster": environment.get("SLURM_CLUSTER_NAME", "")} | told


def about(shown: str, beside: Mapping[str, int] | None) -> dict[str, Any]:
    """The facts of a job from what scontrol shows, and from `others`."""
    found: dict[str, Any] = {} if beside is None else {"others": dict(beside)}
    if job := parse_scontrol(shown):
        found |= {"partition": job.partition, "nodes": job.nodes, "restarts": job.restarts}
        found |= {"submitted": job.submitted or None, "started": job.started or None}
        found["time_limit_s"] = job.time_limit_s
    return found


def others(running: str | None, config: str, own: int) -> dict[str, int] | None:
    """Jobs of other users that run anywhere on the cluster, and their nodes; None where it can't be known.

    `running`: a line `user's number, nodes` for each job that runs; `config`: scontrol's, since Slurm may
    keep others' jobs private.
    """
    private = re.search(r"^PrivateData\s*=\s*(\S+)", config, re.MULTILINE)
    if running is None or private is None or {"jobs", "all"} & set(private[1].split(",")):
        return None
    lines = [words for line in running.splitlines() if len(words := line.split()) == 2]
    nodes = [int(count) for user, count in lines if user != str(own) and count.isdigit()]
    return {"jobs": len(nodes), "nodes": sum(nodes)}


def steps_left(job: str, name: str, steps: Collection[str]) -> list[str] | None:
    """The steps of a job (`5.0`) that still run, of those under a name and those known by number.

    None where Slurm doesn't answer.
    """
    told = ask("squeue", "--all", "--steps", "--noheader", "--format=%i %j", f"--jobs={job}")
    if told is None:
        return None
    listed = [line.split(None, 1) for line in told.splitlines() if line.strip()]
    return [step for step, *named in listed if named == [name] or step in steps]
