"""The page holds what the tables hold, as text, in one file, and hides nothing that went wrong."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from records import make_cell, make_failure, make_grid, make_record, put, write_campaign

from fabricbench.analysis.table import collect, read_tables, write_tables
from fabricbench.record import Record
from fabricbench.report.render import render

TEMPLATES = Path(__file__).parents[2] / "reports" / "templates"
EVIL = "<script>alert('x')</script> & \"quoted\" {{ 7*7 }}"


class Page(HTMLParser):
    """Collects elements and visible text."""

    def __init__(self, html: str) -> None:
        """Parse a page."""
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._within: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember each element."""
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Leave script or style."""
        if tag in ("script", "style"):
            self._within.pop()

    def handle_data(self, data: str) -> None:
        """Text outside script and style."""
        if not self._within:
            self.text += data

    def count(self, tag: str) -> int:
        """How many elements of a tag."""
        return sum(name == tag for name, _ in self.elements)


def page_of(folder: Path, grid: dict[str, Any], partial: bool = False, **provenance: str) -> str:
    """Collect, write, read and render a campaign; the page's source."""
    results = folder / "results" / "default"
    write_tables(collect(grid, results), results / "tables")
    out = folder / "reports" / "default" / "index.html"
    render(read_tables(results / "tables"), grid, provenance, TEMPLATES, out, partial)
    return out.read_text(encoding="utf-8")


def page_of_records(folder: Path, records: list[Record], **options: Any) -> str:
    """The page of some records."""
    for record in records:
        put(record, folder / "results" / "default")
    return page_of(folder, make_grid([record.cell for record in records]), **options)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """A whole campaign with its partial page."""
    folder = tmp_path_factory.mktemp("campaign")
    grid = write_campaign(folder / "results" / "default")
    return folder, grid, page_of(folder, grid, partial=True)


def test_the_page_stands_alone(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """No element fetches anything; one script, allowed by its hash alone."""
    page = Page(campaign[2])
    for tag, attributes in page.elements:
        assert tag not in ("iframe", "object", "embed", "img", "base", "form")
        if tag == "link":
            assert attributes["href"] == "data:,"
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
    assert page.count("script") == 1
    policy = next(a["content"] for t, a in page.elements if t == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy


def test_every_cell_is_listed_with_its_reason(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """Good, failed, timed-out, missing and unsupported cells all have a row."""
    _, grid, html = campaign
    page = Page(html)
    for entry in grid["cells"]:
        assert entry["id"] in page.text
    for reason in (
        "connection closed by peer",
        "no end within 300 s",
        "not run yet",
        "nccl needs a CUDA device",
    ):
        assert reason in page.text
    rows = [attributes["data-status"] for tag, attributes in page.elements if "data-status" in attributes]
    assert len(rows) == len(grid["cells"]) + 1


def test_a_partial_page_says_so_first(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """The banner counts what has no result and says what to type."""
    text = Page(campaign[2]).text
    banner = text.index("PARTIAL: 3 of 90 cells failed or have no result. Rerun snakemake --profile")
    assert banner < text.index("The grid")


def test_emulation_is_explained_on_the_first_screen(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """Badge, rates, scale, delay, profile and what isn't kept stand before the grid."""
    text = Page(campaign[2]).text
    head = text[: text.index("The grid")]
    for words in (
        "EMULATED",
        "network namespaces on one machine",
        "ethernet 25 Gbit/s → 50 Mbit/s",
        "S = 50 and D = 10",
        "Not emulated: this kernel has no netem.",
        "Horovod README benchmark, 2017",
        "TCP slow start",
        "on this machine's cores, in euler",
    ):
        assert words in head


def test_no_word_of_significance(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """Medians and ranges only: no verdict is drawn from them."""
    text = Page(campaign[2]).text.lower()
    assert not re.search(r"significan|verdict|equivalent|faster by|slower by", text)
    assert "not a confidence interval" in text


def test_logs_are_linked_relative_to_the_page(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """Each log link meets a file, from where the page lies."""
    folder, _, html = campaign
    links = [a["href"] for t, a in Page(html).elements if t == "a" and not (a["href"] or "").startswith("#")]
    assert len(links) == 89
    for link in links:
        assert ((folder / "reports" / "default") / str(link)).is_file()


def test_demonstrations_are_marked_and_in_no_ratio(tmp_path: Path) -> None:
    """Real compute on scaled links stands with its value and range, without a ratio."""
    html = page_of_records(tmp_path, [make_record(make_cell("cfd", fabric=f)) for f in ("ethernet", "opa")])
    assert '<i class="tag">demonstration</i>' in html
    assert not re.search(r"\d×", Page(html).text)


def test_ratio_is_shown_to_the_first_fabric(tmp_path: Path) -> None:
    """256 images in 0.2 s against 0.4 s: 2.00×."""
    records = [make_record(make_cell(), [4.0]), make_record(make_cell(fabric="opa"), [2.0])]
    assert "2.00×" in Page(page_of_records(tmp_path, records)).text


def test_text_from_records_and_config_stays_text(tmp_path: Path) -> None:
    """A reason, names, versions, delay and config that hold markup are shown as they are, and do nothing."""
    fabric = dict(make_cell().fabric) | {"name": "<b>eth</b>"}
    good = make_record(make_cell("micro"))
    good.evidence["emulation"]["delay"] = EVIL
    good.provenance["ranks"][0]["host"] = [EVIL]
    records = [good, make_failure(make_cell(), "failed", EVIL)]
    for record in records:
        put(record, tmp_path / "results" / "default")
    unsupported = {"workload": EVIL, "fabric": fabric["name"], "backend": EVIL, "gpus": 2, "reason": EVIL}
    grid = make_grid([record.cell for record in records], [unsupported])
    grid["campaign"] |= {"name": EVIL, "note": "</code></pre><script>"}
    page = Page(page_of(tmp_path, grid, partial=True, command=EVIL, note=EVIL))
    assert page.count("script") == 1
    assert page.text.count(EVIL) >= 6
    assert "<b>eth</b>" in page.text


def test_a_log_path_cannot_become_a_scheme(tmp_path: Path) -> None:
    """Whatever a workload is called, the link is a relative path."""
    record = make_record(make_cell(workload="javascript:alert(1)"), [1.0])
    html = page_of_records(tmp_path, [record])
    (link,) = [a["href"] for t, a in Page(html).elements if t == "a" and a.get("title")]
    assert link is not None
    assert link.startswith("../")


def test_no_good_cells_is_still_a_page(tmp_path: Path) -> None:
    """Nothing measured: every cell with its reason, no figure, and words that say so."""
    failed = make_failure(make_cell(), "failed", "rank 0 raised")
    put(failed, tmp_path / "results" / "default")
    page = Page(page_of(tmp_path, make_grid([failed.cell, make_cell("micro")]), partial=True))
    assert "No cell has a result yet" in page.text
    assert "rank 0 raised" in page.text
    assert page.count("svg") == 0


def test_an_empty_grid_is_still_a_page(tmp_path: Path) -> None:
    """No cells at all: the page says that."""
    assert "The grid names no cells." in Page(page_of(tmp_path, make_grid([]))).text


def test_one_fabric_alone_has_no_ratio(tmp_path: Path) -> None:
    """With one fabric there's nothing to compare, and the page doesn't speak of ratios."""
    text = Page(page_of_records(tmp_path, [make_record(make_cell())])).text
    assert "ratio" not in text[text.index("The grid") : text.index("All cells", text.index("Training"))]
    assert "×" not in text


def test_empty_samples_are_a_square_with_a_reason(tmp_path: Path) -> None:
    """An ok record without samples has no value, and its square says why."""
    text = Page(
        page_of_records(tmp_path, [make_record(make_cell(kind), samples=[]) for kind in ("train", "micro")])
    ).text
    assert "no samples of step_s" in text


def test_a_host_campaign_is_not_called_emulated(tmp_path: Path) -> None:
    """On real networks there are no assumptions to list; facts that are absent do no harm."""
    cell = make_cell(launcher="host", scale={"bytes": 1, "time": 1}, device="cpu")
    record = make_record(cell, evidence={"nodes": {}, "emulation": None}, provenance={})
    text = Page(page_of_records(tmp_path, [record])).text
    assert "EMULATED" not in text
    assert "demonstration" not in text


@pytest.mark.parametrize("validated", [True, False])
def test_links_beyond_validation_are_said_to_be(tmp_path: Path, validated: bool) -> None:
    """A link faster than any rate that was measured to be kept is named on the page; others aren't."""
    record = make_record(make_cell())
    record.evidence["emulation"]["validated"] = validated
    text = Page(page_of_records(tmp_path, [record])).text
    assert ("Not validated at 50 Mbit/s" in text) is not validated


def test_same_records_same_bytes(tmp_path: Path) -> None:
    """Rendering again gives the same page, byte for byte."""
    records = [
        make_record(make_cell(fabric=fabric, gpus=gpus)) for fabric in ("ethernet", "opa") for gpus in (1, 4)
    ]
    assert page_of_records(tmp_path, records) == page_of_records(tmp_path, records)
