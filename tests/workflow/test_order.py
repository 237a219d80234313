"""The order that the grid draws is the order in which the real Snakemake runs."""

import json

import pytest
from campaigns import TINY, Campaign

from fabricbench.record import read_record

pytestmark = [pytest.mark.slow, pytest.mark.emulated, pytest.mark.usefixtures("namespaces")]


def test_cells_run_in_the_order_of_the_grid(tmp_path):
    """Blocks one after another, groups and fabrics as drawn, whatever their names."""
    campaign = Campaign(tmp_path / "campaign", {**TINY, "repeats": 3})
    campaign.snakemake()
    grid = json.loads((campaign.results / "grid.json").read_text())
    starts = [read_record(campaign.results / f"{cell['id']}.json").start for cell in grid["cells"]]
    assert len(starts) == 12
    assert starts == sorted(starts)
