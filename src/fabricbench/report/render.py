"""Tables and grid into one self-contained HTML page. Every text from records, config and logs is escaped."""

import base64
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fabricbench.analysis.conclusions import rules_of
from fabricbench.analysis.table import MISLABELLED, Tables, baseline_fabric, fabric_order
from fabricbench.record import write_atomically
from fabricbench.report import proven, setting, steadiness, words
from fabricbench.report.compared import comparison_sections
from fabricbench.report.heatmap import heatmap
from fabricbench.report.panels import message_groups, scaling_groups
from fabricbench.report.placed import placed
from fabricbench.report.published import against_published

Json = Mapping[str, Any]

TEMPLATES = Path(__file__).resolve().parents[3] / "reports" / "templates"
COMMAND = "snakemake --profile profiles/local"
MOST_TROUBLES = 6
"""Cells without a result that the first screen names; the table below has all."""


@dataclass(frozen=True)
class CellLine:
    """One row of the table of all cells. Each `_key` sorts its column."""

    cell: str
    variant: str
    """Its workload's variant in words, which its id doesn't tell: `batch 32, bf16`."""
    status: str
    reason: str
    no_verdict: str
    """Why it enters no comparison although it has a value."""
    accepted: bool
    demonstration: bool
    value: str
    value_key: str
    evidence: str
    because: str
    """Of the evidence's verdict, unless `reason` says it."""
    of_formula: str
    repeat: str
    start: str
    duration: str
    duration_key: str
    overhead: str
    overhead_key: str
    log: str
    link: str
    """The log relative to the page, quoted, beginning with ./ or ../; "" where there's none."""


def render(
    tables: Tables, grid: Json, provenance: Json, template_dir: Path, out: Path, partial: bool
) -> None:
    """Write the page to `out`, whole or not at all.

    `provenance` is what the caller knows about this run: `command` replaces the usual one, any other
    key is shown as it is. `partial` marks a page made although cells have failed.
    """
    style, script = (_plain_text(template_dir / name) for name in ("style.css", "script.js"))
    environment = Environment(
        loader=FileSystemLoader(template_dir),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    page = environment.get_template("index.html.j2").render(
        _context(tables, grid, provenance, out, partial)
        | {"style": Markup(style), "script": Markup(script), "script_hash": _csp_hash(script), "svg": Markup}
    )
    write_atomically(out, page)


def _context(tables: Tables, grid: Json, provenance: Json, out: Path, partial: bool) -> dict[str, Any]:
    """All that the template shows, as texts and small frozen objects."""
    tables = placed(tables)
    cells = tables.cells
    campaign = grid["campaign"]
    fabrics = fabric_order(grid)
    baseline = baseline_fabric(campaign, fabrics)
    margin = rules_of(campaign).margin
    lines = [_line(row, out) for row in cells.to_dict("records")]
    troubles = [line for line in lines if line.status not in ("ok", "unsupported") and not line.accepted]
    troubles.sort(key=_other_than_mislabelled)
    return {
        "campaign": str(campaign.get("name", "campaign")),
        "summary": setting.summary(cells, fabrics),
        "period": _period(cells),
        "partial": partial,
        "command": str(provenance.get("command", COMMAND)),
        "about_run": {str(name): str(value) for name, value in provenance.items() if name != "command"},
        "jobs": int((cells["status"] != "unsupported").sum()),
        "statuses": setting.status_counts(cells),
        "troubles": troubles,
        "troubles_shown": troubles[:MOST_TROUBLES],
        "barred": setting.barred(cells),
        "assumptions": setting.assumptions(tables),
        "scaled": bool((cells["scale_bytes"] * cells["scale_time"] > 1).any()),
        "fabrics": _fabrics(cells, fabrics),
        "baseline": baseline,
        "groups": heatmap(cells, fabrics, baseline, tables.conclusions, margin) if fabrics else [],
        "published": against_published(tables.conclusions.published, campaign, baseline),
        "compared": comparison_sections(tables.conclusions, campaign),
        "order": steadiness.blocks(cells, campaign),
        "within": steadiness.within(tables.conclusions),
        "training": scaling_groups(tables, "train", fabrics),
        "flow": scaling_groups(tables, "cfd", fabrics),
        "messages": message_groups(tables, fabrics),
        "lines": lines,
        "config": setting.config_text(grid),
        "versions": setting.versions(tables),
        "shaping": setting.shaping(tables),
        "rails": proven.rails(cells),
        "evidence": proven.evidence(tables),
        "company": setting.company(cells),
        "differed": proven.differed(tables.differences),
        "plural": words.plural,
    }


def _fabrics(cells: pd.DataFrame, fabrics: list[str]) -> list[tuple[str, str]]:
    """Each fabric with a node's rate on the real network, and what is reached of it; "" if it isn't known."""
    rated = cells.dropna(subset=["rate_bit_s", "ports_per_node"]).drop_duplicates("fabric")
    named = ["fabric", "ports_per_node", "rate_bit_s", "effective_bit_s"]
    rates = {
        str(name): words.reached(int(ports), float(rate), float(reached))
        for name, ports, rate, reached in rated[named].itertuples(index=False)
    }
    return [(name, rates.get(name, "")) for name in fabrics]


def _period(cells: pd.DataFrame) -> str:
    """When the cells ran: one day or two, in UTC."""
    start, end = cells["start"].min(), cells["end"].max()
    if pd.isna(start) or pd.isna(end):
        return ""
    last = f"{end:%H:%M}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
    return f"{start:%Y-%m-%d %H:%M} to {last} UTC"


def _other_than_mislabelled(line: CellLine) -> bool:
    return line.status != MISLABELLED


def _line(row: Mapping[Any, Any], out: Path) -> CellLine:
    log = str(row["log"])
    missing = row["value"] != row["value"]
    return CellLine(
        cell=str(row["cell"]),
        variant=str(row["workload"]).removeprefix(str(row["family"])).removeprefix(", "),
        status=str(row["status"]),
        reason=str(row["reason"]),
        no_verdict=str(row["no_verdict"]),
        accepted=bool(row["accepted"]),
        demonstration=bool(row["demonstration"]),
        value=words.DASH if missing else f"{words.number(row['value'])} {row['unit']}",
        value_key=_key(row["value"]),
        evidence=str(row["evidence"]),
        because="" if row["because"] == row["reason"] else str(row["because"]),
        of_formula=words.share(row["of_formula"]) if row["of_formula"] == row["of_formula"] else "",
        repeat=words.DASH if pd.isna(row["repeat"]) else str(row["repeat"]),
        start=words.DASH if pd.isna(row["start"]) else f"{row['start']:%Y-%m-%d %H:%M:%S}",
        duration=words.seconds(row["duration_s"]),
        duration_key=_key(row["duration_s"]),
        overhead=words.seconds(row["overhead_s"]),
        overhead_key=_key(row["overhead_s"]),
        log=log,
        link=_link(log, out),
    )


def _key(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.9g}"


def _link(log: str, out: Path) -> str:
    """A relative URL that can be nothing but a path, whatever the log is called."""
    if not log:
        return ""
    relative = Path(os.path.relpath(log, out.parent)).as_posix()
    return quote(relative if relative.startswith("../") else f"./{relative}")


def _plain_text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _csp_hash(script: str) -> str:
    """The script's digest as a Content-Security-Policy wants it: no other script may run."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
