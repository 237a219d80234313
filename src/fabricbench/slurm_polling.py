"""Two cases in which Snakemake's Slurm executor would wait for ever, mended while it runs (plugin 2.8.0).

While slurmctld is restarted, it asks a few times, then sacct, which may have nothing to say, and drops all
jobs that it waits for. And a job that Slurm has forgotten it takes for one that is still to be listed.
"""

import asyncio
import importlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

AGAIN_S = 2.0
"""Between two questions to a controller that doesn't answer."""
UNSEEN = 3
"""How often in a row a job may be missing in squeue's answer."""
_LONG_S = 86_400
"""For how long ended jobs are taken to be listed while the controller doesn't say it."""


def mend_executor() -> None:
    """Let it wait until Slurm answers, and give up a job that Slurm no longer knows; done once.

    Another version of the plugin, whose parts have other names, is left as it is.
    """
    try:
        plugin: Any = importlib.import_module("snakemake_executor_plugin_slurm")
    except ImportError:
        return
    names = ("query_job_status", "get_min_job_age", "Executor")
    if hasattr(plugin, "_fabricbench_mended") or not all(hasattr(plugin, name) for name in names):
        return
    plugin._fabricbench_mended = True
    mend(plugin)


def mend(plugin: Any) -> None:
    """Wrap the plugin's functions; see `mend_executor`."""
    query, age, check = plugin.query_job_status, plugin.get_min_job_age, plugin.Executor.check_active_jobs
    asking: dict[str, Any] = {}
    unseen: Counter[str] = Counter()

    def get_min_job_age() -> int:
        return int(age() or _LONG_S)

    async def query_job_status(command: str, logger: Any) -> tuple[Mapping[str, str] | None, float | None]:
        told = False
        while True:
            answer: tuple[Mapping[str, str] | None, float | None] = await query(command, logger)
            if answer[0] is not None or not asking["executor"].wait:  # it is told to end
                break
            if not told:
                logger.warning("Slurm doesn't answer; it is asked again until it does. Jobs aren't affected.")
                told = True
            await asyncio.sleep(AGAIN_S)
        if told and answer[0] is not None:
            logger.warning("Slurm answers again.")
        asking["listed"] = answer[0] if command.startswith("squeue") else None
        return answer

    async def check_active_jobs(self: Any, active_jobs: list[Any]) -> AsyncIterator[Any]:
        asking.update(executor=self, listed=None)
        async for job in check(self, active_jobs):
            number = str(job.external_jobid)
            listed = asking["listed"]
            unseen[number] = 0 if listed is None or number in listed else unseen[number] + 1
            if unseen[number] < UNSEEN:
                yield job
            elif all(Path(file).exists() for file in job.job.output):
                self.report_job_success(job)
            else:
                self.report_job_error(job, msg=f"Slurm no longer knows job {number}, and it left no record. ")

    plugin.get_min_job_age = get_min_job_age
    plugin.query_job_status = query_job_status
    plugin.Executor.check_active_jobs = check_active_jobs
