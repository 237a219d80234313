"""What about a Slurm site makes Snakemake late, or blind for how jobs end: told before it submits."""

import re
from collections.abc import Iterable, Iterator, Mapping

from fabricbench import scheduler
from fabricbench.errors import LaunchError
from fabricbench.slurm_words import parse_config, parse_partitions

LEAST_AGE_S = 240
"""Snakemake looks at its jobs every 180 s at least; Slurm must know an ended one for longer."""


def of_site(partitions: Iterable[str], status_command: str) -> list[str]:
    """A line each; none where Slurm doesn't tell. `partitions`: those asked for, none for the default one."""
    try:
        config = parse_config(scheduler.configuration())
        there = parse_partitions(scheduler.partitions())
    except LaunchError:
        return []
    return [*of_age(config, status_command), *of_preemption(config, there, partitions)]


def of_age(config: Mapping[str, str], status_command: str) -> Iterator[str]:
    """That Slurm forgets jobs before Snakemake looks; `config`: Slurm's, by name."""
    age = re.match(r"\d+", config.get("MinJobAge", ""))
    if age is None or int(age[0]) >= LEAST_AGE_S or status_command != "squeue":
        return
    mend = "ask its administrators for a higher MinJobAge"
    if config.get("AccountingStorageType", "accounting_storage/none") != "accounting_storage/none":
        mend = "call Snakemake with --slurm-status-command sacct"
    yield (
        f"Slurm forgets a job {age[0]} s after its end (MinJobAge), and Snakemake may look 180 s apart: "
        f"cells that fail may be noticed late and without their reason; {mend}"
    )


def of_preemption(
    config: Mapping[str, str], there: Mapping[str, Mapping[str, str]], asked: Iterable[str]
) -> Iterator[str]:
    """That jobs may have to give way, which Snakemake takes for no end; `there`: fields by partition."""
    if config.get("PreemptType", "preempt/none") == "preempt/none":
        return
    default = [name for name, fields in there.items() if fields.get("Default") == "YES"]
    for name in dict.fromkeys(asked) or default:
        mode = there.get(name, {}).get("PreemptMode", "OFF")
        if "OFF" not in mode.split(","):
            yield (
                f"cluster.slurm.partition: {name}: jobs there may have to give way to others (PreemptMode="
                f"{mode}), which Snakemake takes for no end and waits on, until Slurm forgets it; choose "
                "a partition or QOS without preemption, or end the call with Ctrl-C then, and call it again"
            )
