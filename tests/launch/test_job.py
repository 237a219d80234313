"""What Slurm says of the job that a cell runs in, and of what runs beside it."""

import pytest

from fabricbench.errors import LaunchError
from fabricbench.launch import job

SHOWN = (
    "JobId=5 JobName=fb rule UserId=root(0) Account=(null) JobState=RUNNING Requeue=1 Restarts=2 "
    "TimeLimit=1-02:03:04 SubmitTime=2026-11-30T10:00:00 StartTime=2026-11-30T10:00:01 Partition=batch "
    "NodeList=n[0-1] BatchHost=n0 NumNodes=2 TRES=cpu=2,node=2 TresPerNode=gres:gpu:2\n"
)
CONFIG = "Configuration data as of 2026-11-30T10:00:00\nPriorityType     = x\nPrivateData      = {}\n"


@pytest.mark.parametrize(
    ("kind", "mend"), [("slurm", "--profile profiles/slurm, or"), ("allocation", "inside sbatch or salloc")]
)
def test_outside_a_job_there_is_one_line(kind, mend):
    """It names key and mend, as they are for this kind of cluster."""
    with pytest.raises(LaunchError, match=rf"cluster\.kind: {kind}: this isn't a Slurm job; run .*{mend}"):
        job.job_id({}, kind)
    assert job.job_id({"SLURM_JOBID": "7"}, kind) == "7"


def test_a_record_says_what_its_job_was():
    """Times in UTC and seconds; nothing where Slurm doesn't answer."""
    about = job.about(SHOWN, {"jobs": 2, "nodes": 4})
    assert about["others"] == {"jobs": 2, "nodes": 4}
    assert (about["nodes"], about["partition"], about["restarts"]) == ("n[0-1]", "batch", 2)
    assert about["time_limit_s"] == 26 * 3600 + 184
    assert about["submitted"].endswith("+00:00")
    assert job.about("", None) == {}
    assert job.about(SHOWN.replace("1-02:03:04", "UNLIMITED"), None)["time_limit_s"] is None


def test_others_are_jobs_of_other_users():
    """One's own are the campaign's cells, or one's own business."""
    running = "1000 2\n1001 1\n1002 3\n"
    assert job.others(running, CONFIG.format("none"), 1000) == {"jobs": 2, "nodes": 4}
    assert job.others("", CONFIG.format("accounts,usage"), 1000) == {"jobs": 0, "nodes": 0}


@pytest.mark.parametrize(
    ("running", "config"),
    [
        (None, CONFIG.format("none")),
        ("1000 2", CONFIG.format("accounts,jobs")),
        ("1000 2", CONFIG.format("all")),
        ("1000 2", ""),
    ],
)
def test_of_others_nothing_is_claimed_where_slurm_may_hide_them(running, config):
    """Private jobs of others aren't listed, which is no word that there are none."""
    assert job.others(running, config, 1000) is None


def test_steps_that_are_left_are_known_by_name_or_number(monkeypatch):
    """srun's step has the name that it was given; those that MPI's launchers start said their numbers."""
    listed = "7.0 fabricbench-1\n7.1 hydra_pmi_proxy\n7.2 mine alone\n7.batch batch\n"
    monkeypatch.setattr(job, "ask", lambda *_: listed)
    assert job.steps_left("7", "fabricbench-1", {"7.1", "7.9"}) == ["7.0", "7.1"]
    monkeypatch.setattr(job, "ask", lambda *_: None)  # no answer isn't an empty list
    assert job.steps_left("7", "fabricbench-1", {"7.1"}) is None
