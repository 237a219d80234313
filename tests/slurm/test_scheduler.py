"""What a real Slurm answers is understood: how jobs end, what it refuses, what a killed call left."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from campaigns import ROOT
from records import CODE_KEY, make_cell

from fabricbench.grid import Grid, GridCell, write_grid
from fabricbench.postmortem import comment_of
from fabricbench.record import failure_path, read_record
from fabricbench.testbed import Cluster
from fabricbench.testbed.conf import SMALL_PARTITION

pytestmark = pytest.mark.slow

CELLS = {
    name: GridCell(make_cell(repeat=repeat, launcher="slurm"), CODE_KEY, 300.0)
    for repeat, name in enumerate(("good", "bad", "slow", "dead", "cancelled", "never", "unknown"), start=1)
}
GRID = Grid({"name": "default", "cluster": {"kind": "slurm"}}, tuple(CELLS.values()), ())


class Login:
    """A working directory on the login node, jobs of cells, and this package there."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        """Write the grid where Snakemake has it."""
        self.cluster, self.folder = cluster, folder
        self.grid = folder / "results" / "default" / "grid.json"
        write_grid(GRID, self.grid)

    def said(self, *argv: str) -> str:
        """What a command that ends well prints."""
        done = self.cluster.run(
            argv,
            cwd=self.folder,
            env={"PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def submit(self, name: str, script: str, *options: str) -> str:
        """Submit a cell's job as Snakemake's executor does; returns its id."""
        comment = f"--comment={comment_of(CELLS[name].id)}"
        fixed = ["--parsable", f"--chdir={self.folder}", "--output=%j.log", comment]
        return self.said("sbatch", *fixed, *options, f"--wrap={script}").strip()

    def python(self, program: str) -> Any:
        """What a Python program prints, as JSON."""
        return json.loads(self.said(sys.executable, "-c", program))

    def states(self) -> dict[str, str]:
        """Id → state, as the package has them."""
        return dict(
            self.python(
                "import json; from fabricbench import scheduler\n"
                "print(json.dumps([(job.id, job.state) for job in scheduler.jobs()]))"
            )
        )

    def wait(self, true: Callable[[dict[str, str]], bool], within_s: float = 150) -> dict[str, str]:
        """Poll until the jobs' states are as wanted."""
        deadline = time.monotonic() + within_s
        while not true(states := self.states()):
            assert time.monotonic() < deadline, states
            time.sleep(1)
        return states

    def failure(self, name: str) -> Path:
        """Where a cell's failure belongs."""
        return failure_path(CELLS[name].path(self.folder / "results", "default"))


@pytest.fixture
def login(cluster: Cluster, tmp_path: Path) -> Login:
    """A fresh one."""
    return Login(cluster, tmp_path)


def test_cells_get_the_reasons_that_slurm_gives(login: Login, cluster: Cluster) -> None:
    """A power cut, scancel before and after the start, a script that fails: each named."""
    jobs = {
        "dead": login.submit("dead", "sleep 300", "-w", "n3", "-t", "5", "--no-requeue"),
        "cancelled": login.submit("cancelled", "sleep 300", "-w", "n1"),
        "bad": login.submit("bad", "exit 3"),
        "good": login.submit("good", "true"),
        "never": login.submit("never", "true", "--begin=now+1hour"),
    }
    login.wait(lambda states: states[jobs["dead"]] == states[jobs["cancelled"]] == "RUNNING")
    cluster.crash("n3")
    login.said("scancel", jobs["cancelled"], jobs["never"])
    going_on = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"}
    states = login.wait(lambda states: not going_on & {states[number] for number in jobs.values()})
    assert {name: states[number] for name, number in jobs.items()} == {
        "dead": "NODE_FAIL",
        "cancelled": "CANCELLED",
        "bad": "FAILED",
        "good": "COMPLETED",
        "never": "CANCELLED",
    }
    command = [sys.executable, "-m", "fabricbench", "post-mortem", "--grid", "results/default/grid.json"]
    assert len(login.said(*command).splitlines()) == 4
    reasons = {
        name: read_record(login.failure(name)).reason for name in CELLS if login.failure(name).exists()
    }
    assert reasons == {
        "dead": f"NODE_FAIL: Slurm job {jobs['dead']} lost a node of n3",
        "cancelled": f"CANCELLED: Slurm job {jobs['cancelled']} was cancelled",
        "bad": f"FAILED: Slurm job {jobs['bad']} ended with exit status 3 before the cell could say why; see "
        f"{login.folder}/{jobs['bad']}.log",
        "never": f"CANCELLED: Slurm job {jobs['never']} was cancelled, before it started",
    }
    bad = read_record(login.failure("bad"))
    assert (bad.status, bad.cell) == ("failed", CELLS["bad"].cell)
    assert bad.provenance["job"]["exit_code"] == "3:0"
    assert login.said(*command) == ""


REFUSED = """
import json
from fabricbench.scheduler import Request, try_out
print(json.dumps([try_out([Request("train", request)]) for request in json.loads('''{}''')]))
"""


def test_refusals_name_the_key(login: Login, cluster: Cluster) -> None:
    """What is asked too much of this cluster, or isn't there, by the key that mends it."""
    requests: dict[str, list[str]] = {
        "cluster.slurm.partition: nope: no such partition; there are": ["--partition=nope", "--nodes=1"],
        "cluster.slurm.partition: 5 nodes asked, partition": ["--nodes=5"],
        "cluster.slurm.constraint: fast: ": ["--constraint=fast"],
        "cluster.slurm.memory: 921600 MB asked of each node": ["--mem=900G"],
        "cluster.cpus_per_rank: 2 × 9 cores asked of each node": ["--ntasks-per-node=2", "--cpus-per-task=9"],
        "ranks_per_node: 3 GPUs asked of each node": ["--gres=gpu:3"],
        "ranks_per_node: 3 GPUs asked of each node, those": ["--nodes=2", "--gpus=6"],
        "cluster.slurm.gpu_type: z9: no node of": ["--gres=gpu:z9:1"],
        "cluster.slurm.reservation: r: ": ["--reservation=r"],
        "cluster.slurm.options: ": ["--bogus"],
        "cluster.nodelist: n77: ": ["--nodelist=n77"],
        "cluster.exclude: 2 nodes asked, 1 of": ["--nodes=2", "--exclude=n[0-2]"],
        "timeout: a time limit of 4320 min is above": ["--time=3-00:00:00"],
        "cluster.slurm.partition: 2 nodes asked, a job in": [f"--partition={SMALL_PARTITION}", "--nodes=2"],
    }
    answers = login.python(REFUSED.format(json.dumps(list(requests.values()))))
    for (said, request), (refused, warnings) in zip(requests.items(), answers, strict=True):
        assert [line.startswith(said) for line in refused] == [True], (request, refused, warnings)
        assert warnings == []
    fine = [
        ["--nodes=4", "--ntasks-per-node=2", "--gres=gpu:2", "--time=10"],
        ["--account=any", "--exclusive"],
    ]
    assert login.python(REFUSED.format(json.dumps(fine))) == [[[], []]] * 2
    login.said("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=test")
    (((), (waits,)),) = login.python(REFUSED.format(json.dumps([["--nodes=4"]])))
    assert waits.startswith("train: waits in Slurm's queue, as n2 is down or drained: 1 of 1 cells")
    login.said("scontrol", "update", "NodeName=n2", "State=RESUME")
    cluster.stop_controller()
    (((), (line,)),) = login.python(REFUSED.format(json.dumps([["--nodes=1"]])))
    assert "Slurm's controller doesn't answer" in line
    told = login.said(sys.executable, "-m", "fabricbench", "post-mortem", "--grid", str(login.grid))
    assert told.startswith("why jobs ended can't be asked: squeue: Slurm's controller doesn't answer")


ENDED = """
import json, pathlib
from fabricbench.grid import read_grid
from fabricbench.leftovers import end_leftovers
for line in end_leftovers(read_grid(pathlib.Path("results/default/grid.json")), pathlib.Path.cwd()):
    print(line, flush=True)
"""


SITE = """
import json
from fabricbench import scheduler
from fabricbench.slurm_words import parse_config, parse_partitions
config, there = parse_config(scheduler.configuration()), parse_partitions(scheduler.partitions())
modes = {name: fields["PreemptMode"] for name, fields in there.items()}
print(json.dumps([config["MinJobAge"], config["PreemptType"], modes]))
"""
ASK_ENDED = """
import json
from fabricbench.scheduler import has_ended
print(json.dumps([has_ended(number) for number in json.loads('''{}''')]))
"""


def test_leftovers_are_ended(login: Login) -> None:
    """A waiting job is cancelled, a running one waited for; one that no cell needs is told and left."""
    record = CELLS["good"].path(Path("results"), "default")
    good = login.submit("good", f"sleep 8; mkdir -p {record.parent}; touch {record}", "-N4", "--exclusive")
    login.wait(lambda states: states[good] == "RUNNING")
    never = login.submit("never", "touch started", "-N4", "--exclusive")
    held = login.submit("slow", "touch started", "--hold")
    other, apart = (
        login.said(
            *("sbatch", "--parsable", f"--chdir={folder}", "--hold", "--wrap=touch started"),
            "--comment=rule_cell_wildcards_old_cell-00000000",
        ).strip()
        for folder in (str(login.folder), "/")
    )
    began = time.monotonic()
    strange, cancelled, waiting, end = login.said(sys.executable, "-c", ENDED).splitlines()
    assert strange == (
        f"job {other}: old_cell-00000000: of this folder, but of no cell that is needed; `scancel {other}`"
    )
    assert cancelled == (
        f"cancelled 2 jobs ({never}: {CELLS['never'].id}, {held}: {CELLS['slow'].id}), left waiting in "
        "Slurm's queue by an earlier call"
    )
    assert waiting.startswith(f"waiting for job {good}: {CELLS['good'].id}, left running")
    assert end == f"job {good}: {CELLS['good'].id}: COMPLETED"
    states = login.states()
    assert {number: states[number] for number in (good, never, held, other, apart)} == {
        good: "COMPLETED",
        never: "CANCELLED",
        held: "CANCELLED",
        other: "PENDING",
        apart: "PENDING",
    }
    assert (login.folder / record).exists()
    assert not (login.folder / "started").exists()
    assert time.monotonic() - began < 60
    asked = json.dumps([good, never, other, "99999"])
    assert login.python(ASK_ENDED.format(asked)) == [True, True, False, True]
    age, preempt, modes = login.python(SITE)
    assert age.endswith(" sec")
    assert preempt == "preempt/none"
    assert set(modes.values()) == {"OFF"}
    login.said("scancel", other, apart)
