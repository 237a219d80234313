"""Pages as tests read them: rendered from records, and as visible text."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from fabricbench.analysis.table import collect, read_tables, write_tables
from fabricbench.report.render import render

TEMPLATES = Path(__file__).parents[1] / "reports" / "templates"


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
            self.text += data.replace("\u00a0", " ")

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
