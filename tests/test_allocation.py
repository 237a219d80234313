"""The host on which a campaign in one allocation is called."""

import pytest

from fabricbench.allocation import warnings, why_no_meeting


def test_the_bootstrap_interface_must_be_here_too():
    """The ranks' launcher listens on it; the line names key, value, host and mend."""
    assert why_no_meeting(None, ["lo"], "login1") is None
    assert why_no_meeting("eth0", ["lo", "eth0"], "login1") is None
    line = why_no_meeting("ib0", ["lo", "eth0"], "login1")
    assert line.startswith("cluster.bootstrap: ib0: no such interface on login1, which has lo, eth0; call ")
    assert "sbatch" in line


@pytest.mark.parametrize(
    ("variables", "host", "warned"),
    [
        ({"SLURM_JOB_NODELIST": "n[0-1]"}, "login1", True),
        ({"SLURM_NODELIST": "n[0-1]"}, "n1.site.org", False),
        ({"SLURM_JOB_NODELIST": "n0.site.org"}, "n0", False),
        ({"SLURM_JOB_NODELIST": "n[0"}, "login1", False),
        ({}, "login1", False),
    ],
)
def test_a_login_node_is_warned_of(variables, host, warned):
    """salloc may leave the shell there, and nodes may not reach it."""
    lines = warnings(variables, host)
    assert len(lines) == warned
    assert all("sbatch" in line for line in lines)
