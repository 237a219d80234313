"""The sections on comparisons: what may be said, how sure that is, and what the noise is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fabricbench.analysis.compare import NONE, words_of
from fabricbench.analysis.conclusions import Conclusions, rules_of
from fabricbench.analysis.control import NO_CONTROL, decision
from fabricbench.analysis.names import natural
from fabricbench.report import verdicts, words
from fabricbench.report.panels import METRICS, DataTable
from fabricbench.report.verdicts import Finding, Row, Said
from fabricbench.variants import side

Json = Mapping[str, Any]

MOST_FINDINGS = 12
"""Sentences on the first screen; the others are folded."""
MOST_FAILED = 4
"""Failed controls that the banner names."""


@dataclass(frozen=True)
class Line:
    """One comparison in a table."""

    what: str
    said: Said
    blocks: str
    method: str
    interval: str
    p: str
    p_tost: str
    flags: str
    floor: str = ""
    """A control's."""
    failed: str = ""
    """Why a control says that the campaign can't decide."""


@dataclass(frozen=True)
class AxisSection:
    """All comparisons along one axis against one baseline."""

    title: str
    lines: list[Line]

    @property
    def flagged(self) -> bool:
        """Whether any of its cells wasn't steady."""
        return any(line.flags for line in self.lines)


@dataclass(frozen=True)
class SizeTable:
    """Verdicts by message size: a row per size, a column per operation and other side."""

    title: str
    columns: list[str]
    rows: list[tuple[str, list[Said | None]]]


@dataclass(frozen=True)
class Trust:
    """What the controls say of the whole campaign."""

    cannot: str
    """Why it can't decide; "" if it can, or if nothing was compared."""
    failed: list[str]
    """The failed controls, one sentence each."""
    floor: str
    """One sentence on the noise floor; "" where no control has an interval."""
    missing: str
    """That no control was measured; else ""."""


@dataclass(frozen=True)
class Compared:
    """All that a page says of comparisons; the template comparisons.html.j2 shows it."""

    findings: list[Finding]
    folded: list[Finding]
    trust: Trust
    margin: str
    interval: str
    """`95 % interval`."""
    sections: list[AxisSection]
    controls: AxisSection
    thresholds: DataTable
    sizes: list[SizeTable]


def comparison_sections(conclusions: Conclusions, campaign: Json) -> Compared:
    """What conclusions say under a campaign's rules (grid.json's `campaign`), whatever the axes."""
    rules = rules_of(campaign)
    found = verdicts.findings(conclusions.comparisons, rules.margin)
    return Compared(
        findings=found[:MOST_FINDINGS],
        folded=found[MOST_FINDINGS:],
        trust=_trust(conclusions),
        margin=words.margin(rules.margin),
        interval=f"{100 * rules.confidence:g} % interval",
        sections=_sections(conclusions.comparisons, rules.margin),
        controls=AxisSection(
            "Controls: one network under two names",
            [_control(row, rules.margin) for row in _ordered(conclusions.controls)],
        ),
        thresholds=_thresholds(conclusions.thresholds),
        sizes=_sizes(conclusions.sizes, rules.margin),
    )


def _trust(conclusions: Conclusions) -> Trust:
    judged = decision(conclusions.controls)
    if conclusions.comparisons.empty or (conclusions.comparisons["verdict"] == NONE).all():
        return Trust("", [], "", "")
    if judged.reason == NO_CONTROL:
        return Trust("", [], "", f"Noise floor not known: {NO_CONTROL}.")
    counted = conclusions.controls[conclusions.controls["verdict"] != NONE]
    failed = [
        f"{verdicts.where(row)}: {row['reason']}"
        for row in _ordered(counted)
        if not judged.can_decide and not row["can_decide"]
    ]
    more = [f"and {len(failed) - MOST_FAILED} more"] if len(failed) > MOST_FAILED else []
    cannot = f"{len(failed)} of {words.plural(len(counted), 'control')} did not come out equivalent."
    return Trust(cannot if failed else "", [*failed[:MOST_FAILED], *more], _floor(counted), "")


def _floor(controls: pd.DataFrame) -> str:
    known = controls[controls["noise_floor_percent"].notna()]
    if known.empty:
        return ""
    widest = known.sort_values("noise_floor_percent").to_dict("records")[-1]
    return (
        f"Noise floor: one network under two names ({widest['baseline']} and {widest['other']}) differs by "
        f"at most {words.percent(widest['noise_floor_percent'])} ({verdicts.where(widest)}; the widest of "
        f"{words.plural(len(known), 'control')})."
    )


def _sections(comparisons: pd.DataFrame, margin: float) -> list[AxisSection]:
    groups: dict[str, list[Line]] = {}
    for row in _ordered(comparisons):
        groups.setdefault(f"By {row['by']}, against {side(str(row['by']), str(row['baseline']))}", []).append(
            _line(row, margin, side(str(row["by"]), str(row["other"])))
        )
    return [AxisSection(title, lines) for title, lines in groups.items()]


def _ordered(frame: pd.DataFrame) -> list[Row]:
    """Rows by axis as they come, then workload, what is held, the other side and size; no verdict last."""
    axes = {by: place for place, by in enumerate(dict.fromkeys(frame["by"]))}

    def place(row: Row) -> tuple[Any, ...]:
        none = row["verdict"] == NONE
        return (
            axes[row["by"]],
            none,
            natural(verdicts.where(row, size=False)),
            natural(str(row["other"])),
            verdicts.gpus_of(row),
        )

    return sorted(frame.to_dict("records"), key=place)


def _line(row: Row, margin: float, which: str, **more: str) -> Line:
    known = row["low_percent"] == row["low_percent"]
    tested = row["p"] == row["p"]
    said = verdicts.said(row, margin)
    return Line(
        what=f"{verdicts.where(row)}: {which}",
        said=said,
        blocks=str(row["n_blocks"]) if not said.unpaired else f"{row['n_baseline']} / {row['n_other']}",
        method=str(row["method"]) or words.DASH,
        interval=words_of(row["log_low"], row["log_high"]) if known else words.DASH,
        p=f"{words.p_value(row['p_holm'])} ({row['comparisons_of_workload']})" if tested else words.DASH,
        p_tost=words.p_value(row["p_tost"]),
        flags="" if pd.isna(row["flags"]) else str(row["flags"]),
        **more,
    )


def _control(row: Row, margin: float) -> Line:
    floor = row["noise_floor_percent"]
    failed = "" if row["can_decide"] or row["verdict"] == NONE else str(row["reason"])
    return _line(row, margin, verdicts.sides(row), floor=words.percent(floor), failed=failed)


def _thresholds(thresholds: pd.DataFrame) -> DataTable:
    """Where there was more than one size to compare."""
    names = ["comparison", "matters from", "equivalent up to", "compared", "why"]
    found: dict[tuple[str, ...], list[str]] = {}
    for row in thresholds.to_dict("records"):
        if row["smallest"] == row["largest"] or row["demonstration"]:
            continue
        show = words.size if row["of"] == "bytes" else _gpu_count
        matters = words.DASH
        if not pd.isna(row["matters_from"]):
            matters = f"{show(row['matters_from'])}: {row['direction']}"
        same = row["equivalent_up_to"]
        line = (
            f"{verdicts.where(row)}: {verdicts.sides(row)}",
            matters,
            words.DASH if pd.isna(same) else show(same),
            f"{show(row['smallest'])} to {show(row['largest'])}",
            _with_sizes(str(row["why"])) if row["of"] == "bytes" else str(row["why"]),
        )
        metric = METRICS.get(str(row["metric"]), str(row["metric"])) if row["of"] == "bytes" else ""
        found.setdefault(line, []).append(metric)
    rows = [
        [f"{what}; {words.listed(metrics)}" if any(metrics) else what, *rest]
        for (what, *rest), metrics in found.items()
    ]
    return DataTable(names, rows, wrap=frozenset({"comparison", "why"}))


def _gpu_count(value: float) -> str:
    return words.plural(int(value), "GPU")


def _with_sizes(text: str) -> str:
    """Plain numbers of bytes as people write them."""
    return re.sub(r"\d+", _as_size, text)


def _as_size(number: re.Match[str]) -> str:
    return words.size(float(number[0]))


def _sizes(sizes: pd.DataFrame, margin: float) -> list[SizeTable]:
    groups: dict[str, list[Row]] = {}
    for row in _ordered(sizes):
        groups.setdefault(f"{verdicts.where(row)}: {row['by']} against {row['baseline']}", []).append(row)
    return [_size_table(title, rows, margin) for title, rows in groups.items()]


def _size_table(title: str, rows: list[Row], margin: float) -> SizeTable:
    columns: dict[tuple[str, str], str] = {}
    said: dict[tuple[int, tuple[str, str]], Said] = {}
    for row in rows:
        column = (str(row["metric"]), str(row["other"]))
        columns[column] = f"{METRICS.get(column[0], column[0])}: {column[1]}"
        said[int(row["bytes"]), column] = verdicts.said(row, margin)
    by_size = sorted({size for size, _ in said})
    lines = [(size, [said.get((size, column)) for column in columns]) for size in by_size]
    return SizeTable(title, list(columns.values()), _shortened(lines))


def _shortened(lines: list[tuple[int, list[Said | None]]]) -> list[tuple[str, list[Said | None]]]:
    """Sizes that follow each other without any verdict as one line."""
    rows: list[tuple[int, int, list[Said | None]]] = []
    for size, said in lines:
        if rows and _without_verdict(said) and _without_verdict(rows[-1][2]):
            rows[-1] = (rows[-1][0], size, said)
        else:
            rows.append((size, size, said))
    return [
        (words.size(first) if first == last else f"{words.size(first)} – {words.size(last)}", said)
        for first, last, said in rows
    ]


def _without_verdict(said: list[Said | None]) -> bool:
    return all(one is not None and one.verdict == NONE for one in said)
