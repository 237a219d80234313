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

from fabricbench.errors import LaunchError
from fabricbench.refusals import NO_CONTROLLER, SINFO, absent, explain, parse_sinfo
from fabricbench.slurm_words import (
    FIELD,
    ROW,
    SACCT,
    SQUEUE,
    Job,
    one_line,
    parse_sacct,
    parse_scontrol,
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


def installed() -> bool:
    """Whether Slurm's commands are here."""
    return shutil.which("squeue") is not None


def queue() -> list[Job]:
    """This user's jobs that the controller still knows, ended ones too.

    Raises LaunchError where it doesn't answer.
    """
    form = FIELD.join(SQUEUE) + ROW
    user = f"--user={os.getuid()}"
    return parse_squeue(_ask(["squeue", "--noheader", "--states=all", user, f"--format={form}"]))


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

    What accounts know of the same job (who cancelled it) is added to what the controller says. Raises
    LaunchError where the controller doesn't answer.
    """
    found = {(job.id, job.submitted): job for job in queue()}
    for job in accounts() if also_accounts else []:
        key = (job.id, job.submitted)
        if key in found:
            job = replace(found[key], by=job.by, restarts=job.restarts, exit_code=job.exit_code)
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


def cancel(ids: Iterable[str], *, only_waiting: bool = False) -> None:
    """Cancel jobs; `only_waiting`: those that have started meanwhile are left alone.

    That some have ended meanwhile is no error. Raises LaunchError where the controller doesn't answer.
    """
    named = list(ids)
    for first in range(0, len(named), IDS_PER_CALL):
        some = named[first : first + IDS_PER_CALL]
        status, _, words = attempt(["scancel", *(["--state=PENDING"] if only_waiting else []), *some])
        if status != 0 and NO_CONTROLLER.search(words):
            raise LaunchError(f"scancel: {NO_ANSWER}: {words}")


def _ask(command: Sequence[str]) -> str:
    """What one of Slurm's commands prints; raises LaunchError with its own words."""
    status, output, words = attempt(command)
    if status != 0:
        why = f"{NO_ANSWER}: {words}" if NO_CONTROLLER.search(words) else words
        raise LaunchError(f"{command[0]}: {why or f'ended with exit status {status}'}")
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
        raise LaunchError(f"{command[0]}: no answer from Slurm within {TIMEOUT_S:g} s; is it up?") from None
    return done.returncode, done.stdout, one_line(done.stderr)


_IN_THE_WAY = ("SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SLURM_TIME_FORMAT")
"""Variables that would change what is asked or how it is told; those that choose a cluster are kept."""


def refusals(requests: Sequence[tuple[str, list[str]]]) -> list[str]:
    """What Slurm would refuse, or never start, of (what it is, arguments of sbatch): one line each.

    Asks with `sbatch --test-only`, which submits nothing. Equal arguments are asked of once, equal answers
    are one line. A line names the key and the mend, Slurm's own words come last.
    """
    by_arguments: dict[tuple[str, ...], list[str]] = {}
    for what, arguments in requests:
        by_arguments.setdefault(tuple(arguments), []).append(what)
    if not by_arguments:
        return []
    try:
        pools = parse_sinfo(_ask(["sinfo", "--noheader", "--exact", f"--format={FIELD.join(SINFO)}{ROW}"]))
        with ThreadPoolExecutor(AT_ONCE) as threads:
            answers = list(threads.map(_test, by_arguments))
    except LaunchError as error:
        return [f"cluster.kind: slurm: {error}"]
    found: dict[tuple[str, str, str], list[str]] = {}
    for (asked, whats), (accepted, words) in zip(by_arguments.items(), answers, strict=True):
        if not accepted and NO_CONTROLLER.search(words):
            return [f"cluster.kind: slurm: {NO_ANSWER}: {words}"]
        if said := explain(accepted, words, asked, pools):
            found.setdefault((said.key, said.why, "" if accepted else words), []).extend(whats)
    return [
        f"{key}: {why} ({_first_of(whats)}{f'; Slurm: {words}' if words else ''})"
        for (key, why, words), whats in found.items()
    ]


def waits(requests: Sequence[tuple[str, list[str]]]) -> list[str]:
    """Which of (what it is, arguments of sbatch) must wait for nodes that are down or drained; a line each.

    None where Slurm doesn't answer.
    """
    try:
        pools = parse_sinfo(_ask(["sinfo", "--noheader", "--exact", f"--format={FIELD.join(SINFO)}{ROW}"]))
    except LaunchError:
        return []
    by_nodes: dict[tuple[str, ...], list[str]] = {}
    for what, arguments in requests:
        if nodes := absent(arguments, pools):
            by_nodes.setdefault(tuple(nodes), []).append(what)
    return [
        f"{_first_of(whats)}: waits in Slurm's queue, as {_some(nodes)} {'is' if len(nodes) == 1 else 'are'} "
        "down or drained; what waits, and for what: squeue --me --format='%i %k %T %r'"
        for nodes, whats in by_nodes.items()
    ]


def _some(nodes: Sequence[str]) -> str:
    return ", ".join(nodes[:MOST_NAMED]) + (", …" if len(nodes) > MOST_NAMED else "")


def _test(arguments: Sequence[str]) -> tuple[bool, str]:
    """(whether Slurm would take the job, its words)."""
    status, _, words = attempt(["sbatch", "--test-only", *arguments, "--wrap=true"])
    return status == 0, words


def _first_of(whats: Sequence[str]) -> str:
    each = list(dict.fromkeys(whats))
    return each[0] if len(each) == 1 else f"{each[0]} and {len(each) - 1} more"
