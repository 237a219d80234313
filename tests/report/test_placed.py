"""Placement on the page."""

from types import SimpleNamespace

import pandas as pd
from tables import cells_of, with_ids

from fabricbench.analysis.conclusions import conclude
from fabricbench.analysis.scaling import efficiency
from fabricbench.analysis.table import Tables
from fabricbench.report.compared import comparison_sections
from fabricbench.report.heatmap import heatmap
from fabricbench.report.placed import placed
from fabricbench.report.verdicts import where

CAMPAIGN = {"compare": [{"by": "fabric", "baseline": "eth"}, {"by": "placement", "baseline": "packed"}]}
NO_SAMPLES = pd.DataFrame(
    {name: pd.Series(dtype="float64") for name in ("n", "value", "bytes", "rank")}
    | {name: pd.Series(dtype="string") for name in ("cell", "metric", "unit")}
)


def tables(*placements: str) -> Tables:
    """Three repeats on two fabrics at each placement."""
    each = [
        cells_of({"eth": [100, 101, 99], "opa": [150, 152, 149]}).assign(placement=name)
        for name in placements
    ]
    cells = with_ids(pd.concat(each, ignore_index=True))
    cells = cells.assign(family=cells["workload"], no_verdict="")
    conclusions = conclude(cells, NO_SAMPLES, CAMPAIGN, {})
    return Tables(cells, NO_SAMPLES, pd.DataFrame(), conclusions, {})


def test_what_is_spread_has_rows_of_its_own():
    """In the heatmap, and by its own name in every sentence; the comparison of placements names both."""
    shown = placed(tables("packed", "spread"))
    (group,) = heatmap(shown.cells, ["eth", "opa"], "eth", shown.conclusions, 0.05)
    assert [row.backend for row in group.rows] == ["gloo", "gloo, spread"]
    assert all(square.value for row in group.rows for square in row.squares)
    said = comparison_sections(shown.conclusions, CAMPAIGN)
    lines = {section.title: [line.what for line in section.lines] for section in said.sections}
    assert [what.split(",")[0] for what in lines["By fabric, against eth"]] == ["w0 over gloo"] * 2
    assert any("gloo, spread" in what for what in lines["By fabric, against eth"])
    assert all(what.endswith(": spread") for what in lines["By placement, against packed"])
    assert not any("gloo, spread" in what for what in lines["By placement, against packed"])


def test_where_nothing_is_spread_nothing_changes():
    """Backends keep their names."""
    packed = tables("packed")
    assert placed(packed) is packed


def test_one_gpu_is_the_reference_of_what_is_spread_too():
    """It has no placement."""
    cells = cells_of({"opa": [100]}, gpus=1).assign(placement="packed")
    spread = cells_of({"opa": [160]}, gpus=2).assign(placement="spread")
    both = SimpleNamespace(cells=with_ids(pd.concat([cells, spread], ignore_index=True)))
    named = both.cells.assign(backend=["gloo", "gloo, spread"]).astype({"backend": "string"})
    assert efficiency(named)["efficiency"].tolist() == [1.0, 0.8]


def test_a_row_without_placement_reads_as_before():
    """Words of a comparison don't name what isn't there."""
    row = {"workload": "vgg16", "fabric": "opa", "backend": "gloo", "by": "backend", "gpus": 4}
    assert where(row) == "vgg16 on opa, 4 GPUs"
