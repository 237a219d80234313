"""The page holds what the tables hold, as text, in one file, and hides nothing that went wrong."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from records import make_cell, make_failure, make_grid, make_mislabelled, make_record, put, write_campaign

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


def section(html: str, name: str) -> str:
    """The visible text of one section of a page."""
    start = html.index(f'<section id="{name}">')
    return Page(html[start : html.index("</section>", start)]).text


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
    """Good, failed, timed-out, mislabelled, missing and unsupported cells all have a row."""
    _, grid, html = campaign
    page = Page(html)
    for entry in grid["cells"]:
        assert entry["id"] in page.text
    for reason in (
        "connection closed by peer",
        "no end within 300 s",
        "eth9 91.5 MB",
        "not run yet",
        "nccl needs a CUDA device",
    ):
        assert reason in page.text
    rows = [attributes["data-status"] for tag, attributes in page.elements if "data-status" in attributes]
    assert len(rows) == len(grid["cells"]) + 1


def test_a_partial_page_says_so_first(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """The banner counts what has no result and says what to type."""
    text = Page(campaign[2]).text
    banner = text.index("PARTIAL: 4 of 90 cells failed or have no result. Rerun snakemake --profile")
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


def test_how_much_is_verified_stands_before_the_grid(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """Verified, too little, mislabelled and one-node cells are counted on the first screen."""
    text = Page(campaign[2]).text
    said = "59 of 87 cells: the bytes were counted on the fabric that the cell names; 1 too little to prove; "
    said += "1 mislabelled; 26 on one node, where there is nothing to prove."
    assert text.index(said) < text.index("The grid")


def test_mislabelled_cells_are_marked_wherever_they_stand(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """First among the troubles, red in the grid with where the bytes went, and a red row among all cells."""
    html = campaign[2]
    troubles = html[html.index('class="troubles"') : html.index("</header>")]
    assert troubles.index("status-mislabelled") < troubles.index("status-failed")
    grid = html[html.index('<section id="grid">') : html.index('<section id="cells">')]
    assert re.search(r'<small class="why wrong">1 mislabelled: .* eth9 91.5 MB</small>', grid)
    assert re.search(r'<tr data-status="mislabelled" class="wrong">', html)
    assert '<b class="wrong">1 mislabelled</b>' in html


def test_a_square_of_mislabelled_cells_alone_is_red_and_has_no_number(tmp_path: Path) -> None:
    """All repeats went elsewhere: no median, but the reason; another trouble doesn't hide it."""
    records = [
        make_record(make_cell(), [4.0]),
        make_failure(make_cell(fabric="opa", repeat=1), "failed", "rank 0 raised"),
        make_mislabelled(make_cell(fabric="opa", repeat=2)),
    ]
    html = page_of_records(tmp_path, records)
    assert re.search(r'<td class="empty wrong">.*>1 mislabelled, 1 failed: n0 had to send', html)
    assert not re.search(r"\d×", Page(html).text)


def test_evidence_stands_with_its_cell_and_by_node(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """Each cell shows its evidence; the section shows counters, formula, congestion and libraries' words."""
    cells, evidence = (section(campaign[2], name) for name in ("cells", "evidence"))
    assert "verified 104 % of formula" in cells
    assert "every node sent 104 % of what a ring all-reduce had to, over eth0" in cells
    for said in (
        "91,520,000",
        "88,000,000–92,400,000",
        "104 %",
        "tcp_retransmits",
        "gloo: Connecting over opa0",
    ):
        assert said in evidence


def test_what_else_differed_is_told_by_pair(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """The one pair with a second change is spelled out, the others are said to have none."""
    text = section(campaign[2], "differed")
    assert "In 15 of 16 compared pairs nothing but the fabric differed." in text
    kernels = "kernel (6.12.8-amd64; 6.13.0-amd64 against 6.12.8-amd64)"
    assert f"vgg16 over gloo, 4 GPUs: opa against ethernet: {kernels}." in text
    assert "resnet50 over gloo, 16 GPUs: opa against ethernet: nothing but the fabric." in text
    assert "GLOO_SOCKET_IFNAME" in text


def test_pairs_that_differ_in_much_name_the_first(tmp_path: Path) -> None:
    """Three differences are spelled out, shortened if long; the rest is counted."""
    records = [make_record(make_cell(fabric=fabric)) for fabric in ("ethernet", "opa")]
    records[1].provenance |= {"python": "3.12.1", "fabricbench": "0.2.0", "revision": "x" * 200}
    for rank in records[1].provenance["ranks"]:
        rank["environment"]["NCCL_ALGO"] = "Ring"
    text = section(page_of_records(tmp_path, records), "differed")
    assert "NCCL_ALGO (Ring against not set), fabricbench (0.2.0 against 0.1.0)" in text
    assert "and 1 more in the table." in text
    assert "More than the fabric differed in every compared pair:" in text


def test_several_ports_are_shown_with_their_line_rate(tmp_path: Path) -> None:
    """Four ports a node stand as 4 × 25 Gbit/s, and as 100 Gbit/s of a node in how it was run."""
    record = make_record(make_cell())
    record.cell.fabric["ports_per_node"] = 4
    record.evidence["rails"] = {node: ["eno1", "eno2", "eno3", "eno4"] for node in ("n0", "n1", "n2", "n3")}
    html = page_of_records(tmp_path, [record])
    assert "ethernet4 × 25 Gbit/s, emulated" in section(html, "grid")
    assert "eno1, eno2, eno3, eno4" in section(html, "run")
    assert "100 Gbit/s" in section(html, "run")


def test_records_from_before_evidence_are_said_to_be_not_judged(tmp_path: Path) -> None:
    """No evidence is no error, and isn't called verified."""
    record = make_record(make_cell(), evidence={})
    assert "0 of 1 cell: the bytes were counted" in (text := Page(page_of_records(tmp_path, [record])).text)
    assert "1 not judged." in text


def test_ratio_is_shown_to_the_first_fabric(tmp_path: Path) -> None:
    """256 images in 0.2 s against 0.4 s: 2.00×."""
    records = [make_record(make_cell(), [4.0]), make_record(make_cell(fabric="opa"), [2.0])]
    assert "2.00×" in Page(page_of_records(tmp_path, records)).text


def test_text_from_records_and_config_stays_text(tmp_path: Path) -> None:
    """A reason, names, versions, delay and config that hold markup are shown as they are, and do nothing."""
    fabric = dict(make_cell().fabric) | {"name": "<b>eth</b>"}
    good = make_record(make_cell("micro"))
    good.evidence["emulation"]["delay"] = EVIL
    good.evidence |= {"words": [EVIL], "because": EVIL, "rails": {"n0": [EVIL]}}
    good.provenance["ranks"][0]["host"] = [EVIL]
    records = [good, make_failure(make_cell(), "failed", EVIL)]
    for record in records:
        put(record, tmp_path / "results" / "default")
    unsupported = {"workload": EVIL, "fabric": fabric["name"], "backend": EVIL, "gpus": 2, "reason": EVIL}
    grid = make_grid([record.cell for record in records], [unsupported])
    grid["campaign"] |= {"name": EVIL, "note": "</code></pre><script>"}
    page = Page(page_of(tmp_path, grid, partial=True, command=EVIL, note=EVIL))
    assert page.count("script") == 1
    assert page.text.count(EVIL) >= 9
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
