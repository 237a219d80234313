"""What Snakemake's Slurm executor makes of a cell, by the executor's own functions."""

import shlex
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string
from snakemake_executor_plugin_slurm.validation import validate_slurm_extra

from fabricbench.slurm_job import Resources

OURS = ("--parsable", "--job-name", "--output", "--export", "--comment", "-D")
"""Options that every job has, whatever the cell."""


class _Resources(dict):
    """Resources as a job of Snakemake has them: also as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def sbatch_command(job: Resources) -> str:
    """The whole line, as a shell gets it."""
    given = SimpleNamespace(resources=_Resources(job), threads=1)
    validate_slurm_extra(given)
    account, partition = job.get("slurm_account"), job.get("slurm_partition")
    params = {
        "run_uuid": "fabricbench",
        "slurm_logfile": "LOG",
        "comment_str": "CELL",
        "account": f" -A {shlex.quote(str(account))}" if account else "",
        "partition": f" -p {shlex.quote(str(partition))}" if partition else "",
        "workdir": ".",
    }
    return get_submit_command(given, params) + set_gres_string(given)


def sbatch_options(job: Resources) -> list[str]:
    """What sbatch gets, without the options that are always the same."""
    return own(shlex.split(sbatch_command(job))[1:])


def own(words: Sequence[str]) -> list[str]:
    """Options of a cell's own among all that sbatch gets."""
    kept, skip = [], False
    for word in words:
        if skip or word.startswith(OURS):
            skip = not skip and "=" not in word and word != "--parsable"
            continue
        kept.append(word)
    return kept
