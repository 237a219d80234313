"""Snakemake's Slurm executor, mended: it outlasts a silent controller, and gives up what Slurm forgot."""

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabricbench import slurm_polling


class Plugin:
    """What the executor plugin has, in miniature: its answers are read from a list."""

    def __init__(self, answers: list[dict[str, str] | None]) -> None:
        """`answers`: of squeue, one after the other; None: none."""
        self.answers = answers
        self.reported: list[tuple[str, str]] = []
        plugin = self

        class Executor:
            wait = True

            async def check_active_jobs(self, active_jobs: list[Any]) -> Any:
                status, _ = await plugin.query_job_status("squeue", logging.getLogger())
                for job in active_jobs if status is not None else []:
                    yield job

            def report_job_success(self, job: Any) -> None:
                plugin.reported.append((job.external_jobid, "success"))

            def report_job_error(self, job: Any, msg: str) -> None:
                plugin.reported.append((job.external_jobid, msg))

        self.Executor = Executor

    async def query_job_status(self, command: str, logger: Any) -> tuple[Any, float | None]:
        """The next answer."""
        answer = self.answers.pop(0)
        return answer, None if answer is None else 0.1

    def get_min_job_age(self) -> int | None:
        """What scontrol says of a silent controller."""
        return None


def job(number: str, *outputs: Path) -> Any:
    """A submitted job."""
    return SimpleNamespace(external_jobid=number, job=SimpleNamespace(output=[str(path) for path in outputs]))


def checked(plugin: Plugin, jobs: list[Any], times: int) -> list[list[str]]:
    """The jobs that are still waited for after each look."""
    executor, left = plugin.Executor(), []

    async def look() -> list[Any]:
        return [job async for job in executor.check_active_jobs(jobs)]

    for _ in range(times):
        jobs = asyncio.run(look())
        left.append([job.external_jobid for job in jobs])
    return left


def test_jobs_are_kept_while_slurm_is_silent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Slurm is asked until it answers, which is said once; sacct is no way out."""
    monkeypatch.setattr(slurm_polling, "AGAIN_S", 0)
    plugin = Plugin([None] * 9 + [{"7": "RUNNING"}])
    slurm_polling.mend(plugin)
    assert checked(plugin, [job("7")], 1) == [["7"]]
    assert plugin.get_min_job_age() > 1000
    assert [record.message for record in caplog.records] == [
        "Slurm doesn't answer; it is asked again until it does. Jobs aren't affected.",
        "Slurm answers again.",
    ]


def test_a_call_that_shall_end_does_so_while_slurm_is_silent() -> None:
    """Nothing is waited for then."""
    plugin = Plugin([None])
    slurm_polling.mend(plugin)
    plugin.Executor.wait = False
    assert checked(plugin, [job("7")], 1) == [[]]


def test_forgotten_jobs_are_given_up(tmp_path: Path) -> None:
    """After three looks in a row: as done where the record is there, else as failed."""
    (tmp_path / "record.json").touch()
    seen = {"7": "RUNNING"}
    plugin = Plugin([seen, {}, {}, seen, {}, {}, {}])
    slurm_polling.mend(plugin)
    jobs = [job("7", tmp_path / "none.json"), job("8", tmp_path / "record.json")]
    assert checked(plugin, jobs, 7) == [["7", "8"], ["7", "8"], *[["7"]] * 4, []]
    assert plugin.reported == [
        ("8", "success"),
        ("7", "Slurm no longer knows job 7, and it left no record. "),
    ]
