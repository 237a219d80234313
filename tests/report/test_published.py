"""The page says which rates were fitted and which predicted, each error, and what they can't tell."""

import re
from pathlib import Path
from typing import Any

import pytest
from pages import Page, page_of, section
from published import EMULATED, put_campaign


def html_of(folder: Path, **how: Any) -> str:
    """The page of a made-up campaign that repeats Horovod's table."""
    return page_of(folder, put_campaign(folder / "results" / "default", **how))


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page with every cell measured."""
    return html_of(tmp_path_factory.mktemp("published"))


def rows(html: str) -> list[list[str]]:
    """Cells of the table of rates."""
    table = html[html.index('<section id="published">') :]
    table = table[: table.index("</table>")]
    found = []
    for row in re.findall(r"<tr class=.*?</tr>", table, flags=re.DOTALL):
        cells = re.findall(r"<t[hd].*?</t[hd]>", row, flags=re.DOTALL)
        found.append([Page(cell).text.strip() for cell in cells])
    return found


def test_each_rate_stands_beside_the_published_one(html: str) -> None:
    """Widest gap first; fitted or prediction; each model in its own columns, with its error."""
    table = rows(html)
    assert [row[:4] for row in table] == [
        ["vgg16", "rdma", "1,787", "fits effective"],
        ["vgg16", "tcp", "1,309", "fits effective"],
        ["resnet101", "rdma", "1,746", "prediction"],
        ["resnet101", "tcp", "1,685", "prediction"],
        ["inception_v3", "rdma", "2,023", "fits fixed cost"],
        ["inception_v3", "tcp", "1,991", "prediction"],
    ]
    by_rate = {tuple(row[:2]): row[4:] for row in table}
    assert by_rate["resnet101", "tcp"][:2] == ["1,729", "+2.6 %"]
    assert by_rate["resnet101", "tcp"][4:] == ["1,592", "−5.5 %", "1,809", "+7.3 %"]


def test_the_outcome_is_counted(html: str) -> None:
    """Sums over predictions alone, and in how many the emulation is nearer."""
    text = " ".join(section(html, "published").replace("\u00a0", " ").split())
    assert "3 rates of 6 predicted, the others fitted." in text
    assert "errors add up to 5.1 %, against 12.5 % with no overlap and 12.5 % with no network" in text
    assert "of 3 predictions, nearer are 3 than no overlap and 3 than no network" in text


def test_gaps_stand_in_order_with_what_cannot_be_resolved(html: str) -> None:
    """Inception V3's −1.6 % is less than the reference's own rates are off."""
    text = " ".join(section(html, "published").replace("\u00a0", " ").split())
    assert "tcp against rdma" in text
    assert re.search(r"vgg16−27 %−26 %", text)
    assert "In the published order, the widest first: vgg16 > resnet101 > inception_v3." in text
    assert re.search(r"inception_v3−1.6 %within its own noise", text)
    assert "so the gap of inception_v3 can’t be told from none" in text


def test_another_order_is_said(tmp_path: Path) -> None:
    """No claim that isn't so."""
    rates = EMULATED | {("resnet101", "tcp"): 1300.0}
    said = "Not in the published order: here vgg16 > resnet101 > inception_v3"
    text = section(html_of(tmp_path, rates=EMULATED | {("resnet101", "tcp"): 1200.0}), "published")
    assert "Not in the published order: here resnet101 > vgg16 > inception_v3, published vgg16 >" in text
    assert said not in section(html_of(tmp_path / "again", rates=rates), "published")


def test_what_was_fitted_is_named_at_the_top_and_in_the_section(html: str) -> None:
    """Effective rates and the fixed cost, each with the rate that chose it, and the links' assumption."""
    first = Page(html).text.split("The grid")[0]
    for text in (first, section(html, "published")):
        assert re.search(r"what tcp reaches, [0-9.]+ Gbit/s, by vgg16 over tcp", text)
        assert re.search(r"the fixed cost of a step, [0-9.]+ ms, by inception_v3 over rdma", text)
    assert re.search(r"tcp ([0-9.]+) Gbit/s of 25 Gbit/s → [0-9.]+ Mbit/s", first)
    assert re.search(r"Assuming [0-9.]+ Gbit/s effective of 25 Gbit/s over tcp and", first)
    assert re.search(r"tcp[0-9.]+ Gbit/s of 25 Gbit/s, emulated", section(html, "grid"))
    assert "gloo in the place of nccl" in section(html, "published")


def test_a_model_that_needs_more_than_the_wire_is_told_so(html: str) -> None:
    """Without overlap the fitted rates are above 25 Gbit/s."""
    text = section(html, "published")
    assert re.search(
        r"only by taking 127 Gbit/s over rdma, which has 25 Gbit/s and 30.2 Gbit/s over tcp", text
    )


def test_one_figure_shows_every_error(html: str) -> None:
    """With all models in words, readable without colour."""
    part = html[html.index('<section id="published">') : html.index('<section id="grid">')]
    assert part.count("<svg") == 1
    for name in ("emulated", "overlap, computed", "no overlap", "no network", "resnet101 tcp"):
        assert name in part[part.index("<svg") :]
    assert "+51 %" in part[part.index("<svg") :]  # far out, so at the edge with its number


def test_what_is_not_measured_has_a_dash(tmp_path: Path) -> None:
    """Some cells failed: their rates stand there without an emulated one."""
    rates = {key: rate for key, rate in EMULATED.items() if key != ("resnet101", "tcp")}
    by_rate = {tuple(row[:2]): row[4:] for row in rows(html_of(tmp_path, rates=rates))}
    assert by_rate["resnet101", "tcp"][:2] == ["–", "–"]
    assert "No prediction has" in section(html_of(tmp_path / "none", rates={}), "published")


def test_other_campaigns_have_no_such_section(tmp_path: Path) -> None:
    """Neither a heading nor a link to it."""
    html = html_of(tmp_path, published=None)
    assert 'id="published"' not in html
    assert "#published" not in html
