"""Faults of a real Slurm under a campaign: what they strike is said, and nothing else is lost or doubled.

Three calls of Snakemake, struck by several faults each, and one that has nothing left to measure; the tests
look at what they left.
"""

import contextlib
import copy
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from campaigns import ROOT
from processes import descendants
from slurm_campaigns import SlurmCampaign

from fabricbench.nodelist import expand_nodelist
from fabricbench.record import read_record
from fabricbench.testbed import Cluster, Spec, why_unavailable
from fabricbench.testbed.mounts import CGROUPS

pytestmark = pytest.mark.slow

# 5 s over 100 Mbit/s: long enough to be stopped by SIGSTOP at once, and finite when it goes on.
LONG = {"kind": "micro", "sizes": [65536], "operations": ["pingpong"], "iterations": 500, "warmup": 0}
QUICK = LONG | {"iterations": 2}
GREEDY = LONG | {"sizes": [1 << 31], "iterations": 1}
LONGS = [f"long{number}" for number in range(1, 8)]
CONFIG: dict[str, Any] = {
    "campaign": "tiny",
    "cluster": {"kind": "slurm", "nodes": 10, "gpus_per_node": 1, "concurrent_cells": 8},
    "fabrics": {"slow": {"kind": "ethernet-tcp", "interface": "eth0", "rate": "100 Mbit/s"}},
    "backends": {"mpi": {"engine": "mpi"}},
    "gpus": [2],
    "repeats": 1,
    "workloads": dict.fromkeys(LONGS, LONG),
}
_COMMENT = re.compile(r"rule_cell_wildcards_([a-z0-9]+)_")


def named(cell: str) -> str:
    """A workload's only cell of two ranks, as `SlurmCampaign` names it."""
    return f"{cell}/slow-mpi-2-r1"


class Struck:
    """A campaign on a cluster of its own, and what was done to it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        """Make its folder."""
        self.cluster, self.limited = cluster, cluster.spec.memory_limits
        self.campaign = SlurmCampaign(cluster, folder, self.config())
        self.by_fault: dict[str, str] = {}
        """Fault → the workload that it struck."""
        self.requeued = ""
        self.nodes: dict[str, list[str]] = {}
        """Fault → the nodes of the job that it struck."""
        self.cell_of: dict[str, str] = {}
        """Job → workload, of all jobs ever seen."""
        self.output: list[str] = []
        self.reasons: list[dict[str, str]] = []
        self.records: list[set[str]] = []
        self.pages: list[str] = []
        self.jobs: list[list[dict[str, str]]] = []
        """What each call of Snakemake printed and left: failures, records, the partial page, all jobs."""
        self._began = time.monotonic()

    def config(self, *, requeue: bool = False, greedy: bool = False, wide: bool = False) -> dict[str, Any]:
        """What a user changes between the calls."""
        config = copy.deepcopy(CONFIG)
        config["cluster"]["slurm"] = {"requeue": requeue}
        if self.limited:
            config["cluster"]["slurm"]["memory"] = "1500 MB"
            if greedy:
                config["workloads"]["greedy"] = GREEDY
        if wide:
            config["workloads"]["wide"] = QUICK | {"gpus": [10]}
        return config

    def say(self, text: str) -> None:
        """What is done, and when, to be seen where a test fails."""
        print(f"{time.monotonic() - self._began:6.1f} s: {text}", flush=True)

    @contextlib.contextmanager
    def call(self, *, ok: bool | None) -> Iterator["subprocess.Popen[str]"]:
        """Snakemake, called before and ended after; `ok`: how, None: killed."""
        log = self.campaign.folder / f"call-{len(self.output)}.log"
        with log.open("w") as file:
            process = subprocess.Popen(self.campaign.command(), stdout=file, stderr=file, text=True)
        self._process = process
        try:
            yield process
            status = process.wait(150)
        except BaseException:
            process.kill()
            print(log.read_text())
            raise
        self.say(f"Snakemake ended with {status}")
        assert ok is None or (status == 0) is ok, log.read_text()
        self.output.append(log.read_text())
        self.reasons.append(self.campaign.failures())
        self.records.append(self.campaign.records())
        partial = self.campaign.page.with_name("partial.html")
        self.pages.append(partial.read_text() if partial.exists() else "")
        self.queue()
        self.jobs.append(self.campaign.jobs_seen())

    def told(self) -> str:
        """What the call has printed so far."""
        return (self.campaign.folder / f"call-{len(self.output)}.log").read_text()

    def queue(self) -> dict[str, tuple[str, str, list[str]]]:
        """Workload → (id, state, nodes) of its last job that Slurm knows; {} while it doesn't answer."""
        argv = ["squeue", "--noheader", "--states=all", "--sort=i", "--format=%k|%i|%T|%N"]
        done = self.cluster.run(argv, cwd=Path("/"), capture_output=True, text=True)
        found = {}
        for line in done.stdout.splitlines():
            comment, number, state, nodes = line.split("|")
            if match := _COMMENT.match(comment):
                found[match[1]] = number, state, expand_nodelist(nodes)
                self.cell_of[number] = match[1]
        return found

    def pending(self) -> list[str]:
        """Workloads whose job waits."""
        return sorted(cell for cell, job in self.queue().items() if job[1] == "PENDING")

    def runs(self, call: int) -> Counter[tuple[str, str]]:
        """(Workload, state) → how many runs of jobs Slurm had seen so at the end of a call."""
        return Counter((self.cell_of[job["JobId"]], job["JobState"]) for job in self.jobs[call])

    def ranks(self) -> dict[str, list[int]]:
        """Job → its ranks' processes."""
        assert self.cluster._keeper
        found: dict[str, list[int]] = {}
        for pid, name in descendants(self.cluster._keeper.pid).items():
            if name.startswith("fb-rank-"):
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_text()
                    if match := re.search(r"\.work/\S+?-(\d+)-\w+\0", words):
                        found.setdefault(match[1], []).append(pid)
        return found

    def stop_met(self) -> set[str]:
        """Stop all ranks that have met, so that their cells run until struck; returns their workloads."""
        self.queue()
        met = {path.parent.name.split("-")[-2] for path in self.campaign.results.glob(".work/*/met")}
        stopped = {}
        for number, pids in self.ranks().items():
            if number in met:
                self._signal(pids, signal.SIGSTOP)
                stopped[self.cell_of[number]] = pids
        return set(stopped)

    def go_on(self, *cells: str) -> None:
        """Let stopped ranks go on; those of all cells where none is named."""
        for number, pids in self.ranks().items():
            if not cells or self.cell_of[number] in cells:
                self._signal(pids, signal.SIGCONT)

    def _signal(self, pids: list[int], number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def strike(self, fault: str, cell: str) -> str:
        """Note whom a fault strikes; returns the job's number."""
        number, state, nodes = self.queue()[cell]
        self.by_fault[fault], self.nodes[fault] = cell, nodes
        self.say(f"{fault}: {cell}, job {number}, {state} on {nodes}")
        return number

    def said(self, *argv: str) -> str:
        """What one of Slurm's commands prints."""
        return str(self.cluster.run(argv, check=True, cwd=Path("/"), capture_output=True, text=True).stdout)

    def wait(self, true: Callable[[], Any], within_s: float = 180) -> Any:
        """Poll until it holds; an AssertionError with the queue when it takes too long."""
        until = time.monotonic() + within_s
        while not (answer := true()):
            assert time.monotonic() < until, self.queue()
            assert self._process.poll() is None, "Snakemake ended too early"
            time.sleep(0.2)
        return answer


@pytest.fixture(scope="module")
def struck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Struck]:
    """Calls of Snakemake, the first of which meets ten nodes whose local disks are full."""
    if reason := why_unavailable():
        pytest.skip(reason)
    limits = CGROUPS.is_dir()
    folder = tmp_path_factory.mktemp("faults")
    spec = Spec(nodes=10, shared=(folder, ROOT), tmp_bytes=1 << 20, memory_limits=limits)
    with Cluster.up(spec) as cluster:
        struck = Struck(cluster, folder / "campaign")
        for node in spec.node_names:
            cluster.run(["dd", "if=/dev/zero", "of=/tmp/full", "bs=64k"], node, capture_output=True)
        with struck.call(ok=False):
            first_call(struck)
        struck.campaign.write(struck.config(requeue=True))
        with struck.call(ok=None) as process:
            second_call(struck, process)
        third_call(struck)
        struck.campaign.write(struck.config(wide=True))
        with struck.call(ok=True):
            pass
        yield struck


def first_call(struck: Struck) -> None:
    """Of five that run two lose a node, one is cancelled, one late, one's nodes drained; two others wait."""
    cluster = struck.cluster
    running = sorted(struck.wait(lambda: met if len(met := struck.stop_met()) == 5 else None))
    struck.say(f"{running} have met")
    struck.wait(lambda: len(struck.queue().keys() & set(LONGS)) == 7)
    waiting = sorted(set(LONGS) - set(running))
    struck.said("scancel", struck.strike("cancelled while waiting", waiting[0]))
    number = struck.strike("time limit", running[0])
    struck.said("scontrol", "update", f"JobId={number}", "TimeLimit=1")
    struck.strike("batch host lost", running[1])
    struck.strike("other node lost", running[2])
    struck.strike("drained", running[3])
    cluster.stop_controller()  # while cells run, and Snakemake asks for them
    struck.wait(lambda: "Slurm doesn't answer" in struck.told())
    cluster.start_controller()
    struck.say("slurmctld stopped and started")
    cluster.crash(struck.nodes["batch host lost"][0])
    cluster.crash(struck.nodes["other node lost"][1])
    for node in struck.nodes["drained"]:
        struck.said("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    struck.said("scancel", struck.strike("cancelled", running[4]))
    struck.strike("none", waiting[1])
    struck.go_on(struck.by_fault["drained"])


def second_call(struck: Struck, process: "subprocess.Popen[str]") -> None:
    """With two nodes down and two drained: one cell is requeued, slurmctld and then Snakemake are killed."""
    running = sorted(struck.wait(lambda: met if len(met := struck.stop_met()) == 3 else None))
    waiting = struck.wait(lambda: struck.pending() if len(struck.pending()) == 2 else None)
    hold = ["scontrol", "hold", struck.queue()[waiting[1]][0]]  # so that it waits until the end
    struck.said(*hold)
    struck.requeued = struck.strike("requeued", running[0])
    struck.said("scontrol", "requeue", struck.requeued)
    struck.strike("left running", running[1])
    struck.strike("left waiting", waiting[1])
    time.sleep(6)  # slurmctld saves its state every few seconds; a kill loses what came since
    struck.cluster.stop_controller(signal.SIGKILL)
    struck.cluster.start_controller()
    struck.wait(lambda: struck.queue())
    struck.said(*hold)
    struck.say("slurmctld killed and started")
    struck.go_on(running[2])
    struck.wait(lambda: named(struck.by_fault["requeued"]) in struck.campaign.records())
    struck.wait(lambda: struck.queue().get(running[0], ("", "", []))[1] == "COMPLETED")
    process.kill()
    struck.say("Snakemake killed")


def third_call(struck: Struck) -> None:
    """All nodes are up again; a cell that takes them all is added."""
    for node in {struck.nodes["batch host lost"][0], struck.nodes["other node lost"][1]}:
        struck.cluster.boot(node)
    for node in struck.nodes["drained"]:
        struck.said("scontrol", "update", f"NodeName={node}", "State=RESUME")
    struck.campaign.write(struck.config(greedy=True, wide=True))
    struck.campaign.snakemake("--unlock")
    with struck.call(ok=not struck.limited):
        struck.wait(lambda: "left running by an earlier call" in struck.told())
        struck.go_on()


WORDS = {
    "time limit": "TIMEOUT",
    "batch host lost": "NODE_FAIL",
    "other node lost": "NODE_FAIL",
    "cancelled": "CANCELLED",
    "cancelled while waiting": "CANCELLED",
}


@pytest.mark.parametrize("fault", WORDS)
def test_the_scheduler_gives_the_reason(struck: Struck, fault: str) -> None:
    """In its own word, in the failure record and on the partial page; no other cell of the call failed."""
    cell, word = named(struck.by_fault[fault]), WORDS[fault]
    assert struck.reasons[0][cell].startswith(f"{word}: Slurm job ")
    assert re.search(rf"{struck.by_fault[fault]}\b.*?{word}: Slurm job ", struck.pages[0], re.DOTALL)
    failed = {named(struck.by_fault[each]) for each in WORDS}
    assert struck.reasons[0].keys() == failed


def test_a_cell_without_memory_says_so(struck: Struck) -> None:
    """Slurm ends the step, and the ranks' launcher hears why."""
    if not struck.limited:
        pytest.skip("no memory controller of cgroup version 1 here")
    assert struck.reasons[2][named("greedy")].startswith("OUT_OF_MEMORY: ")
    assert "OUT_OF_MEMORY: " in struck.pages[2]


def test_no_cell_is_lost_or_doubled(struck: Struck) -> None:
    """By the jobs that Slurm saw: in the first call one of each cell, later one more of those that failed."""
    states = {struck.by_fault[fault]: word for fault, word in WORDS.items()}
    states |= dict.fromkeys(set(LONGS) - states.keys(), "COMPLETED")
    first = Counter(states.items())
    assert struck.runs(0) == first
    later = struck.runs(2) - struck.runs(0)
    ran = Counter({pair[0]: n for pair, n in later.items() if pair[1] == "COMPLETED"})
    assert ran == Counter([*(struck.by_fault[fault] for fault in WORDS), "wide"])


def test_a_silent_controller_costs_no_cell(struck: Struck) -> None:
    """slurmctld stopped for longer than the executor asks by itself, while its jobs ran on."""
    assert "Slurm doesn't answer; it is asked again until it does" in struck.output[0]
    assert "Slurm answers again" in struck.output[0]


def test_a_drained_node_finishes_its_cell_and_gets_no_other(struck: Struck) -> None:
    """The others run elsewhere, also on nodes that were in a job with one that died."""
    assert named(struck.by_fault["drained"]) in struck.records[0]
    before = {job["JobId"] for job in struck.jobs[0]}
    used = {
        node
        for job in struck.jobs[1]
        if job["JobId"] not in before
        for node in expand_nodelist(job["NodeList"].replace("(null)", ""))
    }
    dead = {struck.nodes["batch host lost"][0], struck.nodes["other node lost"][1]}
    assert used == set(struck.cluster.spec.node_names) - dead - set(struck.nodes["drained"])


def test_a_requeued_job_measures_its_cell(struck: Struck) -> None:
    """Slurm starts it again under its number, and the record says so."""
    (path,) = (struck.campaign.results / struck.by_fault["requeued"]).glob("*-????????.json")
    record = read_record(path)
    assert record.status == "ok"
    assert record.provenance["job"]["restarts"] == 1
    assert record.provenance["job"]["id"] == struck.requeued


def test_what_a_killed_snakemake_left_running_is_taken(struck: Struck) -> None:
    """The next call waits for it, cancels what waited, and measures that itself."""
    running, waiting = struck.by_fault["left running"], struck.by_fault["left waiting"]
    assert re.search(rf"waiting for .*{running}/", struck.output[2])
    assert re.search(rf"cancelled .*{waiting}/", struck.output[2])
    assert struck.runs(2)[waiting, "CANCELLED"] - struck.runs(1)[waiting, "CANCELLED"] == 1
    assert struck.runs(2)[running, "COMPLETED"] == struck.runs(2)[waiting, "COMPLETED"] == 1


def test_all_nodes_are_used_again(struck: Struck) -> None:
    """Once up, also those that failed take part in a cell of all nodes, and the page is complete."""
    (job,) = (job for job in struck.jobs[2] if struck.cell_of[job["JobId"]] == "wide")
    assert sorted(expand_nodelist(job["NodeList"])) == struck.cluster.spec.node_names
    assert struck.reasons[2].keys() <= {named("greedy")}
    assert struck.runs(3) == struck.runs(2)
    assert struck.campaign.page.exists()
    assert not struck.pages[3]
