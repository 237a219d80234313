"""Run one cell: start its ranks, watch the clock, and leave a record or say why there is none.

A cell that fails leaves `<record>.failed.json` beside the record's place and exits with 1, so that
Snakemake knows it as a failed job and runs it again, alone, at the next call.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from fabricbench.cell import Cell
from fabricbench.errors import FabricbenchError, LaunchError
from fabricbench.fabrics.evidence import MISLABELLED, judge
from fabricbench.fabrics.words import cause, telling
from fabricbench.launch.base import NEIGHBOURS, RANK_LOG, RUNNER, Command, Launcher, cell_environment
from fabricbench.launch.emulated import Emulated
from fabricbench.launch.host import Host
from fabricbench.provenance import runner_provenance
from fabricbench.record import Record, Series, failure_path, write_record
from fabricbench.workloads.entry import MET

LAUNCHERS: dict[str, Launcher] = {"emulated": Emulated(), "host": Host()}
POLL_S = 0.05
LONGEST_LOG = 200_000
"""Characters of a rank's log that are passed on."""
UNFINISHED = "started, and not finished: it still runs, or was killed from outside"
# What a failure without samples and traceback needs at most; reserved before the cell starts.
RESERVED_BYTES = 8192


class RankError(FabricbenchError):
    """The ranks ran and failed: an outcome of the cell, which a person may accept."""


class TimedOut(RankError):
    """The cell's time-out passed."""


class Mislabelled(RankError):
    """The cell was measured, and its bytes went over another network than the one that it names."""


def run_cell(
    cell: Cell,
    code_key: str,
    path: Path,
    *,
    timeout_s: float,
    accept_failures: bool,
    neighbours: list[str],
    bootstrap: str = "",
    nodelist: str = "",
    exclude: str = "",
) -> int:
    """Run `cell`, write its record to `path`, and return the exit status.

    `neighbours`: interfaces that an emulated node has beside the cell's own. `accept_failures` makes a
    failure of the ranks (not of what surrounds them) the record.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave_on_signal)
    path = path.absolute()
    acceptable = False
    record = Record(cell=cell, code_key=code_key, status="failed", reason=UNFINISHED, start=_now())
    try:
        _reserve(record, failure_path(path))
        with alone_on_this_machine(), tempfile.TemporaryDirectory(prefix="fabricbench-") as work:
            began = time.monotonic()
            record.start = _now()
            try:
                _measure(record, Path(work), timeout_s, neighbours)
                _judge(record)
            finally:
                record.phases_s["total"] = time.monotonic() - began
    except TimedOut as error:
        record.status, record.reason, acceptable = "timeout", str(error), True
    except Mislabelled as error:
        record.status, record.reason, acceptable = "mislabelled", str(error), True
    except RankError as error:
        record.reason, acceptable = str(error), True
    except FabricbenchError as error:
        record.reason = str(error)
    except OSError as error:
        record.reason = f"{error.strerror}: {error.filename}"
    except Exception as error:  # a mistake of this program: never a cell that seems to run on
        traceback.print_exc()
        record.reason = f"fabricbench failed: {type(error).__name__}: {error}; see the log"
    record.end = _now()
    if record.status != "ok":
        record.provenance["of_ranks"] = acceptable
    return _leave(record, path, accept=accept_failures and acceptable)


@contextlib.contextmanager
def alone_on_this_machine() -> Iterator[None]:
    """Wait until no other measured cell of this user runs here, whichever campaign or checkout it is of."""
    lock = Path(tempfile.gettempdir()) / f"fabricbench-{os.getuid()}.lock"
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another cell that is measured on this machine", file=sys.stderr, flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _measure(record: Record, work: Path, timeout_s: float, neighbours: list[str]) -> None:
    """Start the ranks and fill `record` with what they leave; raises the reason when they fail."""
    (work / "cell.json").write_text(record.cell.canonical(), encoding="utf-8")
    environment, unset = cell_environment(record.cell, os.environ)
    record.provenance = runner_provenance(unset)
    inherited = {name for name in environment if os.environ.get(name) == environment[name]}
    record.provenance["set"] = {
        name: value
        for name, value in sorted(environment.items())
        if name not in inherited and name not in record.cell.environment
    }
    environment |= {RUNNER: str(os.getpid()), NEIGHBOURS: " ".join(neighbours)}
    command = LAUNCHERS[record.cell.launcher].command(record.cell, work)
    try:
        status = supervise(command, environment, timeout_s)
    except TimedOut as error:
        if (work / MET).exists():
            raise
        raise TimedOut(f"{error}; the ranks never met over {record.cell.fabric['name']}") from None
    finally:
        lines = _hear_ranks(work, record.cell.gpus)
    if (work / "error.json").exists():
        left = json.loads((work / "error.json").read_text(encoding="utf-8"))
        record.provenance["traceback"] = left["traceback"]
        if left["who"] == "launcher":
            raise LaunchError(left["message"])
        if left["who"] == "ranks":
            why = cause(lines) if "exit status" in left["message"] else []  # no exception, no signal
            raise RankError(": ".join([left["message"], *why]))
        raise RankError(f"{left['who']}: {left['message']}")
    if status != 0:
        raise LaunchError(f"the launcher {how_it_ended(status)} and left no reason; see the log")
    result = json.loads((work / "result.json").read_text(encoding="utf-8"))
    record.samples = [Series(**plain) for plain in result["samples"]]
    record.facts, record.evidence = result["facts"], result["evidence"]
    record.evidence["words"] = telling(lines)
    record.provenance |= {"ranks": result["ranks"], "nodes": result["nodes"]}
    record.phases_s = result["phases_s"]


def _hear_ranks(work: Path, ranks: int) -> list[str]:
    """Pass every rank's log on to the cell's, and return all their lines."""
    lines = []
    for rank in range(ranks):
        path = work / RANK_LOG.format(rank)
        if path.exists() and (text := path.read_text(encoding="utf-8", errors="replace").strip()):
            print(f"--- rank {rank}\n{text[:LONGEST_LOG]}", flush=True)
            lines += text.splitlines()
    return lines


def _judge(record: Record) -> None:
    """Give the verdict over the counters; raises Mislabelled where the bytes went elsewhere."""
    verdict = judge(record.evidence, record.cell.nodes)
    record.evidence |= verdict.to_json()
    if verdict.verdict == MISLABELLED:
        raise Mislabelled(verdict.because)
    record.status, record.reason = "ok", ""


def how_it_ended(status: int) -> str:
    """An exit code, or a signal's name when negative."""
    return (
        f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
    )


def supervise(command: Command, environment: dict[str, str], timeout_s: float) -> int:
    """Run a command in a session of its own until it ends; returns its exit code (negative: the signal).

    Raises TimedOut after `timeout_s`, and LaunchError when this process's own parent is gone, so that a
    cell never runs on beside its successor. Whatever happens, nothing of its session is left.
    """
    parent = os.getppid()
    process = subprocess.Popen(command.argv, env=environment | dict(command.env), start_new_session=True)
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=POLL_S)
            if time.monotonic() > deadline:
                raise TimedOut(
                    f"stopped after its time-out of {timeout_s:g} s; set the workload's timeout higher, or, "
                    "without any progress, ask `fabricbench doctor` whether large packets pass between "
                    "nodes and no bridge such as docker0 is taken"
                )
            if os.getppid() != parent:
                raise LaunchError("whoever started this cell is gone")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _leave_on_signal(number: int, _: object) -> None:
    raise LaunchError(f"the cell was told to end by {signal.Signals(number).name}")


def _reserve(record: Record, failed: Path) -> None:
    """Say that the cell has begun, in a file with room for how it ends, should the disk then be full."""
    write_record(record, failed)
    with failed.open("a", encoding="utf-8") as file:
        file.write(" " * max(0, RESERVED_BYTES - failed.stat().st_size))


def _leave(record: Record, path: Path, accept: bool) -> int:
    """Write the record, or the failure beside it; returns the exit status."""
    failed = failure_path(path)
    try:
        if record.status == "ok" or accept:
            record.accepted = record.status != "ok"
            write_record(record, path)
            failed.unlink(missing_ok=True)
            return 0
        write_record(record, failed)
    except OSError as error:
        known = f"{record.reason}; " if record.reason else ""
        record = replace(
            record, status="failed", accepted=False, reason=f"{known}can't write: {error.strerror}"
        )
        _write_in_place(record, failed)
    print(f"fabricbench: {record.id}: {record.status}: {record.reason}", file=sys.stderr)
    return 1


def _write_in_place(record: Record, failed: Path) -> None:
    """On a full disk: a failure without samples and traceback, into the room that was reserved for it."""
    small = replace(record, samples=[], facts={}, evidence={}, provenance={})
    text = json.dumps(small.to_json(), ensure_ascii=False).encode()
    if len(text) < RESERVED_BYTES:
        with contextlib.suppress(OSError), failed.open("r+b") as file:
            file.write(text.ljust(RESERVED_BYTES - 1) + b"\n")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
