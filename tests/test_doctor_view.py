"""`fabricbench doctor` as a user meets it."""

import io
import json
import stat
import sys
from pathlib import Path

import pytest
import yaml
from campaigns import TINY
from nodes import a_fabric, some_facts

from fabricbench import doctor_view
from fabricbench.cli import main
from fabricbench.doctor_view import as_json, as_table, exit_status
from fabricbench.fabrics import visit
from fabricbench.fabrics.findings import Finding, Node, Use, Wanted

NODES = {f"n{k}": Node(some_facts(f"n{k}")) for k in range(6)}
FINDINGS = [
    Finding(
        "interface ethernet-of-the-long-name", ("n1",), "problem", "eth0 doesn't exist on n1 " * 6, "do this"
    ),
    Finding("clock", tuple(NODES)[:5], "warning", "hpet", "do that"),
    Finding("torch", tuple(NODES), "ok", "has nccl"),
]
SOFTWARE = {
    "mpi": {"version": "MPICH Version: 5"},
    "torch": {"version": "2", "gloo": True, "nccl": True},
    "providers": None,
    "transports": None,
    "throttled": {},
}

SRUN = """#!{python}
# As srun in an allocation of two nodes: the command runs once in each of two namespaces, amid other output.
import os, sys, tempfile
from fabricbench.fabrics import emulation
arguments = sys.argv[1:]
assert "--nodes=2" in arguments and "--ntasks-per-node=1" in arguments, arguments
command = arguments[next(i for i, word in enumerate(arguments) if not word.startswith("--")):]
emulation.become_private()
if init := emulation.fork_init():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(init, 0)[1]))
emulation.mount_own_proc()
nodes, _ = emulation.build(2, [emulation.Link("eth0")])
told = sys.stdin.buffer.read() if "--input=all" in arguments else b""
for node in nodes[:{answering}]:
    print("Welcome to", node.name, flush=True)
    if os.fork() == 0:
        own = tempfile.TemporaryFile()
        own.write(told)
        own.seek(0)
        os.dup2(own.fileno(), 0)
        node.enter()
        os.environ["SLURMD_NODENAME"] = node.name
        os.execv(command[0], command)
for node in nodes[:{answering}]:
    os.wait()
print("srun: error: n1: task 1: Exited", file=sys.stderr)
"""


@pytest.fixture
def quick(monkeypatch):
    """Without the seconds that libraries take to load."""
    monkeypatch.setattr(visit, "software", lambda: SOFTWARE)


@pytest.fixture
def want(monkeypatch):
    """Let a config want something, whatever its file says."""

    def wants(**fields):
        fabric = a_fabric(rate_bit_s=None, kind=fields.pop("kind", "ethernet-tcp"))
        use = Use("ethernet", {"name": "gloo", "engine": "gloo"}, {}, "cpu")
        made = Wanted(fabrics=(fabric,), uses=(use,), nodes=2, **fields)
        monkeypatch.setattr(doctor_view, "_wanted", lambda config: made)

    return wants


@pytest.fixture
def allocation(monkeypatch, tmp_path):
    """An allocation of n0 and n1, with an srun of which so many nodes answer."""

    def has(answering: int) -> None:
        srun = tmp_path / "srun"
        srun.write_text(SRUN.format(python=sys.executable, answering=answering))
        srun.chmod(srun.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        monkeypatch.setenv("PYTHONPATH", str(Path(doctor_view.__file__).parents[1]))
        monkeypatch.setenv("SLURM_JOB_ID", "1")
        monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-1]")

    return has


def test_the_table_fits_100_columns_and_ends_in_a_summary():
    """Problems first, each with its mend below; what is long is wrapped."""
    lines = as_table(FINDINGS, NODES).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[1].startswith("problem  interface")
    assert [line.partition("→")[2] for line in lines if "→" in line] == [" do this", " do that"]
    assert any("n0, n1, n2, n3 and" in line for line in lines)
    assert any("all 6" in line for line in lines)
    assert lines[-1] == "1 problem, 1 warning, 0 notes; 1 checks are fine; asked: 6 nodes"


def test_only_a_problem_is_an_exit_status_of_1():
    """Warnings and notes are fine for scripts."""
    assert exit_status(FINDINGS) == 1
    assert exit_status(FINDINGS[1:]) == 0


def test_json_has_the_same_with_all_facts():
    """Findings in the same order, counts, and each node's facts."""
    plain = json.loads(as_json(FINDINGS, NODES))
    assert [finding["level"] for finding in plain["findings"]] == ["problem", "warning", "ok"]
    assert plain["counts"] == {"problem": 1, "warning": 1, "note": 0, "ok": 1}
    assert (plain["schema"], plain["status"]) == (1, 1)
    assert plain["nodes"]["n0"]["facts"]["interfaces"]["eth0"]["mtu"] == 1500


def test_without_a_config_it_looks_at_this_machine(quick, monkeypatch, capsys):
    """No fabric is checked; emulation that is refused is a note, since nobody asked for it."""
    monkeypatch.setattr(doctor_view, "why_unavailable", lambda: "this kernel refuses: sudo sysctl x=1")
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "note     emulation" in said
    assert "interface" not in said
    assert said.splitlines()[-1].endswith("asked: 1 node")


def test_a_mistake_in_the_config_is_one_line_and_status_2(tmp_path, capsys):
    """Bad input is told apart from problems."""
    assert main(["doctor", "--config", str(tmp_path / "nowhere.yaml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.emulated
def test_an_emulated_cluster_is_made_and_asked(namespaces, quick, tmp_path, capsys):
    """Every node is asked from within, and reaches the others over each fabric."""
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(TINY))
    assert main(["doctor", "--config", str(path), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert list(plain["nodes"]) == ["n0", "n1"]
    reached = [f for f in plain["findings"] if f["check"].startswith("reach ")]
    assert reached
    assert all(finding["level"] == "ok" for finding in reached)


def test_where_emulation_is_refused_an_emulated_config_has_a_problem(quick, want, monkeypatch, capsys):
    """And the rest is checked on this machine all the same."""
    want(cluster="emulated", kind="emulated")
    monkeypatch.setattr(doctor_view, "why_unavailable", lambda: "this kernel refuses: sudo sysctl x=1")
    assert main(["doctor", "--config", "any.yaml"]) == 1
    said = capsys.readouterr().out
    assert "problem  emulation" in said
    assert "sudo sysctl x=1" in said


def test_on_a_login_node_it_says_what_needs_an_allocation(quick, want, monkeypatch, capsys):
    """The software is checked; the networks are a note with the command."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    want(cluster="slurm")
    assert main(["doctor", "--config", "any.yaml"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "reach of ethernet can't be checked" in said
    assert "host name" not in said
    assert "salloc --nodes=2 fabricbench doctor --config any.yaml" in said
    assert "ok torch" in said


@pytest.mark.slow
@pytest.mark.emulated
def test_in_an_allocation_every_node_is_asked_by_srun(namespaces, allocation, want, capsys):
    """Facts first, then each tries the others over the fabric."""
    allocation(2)
    want(cluster="allocation")
    assert main(["doctor", "--config", "any.yaml", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert list(plain["nodes"]) == ["n0", "n1"]
    assert [plain["nodes"][name]["facts"]["host"] for name in ("n0", "n1")] == ["n0", "n1"]
    assert plain["nodes"]["n0"]["software"]["torch"]["gloo"]
    levels = {finding["check"]: finding["level"] for finding in plain["findings"]}
    assert (levels["interface ethernet"], levels["reach ethernet"]) == ("ok", "ok")


@pytest.mark.slow
@pytest.mark.emulated
def test_a_node_that_doesnt_answer_is_a_problem(namespaces, allocation, want, capsys):
    """Named, with srun's last word."""
    allocation(1)
    want(cluster="slurm")
    assert main(["doctor", "--config", "any.yaml"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "problem node answers n1 n1 didn't answer: srun: error: n1: task 1: Exited" in said


def test_doctor_node_prints_one_line(quick, capsys, monkeypatch):
    """Its facts as JSON; with --reach, what it reached of what standard input says; no JSON is a mistake."""
    assert main(["doctor-node"]) == 0
    answer = json.loads(capsys.readouterr().out)
    ends = {"loopback": [[answer["node"], "lo", "127.0.0.1", 65536], ["other", "lo", "127.0.0.2", 65536]]}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(ends)))
    assert main(["doctor-node", "--reach"]) == 0
    assert json.loads(capsys.readouterr().out)["reach"]["loopback"]["other"]["reached"]
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["doctor-node", "--reach"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_doctor_node_is_not_for_users(capsys):
    """It isn't in the list of commands."""
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert "doctor " in said
    assert "doctor-node" not in said
