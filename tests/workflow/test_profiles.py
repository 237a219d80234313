"""The profiles, asked of the real Snakemake."""

import pytest
from campaigns import ROOT, TINY, Campaign

from fabricbench.config import load_config, parse_config
from fabricbench.grid import expand

pytestmark = pytest.mark.slow


def test_the_slurm_profile_plans_every_cell_without_a_slurm(tmp_path):
    """A dry run with profiles/slurm names each cell once, on a machine that has no Slurm."""
    output = Campaign(tmp_path / "campaign", TINY).snakemake("-n", profile="profiles/slurm")
    assert len([line for line in output.splitlines() if line.startswith("Job ") and "-r1-" in line]) == 4


@pytest.mark.parametrize("name", ["config/config.yaml", "config/examples/host.yaml"])
def test_shipped_configurations_have_nothing_unsupported(name):
    """What a newcomer runs first measures all that it names."""
    grid = expand(parse_config(load_config([ROOT / name])))
    assert grid.cells
    assert [row for row in grid.unsupported if "message needs two ranks" not in row.reason] == []
