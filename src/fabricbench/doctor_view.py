"""`fabricbench doctor`: whom it asks for which cluster, and how what it found is shown."""

import json
import os
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fabricbench.fabrics import visit
from fabricbench.fabrics.checks_machine import check_hidden
from fabricbench.fabrics.checks_software import check_software
from fabricbench.fabrics.doctor import check_answers, check_emulation, examine, wanted
from fabricbench.fabrics.emulation import why_unavailable
from fabricbench.fabrics.findings import LEVELS, Finding, Node, Wanted, in_order

SCHEMA = 1
WIDTH = 100
_MOST_OF_COLUMNS = (7, 22, 18)
_GAP = "  "
_SLURM = ("slurm", "allocation")


def doctor(config: Sequence[Path] | None) -> tuple[list[Finding], dict[str, Node]]:
    """Everything that is found for a config's cluster; without one, for this machine alone."""
    want = _wanted(config) if config else None
    unavailable = None if want and want.cluster != "emulated" else why_unavailable()
    found: list[Finding] = []
    if want is None:
        nodes = visit.this_machine()
        want = Wanted(cluster="host")
        found += check_emulation(None, unavailable, None if unavailable else visit.netem())
    elif want.cluster == "emulated":
        nodes = visit.this_machine() if unavailable else visit.emulated(want)
        found += check_emulation(want, unavailable, None if unavailable else visit.netem())
        want = _without_fabrics(want) if unavailable else want
    elif want.cluster in _SLURM and not os.environ.get("SLURM_JOB_ID"):
        nodes = visit.this_machine()
        # A login node is another machine than those that measure: of it, only what they share counts.
        login = [*check_software(want, nodes), *check_hidden(nodes)]
        return in_order([_needs_allocation(want, nodes, config or ()), *login]), nodes
    elif want.cluster in _SLURM:
        nodes, expected, words = visit.allocation(want)
        found += check_answers(expected, nodes, words)
    else:
        nodes = visit.this_machine()
    return in_order([*found, *examine(want, nodes)]), nodes


def exit_status(findings: Sequence[Finding]) -> int:
    """1 if there is a problem; warnings and notes are fine."""
    return int(any(finding.level == "problem" for finding in findings))


def as_json(findings: Sequence[Finding], nodes: Mapping[str, Node]) -> str:
    """The same as data: findings, counts, and every node's facts."""
    plain = {
        "schema": SCHEMA,
        "status": exit_status(findings),
        "counts": {level: _counts(findings)[level] for level in LEVELS},
        "findings": [asdict(finding) for finding in findings],
        "nodes": {name: asdict(node) for name, node in nodes.items()},
    }
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def as_table(findings: Sequence[Finding], nodes: Mapping[str, Node]) -> str:
    """One table within 100 columns, problems first, a mend below each, and a summary as the last line."""
    rows = [("level", "check", "nodes", "what was found")]
    for finding in findings:
        rows.append((finding.level, finding.check, _names(finding.nodes, list(nodes)), finding.text))
        if finding.mend:
            rows.append(("", "", "", f"→ {finding.mend}"))
    widths = [
        min(most, max(len(row[column]) for row in rows)) for column, most in enumerate(_MOST_OF_COLUMNS)
    ]
    widths.append(WIDTH - sum(widths) - len(_GAP) * len(widths))
    return "\n".join([*(_row(row, widths) for row in rows), "", _summary(findings, nodes)]) + "\n"


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Cells side by side, each wrapped in its column; a word longer than its column is broken."""
    wrapped = []
    for text, width in zip(cells, widths, strict=True):
        indent = "  " if text.startswith("→") else ""
        wrapped.append(textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False))
    return "\n".join(
        _GAP.join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip()
        for line in zip_longest(*wrapped, fillvalue="")
    )


def _names(names: Sequence[str], every: Sequence[str]) -> str:
    if len(every) > 1 and set(names) >= set(every):
        return f"all {len(every)}"
    shown = ", ".join(names[:4])
    return f"{shown} and {len(names) - 4} more" if len(names) > 4 else shown


def _summary(findings: Sequence[Finding], nodes: Mapping[str, Node]) -> str:
    counts = _counts(findings)
    words = [
        f"{counts[level]} {level}{'' if counts[level] == 1 else 's'}"
        for level in ("problem", "warning", "note")
    ]
    where = f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}"
    return f"{', '.join(words)}; {counts['ok']} checks are fine; asked: {where}"


def _counts(findings: Sequence[Finding]) -> Counter[str]:
    return Counter(finding.level for finding in findings)


def _wanted(config: Sequence[Path]) -> Wanted:
    from fabricbench.config import load_config, parse_config
    from fabricbench.grid import expand

    campaign = parse_config(load_config(config))
    return wanted(campaign.cluster.kind, [each.cell for each in expand(campaign).cells])


def _without_fabrics(want: Wanted) -> Wanted:
    """What can be checked where the cluster's networks can't be."""
    plain: dict[str, Any] = vars(want) | {"fabrics": ()}
    return Wanted(**plain)


def _needs_allocation(want: Wanted, nodes: Mapping[str, Node], config: Sequence[Path]) -> Finding:
    names = ", ".join(fabric["name"] for fabric in want.fabrics)
    files = " ".join(map(str, config))
    text = f"outside a Slurm job, nodes, interfaces, adapters and reach of {names} can't be checked"
    mend = f"salloc --nodes={want.nodes} fabricbench doctor --config {files}"
    return Finding("allocation", tuple(nodes), "note", text, mend)
