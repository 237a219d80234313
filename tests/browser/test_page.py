"""In a real browser the page opens alone, fits a phone, reads in the dark, filters and sorts."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from records import write_campaign

from fabricbench.analysis.table import collect
from fabricbench.report.render import render

TEMPLATES = Path(__file__).parents[2] / "reports" / "templates"
CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path: apt-get install chromium"),
]

CONTRAST = """selector => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d");
  const light = (colour) => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const channels = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => c / 255);
    const [r, g, b] = channels.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const ink = light(getComputedStyle(document.querySelector(selector)).color);
  return (Math.max(paper, ink) + 0.05) / (Math.min(paper, ink) + 0.05);
}"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of a whole campaign, as a file."""
    folder = tmp_path_factory.mktemp("page")
    results = folder / "results" / "default"
    grid = write_campaign(results)
    out = folder / "reports" / "default" / "index.html"
    render(collect(grid, results), grid, {}, TEMPLATES, out, partial=True)
    return out.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's chromium."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield launched
        launched.close()


def opened(
    browser: Browser, address: str, width: int = 1280, scheme: str = "light"
) -> tuple[Page, list[str]]:
    """The page with the network off, and what went wrong while it loaded."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, reduced_motion="reduce"
    )
    page = context.new_page()
    page.set_default_timeout(20_000)
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("requestfailed", lambda request: troubles.append(f"failed: {request.url}"))
    page.on("request", lambda request: troubles.append(request.url) if request.url != address else None)
    page.goto(address)
    return page, [text for text in troubles if not text.startswith("data:")]


def test_opens_from_a_file_without_network_or_complaint(browser: Browser, address: str) -> None:
    """One request, for the page itself; nothing on the console, no policy violated."""
    page, troubles = opened(browser, address)
    page.wait_for_load_state("networkidle")
    assert troubles == []
    assert page.locator("svg[role=img]").count() > 5


@pytest.mark.parametrize("width", [390, 1280])
def test_never_scrolls_sideways(browser: Browser, address: str, width: int) -> None:
    """Wide tables scroll in their own box, also with every detail open."""
    page, _ = opened(browser, address, width=width)
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "selector",
    [
        "body",
        ".about",
        "dd",
        "summary",
        "b.status-failed",
        "b.status-mislabelled",
        "b.status-ok",
        "nav a",
        ".claims .wrong",
        ".heat .wrong",
        "#cells-table tr.wrong .why",
        ".pairs li",
        ".findings .where",
        ".said.faster",
        ".floor",
        ".compared .because span",
        ".by-size tbody th",
    ],
)
def test_text_is_readable_in_both_themes(browser: Browser, address: str, scheme: str, selector: str) -> None:
    """Contrast of text against the paper is at least 4.5:1, and figures take the text's colour."""
    page, _ = opened(browser, address, scheme=scheme)
    assert page.evaluate(CONTRAST, selector) >= 4.5
    ink = "e => getComputedStyle(e).color"
    assert page.locator("figure svg").first.evaluate(ink) == page.locator("body").evaluate(ink)


ON_TONE = """element => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d");
  const channels = (layers) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of layers) {
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
    }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (layers) => {
    const [r, g, b] = channels(layers).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const under = [getComputedStyle(document.body).backgroundColor];
  under.push(getComputedStyle(element.closest("td")).backgroundColor);
  const back = light(under), ink = light([...under, getComputedStyle(element).color]);
  return (Math.max(back, ink) + 0.05) / (Math.min(back, ink) + 0.05);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_verdicts_are_readable_on_every_tone(browser: Browser, address: str, scheme: str) -> None:
    """In squares and tables, a verdict's contrast against its own tone is at least 4.5:1."""
    page, _ = opened(browser, address, scheme=scheme)
    found = page.locator("td .said")
    assert found.count() > 30
    assert min(element.evaluate(ON_TONE) for element in found.all()) >= 4.5


def test_tone_follows_the_verdict(browser: Browser, address: str) -> None:
    """An undecided square is of the paper's colour, whatever its ratio; a faster one isn't."""
    page, _ = opened(browser, address)
    colour = "e => getComputedStyle(e.closest('td')).backgroundColor"
    assert page.locator(".heat .said.undecided").first.evaluate(colour) == "rgba(0, 0, 0, 0)"
    assert page.locator(".heat .said.faster").first.evaluate(colour) != "rgba(0, 0, 0, 0)"


def test_a_sentence_of_why_stays_in_view(browser: Browser, address: str) -> None:
    """On a phone the table of comparisons scrolls, and each sentence fits the screen."""
    page, _ = opened(browser, address, width=390)
    for span in page.locator(".compared .because span").all()[:3]:
        box = span.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390


def test_cells_filter_by_text_and_status(browser: Browser, address: str) -> None:
    """Words and a status narrow the table, and the count says by how much."""
    page, _ = opened(browser, address)
    visible = page.locator("#cells-table tbody tr:visible")
    assert visible.count() == 91
    page.select_option("#filter-status", "failed")
    assert visible.count() == 1
    assert "connection closed by peer" in visible.inner_text()
    page.select_option("#filter-status", "all")
    page.fill("#filter-text", "opa gloo-16")
    assert visible.count() == 12
    assert page.locator("#filter-count").inner_text() == "12 of 91"


def test_cells_sort_by_number_with_blanks_last(browser: Browser, address: str) -> None:
    """The value column sorts as numbers both ways; what has no value stays at the end."""
    page, _ = opened(browser, address)
    keys = "rows => rows.map((row) => row.cells[2].dataset.key)"
    for direction in (1, -1):
        page.get_by_role("button", name="value").click()
        found = page.locator("#cells-table tbody tr").evaluate_all(keys)
        assert found[-5:] == [""] * 5
        numbers = [direction * float(key) for key in found[:-5]]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_mislabelled_is_red_wherever_it_stands(browser: Browser, address: str, scheme: str) -> None:
    """Sentence, square and rows of a mislabelled cell have the colour of failure, and no good one has."""
    page, _ = opened(browser, address, scheme=scheme)
    colour = "e => getComputedStyle(e).color"
    red = page.locator("b.status-failed").first.evaluate(colour)
    for where in (
        ".claims .wrong",
        ".heat small.wrong",
        "#cells-table tr.wrong .cell",
        "#evidence tr.wrong td",
    ):
        assert page.locator(where).first.evaluate(colour) == red
    assert page.locator("#cells-table tr[data-status=ok] .cell").first.evaluate(colour) != red


def test_evidence_sorts_and_filters(browser: Browser, address: str) -> None:
    """The evidence column sorts by what was found, and its words filter the table."""
    page, _ = opened(browser, address)
    page.get_by_role("button", name="evidence").click()
    first = page.locator("#cells-table tbody tr").first
    assert "mislabelled" in first.inner_text()
    page.fill("#filter-text", "too little to prove")
    assert page.locator("#cells-table tbody tr:visible").count() == 1


def test_reads_whole_without_script(browser: Browser, address: str) -> None:
    """Without script every cell and figure is there, and no dead control."""
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(address)
    assert page.locator("#cells-table tbody tr").count() == 91
    assert page.locator("#cells-tools *").count() == 0
