"""The job: its nodes, which of them a cell takes, and what the record says of it."""

import pytest

from fabricbench.errors import LaunchError
from fabricbench.launch import job

SHOWN = (
    "JobId=5 JobName=fb rule UserId=root(0) Account=(null) JobState=RUNNING Requeue=1 Restarts=2 "
    "TimeLimit=1-02:03:04 SubmitTime=2026-11-30T10:00:00 StartTime=2026-11-30T10:00:01 Partition=batch "
    "NodeList=n[0-1] BatchHost=n0 NumNodes=2 TRES=cpu=2,node=2 TresPerNode=gres:gpu:2\n"
)


def test_the_nodes_are_slurms_or_the_variables():
    """Snakemake's jobstep strips the variable; then scontrol is believed."""
    shown = job.fields(SHOWN)
    assert job.job_nodes({}, shown) == ["n0", "n1"]
    assert job.job_nodes({"SLURM_JOB_NODELIST": "m[3-4]"}, shown) == ["m3", "m4"]
    assert job.job_nodes({"SLURM_JOB_NODELIST": "n[0-3]"}, shown) == ["n0", "n1"]  # n2 and n3 died
    with pytest.raises(LaunchError, match="can't be found"):
        job.job_nodes({}, {"NodeList": "(null)"})


@pytest.mark.parametrize(
    ("count", "placement", "only", "exclude", "chosen"),
    [
        (2, "packed", "", "", "n0 n1"),
        (2, "spread", "", "", "n0 n3"),
        (3, "spread", "", "", "n0 n2 n4"),
        (6, "spread", "", "", "n0 n1 n2 n3 n4 n5"),
        (2, "packed", "n[2-5]", "n3", "n2 n4"),
        (1, "spread", "", "n0", "n1"),
    ],
)
def test_a_cell_takes_the_first_nodes_or_evenly_spaced_ones(count, placement, only, exclude, chosen):
    """Always the same for one size, among those allowed."""
    nodes = [f"n{number}" for number in range(6)]
    assert job.choose(nodes, count, placement, only, exclude) == chosen.split()


def test_too_few_nodes_are_one_line():
    """It says how many there are, and what left the others out."""
    with pytest.raises(
        LaunchError, match=r"takes 3 nodes, .* has 2 for it \(n0,n1,n2, cluster.exclude: n1\)"
    ):
        job.choose(["n0", "n1", "n2"], 3, "packed", "", "n1")
    with pytest.raises(LaunchError, match=r"cluster.nodelist: 'n\[0' is no list"):
        job.choose(["n0"], 1, "packed", "n[0", "")


def test_outside_a_job_there_is_one_line():
    """It names key and mend."""
    with pytest.raises(LaunchError, match=r"cluster\.kind: slurm: this isn't a Slurm job; run"):
        job.job_id({})
    assert job.job_id({"SLURM_JOBID": "7"}) == "7"


def test_a_record_says_what_ran_beside():
    """Other running jobs and their nodes; times in UTC and seconds."""
    about = job.about(job.fields(SHOWN), "5", "5 2\n6 1\n9 3\n")
    assert about["others"] == {"jobs": 2, "nodes": 4}
    assert (about["nodes"], about["partition"], about["restarts"]) == ("n[0-1]", "batch", 2)
    assert about["time_limit_s"] == 26 * 3600 + 184
    assert about["submitted"].endswith("+00:00")
    assert job.about({}, "5", None) == {}


def test_cells_of_the_same_call_are_no_others():
    """They share the job's name; a job of another name, or a name shared by chance, is counted."""
    shown = job.fields(SHOWN) | {"JobName": "fb-1"}
    running = "5 2 fb-1\n6 1 fb-1\n7 4 fb-2\n"
    assert job.about(shown, "5", running)["others"] == {"jobs": 2, "nodes": 5}
    cell = shown | {"Comment": "rule_cell_wildcards_micro_a-b-2-r1-01234567"}
    assert job.about(cell, "5", running)["others"] == {"jobs": 1, "nodes": 4}


def test_times_without_a_limit_are_none():
    """UNLIMITED is no number of seconds."""
    assert job.seconds("UNLIMITED") is None


def test_variables_of_an_outer_step_are_no_options_of_the_next():
    """Which job it is stays; how many tasks, and how they were bound, does not."""
    outer = {"SLURM_JOB_ID": "5", "SLURM_NTASKS": "1", "SRUN_DEBUG": "3", "SBATCH_QOS": "x", "HOME": "/h"}
    assert job.outside_of_steps(outer) == {"SLURM_JOB_ID": "5", "HOME": "/h"}


def test_steps_that_are_left_are_known_by_name_or_number(monkeypatch):
    """srun's step has the name that it was given; those that MPI's launchers start said their numbers."""
    listed = "7.0 fabricbench-1\n7.1 hydra_pmi_proxy\n7.2 mine alone\n7.batch batch\n"
    monkeypatch.setattr(job, "ask", lambda *_: listed)
    assert job.steps_left("7", "fabricbench-1", {"7.1", "7.9"}) == ["7.0", "7.1"]
    monkeypatch.setattr(job, "ask", lambda *_: None)
    assert job.steps_left("7", "fabricbench-1", {"7.1"}) == []
