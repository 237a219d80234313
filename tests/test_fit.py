"""Values are chosen until the cells give the published rates; the cells are made up here."""

from collections.abc import Callable
from typing import Any

import pytest
from campaigns import ROOT
from published import campaign_of, record_of

from fabricbench.analysis.overlap import overlapped_s
from fabricbench.analysis.published import step_of
from fabricbench.cli import main
from fabricbench.errors import FabricbenchError
from fabricbench.fit import CLOSE, Values, fit, with_values, yaml_lines
from fabricbench.grid import GridCell
from fabricbench.record import Record

TRUE = {"tcp": 0.96, "rdma": 1.02}
"""What the made-up machine reaches of each link."""
EXTRA_S = 0.004


def machine(tried: list[GridCell]) -> Callable[[GridCell], Record]:
    """Measures cells on a machine that is slower than the overlap model by TRUE and EXTRA_S."""

    def measure(cell: GridCell) -> Record:
        tried.append(cell)
        own = cell.cell
        step = step_of(record_of(cell, 1.0).facts, own.scale["bytes"], own.scale["time"], own.gpus)
        assert step is not None
        link = own.fabric["effective_bit_s"] * TRUE[own.fabric["name"]]
        seconds = overlapped_s(step, link, own.params["fixed_cost"] + EXTRA_S)
        return record_of(cell, own.gpus * own.params["batch"] / seconds)

    return measure


def test_the_fitted_cells_give_the_published_rates() -> None:
    """Within CLOSE, in at most three rounds, on this machine's own terms."""
    tried: list[GridCell] = []
    said: list[str] = []
    values = fit(campaign_of(), said.append, machine(tried))
    assert len(tried) == len(said) <= 9
    for cell in tried:
        assert cell.cell.repeat == 1
    published = {
        (rate.model, rate.fabric): rate.images_per_s for rate in campaign_of().published.rates if rate.fits
    }
    last = [line for line in said if line.startswith(said[-1][:8])]
    assert len(last) == len(published)
    assert 0 < values.fixed_cost_s < 0.02
    assert values.effective_bit_s["tcp"] < values.effective_bit_s["rdma"] < 25e9
    again: list[str] = []
    fit(with_values(campaign_of(), values), again.append, machine([]))
    assert len(again) == 3
    assert all(abs(float(line.split()[5])) <= 100 * CLOSE + 0.05 for line in again)


def test_links_follow_the_effective_rate() -> None:
    """Other values are other cells: link, and the fixed cost of each workload."""
    campaign = with_values(campaign_of(), Values({"tcp": 10_000_000_000}, 0.02))
    scale = campaign.cluster.scale.bytes * campaign.cluster.scale.time
    assert campaign.fabrics["tcp"].link_bit_s == round(1e10 / scale)
    assert campaign.fabrics["rdma"] == campaign_of().fabrics["rdma"]
    assert {workload.params["fixed_cost"] for workload in campaign.workloads.values()} == {0.02}


def test_what_to_write_is_printed() -> None:
    """As the config has it, with three and two digits."""
    text = yaml_lines(Values({"tcp": 13_812_345_678}, 0.00812))
    assert "tcp: {…, effective: 13.8 Gbit/s}" in text
    assert "fixed_cost: 8.1 ms" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"published": None},
        {"published": {"reference": "horovod-2017", "engine": "nccl", "fabrics": {"tcp": "tcp"}}},
    ],
)
def test_nothing_to_fit_is_said(changes: dict[str, Any]) -> None:
    """One line that names the key."""
    with pytest.raises(FabricbenchError, match=r"published\.fitted: names no rate"):
        fit(campaign_of(**changes), print, machine([]))


def test_a_cell_that_is_left_out_is_named() -> None:
    """A rate can't be fitted without its cell."""
    campaign = campaign_of(**{"except": [{"workload": "vgg16", "fabric": "tcp"}]})
    with pytest.raises(FabricbenchError, match="vgg16 over tcp"):
        fit(campaign, print, machine([]))


def test_the_command_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The default campaign repeats nothing: exit status 2, no traceback."""
    assert main(["fit", "--config", str(ROOT / "config" / "config.yaml")]) == 2
    assert capsys.readouterr().err == (
        "fabricbench: config: published.fitted: names no rate, so there is nothing to fit\n"
    )
