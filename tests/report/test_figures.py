"""Figures are inline SVG that reads on light and dark, is told without colour, and is the same each time."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from records import campaign_cells, make_grid, make_record, put

from fabricbench.analysis.scaling import curves
from fabricbench.analysis.stats import ok, over_repeats
from fabricbench.analysis.table import Tables, collect
from fabricbench.analysis.trained import parts_of_step
from fabricbench.report import figures

FABRICS = ["ethernet", "opa", "opa-again"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """A small campaign, all ok."""
    folder: Path = tmp_path_factory.mktemp("results")
    cells = list(campaign_cells(repeats=2))
    for cell in cells:
        put(make_record(cell), folder)
    return collect(make_grid(cells), folder)


def throughput(cells: pd.DataFrame, fabrics: list[str], title: str = "Throughput") -> str:
    """The throughput panel of some cells."""
    return figures.by_gpus(
        ok(cells), over_repeats(cells), column="value", fabrics=fabrics, label="images/s", title=title
    )


@pytest.fixture(scope="module")
def vgg(tables: Tables) -> pd.DataFrame:
    """Cells of one training workload."""
    return tables.cells[tables.cells["workload"] == "vgg16"]


@pytest.fixture(scope="module")
def bandwidth(tables: Tables) -> str:
    """A bandwidth panel with its line rates and shading."""
    table = curves(tables.cells, tables.samples)
    part = table[(table["metric"] == "stream_s") & (table["backend"] == "gloo")]
    return figures.by_size(
        part,
        quantity="bandwidth_bit_s",
        fabrics=FABRICS,
        label="bandwidth",
        title="Bandwidth",
        trustworthy_from=262144,
    )


def texts(svg: str) -> list[str]:
    """Every text element's content."""
    return [element.text or "" for element in ElementTree.fromstring(svg).iter() if "text" in element.tag]


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    """Contrast ratio as WCAG defines it."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("background", ["#ffffff", "#14171a"])
def test_every_series_colour_has_contrast(background: str) -> None:
    """Each colour reaches 3:1 on the page's light and dark paper."""
    assert all(contrast(colour, background) >= 3 for colour in figures.PALETTE)


def test_series_differ_without_colour() -> None:
    """Markers and dashes are as many as colours, and all different."""
    assert len(set(figures.MARKERS)) == len(set(figures.DASHES)) == len(figures.PALETTE)


def test_svg_is_of_the_pages_colour_and_names_itself(vgg: pd.DataFrame) -> None:
    """Well-formed, an image with a label, text as text, ink as currentColor, nothing fetched, no date."""
    svg = throughput(vgg, FABRICS, title='A "title" & more')
    root = ElementTree.fromstring(svg)
    assert (root.get("role"), root.get("aria-label")) == ("img", 'A "title" & more')
    assert {"images/s", *FABRICS} <= set(texts(svg))
    assert "currentColor" in svg
    assert figures.INK not in svg
    assert not re.search(r"<style|<metadata|<image|#000000|#ffffff|dc:date", svg)
    assert set(re.findall(r"https?://[^\"']+", svg)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_ids_are_unique_across_figures(vgg: pd.DataFrame, bandwidth: str) -> None:
    """Two figures on one page share no id, and each reference meets its own figure's."""
    svgs = [throughput(vgg, FABRICS, "One"), throughput(vgg, FABRICS, "Two"), bandwidth]
    found = [re.findall(r'\bid="([^"]+)"', svg) for svg in svgs]
    every = [name for names in found for name in names]
    assert len(every) == len(set(every))
    for svg, names in zip(svgs, found, strict=True):
        assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg)) <= {
            pair for name in names for pair in ((name, ""), ("", name))
        }


def test_same_data_same_bytes(vgg: pd.DataFrame) -> None:
    """Nothing random or dated enters a figure."""
    assert throughput(vgg, FABRICS) == throughput(vgg, FABRICS)


def test_bandwidth_shows_line_rates_and_what_not_to_trust(bandwidth: str) -> None:
    """Each distinct line rate is named once; sizes under the bound are marked in words."""
    found = texts(bandwidth)
    assert found.count("50 Mbit/s") >= 1
    assert found.count("line rate") == 2
    assert "shaping not trustworthy" in found
    assert "below 256 KiB" in found


def test_a_name_is_text_whatever_it_holds(vgg: pd.DataFrame) -> None:
    """Markup and dollar signs in a fabric's name are neither markup nor mathematics."""
    name = "<script>alert(1)</script> $x^2$"
    svg = throughput(vgg.assign(fabric=name), [name])
    assert name in texts(svg)
    assert "<script" not in svg


def test_one_fabric_on_one_gpu_count_is_drawn(vgg: pd.DataFrame) -> None:
    """A single point is a figure too."""
    one = vgg[(vgg["gpus"] == 4) & (vgg["fabric"] == "opa")]
    assert set(texts(throughput(one, FABRICS))) >= {"opa", "4"}


def test_parts_of_a_step_are_stacked_bars(vgg: pd.DataFrame) -> None:
    """A bar of two parts per fabric and GPU count, told apart by hatches; below zero none is drawn."""
    parts = parts_of_step(vgg)
    exposed = over_repeats(parts, "exposed_ms")
    svg = figures.step_parts(
        over_repeats(parts, "computing_ms"), exposed.assign(median=-1.0), fabrics=FABRICS, title="Parts"
    )
    assert {"ms per step", "1", "4", "16", *FABRICS} <= set(texts(svg))
    hatched = figures.step_parts(over_repeats(parts, "computing_ms"), exposed, fabrics=FABRICS, title="Parts")
    assert len(set(re.findall(r"url\(#[^)]+\)", hatched))) >= len(FABRICS) - 1
    one = vgg[(vgg["gpus"] == 4) & (vgg["fabric"] == "opa")]
    alone = over_repeats(parts_of_step(one), "computing_ms")
    assert "opa" in texts(figures.step_parts(alone, alone, fabrics=FABRICS, title="One"))
