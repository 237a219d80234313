"""Launcher for cells inside a Slurm job: starts their ranks on its nodes, and sees them off.

It runs beside the runner on the job's first node, or wherever Snakemake runs in an allocation. What it
starts elsewhere it ends as well: nothing of a cell may run beside the next one.
"""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.fabrics import node
from fabricbench.fabrics.emulation import die_with_parent
from fabricbench.launch import job, says
from fabricbench.launch.addresses import meeting_address
from fabricbench.launch.base import BOOTSTRAP, EXCLUDE, MISSING, NODELIST, RUNNER, Command, python_module
from fabricbench.launch.leaving import leave_error, report_launch_error
from fabricbench.launch.nodes import choose, job_nodes, outside_of_steps
from fabricbench.launch.rollcall import Meeting, Rollcall, write_meeting
from fabricbench.launch.starters import launch_of, program, starter
from fabricbench.slurm_words import fields
from fabricbench.workloads.seat import RESULT, read_cell

GRACE_S = 20.0
"""How long this process may take to end its step; Slurm ends one within a second or two."""
SRUN_S = 3.0
"""How long srun has for that before Slurm is asked to do it."""
GONE_S = 10.0
"""How long Slurm has until a step is no longer listed."""
LOST_S = 30.0
"""Ranks end together, but for the few that write: who is gone for so long while others run is lost."""
POLL_S = 0.1
LONGEST_SAID = 200_000
_STARTER_LOG = "starter.log"


class Step:
    """Ranks on the nodes of this Slurm job."""

    in_a_job = True

    def command(self, cell: Cell, work: Path) -> Command:
        """One process that starts the ranks by srun or MPI's launcher, and watches over them."""
        return Command(python_module(__name__, str(work)), grace_s=GRACE_S)


class ToldToEnd(BaseException):
    """The runner, or Slurm, wants this cell to end."""


def main(work: Path) -> int:
    """Start the ranks and wait: returns 0 if every rank succeeded."""
    signal.signal(signal.SIGTERM, _told_to_end)
    die_with_parent(int(os.environ[RUNNER]), signal.SIGTERM)
    cell = read_cell(work)
    own = job.job_id(os.environ, cell.launcher)
    shown = fields(job.show(own))
    allowed = (os.environ.get(NODELIST, ""), os.environ.get(EXCLUDE, ""))
    placement = cell.site.get("placement", "packed")
    there = job_nodes(os.environ, shown.get("NodeList", ""))
    nodes = choose(there, cell.nodes, placement, *allowed, cell.launcher)
    facts = node.probe(ask_names=False)
    bootstrap = os.environ.get(BOOTSTRAP, "")
    address = meeting_address(bootstrap, facts["interfaces"], facts["host"], cell.nodes > 1)
    token = secrets.token_hex(16)
    name = f"fabricbench-{token[:8]}"
    command = starter(cell, gpus=has_gpus(shown)).command(cell, nodes, program(cell, work))
    with Rollcall(address, token, nodes, cell.ranks_per_node) as rollcall:
        write_meeting(work, Meeting(rollcall.address, token, bootstrap))
        process = start(command, name, work)
        try:
            status = watch(process, rollcall, work)
        except ToldToEnd:
            end(process, own, name, rollcall.steps)
            said = _said(work)
            if missing := rollcall.missing():
                last = f" (its launcher's last words: {said.splitlines()[-1]})" if said else ""
                (work / MISSING).write_text(missing + last, encoding="utf-8")
            done = says.state(said)
            if done and not done.startswith("CANCELLED"):  # which is how we ended it ourselves
                leave_error(work, "launcher", LaunchError(done), is_cause=True)
            return 1
        if status == 0 and not rollcall.refused:
            return 0
        end(process, own, name, rollcall.steps)
        if rollcall.refused:
            leave_error(work, "launcher", LaunchError(rollcall.refused), is_cause=True)
            return 1
        how = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
        started = says.Started(cell.launcher, cell.backend["name"], launch_of(cell))
        what = says.read(_said(work), started, how)
        leave_error(work, what.who, LaunchError(what.message), is_cause=what.is_cause)
        return 1


def has_gpus(shown: Mapping[str, str]) -> bool:
    """Whether the job, by scontrol's fields, was given GPUs as a resource, which steps must then ask for."""
    return any(
        "gpu" in value for name, value in shown.items() if name.lower().startswith(("tres", "alloctres"))
    )


def start(command: Command, name: str, work: Path) -> subprocess.Popen[bytes]:
    """Start srun, with the name by which Slurm lists the step, or what starts it."""
    environment = outside_of_steps(os.environ) | dict(command.env)
    # An MPI library that came with this Python has its launcher beside it, which no module put on PATH.
    environment["PATH"] = os.pathsep.join(
        filter(None, [environment.get("PATH"), str(Path(sys.executable).parent)])
    )
    for tool in ("srun", command.argv[0]):
        if shutil.which(tool, path=environment["PATH"]) is None:
            raise LaunchError(f"{tool} isn't on PATH; add it, or the environment module that has it")
    # Within a job srun takes no name from SLURM_JOB_NAME. Steps that MPI's launchers start keep their own,
    # and are known by what their ranks say at the roll call.
    named = [f"--job-name={name}"] if command.argv[0] == "srun" else []
    argv = [str(shutil.which(command.argv[0], path=environment["PATH"])), *named, *command.argv[1:]]
    parent = os.getpid()
    with open(work / _STARTER_LOG, "wb") as log:
        try:
            return subprocess.Popen(
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: die_with_parent(parent, signal.SIGTERM),
            )
        except OSError as error:
            raise LaunchError(f"{argv[0]} can't be started: {error.strerror}") from None


def watch(process: subprocess.Popen[bytes], rollcall: Rollcall, work: Path) -> int:
    """Serve the roll call until the ranks' launcher ends; returns its exit status.

    A rank that is gone for long is lost, unless there is a result: then ranks end, each in its own time.
    """
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    rollcall.selector.register(wake_read, 1, lambda descriptor: os.read(descriptor, 4096))
    while (status := process.poll()) is None:
        rollcall.serve(1.0)
        if (lost := rollcall.long_lost(LOST_S)) and not (work / RESULT).exists():
            rollcall.refused = lost
            return 1
    return status


def end(process: subprocess.Popen[bytes], own: str, name: str, steps: set[str]) -> None:
    """End the step: by its launcher, else by Slurm, and see that it is gone."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SRUN_S)
    until = time.monotonic() + GONE_S
    while (left := job.steps_left(own, name, steps)) != [] and time.monotonic() < until:
        # Slurm may be too busy to answer; then the steps that ranks named are tried all the same.
        if told := sorted(steps) if left is None else left:
            job.ask("scancel", "--signal=KILL", *told)
        time.sleep(POLL_S)
    if process.poll() is None:
        process.kill()
        process.wait()


def _said(work: Path) -> str:
    """All that the ranks' launcher printed, passed on to the cell's log."""
    said = (work / _STARTER_LOG).read_text(encoding="utf-8", errors="replace").strip()
    if said:
        print(f"--- the ranks' launcher\n{said[-LONGEST_SAID:]}", flush=True)
    return said


def _told_to_end(*_: object) -> None:
    raise ToldToEnd


def report(work: Path) -> int:
    """`main`, with whatever stops it left where the runner looks."""
    try:
        with report_launch_error(work):
            return main(work)
    except ToldToEnd:
        return 1


if __name__ == "__main__":
    sys.exit(report(Path(sys.argv[1])))
