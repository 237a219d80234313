"""Run one cell: start its ranks, watch the clock, and leave a record or say why there is none.

A cell that fails leaves `<record>.failed.json` beside the record's place and exits with 1, so that
Snakemake knows it as a failed job and runs it again, alone, at the next call.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fabricbench.cell import Cell
from fabricbench.errors import FabricbenchError, LaunchError
from fabricbench.launch.base import Command, Launcher, cell_environment
from fabricbench.launch.emulated import Emulated
from fabricbench.launch.host import Host
from fabricbench.provenance import runner_provenance
from fabricbench.record import Record, Series, failure_path, write_record

LAUNCHERS: dict[str, Launcher] = {"emulated": Emulated(), "host": Host()}
POLL_S = 0.05


class TimedOut(FabricbenchError):
    """The cell's time-out passed."""


def run_cell(
    cell: Cell, code_key: str, path: Path, *, timeout_s: float, accept_failures: bool, neighbours: list[str]
) -> int:
    """Run `cell`, write its record to `path`, and return the exit status.

    `neighbours`: interfaces that an emulated node has beside the cell's own.
    """
    began = time.monotonic()
    record = Record(cell=cell, code_key=code_key, status="ok", start=_now())
    path = path.absolute()
    work = path.parent / f".{path.stem}.work"
    shutil.rmtree(work, ignore_errors=True)
    try:
        work.mkdir(parents=True)
        (work / "cell.json").write_text(cell.canonical(), encoding="utf-8")
        _measure(record, work, timeout_s, neighbours)
    except TimedOut as error:
        record.status, record.reason = "timeout", str(error)
    except FabricbenchError as error:
        record.status, record.reason = "failed", str(error)
    except OSError as error:
        record.status, record.reason = "failed", f"{error.strerror}: {error.filename or work}"
    record.end = _now()
    record.phases_s["total"] = time.monotonic() - began
    try:
        return _leave(record, path, accept_failures)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _measure(record: Record, work: Path, timeout_s: float, neighbours: list[str]) -> None:
    environment, unset = cell_environment(record.cell, os.environ)
    record.provenance = runner_provenance(unset)
    environment["FABRICBENCH_NEIGHBOURS"] = " ".join(neighbours)
    command = LAUNCHERS[record.cell.launcher].command(record.cell, work)
    status = supervise(command, environment, timeout_s)
    if (work / "error.json").exists():
        error = json.loads((work / "error.json").read_text(encoding="utf-8"))
        record.provenance["traceback"] = error["traceback"]
        raise LaunchError(
            f"{error['who']}: {error['message']}" if error["who"] != "launcher" else error["message"]
        )
    if status != 0:
        raise LaunchError(f"the launcher {how_it_ended(status)} and left no reason; see the log")
    result = json.loads((work / "result.json").read_text(encoding="utf-8"))
    record.samples = [Series(**plain) for plain in result["samples"]]
    record.facts, record.evidence = result["facts"], result["evidence"]
    record.provenance["ranks"] = result["ranks"]
    record.phases_s = result["phases_s"]


def how_it_ended(status: int) -> str:
    """An exit code, or a signal's name when negative."""
    return (
        f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
    )


def supervise(command: Command, environment: dict[str, str], timeout_s: float) -> int:
    """Run a command in a session of its own until it ends; returns its exit code (negative: the signal).

    Kills all of it and raises TimedOut after `timeout_s`, and kills it when this process's own parent
    is gone, so that a cell never runs on beside its successor.
    """
    parent = os.getppid()
    process = subprocess.Popen(command.argv, env=environment | dict(command.env), start_new_session=True)
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            try:
                return process.wait(timeout=POLL_S)
            except subprocess.TimeoutExpired:
                pass
            if time.monotonic() > deadline:
                raise TimedOut(
                    f"stopped after its time-out of {timeout_s:g} s; set the workload's timeout higher"
                )
            if os.getppid() != parent:
                raise LaunchError("whoever started this cell is gone")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _leave(record: Record, path: Path, accept_failures: bool) -> int:
    failed = failure_path(path)
    try:
        if record.status == "ok" or accept_failures:
            record.accepted = record.status != "ok"
            write_record(record, path)
            failed.unlink(missing_ok=True)
            return 0
        write_record(record, failed)
    except OSError as error:
        record.reason = (
            f"{record.reason}; " * bool(record.reason) + f"can't write the record: {error.strerror}"
        )
        _smallest_trace(record, failed)
    print(f"fabricbench: {record.id}: {record.status}: {record.reason}", file=sys.stderr)
    return 1


def _smallest_trace(record: Record, failed: Path) -> None:
    """On a full disk a failure without samples and traceback may still fit; if not, the log has to do."""
    plain: dict[str, Any] = {"samples": [], "facts": {}, "evidence": {}, "provenance": {}}
    small = Record(**(vars(record) | plain | {"status": "failed"}))
    with contextlib.suppress(OSError):
        write_record(small, failed)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
