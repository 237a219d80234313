"""What Slurm 22.05 printed on a real cluster of four nodes, and what is made of it."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from fabricbench import scheduler
from fabricbench.errors import LaunchError
from fabricbench.scheduler import Request
from fabricbench.slurm_words import FIELD, ROW, Job, parse_sacct, parse_scontrol, parse_squeue, seconds


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm prints local time: here it is UTC."""
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


SQUEUE = """\
3|CANCELLED|None|n[0-1]|root|batch|2026-11-30T18:49:38|2026-11-30T18:49:38|2026-11-30T18:49:42|1:00|/w|\
rule_cell_wildcards_odd , ; "q" é = x Name=2^
6|CANCELLED|Resources||root|batch|2026-11-30T18:49:38|2026-11-30T18:52:03|2026-11-30T18:52:03|5:00|/w|c^
1|COMPLETED|None|n[0-3]|root|batch|2026-11-30T18:49:18|2026-11-30T18:49:18|2026-11-30T18:49:18|10:00|/w|(null)^
5|FAILED|NonZeroExitCode|n0|root|batch|2026-11-30T18:49:38|2026-11-30T18:49:38|2026-11-30T18:49:38|5:00|/w|f^
31|NODE_FAIL|NodeDown|n3|root|batch|2026-11-30T18:52:04|2026-11-30T18:52:04|2026-11-30T18:52:34|5:00|/w|nf^
32|PENDING|ReqNodeNotAvail, UnavailableNodes:n3||root|batch|2026-11-30T18:52:34|N/A|N/A|5:00|/w|nfreq^
33|TIMEOUT|TimeLimit|n[0-1]|root|batch|2026-11-30T18:52:04|2026-11-30T18:52:04|2026-11-30T18:53:18|1:00|/w|to^
34|PENDING|PartitionTimeLimit||root|batch|2026-11-30T18:52:04|N/A|N/A|1:40:00|/w|rule_cell_wildcards_line
break^
4|RUNNING|None|n0|root|batch|2026-11-30T18:49:38|2026-11-30T18:49:38|2026-11-30T18:54:38|5:00|/w|a^
"""
"""With | for the field's separator, and ^ for the row's."""

SCONTROL = (
    "JobId=3 JobName=b c|d UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901757 Nice=0 "
    "Account=(null) QOS=(null) JobState=CANCELLED Reason=None Dependency=(null) Requeue=1 Restarts=0 "
    "BatchFlag=1 Reboot=0 ExitCode=0:15 RunTime=00:00:04 TimeLimit=00:01:00 TimeMin=N/A "
    "SubmitTime=2026-11-30T18:49:38 EligibleTime=2026-11-30T18:49:38 AccrueTime=2026-11-30T18:49:38 "
    "StartTime=2026-11-30T18:49:38 EndTime=2026-11-30T18:49:42 Deadline=N/A SuspendTime=None "
    "SecsPreSuspend=0 LastSchedEval=2026-11-30T18:49:38 Scheduler=Backfill Partition=batch "
    "AllocNode:Sid=hub:15169 ReqNodeList=(null) ExcNodeList=(null) NodeList=n[0-1] BatchHost=n0 NumNodes=2 "
    "NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=2,mem=1000M,node=2,billing=2 "
    "Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* MinCPUsNode=1 MinMemoryCPU=500M MinTmpDiskNode=0 "
    "Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) "
    'Command=(null) WorkDir=/w Comment=rule_cell_wildcards_odd | , ; "q" é = x Name=2  StdErr=/w/3.log '
    "StdIn=/dev/null StdOut=/w/3.log Power= \n"
)


def squeue(text: str = SQUEUE) -> dict[str, Job]:
    """The jobs in such a text, by id."""
    return {job.id: job for job in parse_squeue(text.replace("|", FIELD).replace("^", ROW))}


def test_squeue_tells_states_times_and_comments() -> None:
    """Each job with its state, UTC times, nodes and comment, whatever the comment holds."""
    jobs = squeue()
    assert [job.state for job in jobs.values()] == [
        *("CANCELLED", "CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL"),
        *("PENDING", "TIMEOUT", "PENDING", "RUNNING"),
    ]
    assert jobs["3"].comment == 'rule_cell_wildcards_odd , ; "q" é = x Name=2'
    assert jobs["34"].comment == "rule_cell_wildcards_line\nbreak"
    assert (jobs["1"].comment, jobs["6"].nodes) == ("", "")
    assert (jobs["33"].time_limit_s, jobs["33"].ended) == (60.0, "2026-11-30T18:53:18+00:00")
    assert jobs["34"].reason == "PartitionTimeLimit"
    assert {job.id for job in jobs.values() if job.active} == {"4", "32", "34"}
    assert {job.id for job in jobs.values() if job.waiting} == {"32", "34"}


def test_squeue_of_several_clusters_and_of_none() -> None:
    """A line that names a cluster is no part of an id; no output is no job."""
    assert list(squeue("CLUSTER: emu\n" + SQUEUE)) == list(squeue())
    assert squeue("") == {}


def test_scontrol_tells_exit_code_restarts_and_log() -> None:
    """The same job in detail; a comment that looks like a field is none."""
    job = parse_scontrol(SCONTROL)
    assert job is not None
    assert (job.id, job.state, job.exit_code, job.restarts, job.log) == (
        "3",
        "CANCELLED",
        "0:15",
        0,
        "/w/3.log",
    )
    assert (job.comment, job.workdir) == ('rule_cell_wildcards_odd | , ; "q" é = x Name=2', "/w")
    assert (job.nodes, job.user, job.time_limit_s) == ("n[0-1]", "root", 60.0)
    assert parse_scontrol("slurm_load_jobs error: Invalid job id specified") is None


def test_sacct_tells_who_cancelled_and_how_often_it_ran() -> None:
    """The last of a requeued job's rows counts; a comment that isn't kept is read from the command line."""
    about = "me|batch"
    times = "2026-11-30T10:00:00|2026-11-30T10:00:05|2026-11-30T10:01:00"
    text = (
        f"7|NODE_FAIL|None|n[0-1]|me|batch|{times}|00:05:00|/w|0:0|sbatch --comment a|\n"
        f"7|CANCELLED by 1001|None|n2|{about}|{times}|00:05:00|/w|0:15|"
        "sbatch --comment 'rule_cell_wildcards_a|b' -D /w|\n"
        f"8|CANCELLED by 0|None|None assigned|{about}|2026-11-30T10:00:00|None|2026-11-30T10:00:03|"
        "1-00:00:00|/w|0:0|sbatch x|rule_cell_wildcards_c\n"
        "8.batch|CANCELLED||n2|me||||||||\n"
    )
    requeued, never = parse_sacct(text)
    assert (requeued.state, requeued.by, requeued.restarts, requeued.nodes) == ("CANCELLED", "1001", 1, "n2")
    assert (requeued.comment, requeued.exit_code) == ("rule_cell_wildcards_a|b", "0:15")
    assert (never.nodes, never.started, never.by, never.comment) == ("", "", "0", "rule_cell_wildcards_c")
    assert never.time_limit_s == 86400


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [("5", 300), ("1:30", 90), ("1:00:00", 3600), ("2-1", 176400), ("1-0:10", 87000), ("1-00:00:01", 86401)],
)
def test_durations_as_slurm_writes_them(text: str, duration_s: float) -> None:
    """Minutes, and whatever has colons or days."""
    assert seconds(text) == duration_s
    assert seconds("UNLIMITED") is seconds("infinite") is seconds("") is None


def answering(
    monkeypatch: pytest.MonkeyPatch, **programs: tuple[int, str, str] | Exception
) -> list[list[str]]:
    """Let Slurm's commands answer so; returns the list that their calls go to."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(list(command))
        answer = programs[command[0]]
        if isinstance(answer, Exception):
            raise answer
        return subprocess.CompletedProcess(command, *answer)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_without_accounting_the_controller_alone_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What sacct says where a site keeps no accounts is no error."""
    text = SQUEUE.replace("|", FIELD).replace("^", ROW)
    answering(monkeypatch, squeue=(0, text, ""), sacct=(1, "", "Slurm accounting storage is disabled\n"))
    assert [job.id for job in scheduler.jobs()] == ["1", "3", "4", "5", "6", "31", "33", "34", "32"]


def test_accounts_add_who_cancelled_and_what_was_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """One job is known to both, and one to accounts alone."""
    queue = (0, "\n".join(SQUEUE.splitlines()[:1]).replace("|", FIELD).replace("^", ROW), "")
    rest = "T18:49:42|00:01:00|/w|0:15|sbatch|c\n"
    accounts = (
        f"3|CANCELLED by 7|None|n[0-1]|root|batch|2026-11-30T18:49:38|2026-11-30T18:49:38|2026-11-30{rest}"
        f"2|TIMEOUT|None|n3|root|batch|2026-11-29T18:49:38|2026-11-29T18:49:38|2026-11-29{rest}"
    )
    answering(monkeypatch, squeue=queue, sacct=(0, accounts, ""))
    old, cancelled = scheduler.jobs()
    assert (old.id, old.state) == ("2", "TIMEOUT")
    assert (cancelled.by, cancelled.exit_code) == ("7", "0:15")
    assert cancelled.comment.startswith("rule_cell_wildcards_odd")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"),
         "squeue: Slurm's controller doesn't answer; wait until it does"),
        (subprocess.TimeoutExpired("squeue", 60), "squeue: no answer from Slurm within 60 s"),
        (FileNotFoundError(), "squeue: not installed here"),
    ],
)  # fmt: skip
def test_no_answer_is_one_line(monkeypatch: pytest.MonkeyPatch, answer: Any, said: str) -> None:
    """A controller that is down, one that never answers, and a machine without Slurm."""
    answering(monkeypatch, squeue=answer)
    with pytest.raises(LaunchError) as error:
        scheduler.queue()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("answer", "ended"),
    [
        ((0, "RUNNING\n", ""), False),
        ((0, "COMPLETED\n", ""), True),
        ((0, "NODE_FAIL\nPENDING\n", ""), False),
        ((0, "A_STATE_OF_TOMORROW\n", ""), False),
        ((0, "", ""), False),
        ((1, "", "slurm_load_jobs error: Invalid job id specified\n"), True),
        ((1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"), False),
        ((1, "", "slurm_load_jobs error: Access denied\n"), False),
        (subprocess.TimeoutExpired("squeue", 60), False),
    ],
)
def test_a_job_has_ended_only_if_slurm_says_so(
    monkeypatch: pytest.MonkeyPatch, answer: Any, ended: bool
) -> None:
    """By an end state, or by not knowing the number; silence of whatever kind is no word of an end."""
    answering(monkeypatch, squeue=answer)
    assert scheduler.has_ended("5") is ended


def test_hidden_partitions_are_asked_of_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs in them are listed only with --all."""
    calls = answering(monkeypatch, squeue=(0, "", ""), sinfo=(0, "", ""), sbatch=(0, "", TAKEN))
    scheduler.queue()
    scheduler.has_ended("5")
    scheduler.try_out([Request("train", ["-N1"])])
    assert all("--all" in call for call in calls if call[0] in ("squeue", "sinfo"))
    assert len(calls) == 4


def test_accounts_tell_how_a_job_ends_that_is_cleared_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller says no more than COMPLETING of one that was just cancelled."""
    line = SQUEUE.splitlines()[0].replace("CANCELLED", "COMPLETING").replace("|", FIELD)
    account = (
        "3|CANCELLED by 7|None|n[0-1]|root|batch|2026-11-30T18:49:38|2026-11-30T18:49:38|"
        "2026-11-30T18:49:42|00:01:00|/w|0:15|sbatch|c\n"
    )
    comment = "rule_cell_wildcards_c" + ROW
    answering(monkeypatch, squeue=(0, line + comment, ""), sacct=(0, account, ""))
    (job,) = scheduler.jobs()
    assert (job.state, job.by, job.nodes) == ("CANCELLED", "7", "n[0-1]")


def test_that_a_job_has_ended_meanwhile_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """scancel's complaint about it is passed over; only pending ones are cancelled if that is asked."""
    words = "scancel: error: Kill job error on job id 12: Invalid job id specified\n"
    calls = answering(monkeypatch, scancel=(1, "", words))
    scheduler.cancel(["12", "13"], only_waiting=True)
    assert calls == [["scancel", "--state=PENDING", "12", "13"]]


SINFO = """\
batch*|1|4|4000|gpu:h200:2(S:0)|eth,opa|1:00:00|1-infinite|n3|down*^
batch*|3|4|4000|gpu:h200:2(S:0)|eth,opa|1:00:00|1-infinite|n[0-2]|idle^
debug|2|4|4000|gpu:h200:2(S:0)|eth,opa|5:00|1-infinite|n[0-1]|idle^
small|2|4|4000|(null)|(null)|5:00|1|n[0-1]|idle^
"""
TAKEN = "sbatch: Job 8 to start at 2026-11-30T18:54:42 using 1 processors on nodes n0 in partition batch"
NOT_AVAILABLE = "allocation failure: Requested node configuration is not available"


@pytest.mark.parametrize(
    ("arguments", "status", "words", "said"),
    [
        (["-p", "nope"], 1, "sbatch: error: invalid partition specified: nope\nallocation failure: Invalid "
         "partition name specified",
         "cluster.slurm.partition: nope: no such partition; there are batch, debug, small ("),
        (["--nodes=5"], 1, NOT_AVAILABLE,
         "cluster.slurm.partition: 5 nodes asked, partition batch has 4; choose another partition, or set "
         "cluster.nodes to 4 ("),
        (["-N5"], 1, "allocation failure: Node count specification invalid",
         "cluster.slurm.partition: 5 nodes asked, partition batch has 4"),
        (["-N2", "--bogus"], 1, "allocation failure: Node count specification invalid",
         "cluster.slurm.partition: the partition's limits don't allow this many nodes"),
        (["-t", "90"], 1, "Requested time limit is invalid (missing or exceeds some limit)",
         "timeout: a time limit of 90 min is above the 60 min of partition batch"),
        (["--partition=debug", "-N3"], 1, NOT_AVAILABLE,
         "cluster.slurm.partition: 3 nodes asked, partition debug has 2"),
        (["--partition=small", "-N2"], 0, TAKEN,
         "cluster.slurm.partition: 2 nodes asked, a job in partition small may have 1; choose another"),
        (["-p", "small", "--gpus-per-node=1"], 1, NOT_AVAILABLE,
         "cluster.slurm.gpus_by: no node of partition small has GPUs that Slurm knows"),
        (["-t", "120"], 0, TAKEN, "timeout: a time limit of 120 min is above the 60 min of partition batch: "
         "such a job waits for ever"),
        (["-C", "fast"], 1, "allocation failure: Invalid feature specification",
         "cluster.slurm.constraint: fast: no node has it; nodes have eth, opa ("),
        (["-A", "x"], 1, "sbatch: error: Batch job submission failed: Invalid account or account/partition "
         "combination specified", "cluster.slurm.account: x: Slurm doesn't let you use this account there"),
        (["--qos=x"], 1, "allocation failure: Invalid qos specification", "cluster.slurm.qos: x: "),
        (["--gres=gpu:3"], 1, NOT_AVAILABLE,
         "ranks_per_node: 3 GPUs asked of each node, those of partition batch have 2 × h200"),
        (["--gres=gpu:v100:1"], 1, NOT_AVAILABLE,
         "cluster.slurm.gpu_type: v100: no node of partition batch has such GPUs, they have 2 × h200"),
        (["-N2", "--gpus=6"], 1, NOT_AVAILABLE,
         "ranks_per_node: 3 GPUs asked of each node, those of partition batch have 2 × h200"),
        (["-p", "small", "--gpus=h200:1"], 1, NOT_AVAILABLE,
         "cluster.slurm.gpus_by: no node of partition small has GPUs that Slurm knows"),
        (["--gres=fpga:1"], 1, "sbatch: error: Invalid generic resource (gres) specification",
         "cluster.slurm.gpus_by: "),
        (["--ntasks-per-node=2", "-c3"], 1, NOT_AVAILABLE,
         "cluster.cpus_per_rank: 2 × 3 cores asked of each node, partition batch has 4 at most"),
        (["--mem=9G"], 1, NOT_AVAILABLE,
         "cluster.slurm.memory: 9216 MB asked of each node, partition batch has 4000 MB at most"),
        (["--reservation=r"], 1, "allocation failure: Requested reservation is invalid",
         "cluster.slurm.reservation: r: no such reservation"),
        (["--bogus=1"], 255, "sbatch: unrecognized option '--bogus=1'\nTry \"sbatch --help\" for more",
         "cluster.slurm.options: sbatch doesn't know the option"),
        (["-w", "n9"], 1, "allocation failure: Invalid node name specified", "cluster.nodelist: n9: "),
        (["-p", "debug", "-w", "n2"], 1, NOT_AVAILABLE, "cluster.nodelist: n2: not in partition debug"),
        (["-N2", "--exclude=n[0-2]"], 1, NOT_AVAILABLE,
         "cluster.exclude: 2 nodes asked, 1 of partition batch are left"),
        (["-p", "debug", "--contiguous"], 1, NOT_AVAILABLE, "cluster.slurm: partition debug can't give"),
        ([], 1, "sbatch: error: the site's own rule", "cluster.slurm: Slurm refuses the job ("),
    ],
)  # fmt: skip
def test_a_refusal_names_key_and_mend(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], status: int, words: str, said: str
) -> None:
    """One line per refusal: the key, what is wrong, what it is for, and Slurm's own words.

    What Slurm takes, though it may never start, is a warning.
    """
    sinfo = SINFO.replace("|", FIELD).replace("^", ROW)
    calls = answering(monkeypatch, sinfo=(0, sinfo, ""), sbatch=(status, "", words))
    requests = [Request(f"{workload} on 8 GPUs", arguments) for workload in ("train", "cfd")]
    trial = scheduler.try_out(requests)
    line, *rest = trial.refused if status else trial.warnings
    assert not [each for each in rest if "down or drained" not in each]
    assert line.startswith(said)
    assert "(train on 8 GPUs and 1 more" in line
    if status:
        assert not [each for each in trial.warnings if "down or drained" not in each]
        assert f"Slurm: {words.splitlines()[0].removeprefix('sbatch: ').removeprefix('error: ')}" in line
    else:
        assert trial.refused == []
    assert calls[1:] == [["sbatch", "--test-only", *arguments, "--wrap=true"]]


@pytest.mark.parametrize(
    ("arguments", "waits"),
    [
        (["-N4"], "n3"),
        (["-w", "n3"], "n3"),
        (["-N", "4", "--gres=gpu:h200:2", "-t", "60"], "n3"),
        (["-N3", "--exclude=n0", "-C", "opa"], "n3"),
        (["-N3"], ""),
        (["-N1", "-p", "debug"], ""),
        (["-N2", "--nodelist=n0,n2"], ""),
    ],
)
def test_nodes_that_are_down_refuse_nothing(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], waits: str
) -> None:
    """Slurm refuses in a test what it would let wait; what waits, and for which nodes, is told."""
    sinfo = SINFO.replace("|", FIELD).replace("^", ROW)
    answering(monkeypatch, sinfo=(0, sinfo, ""), sbatch=(1, "", NOT_AVAILABLE))
    if not waits:
        answering(monkeypatch, sinfo=(0, sinfo, ""), sbatch=(0, "", TAKEN))
    trial = scheduler.try_out([Request("train", arguments, 3), Request("cfd", ["-N1"])])
    assert trial.refused == []
    starts = [line.partition(", and others")[0] for line in trial.warnings]
    said = f"train: waits in Slurm's queue, as {waits} is down or drained: 3 of 4 cells"
    assert starts == ([said] if waits else [])


def test_what_is_taken_is_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request, no call; a request that fits gives nothing."""
    calls = answering(monkeypatch, sinfo=(0, SINFO, ""), sbatch=(0, "", TAKEN))
    assert scheduler.try_out([]) == ([], [])
    assert calls == []
    assert scheduler.try_out([Request("train", ["-t", "10"])]) == ([], [])


def test_a_silent_controller_is_one_warning_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the commands finds out; it is no refusal, and Snakemake may go on."""
    words = "Unable to contact slurm controller (connect failure)"
    requests = [Request("a", ["-N1"]), Request("b", ["-N2"])]
    silent: tuple[dict[str, Any], ...] = (
        {"sinfo": (1, "", f"slurm_load_partitions: {words}")},
        {"sinfo": (0, "", ""), "sbatch": (1, "", f"allocation failure: {words}")},
        {"sinfo": (0, "", ""), "sbatch": subprocess.TimeoutExpired("sbatch", 60)},
    )
    for answers in silent:
        answering(monkeypatch, **answers)
        refused, (line,) = scheduler.try_out(requests)
        assert refused == []
        assert line.endswith("whether it takes the jobs isn't known")


def test_without_sinfo_the_test_still_counts_and_without_sbatch_nothing_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A site may forbid the one; the other is needed."""
    answering(monkeypatch, sinfo=(1, "", "Access denied"), sbatch=(1, "", "allocation failure: Invalid qos"))
    assert scheduler.try_out([Request("a", ["--qos=x"])]).refused[0].startswith("cluster.slurm.qos: x")
    answering(monkeypatch, sinfo=(0, "", ""), sbatch=FileNotFoundError())
    assert "sbatch: not installed here" in scheduler.try_out([Request("a", [])]).refused[0]


def test_the_commands_see_no_format_of_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """SQUEUE_FORMAT and its like would change what is printed."""
    tool = tmp_path / "squeue"
    tool.write_text("#!/bin/sh\nenv >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_CLUSTERS", "one")
    _, _, words = scheduler.attempt([str(tool)])
    assert "SQUEUE_FORMAT" not in words
    assert "SLURM_CLUSTERS=one" in words
