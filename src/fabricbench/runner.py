"""Run one cell: start its ranks, watch the clock, and leave a record or say why there is none.

A cell that fails leaves `<record>.failed.json` beside the record's place and exits with 1, so that
Snakemake knows it as a failed job and runs it again, alone, at the next call.
"""

import contextlib
import fcntl
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from fabricbench.cell import Cell
from fabricbench.errors import FabricbenchError, LaunchError
from fabricbench.fabrics.evidence import MISLABELLED, judge
from fabricbench.fabrics.words import cause, telling
from fabricbench.follower import Follower
from fabricbench.launch import job
from fabricbench.launch.base import (
    BOOTSTRAP,
    EXCLUDE,
    MISSING,
    NEIGHBOURS,
    NODELIST,
    RANK_LOG,
    RUNNER,
    Command,
    Launcher,
    cell_environment,
)
from fabricbench.launch.emulated import Emulated
from fabricbench.launch.host import Host
from fabricbench.launch.leaving import ERROR
from fabricbench.launch.modules import loaded_modules, why_not_loaded
from fabricbench.launch.step import Step
from fabricbench.provenance import runner_provenance
from fabricbench.record import Record, Series, failure_path, write_record
from fabricbench.scheduler import has_ended
from fabricbench.workloads.entry import MET
from fabricbench.workloads.progress import PROGRESS
from fabricbench.workloads.seat import RESULT

LAUNCHERS: dict[str, Launcher] = {
    "emulated": Emulated(),
    "host": Host(),
    "slurm": Step(),
    "allocation": Step(),
}
ENDING = (signal.SIGTERM, signal.SIGINT)
WORK = ".work"
"""Where ranks in a Slurm job leave what they have to say, in a campaign's folder."""
POLL_S = 0.05
APPEARS_S = 10.0
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
    failure of the ranks (not of what surrounds them) the record. `bootstrap`, `nodelist` and `exclude`:
    cluster.bootstrap and which nodes a cell inside a Slurm job may have; empty where there is no wish.
    """
    path = path.absolute()
    acceptable = False
    record = Record(cell=cell, code_key=code_key, status="failed", reason=UNFINISHED, start=_now())
    told = partial(_leave_on_signal, record, failure_path(path))
    before = {number: signal.signal(number, told) for number in ENDING}
    wishes = {
        NEIGHBOURS: " ".join(neighbours),
        BOOTSTRAP: bootstrap,
        NODELIST: nodelist,
        EXCLUDE: exclude,
    }
    try:
        _reserve(record, failure_path(path))
        with work_folder(cell, path) as work:
            began = time.monotonic()
            record.start = _now()
            try:
                _measure(record, work, timeout_s, wishes)
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
    for number in ENDING:  # how it ended is known, and is written before anything else ends this process
        signal.signal(number, signal.SIG_IGN)
    record.end = _now()
    if record.status != "ok":
        record.provenance["of_ranks"] = acceptable
    status = _leave(record, path, accept=accept_failures and acceptable)
    for number, handler in before.items():
        signal.signal(number, handler)
    return status


def work_folder(cell: Cell, path: Path) -> AbstractContextManager[Path]:
    """Where a cell's ranks leave what they have to say: a folder that is removed, however the cell ends.

    Ranks in a Slurm job need one that all nodes see. Other cells measure this machine, one at a time.
    """
    if LAUNCHERS[cell.launcher].in_a_job:
        return shared_folder(path, job.job_id(os.environ, cell.launcher))
    return _private_folder()


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    with alone_on_this_machine(), tempfile.TemporaryDirectory(prefix="fabricbench-") as work:
        yield Path(work)


@contextlib.contextmanager
def shared_folder(path: Path, job_number: str) -> Iterator[Path]:
    """A folder beside the campaign's records, where they are shared; the record's leftovers go first.

    Left over is what another try of this record in the same job, or in one that has ended, couldn't remove.
    """
    parent = path.parent.parent / WORK
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{glob.escape(path.stem)}-*-*"):
        of = left.name.rsplit("-", 2)[1]
        if of == job_number or has_ended(of):
            shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f"{path.stem}-{job_number}-", dir=parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        with contextlib.suppress(OSError):  # other cells' folders are there
            parent.rmdir()


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


def _measure(record: Record, work: Path, timeout_s: float, wishes: dict[str, str]) -> None:
    """Start the ranks and fill `record` with what they leave; raises the reason when they fail.

    `wishes`: variables that tell the launcher what isn't in the cell.
    """
    launcher = LAUNCHERS[record.cell.launcher]
    (work / "cell.json").write_text(record.cell.canonical(), encoding="utf-8")
    environment, unset = cell_environment(record.cell, os.environ)
    record.provenance = runner_provenance(unset)
    inherited = {name for name in environment if os.environ.get(name) == environment[name]}
    record.provenance["set"] = {
        name: value
        for name, value in sorted(environment.items())
        if name not in inherited and name not in record.cell.environment
    }
    if launcher.in_a_job:
        record.provenance["job"] = job.job_provenance(
            os.environ, job.job_id(os.environ, record.cell.launcher)
        )
    if modules := record.cell.site.get("modules"):
        record.provenance["modules"] = loaded_modules(os.environ)
        if unloaded := why_not_loaded(modules, os.environ):
            raise LaunchError(unloaded)
    environment |= {RUNNER: str(os.getpid())} | wishes
    command = launcher.command(record.cell, work)
    follower = Follower(work / RANK_LOG.format(0))
    try:
        status = supervise(command, environment, timeout_s, follower.look)
    except TimedOut as error:
        if (work / MISSING).exists():
            absent = (work / MISSING).read_text(encoding="utf-8")
            raise TimedOut(f"{str(error).partition(';')[0]}; {absent}") from None
        if (work / MET).exists():
            raise
        raise TimedOut(f"{error}; the ranks never met over {record.cell.fabric['name']}") from None
    except LaunchError as error:  # told to end; a launcher that still had the time may know why
        if (work / ERROR).exists():
            left = json.loads((work / ERROR).read_text(encoding="utf-8"))
            raise LaunchError(f"{left['message']}; {error}") from None
        raise
    finally:
        follower.look(at_once=True)
        lines = _hear_ranks(work, record.cell.gpus)
    if (work / ERROR).exists():
        left = json.loads((work / ERROR).read_text(encoding="utf-8"))
        record.provenance["traceback"] = left["traceback"]
        if left["who"] == "launcher":
            raise LaunchError(left["message"])
        if left["who"] == "ranks":
            why = cause(lines) if "exit status" in left["message"] else []  # no exception, no signal
            raise RankError(": ".join([left["message"], *why]))
        raise RankError(f"{left['who']}: {left['message']}")
    if status != 0:
        raise LaunchError(f"the launcher {how_it_ended(status)} and left no reason; see the log")
    result = json.loads(_awaited(work / RESULT).read_text(encoding="utf-8"))
    record.samples = [Series(**plain) for plain in result["samples"]]
    record.facts, record.evidence = result["facts"], result["evidence"]
    record.evidence["words"] = telling(lines)
    record.provenance |= {"ranks": result["ranks"], "nodes": result["nodes"]}
    began = datetime.fromisoformat(record.start).timestamp()
    record.phases_s = result["phases_s"] | {
        f"to_{name}": moment - began for name, moment in result["moments"].items() if moment is not None
    }


def _awaited(path: Path) -> Path:
    """A path that another node has written: a network file system may show it late."""
    until = time.monotonic() + APPEARS_S
    while not path.exists() and time.monotonic() < until:
        os.listdir(path.parent)
        time.sleep(POLL_S)
    return path


def _hear_ranks(work: Path, ranks: int) -> list[str]:
    """Pass every rank's log on to the cell's, and return all their lines."""
    lines = []
    for rank in range(ranks):
        path = work / RANK_LOG.format(rank)
        if not path.exists():
            continue
        own = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if own := [line for line in own if not line.startswith(PROGRESS)]:  # that was passed on as it came
            text = "\n".join(own)
            print(f"--- rank {rank}\n{text[:LONGEST_LOG]}", flush=True)
            lines += own
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


def supervise(
    command: Command, environment: dict[str, str], timeout_s: float, look: Callable[[], None] = lambda: None
) -> int:
    """Run a command in a session of its own until it ends; returns its exit code (negative: the signal).

    `look` is called every POLL_S, to pass on what its ranks say.

    Raises TimedOut after `timeout_s`, and LaunchError when this process's own parent is gone, so that a
    cell never runs on beside its successor. Whatever happens, nothing of its session is left: a command
    with a grace is told by SIGTERM and has so long to end what it started on other nodes.
    """
    parent = os.getppid()
    process = subprocess.Popen(command.argv, env=environment | dict(command.env), start_new_session=True)
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=POLL_S)
            look()
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
            if command.grace_s and process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(command.grace_s)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _leave_on_signal(record: Record, failed: Path, number: int, _: object) -> None:
    """Say at once why the cell ends, since a scheduler kills soon after; then end it."""
    for each in ENDING:  # once is enough, and nothing may interrupt the end
        signal.signal(each, signal.SIG_IGN)
    reason = f"the cell was told to end by {signal.Signals(number).name}"
    told = replace(record, reason=reason, end=_now(), provenance=record.provenance | {"of_ranks": False})
    with contextlib.suppress(OSError):
        write_record(told, failed)
    raise LaunchError(reason)


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
