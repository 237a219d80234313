"""Which of a job's nodes a cell takes."""

import pytest

from fabricbench.errors import LaunchError
from fabricbench.launch.nodes import choose, job_nodes, outside_of_steps, pick

SIX = [f"n{number}" for number in range(6)]


def test_the_nodes_are_slurms_or_the_variables():
    """Snakemake's jobstep strips the variable; then scontrol is believed."""
    assert job_nodes({}, "n[0-1]") == ["n0", "n1"]
    assert job_nodes({"SLURM_JOB_NODELIST": "m[3-4]"}, "n[0-1]") == ["m3", "m4"]
    assert job_nodes({"SLURM_JOB_NODELIST": "n[0-3]"}, "n[0-1]") == ["n0", "n1"]  # n2 and n3 died
    with pytest.raises(LaunchError, match="can't be found"):
        job_nodes({}, "(null)")


@pytest.mark.parametrize(
    ("count", "placement", "nodes"),
    [
        (2, "packed", "n0 n1"),
        (2, "spread", "n0 n3"),
        (3, "spread", "n0 n2 n4"),
        (4, "spread", "n0 n1 n3 n4"),
        (6, "spread", "n0 n1 n2 n3 n4 n5"),
        (1, "spread", "n0"),
    ],
)
def test_nodes_are_picked_by_placement(count, placement, nodes):
    """The first, or evenly spaced ones."""
    assert pick(SIX, count, placement) == nodes.split()


@pytest.mark.parametrize(
    ("count", "placement", "only", "exclude", "chosen"),
    [
        (2, "packed", "", "", "n0 n1"),
        (2, "spread", "", "", "n0 n3"),
        (2, "packed", "n[2-5]", "n3", "n2 n4"),
        (2, "packed", "n5,n1,n3", "", "n1 n5"),
        (2, "spread", "n5,n1,n3,n0", "", "n3 n5"),
        (2, "packed", "m0,n4,n2", "", "n2 n4"),
        (1, "spread", "", "n0", "n1"),
    ],
)
def test_a_cell_takes_nodes_in_the_order_of_the_config(count, placement, only, exclude, chosen):
    """As a job of its own would ask for them; ranks are numbered in the job's order all the same."""
    assert choose(SIX, count, placement, only, exclude, "allocation") == chosen.split()


def test_too_few_nodes_are_one_line():
    """It says how many there are, what left the others out, and what to do for this kind of cluster."""
    few = r"takes 3 nodes, .* has 2 for it \(n0,n1,n2, cluster.exclude: n1\); "
    with pytest.raises(LaunchError, match=few + "get a larger allocation"):
        choose(["n0", "n1", "n2"], 3, "packed", "", "n1", "allocation")
    with pytest.raises(LaunchError, match=few + "see cluster.nodelist"):
        choose(["n0", "n1", "n2"], 3, "packed", "", "n1", "slurm")
    with pytest.raises(LaunchError, match=r"cluster.nodelist: 'n\[0' is no list"):
        choose(["n0"], 1, "packed", "n[0", "", "slurm")


def test_variables_of_an_outer_step_are_no_options_of_the_next():
    """Which job it is stays; how many tasks, and how they were bound, does not."""
    outer = {"SLURM_JOB_ID": "5", "SLURM_NTASKS": "1", "SRUN_DEBUG": "3", "SBATCH_QOS": "x", "HOME": "/h"}
    assert outside_of_steps(outer) == {"SLURM_JOB_ID": "5", "HOME": "/h"}
