"""How nodes are asked, and how their answers are found again."""

import json
import random
import stat
import sys
from pathlib import Path

import pytest
from nodes import a_fabric, an_interface, some_facts

from fabricbench.errors import LaunchError
from fabricbench.fabrics import visit
from fabricbench.fabrics.findings import Node, Wanted
from fabricbench.fabrics.visit import from_lines, in_child, rail_ends, throttle_reasons, to_lines, words_of


def test_answers_are_found_amid_other_output_in_any_order():
    """Lines of several nodes mixed, with a site's own words and srun's labels around them."""
    answers = {
        name: {"node": name, "facts": some_facts(name), "noise": list(range(999))} for name in ("n0", "n1")
    }
    lines = [f"0: {line}" for answer in answers.values() for line in to_lines(answer).splitlines()]
    assert max(map(len, lines)) < 1024
    lines += ["Welcome to the cluster", '{"fabricbench-node": 1}', "slurmstepd: error: x"]
    random.Random(1).shuffle(lines)
    assert from_lines("\n".join(lines)) == answers


def test_an_answer_with_a_gap_is_none():
    """A line that is missing, or was cut off, makes no wrong answer."""
    noise = random.Random(1)
    whole = to_lines({"node": "n0", "noise": [noise.random() for _ in range(199)]})
    lines = whole.splitlines(keepends=True)
    assert len(lines) > 2
    assert from_lines("".join(lines[:-1])) == {}
    assert from_lines(whole[: len(whole) // 2]) == {}
    assert from_lines(whole.replace(lines[1], lines[1][:40] + "\n")) == {}


def test_ends_of_rails_are_those_with_an_address():
    """One rail for each port, named apart; loopback is no way to another node."""
    nodes = {f"n{k}": Node(some_facts(f"n{k}", k + 1)) for k in (0, 1)}
    fabrics = (
        a_fabric(),
        a_fabric(name="loopback", interface=["lo"]),
        a_fabric(name="gone", interface=["x"]),
    )
    assert rail_ends(Wanted(cluster="slurm", fabrics=fabrics), nodes) == {
        "ethernet": [("n0", "eth0", "10.77.0.1", 1500), ("n1", "eth0", "10.77.0.2", 1500)]
    }


def test_each_rail_has_ends_of_its_own():
    """A second port reaches second ports, not first ones."""
    interfaces = {"eth0": an_interface("10.77.0.1/24"), "eth1": an_interface("10.78.0.1/24", mtu=9000)}
    fabric = a_fabric(interface=["eth0", "eth1"], ports_per_node=2)
    ends = rail_ends(
        Wanted(cluster="slurm", fabrics=(fabric,)), {"n0": Node(some_facts(interfaces=interfaces))}
    )
    assert ends == {
        "ethernet": [("n0", "eth0", "10.77.0.1", 1500)],
        "ethernet rail 1": [("n0", "eth1", "10.78.0.1", 9000)],
    }


def test_throttled_gpus_are_told_by_their_address():
    """As nvidia-smi prints them; a GPU that isn't throttled is left out, and so is what isn't supported."""
    table = "00000000:3B:00.0, Active, Not Active, Not Active, Not Active, Active\n"
    table += "00000000:5E:00.0, Not Active, Not Active, [N/A], Not Active, Not Active\n"
    assert throttle_reasons(table) == {"0000:3b:00.0": ["sw power cap", "sw thermal slowdown"]}


def test_a_child_that_fails_says_why(capfd):
    """Its own errors pass on their line, others their kind."""

    def refuses():
        raise LaunchError("no: do this")

    def breaks():
        raise KeyError("x")

    for work, words in ((refuses, "^no: do this$"), (breaks, "KeyError: 'x'")):
        with pytest.raises(LaunchError, match=words):
            in_child(work)
    assert in_child(lambda: {"a": [1]}) == {"a": [1]}


def test_a_tool_that_lists_is_read_after_its_prefix(tmp_path, monkeypatch):
    """fi_info's providers, each once; None without the tool."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visit._listed("fi_info", "provider:") is None
    tool = tmp_path / "fi_info"
    tool.write_text(
        f"#!{sys.executable}\nprint('provider: tcp\\n    fabric: x\\nprovider: cxi\\nprovider: tcp')\n"
    )
    tool.chmod(tool.stat().st_mode | stat.S_IEXEC)
    assert visit._listed("fi_info", "provider:") == ["tcp", "cxi"]


def test_outside_a_list_of_nodes_there_is_one_line(monkeypatch):
    """A job without SLURM_JOB_NODELIST, or with half of one."""
    for text in ("", "n[1-"):
        monkeypatch.setenv("SLURM_JOB_NODELIST", text)
        with pytest.raises(LaunchError, match="SLURM_JOB_NODELIST"):
            visit.allocated_nodes()


def an_srun(folder, monkeypatch, program):
    """An srun on PATH that runs a program instead."""
    srun = folder / "srun"
    srun.write_text(f"#!{sys.executable}\n{program}")
    srun.chmod(srun.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(Path(visit.__file__).parents[2]))


def test_a_large_clusters_ends_are_told_by_standard_input(tmp_path, monkeypatch):
    """512 nodes of 8 rails are longer than an argument may be (128 KiB); srun hands them to every node."""
    ends = {
        f"ib rail {rail}": [
            (f"node{n:04}", f"ib{rail}", f"10.{rail}.{n // 256}.{n % 256}", 4092) for n in range(512)
        ]
        for rail in range(8)
    }
    program = """
import json, sys
from fabricbench.fabrics.visit import to_lines
arguments = sys.argv[1:]
told = json.load(sys.stdin)
answer = {"node": "node0000", "ends": sum(map(len, told.values())), "longest": max(map(len, arguments))}
answer["input"] = [word for word in arguments if word.startswith("--input")]
print(to_lines(answer))
"""
    an_srun(tmp_path, monkeypatch, program)
    text = json.dumps(ends)
    assert len(text) > 128 << 10
    answers, words = visit._srun(["node0000"], ["--reach"], text)
    assert answers["node0000"]["ends"] == 4096
    assert answers["node0000"]["input"] == ["--input=all"]
    assert answers["node0000"]["longest"] < 4096
    assert words == {}


def test_an_srun_that_cannot_start_is_one_line(tmp_path, monkeypatch):
    """Its interpreter is missing, say."""
    an_srun(tmp_path, monkeypatch, "")
    (tmp_path / "srun").write_text("#!/nowhere/python\n")
    with pytest.raises(LaunchError, match="srun can't be started: No such file"):
        visit._srun(["n0"], ["--software"])


def test_every_node_has_its_own_last_word():
    """By its task's number, else by its name in srun's lines; the rest belongs to no node."""
    text = """
srun: warning: something general
 0: Traceback
 0: ImportError: no psutil
srun: error: n[0-2]: tasks 0-2: Exited with exit code 1
slurmstepd: error: n3 is gone
srun: error: n1x: not one of them
99: no such task
"""
    words = words_of(text, ["n0", "n1", "n2", "n3", "n4"])
    exited = "srun: error: n[0-2]: tasks 0-2: Exited with exit code 1"
    assert words == {
        "n0": "ImportError: no psutil",
        "n1": exited,
        "n2": exited,
        "n3": "slurmstepd: error: n3 is gone",
        "": "99: no such task",
    }
    assert words_of("", ["n0"]) == {}
