"""Documents hold no placeholder, and point at files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")] + sorted(
    (ROOT / "docs").glob("*.md")
)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_a_page_is_finished_and_its_links_lead_somewhere(page):
    """No words left for later, and every relative link is a file."""
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"\b(FIGURES|TODO|TBD|FIXME|XXX)\b", text)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target
