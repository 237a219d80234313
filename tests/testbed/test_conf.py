"""A testbed's configuration as text."""

from pathlib import Path

import pytest

from fabricbench.errors import LaunchError
from fabricbench.fabrics.emulation import Link
from fabricbench.testbed import conf
from fabricbench.testbed.enter import environment
from fabricbench.testbed.spec import Spec, outermost

FOLDER = Path("/srv/cluster")


def lines(spec: Spec) -> list[str]:
    """slurm.conf's."""
    return conf.slurm_conf(spec, FOLDER).splitlines()


def test_nodes_have_what_was_asked_for():
    """Nodes, their addresses, CPUs, memory, GPUs and features stand in one line of slurm.conf."""
    spec = Spec(nodes=3, cpus_per_node=8, memory_mb=1000, gpus_per_node=1, gpu_type="h100")
    assert (
        "NodeName=n[0-2] NodeAddr=10.76.0.[1-3] CPUs=8 RealMemory=1000 Gres=gpu:h100:1 Feature=eth,opa "
        "State=UNKNOWN"
    ) in lines(spec)


def test_a_node_without_gpus_and_fabrics_claims_none():
    """No Gres, no GresTypes, no Feature and an empty gres.conf."""
    spec = Spec(gpus_per_node=0, links=())
    text = conf.slurm_conf(spec, FOLDER)
    assert not [word for word in ("Gres", "Feature") if word in text]
    assert conf.gres_conf(spec, FOLDER) == ""


def test_each_gpu_is_a_file_of_the_cluster():
    """gres.conf names one file per GPU, in the cluster's folder."""
    assert conf.gres_conf(Spec(nodes=2, gpus_per_node=4), FOLDER) == (
        "NodeName=n[0-1] Name=gpu Type=v100 Flags=nvidia_gpu_env File=/srv/cluster/dev/gpu[0-3]\n"
    )


def test_all_that_slurm_writes_is_in_the_folder_or_private():
    """No path of slurm.conf leads to a place that the machine's own Slurm could use."""
    for line in lines(Spec()):
        for path in [
            part for part in line.replace("=", " ").replace(",", " ").split() if part.startswith("/")
        ]:
            assert path.startswith((str(FOLDER), "/run/")), line


def test_memory_is_limited_only_when_asked_for():
    """The task plugin and cgroup.conf follow `memory_limits`."""
    assert "TaskPlugin=task/none" in lines(Spec())
    assert "ConstrainRAMSpace=no" in conf.cgroup_conf(Spec())
    assert "TaskPlugin=task/cgroup" in lines(Spec(memory_limits=True))
    assert "ConstrainRAMSpace=yes" in conf.cgroup_conf(Spec(memory_limits=True))


def test_further_lines_come_last():
    """`slurm_options` can add to and override what is there."""
    assert lines(Spec(slurm_options=("TopologyPlugin=topology/tree",)))[-1] == "TopologyPlugin=topology/tree"


def test_every_name_is_a_management_address():
    """The login node and the nodes resolve to the management network, never to loopback."""
    assert conf.hosts(Spec(nodes=2)).splitlines() == [
        "127.0.0.1 localhost",
        "10.76.0.254 hub",
        "10.76.0.1 n0",
        "10.76.0.2 n1",
    ]


def test_ended_jobs_are_read_with_their_spaces():
    """One dictionary per line; a name may hold spaces, a field may be empty, other lines are ignored."""
    text = "JobId=1 Name=a b JobState=NODE_FAIL NodeList=n[0-1] WorkDir=/x Account= ExitCode=0:0 \n\n"
    (job,) = conf.ended_jobs(text)
    assert job["Name"] == "a b"
    assert job["JobState"] == "NODE_FAIL"
    assert (job["Account"], job["ExitCode"]) == ("", "0:0")


def test_a_spec_survives_being_text():
    """`from_json` returns what `to_json` was given."""
    spec = Spec(links=(Link("ib0", None, delay_s=1e-6),), shared=(Path("/tmp/a"),), slurm_options=("A=b",))
    assert Spec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"nodes": 0}, "nodes"),
        ({"cpus_per_node": 0}, "CPUs"),
        ({"links": (Link("mgt0"),)}, "mgt0"),
        ({"links": (Link("a"), Link("a"))}, "names of their own"),
    ],
)
def test_what_cannot_be_made_is_refused(changes, word):
    """One line that names what is wrong."""
    with pytest.raises(LaunchError, match=word):
        Spec(**changes)


def test_folders_inside_others_are_shared_with_them(tmp_path):
    """Only the outermost of nested folders is bound."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert outermost(iter([tmp_path / "a" / "b", tmp_path / "a"])) == (tmp_path / "a",)


def test_no_variable_of_another_slurm_enters():
    """A caller inside a job of its own leaves that behind; the rest and what was added arrive."""
    inherited = {
        "SLURM_JOB_ID": "1",
        "SLURM_CONF": "x",
        "SBATCH_X": "1",
        "PMI_RANK": "0",
        "LANG": "C",
        "PATH": "/a",
    }
    found = environment(inherited, {"B": "1"})
    assert found.pop("PATH").startswith("/a:")
    assert found == {"LANG": "C", "B": "1", "HOME": "/root"}
