"""Asks Slurm, by its own commands, of jobs and of what it would refuse.

Works without accounting: squeue and scontrol know a job for MinJobAge after its end (300 s by default). Where
Slurm keeps accounts, sacct knows it longer.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fabricbench.errors import LaunchError
from fabricbench.refusals import NO_CONTROLLER, Said, absent, explain
from fabricbench.slurm_words import (
    END,
    FIELD,
    ROW,
    SACCT,
    SINFO,
    SQUEUE,
    Job,
    Pool,
    one_line,
    parse_sacct,
    parse_scontrol,
    parse_sinfo,
    parse_squeue,
)

TIMEOUT_S = 60.0
"""For one answer of Slurm's: its own commands give up on a controller after some 10 to 60 s."""
KNOWN_DAYS = 7
"""How far back accounts are searched."""
IDS_PER_CALL = 500
"""Job ids on one command line."""

MOST_NAMED = 5
"""Nodes in one line."""
AT_ONCE = 4
"""Questions to Slurm at a time."""
NO_ANSWER = "Slurm's controller doesn't answer; wait until it does, or tell its administrators"


class NoAnswer(LaunchError):
    """Slurm is installed, and its controller doesn't answer."""


def installed() -> bool:
    """Whether Slurm's commands are here."""
    return shutil.which("squeue") is not None


def queue() -> list[Job]:
    """This user's jobs that the controller still knows, ended ones too.

    Raises LaunchError where it doesn't answer.
    """
    form = FIELD.join(SQUEUE) + ROW
    user = f"--user={os.getuid()}"
    return parse_squeue(_ask(["squeue", "--all", "--noheader", "--states=all", user, f"--format={form}"]))


def accounts() -> list[Job]:
    """This user's jobs of the last days that accounts know; none where Slurm keeps no accounts."""
    arguments = ["--noheader", "--parsable2", "--allocations", "--duplicates", f"--user={os.getuid()}"]
    arguments += [f"--starttime=now-{KNOWN_DAYS}days", f"--format={','.join(SACCT)}"]
    try:
        return parse_sacct(_ask(["sacct", *arguments]))
    except LaunchError:
        return []


def jobs(*, also_accounts: bool = True) -> list[Job]:
    """This user's jobs, by submission: from the controller, and those that only accounts still know.

    What accounts know of the same job (who cancelled it, how one ends that is being cleared away) is added
    to what the controller says. Raises LaunchError where the controller doesn't answer.
    """
    found = {(job.id, job.submitted): job for job in queue()}
    for job in accounts() if also_accounts else []:
        key = (job.id, job.submitted)
        if known := found.get(key):
            state = job.state if known.state == "COMPLETING" and job.state in END else known.state
            more = replace(known, by=job.by, restarts=job.restarts, exit_code=job.exit_code)
            job = replace(more, state=state, ended=known.ended or job.ended)
        found[key] = job
    return sorted(found.values(), key=_submission)


def _submission(job: Job) -> tuple[str, int]:
    number = re.match(r"\d+", job.id)
    return job.submitted, int(number[0]) if number else 0


def show(number: str) -> Job | None:
    """All that the controller says of one job; None where it has forgotten it."""
    try:
        return parse_scontrol(_ask(["scontrol", "show", "job", "--oneliner", number]))
    except LaunchError:
        return None


def configuration() -> str:
    """Slurm's settings, as scontrol prints them; LaunchError where it can't."""
    return _ask(["scontrol", "show", "config"])


def partitions() -> str:
    """All partitions, a line each, as scontrol prints them; LaunchError where it can't."""
    return _ask(["scontrol", "--all", "show", "partition", "--oneliner"])


def has_ended(number: str) -> bool:
    """Whether Slurm says that a job, of whatever user, is over; not where it doesn't say.

    Only a number that Slurm calls invalid is forgotten: squeue prints nothing, without an error, of a job
    that this user may not see.
    """
    try:
        squeue = ["squeue", "--all", "--noheader", "--states=all", "--format=%T", f"--jobs={number}"]
        status, output, words = attempt(squeue)
    except LaunchError:
        return False
    if status != 0:
        return bool(_FORGOTTEN.search(words))
    states = output.split()
    return bool(states) and END.issuperset(states)


_FORGOTTEN = re.compile("invalid job id", re.I)


def cancel(ids: Iterable[str], *, only_waiting: bool = False) -> None:
    """Cancel jobs; `only_waiting`: those that have started meanwhile are left alone.

    That some have ended meanwhile is no error. Raises LaunchError where the controller doesn't answer.
    """
    named = list(ids)
    for first in range(0, len(named), IDS_PER_CALL):
        some = named[first : first + IDS_PER_CALL]
        status, _, words = attempt(["scancel", *(["--state=PENDING"] if only_waiting else []), *some])
        if status != 0 and NO_CONTROLLER.search(words):
            raise NoAnswer(f"scancel: {NO_ANSWER}: {words}")


def _ask(command: Sequence[str]) -> str:
    """What one of Slurm's commands prints; raises LaunchError with its own words."""
    status, output, words = attempt(command)
    if status != 0 and NO_CONTROLLER.search(words):
        raise NoAnswer(f"{command[0]}: {NO_ANSWER}: {words}")
    if status != 0:
        raise LaunchError(f"{command[0]}: {words or f'ended with exit status {status}'}")
    return output


def attempt(command: Sequence[str], folder: Path | None = None) -> tuple[int, str, str]:
    """(exit status, output, error messages in one line) of a command; LaunchError where it never ends."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_IN_THE_WAY)}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise LaunchError(f"{command[0]}: not installed here; Slurm's commands must be on PATH") from None
    except OSError as error:
        raise LaunchError(f"{command[0]}: can't be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{command[0]}: no answer from Slurm within {TIMEOUT_S:g} s; is it up?") from None
    return done.returncode, done.stdout, one_line(done.stderr)


_IN_THE_WAY = ("SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SLURM_TIME_FORMAT")
"""Variables that would change what is asked or how it is told; those that choose a cluster are kept."""


class Request(NamedTuple):
    """A kind of job that will be submitted."""

    what: str
    """Which cells it is of, in words."""
    arguments: Sequence[str]
    """sbatch's."""
    cells: int = 1
    """How many of them."""


class Trial(NamedTuple):
    """What Slurm says of requests, a line each."""

    refused: list[str]
    """In its own words: such a job can't be submitted."""
    warnings: list[str]
    """What would wait, for long or for ever, and what couldn't be asked."""


def try_out(requests: Sequence[Request]) -> Trial:
    """Ask Slurm whether it would take these jobs, and what they would wait for.

    Asks with `sbatch --test-only`, which submits nothing. Equal arguments are asked of once, equal answers
    are one line. A line names the key and the mend, Slurm's own words come last. What Slurm takes, or
    doesn't answer, is never a refusal.
    """
    by_arguments: dict[tuple[str, ...], list[Request]] = {}
    for request in requests:
        by_arguments.setdefault(tuple(request.arguments), []).append(request)
    if not by_arguments:
        return Trial([], [])
    try:
        pools = _pools()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            answers = list(threads.map(_test, by_arguments))
    except NoAnswer as error:
        return Trial([], [f"{error}; whether it takes the jobs isn't known"])
    except LaunchError as error:
        return Trial([f"cluster.kind: slurm: {error}"], [])
    found: dict[tuple[Said, str], list[str]] = {}
    for (asked, alike), (accepted, words) in zip(by_arguments.items(), answers, strict=True):
        if said := explain(accepted, words, asked, pools):
            found.setdefault((said, "" if accepted else words), []).extend(each.what for each in alike)
    lines = [
        (said, f"{said.key}: {said.why} ({_first_of(whats)}{f'; Slurm: {words}' if words else ''})")
        for (said, words), whats in found.items()
    ]
    refused = [line for said, line in lines if said.stops]
    return Trial(refused, [line for said, line in lines if not said.stops] + waits(requests, pools))


def waits(requests: Sequence[Request], pools: Sequence[Pool]) -> list[str]:
    """A line for all requests that must wait for nodes which are down or drained, with how many cells do."""
    missing = [(request, nodes) for request in requests if (nodes := absent(request.arguments, pools))]
    if not missing:
        return []
    names = list(dict.fromkeys(name for _, nodes in missing for name in nodes))
    shown = ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
    cells, of = sum(request.cells for request, _ in missing), sum(request.cells for request in requests)
    return [
        f"{_first_of([request.what for request, _ in missing])}: waits in Slurm's queue, as {shown} "
        f"{'is' if len(names) == 1 else 'are'} down or drained: {cells} of {of} cells, and others may wait "
        "behind them; `scancel` such a job and the rest go on, or change cluster.nodelist or cluster.nodes. "
        "What waits, and for what: squeue --me --format='%i %k %T %r'"
    ]


def _pools() -> list[Pool]:
    """The partitions' nodes; none where sinfo doesn't say, as its words only help to explain."""
    try:
        form = f"--format={FIELD.join(SINFO)}{ROW}"
        return parse_sinfo(_ask(["sinfo", "--all", "--noheader", "--exact", form]))
    except NoAnswer:
        raise
    except LaunchError:
        return []


def _test(arguments: Sequence[str]) -> tuple[bool, str]:
    """(whether Slurm would take the job, its words)."""
    status, _, words = attempt(["sbatch", "--test-only", *arguments, "--wrap=true"])
    if status != 0 and NO_CONTROLLER.search(words):
        raise NoAnswer(f"sbatch: {NO_ANSWER}: {words}")
    return status == 0, words


def _first_of(whats: Sequence[str]) -> str:
    each = list(dict.fromkeys(whats))
    return each[0] if len(each) == 1 else f"{each[0]} and {len(each) - 1} more"
