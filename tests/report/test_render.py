"""The page holds what the tables hold, as text, in one file, and hides nothing that went wrong."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pages import TEMPLATES, Page, page_of, section
from records import (
    make_cell,
    make_failure,
    make_grid,
    make_mislabelled,
    make_on_slurm,
    make_record,
    put,
    write_campaign,
)

from fabricbench.analysis.conclusions import conclude
from fabricbench.analysis.table import collect
from fabricbench.record import Record
from fabricbench.report.render import render

EVIL = "<script>alert('x')</script> & \"quoted\" {{ 7*7 }}"


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
    """The word is never said: a test is named with its p instead. A range is no confidence interval."""
    text = Page(campaign[2]).text
    assert not re.search("significan", text, re.IGNORECASE)
    assert "not a confidence interval" in text
    assert re.search(r"Faster by [0-9.]+ to [0-9.]+ % \(paired t, p = \S+, by Holm \S+\); 3 blocks", text)


def first_screen(html: str) -> str:
    """The text above the grid."""
    text = Page(html).text
    return text[: text.index("The grid")]


def test_one_sentence_per_workload_on_the_first_screen(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """Verdicts at all sizes, equivalent and undecided ones too, and for demonstrations that there's none."""
    head = first_screen(campaign[2])
    said = (
        r"vgg16 over gloo: opa is faster than ethernet by [0-9.]+–[0-9.]+ % on 4 GPUs and by [0-9.]+–[0-9.]+ "
    )
    said += r"% on 16; equivalent within ±5 % on 1 GPU\."
    assert re.search(said, head)
    assert re.search(
        r"resnet50 over gloo: opa is equivalent .* undecided on 16 GPUs: \d+ more blocks would", head
    )
    assert "messages on ethernet: mpi is equivalent to gloo within ±5 % on 4 GPUs." in head
    assert "euler over mpi: opa against ethernet: no verdict on 1 and 2 GPUs: a demonstration" in head


def test_the_noise_floor_stands_on_the_first_screen(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """From the controls: one network under two names; they came out equivalent, so no banner."""
    head = first_screen(campaign[2])
    assert re.search(r"one network under two names \(opa and opa-again\) differs by at most [0-9.]+ %", head)
    assert "CAN’T DECIDE" not in head


def noisy(fabric: str, repeat: int, step_s: float) -> Record:
    """A cell with steps of one length."""
    return make_record(make_cell(fabric=fabric, repeat=repeat), [step_s] * 12)


def test_a_campaign_that_cannot_decide_says_so_first(tmp_path: Path) -> None:
    """Second name 30 % off now and then: banner with the reason above the verdicts, and in Comparisons."""
    steps = {"ethernet": [4.0, 4.1, 4.0], "opa": [2.0, 2.6, 2.1], "opa-again": [2.5, 2.0, 2.1]}
    records = [noisy(name, at, step) for name, values in steps.items() for at, step in enumerate(values, 1)]
    html = page_of_records(tmp_path, records)
    head = first_screen(html)
    banner = head.index("THIS CAMPAIGN CAN’T DECIDE: 1 of 1 control did not come out equivalent.")
    assert banner < head.index("opa is faster than")
    assert "vgg16 over gloo, 4 GPUs: opa and opa-again are one network, yet" in head
    assert "the noise is too large for a margin of ±5 %" in section(html, "comparisons")


def test_without_a_control_that_is_said(tmp_path: Path) -> None:
    """Two networks, each with one name: no noise floor, and no banner."""
    records = [noisy(name, at, step) for name, step in (("ethernet", 4.0), ("opa", 2.0)) for at in (1, 2, 3)]
    html = page_of_records(tmp_path, records)
    assert "Noise floor not known: no control was measured" in first_screen(html)
    assert "CAN’T DECIDE" not in html


def test_squares_have_their_verdict(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """A word with the interval, a tone that follows it, the ratio in small, controls marked as such."""
    html = campaign[2]
    grid = html[html.index('<section id="grid">') : html.index('<section id="comparisons">')]
    grid = grid.replace("\u00a0", " ")
    assert re.search(
        r'<td class="higher-\d"><span class="line"><b>[0-9,]+</b> <small class="ratio">1.\d\d×</small></span>'
        r'<span class="verdict" title="Faster by [^"]*"><b class="said faster">faster [0-9.]+–[0-9.]+ %</b>',
        grid,
    )
    assert re.search(r'<td class="open">.*<b class="said undecided">undecided \(\+\d+ blocks\)</b>', grid)
    assert re.search(r'<td class="same">.*<b class="said equivalent">equivalent ±5 %</b>', grid)
    assert re.search(r"control: opa again</small><span .*equivalent ±5 %", grid)
    assert re.search(r'<b class="said none">no verdict</b>.*demonstration', grid)


def test_the_baseline_is_the_configs(tmp_path: Path) -> None:
    """opa is what is compared with: it stands first and ethernet has the verdict, whatever their names."""
    records = [
        noisy(name, at, step + at / 100)
        for name, step in (("ethernet", 4.0), ("opa", 2.0))
        for at in (1, 2, 3)
    ]
    for record in records:
        put(record, tmp_path / "results" / "default")
    grid = make_grid([record.cell for record in records])
    grid["campaign"]["compare"] = [{"by": "fabric", "baseline": "opa"}]
    html = page_of(tmp_path, grid)
    text = section(html, "grid")
    assert text.index("opa100 Gbit/s") < text.index("ethernet25 Gbit/s")
    assert "the verdict against opa" in text
    assert re.search(r"vgg16 over gloo: ethernet is slower than opa by 9\d", first_screen(html))
    assert "ethernet against opa" in section(html, "differed")


def test_fabrics_that_are_not_compared_have_no_verdict(tmp_path: Path) -> None:
    """The config compares backends alone: squares have neither verdict nor ratio."""
    records = [
        make_record(make_cell(fabric=name, repeat=at)) for name in ("ethernet", "opa") for at in (1, 2)
    ]
    for record in records:
        put(record, tmp_path / "results" / "default")
    grid = make_grid([record.cell for record in records])
    grid["campaign"]["compare"] = [{"by": "backend", "baseline": "gloo"}]
    text = section(page_of(tmp_path, grid), "grid")
    assert "verdict" not in text
    assert "×" not in text


def test_comparisons_stand_with_their_tests(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """Each axis has its table, with blocks, method, p-values, the sentence that says why, and what drifts."""
    text = section(campaign[2], "comparisons")
    for said in (
        "By fabric, against ethernet",
        "By backend, against gloo",
        "Controls: one network under two names",
        "paired t",
        "not steady: drifting: 1 of 3 cells of ethernet",
        "two-humped: 1 of 3 cells of ethernet",
        "No verdict: a demonstration",
        "noise floor",
    ):
        assert said in text


def test_refused_comparisons_give_their_reason(tmp_path: Path) -> None:
    """Another torch on one side: refused on the first screen, in its square and in the table."""
    records = [
        make_record(make_cell(fabric=name, repeat=at)) for name in ("ethernet", "opa") for at in (1, 2)
    ]
    for record in records[2:]:
        for rank in record.provenance["ranks"]:
            rank["versions"]["torch"] = "2.10.0"
    html = page_of_records(tmp_path, records)
    assert "refused on 4 GPUs: the sides ran with different libraries (torch: 2.9.1" in first_screen(html)
    assert '<b class="said refused">refused</b>' in html
    assert "which wasn't allowed." in section(html, "comparisons")


def test_unpaired_comparisons_are_marked(tmp_path: Path) -> None:
    """Days apart there are no blocks: two samples, and marked wherever the verdict stands."""
    records = [
        make_record(make_cell(fabric=name, repeat=at)) for name in ("ethernet", "opa") for at in (1, 2)
    ]
    records = [
        replace(record, start=f"2026-11-{at:02d}T10:00:00+00:00", end=f"2026-11-{at:02d}T10:01:00+00:00")
        for at, record in enumerate(records, 1)
    ]
    html = page_of_records(tmp_path, records)
    assert "on 4 GPUs (unpaired)" in first_screen(html)
    assert "unpaired" in section(html, "grid")
    table = html[html.index('class="data compared"') :]
    assert '<i class="tag">unpaired</i>' in table
    assert '<td class="n">2 / 2</td><td>Welch t</td>' in table


def test_blocks_are_told_as_they_turned_out(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """Repeats with time and nodes, the seed of the order, and the blocks of each comparison."""
    text = section(campaign[2], "blocks")
    for said in (
        "drawn with seed 1.",
        "2026-11-30 10:02:00 to 10:02:40",
        "n0-n15; n0-n3; n0-n1; n0",
        "vgg16 over gloo, 4 GPUs: opa against ethernet",
        "vgg16 over gloo, 4 GPUs: opa-again against opa",
        "20.0 s",
    ):
        assert said in text


def test_runs_that_are_not_steady_are_listed(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """The drifting and the two-humped cell with their numbers, and the cell with a slow rank."""
    text = section(campaign[2], "within")
    assert re.search(r"\d+ of [0-9,]+ series aren't steady\.", text)
    assert re.search(r"vgg16/ethernet-gloo-16-r2-\w+step_sdrifting30", text)
    assert re.search(r"vgg16/ethernet-gloo-4-r3-\w+step_stwo-humped30", text)
    assert re.search(r"vgg16/ethernet-gloo-16-r3-\w+3 of 16\+4.0 %90 % of 30 steps", text)


def test_from_which_size_on_it_matters(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """By GPUs, and by bytes with all operations of which the same holds on one line."""
    text = section(campaign[2], "comparisons")
    assert "vgg16 over gloo: opa against ethernet4 GPUs: faster1 GPU1 GPU to 16 GPUs" in text
    assert "opa against ethernet; ping-pong, stream and all-reduce256 KiB: faster" in text


def test_verdicts_by_message_size_stand_under_messages(campaign: tuple[Path, dict[str, Any], str]) -> None:
    """A row per size; sizes that the shaper can't hold are one row without a verdict."""
    html = campaign[2]
    at = html.index("Verdicts by message size")
    assert html.index('<section id="messages">') < at < html.index('<section id="within">')
    table = Page(html[at : html.index("</table>", at)]).text
    assert "messages over gloo, 4 GPUs: fabric against ethernet" in table
    assert "ping-pong: opa" in table
    assert re.search("1 KiB – 64 KiB(no verdict){3}", table)
    assert re.search(r"256 KiB(faster [0-9.]+–[0-9.]+ %){3}", table)


def test_a_grid_of_several_campaigns_is_a_page(tmp_path: Path) -> None:
    """Two campaigns in one, compared along the axis `campaign`: the sections take any axis."""
    records = [
        make_record(make_cell(repeat=at), [step] * 12) for at, step in enumerate((4.0, 4.1, 2.0, 2.1), 1)
    ]
    for record in records:
        put(record, tmp_path / "results")
    grid = make_grid([record.cell for record in records])
    grid["campaign"] |= {"name": "a and b", "compare": [{"by": "campaign", "baseline": "a"}]}
    tables = collect(grid | {"campaign": grid["campaign"] | {"compare": []}}, tmp_path / "results")
    cells = tables.cells.assign(campaign=pd.Series(["a", "a", "b", "b"], dtype="string"))
    concluded = conclude(cells, tables.samples, grid["campaign"], tables.facts)
    out = tmp_path / "reports" / "index.html"
    render(replace(tables, cells=cells, conclusions=concluded), grid, {}, TEMPLATES, out, partial=False)
    html = out.read_text(encoding="utf-8")
    assert "campaign a and b" in first_screen(html)
    assert "vgg16 on ethernet over gloo: b is faster than a by" in first_screen(html)
    assert "By campaign, against a" in section(html, "comparisons")


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


def test_one_block_has_a_ratio_and_no_interval(tmp_path: Path) -> None:
    """256 images in 0.2 s against 0.4 s: 2.00×, undecided, since nothing shows how much blocks differ."""
    records = [make_record(make_cell(), [4.0]), make_record(make_cell(fabric="opa"), [2.0])]
    html = page_of_records(tmp_path, records)
    assert "2.00× undecided" in " ".join(section(html, "grid").replace("×", "× ").split())
    assert "undecided on 4 GPUs: one block gives no interval, since" in first_screen(html)


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


def test_cells_that_ran_beside_others_are_counted(tmp_path: Path) -> None:
    """On a real cluster the page says how many shared their time, and with what; elsewhere nothing."""
    cells = [make_cell("cfd", fabric=name, gpus=2) for name in ("ethernet", "opa")]
    html = page_of_records(tmp_path, [make_on_slurm(cells[0]), make_on_slurm(cells[1], after_s=5, others=2)])
    said = "2 of 2 cells ran at the same time as another and 1 of 2 cells at the same time as jobs of others"
    said += " on the cluster"
    assert f"{said}; comparisons say which of their cells." in section(html, "differed")
    assert "beside other cells or jobs: 1 of 1 cells of ethernet, 1 of 1 cells of opa" in html
    apart = tmp_path / "apart"
    html = page_of_records(apart, [make_on_slurm(cells[0]), make_on_slurm(cells[1], after_s=60)])
    assert "None of 2 cells ran at the same time as another, or as jobs of others on the cluster." in html
    unknown = tmp_path / "unknown"
    records = [make_on_slurm(cell, after_s=60 * at, others=None) for at, cell in enumerate(cells)]
    html = page_of_records(unknown, records)
    assert "None of 2 cells ran at the same time as another." in html
    assert "at the same time as" not in page_of_records(tmp_path / "emulated", list(map(make_record, cells)))


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


def test_variants_are_told_apart_where_ids_are_not(tmp_path: Path) -> None:
    """An id ends in a digest; the variant stands beside it in words, and what isn't compared says why."""
    cells = [make_cell(), replace(make_cell(), params={**make_cell().params, "batch": 32})]
    folder = tmp_path / "results" / "default"
    for cell in cells:
        put(make_record(cell), folder)
    grid = make_grid(cells)
    tables = collect(grid, folder)
    tables = replace(tables, cells=tables.cells.assign(no_verdict=["", "its host was too busy"]))
    out = tmp_path / "index.html"
    render(tables, grid, {}, TEMPLATES, out, partial=False)
    text = section(out.read_text(encoding="utf-8"), "cells")
    for name, words in zip((entry["id"] for entry in grid["cells"]), ("batch 64", "batch 32"), strict=True):
        assert f"{name} {words}" in text
    assert "not compared: its host was too busy" in text
    assert "1 cell measured but not compared: its host was too busy." in Page(out.read_text("utf-8")).text
