"""What srun and the MPI launchers say when ranks end badly, read into what happened.

Pure functions of text. Slurm's wording is that of 20.11 to 24.05 as its source has it; what isn't known
is passed on in the launcher's own words.
"""

import re
import signal
from dataclasses import dataclass

from fabricbench.nodelist import expand_nodelist

LAUNCHER, RANKS = "launcher", "ranks"


@dataclass(frozen=True)
class Said:
    """What happened. `who`: ranks, an outcome of the cell, or launcher, what surrounds it."""

    who: str
    message: str
    is_cause: bool = False
    """Whether what ranks say of it themselves is only its consequence."""


_SIGNALS = {signal.strsignal(number): number.name for number in signal.Signals}
# `srun: error: n[0-1]: tasks 0-1: Killed`, the words as strsignal gives them.
_TASKS = re.compile(r"srun: error: ([^\s:]+): tasks? ([\d,-]+|\[[\d,-]+\]): (.+?)(?: \(core dumped\))?$")
_EXITED = re.compile(r"Exited with exit code (\d+)")
_ENDED_BY_US = re.compile(r"Terminating StepId|Terminating job step|Job step aborted|CANCELLED AT")
_OOM = re.compile(r"oom[-_ ]kill|out.of.memory|exceeded (job|step|virtual)? ?memory limit", re.IGNORECASE)
_OPEN_MPI = re.compile(r"process rank (\d+) with PID \d+ on node (\S+) exited on\s+signal (\d+)")
_HYDRA_WHERE = re.compile(r"=\s+(?:RANK (\d+) )?PID \d+ RUNNING AT (\S+)")
_HYDRA_SIGNAL = re.compile(r"KILLED BY SIGNAL: (\d+)|EXIT STRING: .*\(signal (\d+)\)")
_HYDRA_CODE = re.compile(r"=\s+EXIT CODE: (\d+)")
# As wait() gives them, which is how Hydra prints them: ours end with 0 or 1, so these are signals. A core
# dump adds 128.
_HYDRA_SIGNALS = {4, 7, 8, 9, 11} | {128 + number for number in (4, 6, 7, 8, 11)}

# What Slurm itself did to a job or step, in its own words for the job's state.
_STATES = (
    ("TIMEOUT", re.compile(r"DUE TO TIME LIMIT")),
    ("NODE_FAIL", re.compile(r"DUE TO NODE FAILURE|Node failure on|DUE TO NODE FAIL", re.IGNORECASE)),
    ("PREEMPTED", re.compile(r"DUE TO PREEMPTION")),
    ("CANCELLED", re.compile(r"\*\*\* (?:STEP|JOB) .*CANCELLED AT")),
)
_MEND_STEP = {
    "slurm": "the job must hold this cell's nodes, CPUs and GPUs, see cluster.slurm in the config",
    "allocation": "the allocation must hold this cell's nodes, CPUs and GPUs; get it with --exclusive, "
    "and with --gres=gpu:K for GPUs",
}
_REFUSALS = (
    (
        re.compile(r"[Ii]nvalid MPI type|plugin.*mpi/|mpi/.*plugin|MPI: Cannot", re.ASCII),
        "{launch}: srun can't load it (`srun --mpi=list` says which it has){another}",
    ),
    (
        re.compile(r"[Uu]nable to (create step|confirm allocation|allocate)|[Jj]ob step creation|"
                   r"Invalid generic resource|Requested node configuration|More processors requested|"
                   r"Memory required by task|Invalid job id|Job/step already complet"),
        "srun can't start this cell's step: {step}",
    ),
    (
        re.compile(r"execve\(\): apptainer: |apptainer: (?:command )?not found"),
        "cluster.container: apptainer isn't on every node's PATH; add its module to cluster.modules",
    ),
    (
        re.compile(r"execve\(\): .*: No such file|No module named|executable file not found|"
                   r"can't open file|unable to find the specified executable|could not access"),
        "the project's Python isn't on every node; its folder must lie on a file system that all nodes share",
    ),
    (re.compile(r"[Uu]nrecogni[sz]ed (?:option|argument)|unknown option"), "{options}"),
)  # fmt: skip


@dataclass(frozen=True)
class Started:
    """How ranks were started, for the key to mend."""

    kind: str
    """The cluster's: slurm or allocation."""
    backend: str
    launch: str
    """Its key `launch`; none for an engine that has no such key."""

    def mends(self) -> dict[str, str]:
        """What the refusals leave open."""
        if self.launch == "none":
            what, another = "srun --mpi=none", ""
        else:
            what, another = f"backends.{self.backend}.launch: {self.launch}", "; set another"
        options = "srun doesn't know an option: Slurm 20.11 or later is needed"
        if self.launch == "mpirun":
            options = (
                f"the launcher isn't what it was taken for: {what} doesn't match the MPI library on PATH"
            )
        return {"launch": what, "another": another, "options": options, "step": _MEND_STEP[self.kind]}


def read(text: str, started: Started, how_it_ended: str) -> Said:
    """What happened to ranks whose launcher ended badly.

    `text`: all that it printed; `how_it_ended`: "ended with exit status 1", for when the text says nothing.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if own := [line.partition("fabricbench: ")[2] for line in lines if "fabricbench: " in line]:
        return Said(LAUNCHER, own[0])
    if started.launch == "mpirun":  # whose own step's tasks are daemons, not ranks
        lines = [line for line in lines if not _TASKS.search(line)]
    killed = _killed(lines)
    if oom := next((line for line in lines if _OOM.search(line)), ""):
        return Said(RANKS, f"OUT_OF_MEMORY: {killed or _bare(oom)}", is_cause=True)
    ours = any(_EXITED.search(line) for line in lines) or bool(killed)
    if (done := state("\n".join(lines))) and not (done.startswith("CANCELLED") and ours):
        return Said(LAUNCHER, done, is_cause=True)
    if killed:
        return Said(RANKS, killed, is_cause=True)
    for pattern, mend in _REFUSALS:
        if line := next((line for line in lines if pattern.search(line)), ""):
            return Said(LAUNCHER, f"{mend.format(**started.mends())}: {_bare(line)}")
    for line in lines:
        if (found := _TASKS.search(line)) and (code := _EXITED.search(found[3])):
            where = _first(found[1])
            return Said(RANKS, f"rank {_numbers(found[2])[0]} on {where} ended with exit status {code[1]}")
    said = [line for line in lines if re.search(r"error|fatal|Error", line)] or lines
    return Said(LAUNCHER, f"the ranks' launcher {how_it_ended}" + (f": {_bare(said[-1])}" if said else ""))


def _killed(lines: list[str]) -> str:
    """The rank that a signal killed before the launcher itself ended the others; empty if none."""
    for line in lines:
        if found := _TASKS.search(line):
            if name := _SIGNALS.get(found[3]):
                return f"rank {_numbers(found[2])[0]} on {_first(found[1])} was killed by {name}"
            if _EXITED.search(found[3]):
                continue
        if _ENDED_BY_US.search(line):
            break
    if found := _OPEN_MPI.search("\n".join(lines)):
        return f"rank {found[1]} on {found[2]} was killed by {_name(found[3])}"
    where = next((found for line in lines if (found := _HYDRA_WHERE.search(line))), None)
    number = next((found for line in lines if (found := _HYDRA_SIGNAL.search(line))), None)
    code = next((int(found[1]) for line in lines if (found := _HYDRA_CODE.search(line))), 0)
    if where and (number or code in _HYDRA_SIGNALS):
        who = f"rank {where[1]}" if where[1] else "a rank"
        return f"{who} on {where[2]} was killed by {_name(number[1] or number[2] if number else code % 128)}"
    return ""


def state(text: str) -> str:
    """What Slurm itself did to the ranks, beginning with its word for that; empty if nothing."""
    for name, pattern in _STATES:
        if line := next((line for line in text.splitlines() if pattern.search(line)), ""):
            return f"{name}: {_bare(line.strip())}"
    return ""


def _name(number: str | int) -> str:
    try:
        return signal.Signals(int(number)).name
    except ValueError:
        return f"signal {number}"


def _bare(line: str) -> str:
    """A line without srun's label, its stars, and the name of who prints it."""
    line = re.sub(r"^\d+: ", "", line)
    line = re.sub(r"^(srun|slurmstepd|slurmstepd-\S+): (error: |fatal: |launch/slurm: )?", "", line)
    return line.strip("* ")[:300]


def _numbers(text: str) -> list[int]:
    return [int(number) for number in expand_nodelist(f"[{text.strip('[]')}]")]


def _first(hosts: str) -> str:
    return expand_nodelist(hosts)[0]
