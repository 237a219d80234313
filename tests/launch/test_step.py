"""Cells in a Slurm job, with a Slurm that is made up: one node, whose srun starts ranks on this machine."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cells import MICRO, a_backend, a_fabric
from processes import descendants, wait_until
from sites import on_nodes, record_path, run_cell

import fabricbench
from fabricbench.cell import Cell
from fabricbench.code_key import code_key
from fabricbench.errors import LaunchError
from fabricbench.fabrics.selection import environment as selected
from fabricbench.launch import job, step, task
from fabricbench.launch.base import cell_environment
from fabricbench.launch.leaving import ERROR, leave_error
from fabricbench.record import Record, failure_path, read_record
from fabricbench.runner import run_cell as run_in_process
from fabricbench.runner import shared_folder
from fabricbench.workloads.seat import RESULT

SRUN = """
import json, os, signal, subprocess, sys
words = sys.argv[1:]
options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
first = next(number for number, word in enumerate(words) if not word.startswith("--"))
program, size = words[first:], int(options["ntasks"]) - int(os.environ.get("FAKE_FEWER", "0"))
with open(os.environ["FAKE_LOG"], "w") as file:
    names = [name for name in os.environ if name.startswith(("SLURM_", "NCCL_"))]
    json.dump({"options": options, "slurm": names}, file)
own = {"SLURM_NTASKS": options["ntasks"], "SLURM_NODEID": "0", "SLURM_STEP_ID": "0", "UCX_TLS": "rc"}
ranks = {}
for rank in range(size):
    identity = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
    ranks[subprocess.Popen(program, env=os.environ | own | identity).pid] = rank
def end(*_):
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
    print("slurmstepd: error: *** STEP 7.0 ON n0 CANCELLED AT 2026-11-30T10:00:00 ***", file=sys.stderr)
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
while ranks:
    pid, status = os.wait()
    rank, code = ranks.pop(pid), os.waitstatus_to_exitcode(status)
    if code:
        how = signal.strsignal(-code) if code < 0 else f"Exited with exit code {code}"
        print(f"srun: error: n0: task {rank}: {how}", file=sys.stderr)
        print("srun: launch/slurm: _step_signal: Terminating StepId=7.0", file=sys.stderr)
        end()
"""
SCONTROL = """
import sys
job = "JobId=7 JobState=RUNNING Partition=batch NodeList={host} Restarts=0 TimeLimit=00:10:00"
print("PrivateData = none" if "config" in sys.argv else job)
"""
APPTAINER = """
import os, sys
words = sys.argv[1:]
with open(os.environ["FAKE_LOG"] + ".apptainer", "w") as file:
    file.write(" ".join(words))
name, value = words[words.index("--env") + 1].split("=")
os.environ[name] = value
at = words.index("python")
os.execv(sys.executable, [sys.executable, *words[at + 1:]])
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Any]]:
    """Be in job 7 of a made-up Slurm; gives what its srun was told."""
    folder = tmp_path / "bin"
    folder.mkdir()
    host = os.uname().nodename
    programs = {
        "srun": SRUN,
        "apptainer": APPTAINER,
        "scontrol": SCONTROL.format(host=host),
        "squeue": "import sys; print('' if '--steps' in sys.argv else '999999 1')",
        "scancel": "",
    }
    for name, program in programs.items():
        (folder / name).write_text(f"#!{sys.executable} -S\n{program}")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", str(Path(fabricbench.__file__).parents[1]))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "told"))
    for name, value in {"JOB_ID": "7", "NTASKS": "1", "PROCID": "0", "STEP_ID": "3", "NODELIST": "x"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    return lambda: json.loads((tmp_path / "told").read_text())


def on_loopback(engine: str = "gloo", **changes: Any) -> Cell:
    """Two ranks on one node."""
    fabric = a_fabric("ethernet-tcp", interface=["lo"], provider="tcp", rate_bit_s=None, link_bit_s=None)
    backend = a_backend(engine)
    own = {"fabric": fabric, "backend": backend, "environment": selected(fabric, backend, "cpu")}
    return dataclasses.replace(on_nodes("micro", engine, ranks=2, nodes=1), **(own | changes))


def run(cell: Cell, folder: Path, *options: str) -> Record:
    """Run a cell as Snakemake's job does; what it left, and nothing else."""
    subprocess.run(run_cell(cell, folder, *options), check=False)
    path = record_path(cell, folder)
    assert not (folder / ".work").exists()
    return read_record(path if path.exists() else failure_path(path))


@pytest.mark.slow
@pytest.mark.parametrize("container", [None, "torch.sif"])
def test_ranks_of_a_step_meet_and_measure(slurm, tmp_path, container):
    """From the roll call to the record; without what was inherited, and what the node adds."""
    cell = on_loopback(site={"placement": "packed"} | ({"container": container} if container else {}))
    record = run(cell, tmp_path)
    assert record.status == "ok", record.reason
    assert slurm()["options"]["mpi"] == "none"
    assert sorted(slurm()["slurm"]) == ["SLURM_JOB_ID"]
    assert record.provenance["unset"] == ["NCCL_SOCKET_IFNAME"]
    assert [entry["unset"] for entry in record.provenance["ranks"]] == [["UCX_TLS"]]
    assert record.provenance["job"]["id"] == "7"
    assert record.provenance["job"]["others"] == {"jobs": 1, "nodes": 1}
    phases = record.phases_s
    assert 0 < phases["roll_call"] < phases["to_ranks_up"] < phases["to_first_step"] < phases["total"]
    image = tmp_path / "told.apptainer"
    assert image.exists() == bool(container)
    assert not container or container in image.read_text()


@pytest.mark.slow
def test_a_rank_that_raises_leaves_its_words(slurm, tmp_path):
    """The first that failed, with its traceback; not how srun ended the other."""
    cell = on_loopback(backend=a_backend("gloo"), params=MICRO | {"operations": ["no such"]})
    record = run(cell, tmp_path)
    assert record.status == "failed"
    assert record.reason.startswith("rank ")
    assert "Traceback" in record.provenance["traceback"]
    assert record.provenance["of_ranks"]


@pytest.mark.slow
def test_ranks_that_never_came_are_the_reason_of_a_time_out(slurm, tmp_path, monkeypatch):
    """Named by node; nothing of the cell is left."""
    monkeypatch.setenv("FAKE_FEWER", "1")
    record = run(on_loopback(), tmp_path, "--timeout", "12")
    assert record.status == "timeout"
    assert f"1 of 2 ranks never came to the roll call, on {os.uname().nodename}" in record.reason


@pytest.mark.slow
def test_a_killed_rank_and_a_runner_told_to_end(slurm, tmp_path):
    """The first is the cause; the second says so before anything else, and all its ranks end."""
    cell = on_loopback(params=MICRO | {"iterations": 10**7})
    for number in (signal.SIGKILL, signal.SIGTERM):
        with subprocess.Popen(run_cell(cell, tmp_path)) as runner:
            wait_until(lambda: list(tmp_path.glob(".work/*/met")))
            family = {name: pid for pid, name in descendants(runner.pid).items()}
            rank = family["fb-rank-1"]
            os.kill(rank if number == signal.SIGKILL else runner.pid, number)
            assert runner.wait(30) == 1
        wait_until(lambda family=family: not any(os.path.exists(f"/proc/{pid}") for pid in family.values()))
        reason = read_record(failure_path(record_path(cell, tmp_path))).reason
        if number == signal.SIGKILL:
            assert reason == "rank 1 on n0 was killed by SIGKILL"
        else:
            assert "the cell was told to end by SIGTERM" in reason


def test_outside_a_job_a_cell_fails_with_one_line(tmp_path, monkeypatch):
    """It names the key."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    cell = on_loopback()
    path = record_path(cell, tmp_path)
    options = {"timeout_s": 5, "accept_failures": True, "neighbours": [], "bootstrap": "eth9"}
    assert run_in_process(cell, code_key("micro", "allocation"), path, **options) == 1
    assert read_record(failure_path(path)).reason.startswith(
        "cluster.kind: allocation: this isn't a Slurm job"
    )


def test_a_step_is_ended_also_where_slurm_does_not_list_it(monkeypatch):
    """A controller that doesn't answer is asked again, and the steps that ranks named are tried meanwhile."""
    told, listed = [], iter([None, ["7.0"], []])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(job, "steps_left", lambda *_: next(listed))
    monkeypatch.setattr(job, "ask", lambda *command: told.append(command[2:]))
    with subprocess.Popen(["true"]) as process:
        process.wait()
        step.end(process, "7", "fabricbench-x", {"7.1"})
    assert told == [("7.1",), ("7.0",)]
    assert next(listed, "none left") == "none left"


@pytest.mark.parametrize("finished", [True, False])
def test_who_ends_first_after_the_result_is_not_lost(tmp_path, finished):
    """A rank may be slow to end once all is measured; before that, one that is gone for long is lost."""
    if finished:
        (tmp_path / RESULT).touch()
    rollcall = SimpleNamespace(
        selector=SimpleNamespace(register=lambda *_: None),
        serve=lambda seconds: None,
        long_lost=lambda seconds: "rank 1 on n0 is gone",
        refused="",
    )
    before = signal.getsignal(signal.SIGCHLD)
    try:
        with subprocess.Popen(["sleep", "0.2"]) as process:
            assert step.watch(process, rollcall, tmp_path) == (0 if finished else 1)
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)
    assert rollcall.refused == ("" if finished else "rank 1 on n0 is gone")


@pytest.mark.parametrize("links", [True, False])
def test_the_first_failure_stays_also_without_hard_links(tmp_path, monkeypatch, links):
    """Some shared file systems have none; who knows the cause still overrides."""
    if not links:

        def refuse(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    for who in ("rank 0", "rank 1"):
        leave_error(tmp_path, who, LaunchError(f"{who} broke"))
    assert json.loads((tmp_path / ERROR).read_text())["message"] == "rank 0 broke"
    leave_error(tmp_path, "launcher", LaunchError("why"), is_cause=True)
    assert json.loads((tmp_path / ERROR).read_text())["message"] == "why"


def test_leftovers_of_the_same_record_go_and_others_stay(tmp_path, monkeypatch):
    """Those of this job or of one that has ended; another cell's, or a running job's, may be in use."""
    monkeypatch.setattr("fabricbench.runner.has_ended", lambda number: number == "5")
    names = ["x-1-7-aaaa", "x-1-5-bbbb", "x-1-6-cccc", "x-2-7-dddd"]
    for name in names:
        (tmp_path / ".work" / name).mkdir(parents=True)
    with shared_folder(tmp_path / "micro" / "x-1.json", "7") as work:
        left = {path.name for path in (tmp_path / ".work").iterdir()} - {work.name}
        assert left == {"x-1-6-cccc", "x-2-7-dddd"}
        assert work.stat().st_mode & 0o077 == 0
    assert not work.exists()


OPEN_MPI = {"library": "openmpi5", "transport": "tcp"}


@pytest.mark.parametrize(
    ("options", "set_by_node", "stays"),
    [
        ({}, {"PMI_RANK": "1", "PMIX_RANK": "1", "SLURM_PROCID": "1"}, True),
        (OPEN_MPI, {"OMPI_MCA_orte_precondition_transports": "a-b"}, True),
        (OPEN_MPI | {"launch": "mpirun"}, {"OMPI_MCA_ess_base_vpid": "1", "PRTE_MCA_x": "1"}, True),
        (OPEN_MPI | {"launch": "mpirun"}, {"OMPI_MCA_btl_openib_x": "1", "OMPI_MCA_pml_base": "1"}, False),
        (OPEN_MPI, {"OMPI_MCA_ess_base_vpid": "1", "OMPI_MCA_coll": "x"}, False),
        (
            {},
            {"NCCL_NET": "IB", "UCX_TLS": "rc", "GLOO_X": "1", "OMP_PLACES": "cores", "HFI_UNIT": "0"},
            False,
        ),
    ],
)
def test_what_a_node_adds_is_taken_back_but_for_the_launchers_own(options, set_by_node, stays):
    """Choices of a network go, and the record can say which; a launcher's words to its library stay."""
    cell = on_loopback("mpi", backend=a_backend("mpi", **options))
    environment = {"HOME": "/h"} | set_by_node
    unset = task.set_environment(cell, environment)
    assert unset == ([] if stays else sorted(set_by_node))
    assert all((name in environment) == stays for name in set_by_node)
    assert environment["HOME"] == "/h"


def test_the_cells_variables_are_set_for_every_rank():
    """Whatever a prolog made of them, and that it did is told."""
    cell = on_loopback("mpi", unset=["MY_SETTING"])
    exported, _ = cell_environment(cell, {"HOME": "/h"})
    environment = exported | {"FI_TCP_IFACE": "ib0", "MY_SETTING": "1"}
    assert task.set_environment(cell, environment) == ["FI_TCP_IFACE", "MY_SETTING"]
    assert environment == exported


def test_a_rank_knows_who_it_is_by_its_own_launcher():
    """Under mpirun srun's numbers are those of daemons."""
    both = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "PMI_RANK": "3", "PMI_SIZE": "4"}
    assert task.identity(both, "pmi2") == (1, 2)
    assert task.identity(both, "mpirun") == (3, 4)
    with pytest.raises(LaunchError, match="doesn't say which rank it is"):
        task.identity({"PMI_RANK": "3"}, "none")


def test_a_folder_that_a_node_does_not_see_is_one_line(tmp_path, capsys):
    """Printed, since there is nowhere else to leave it."""
    assert task.main(tmp_path / "gone") == 1
    assert "must lie on a file system that all nodes share" in capsys.readouterr().err
