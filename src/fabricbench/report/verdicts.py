"""Verdicts as people read them: one word with its interval, and one sentence per workload."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log2
from typing import Any

import pandas as pd

from fabricbench.analysis.compare import (
    EQUIVALENT,
    FASTER,
    MOST_BLOCKS,
    NONE,
    REFUSED,
    SLOWER,
    UNDECIDED,
    words_of,
)
from fabricbench.report import words
from fabricbench.variants import side

DECISIVE = (FASTER, SLOWER)
STEPS = (0.15, 0.35, 0.8)
"""Bounds on |log2 ratio| between one depth of colour and the next."""
TONES = {EQUIVALENT: "same", UNDECIDED: "open", REFUSED: "open"}
ORDER = (*DECISIVE, EQUIVALENT, UNDECIDED, REFUSED, NONE)
"""In which a sentence says them."""

Row = Mapping[Any, Any]


@dataclass(frozen=True)
class Said:
    """One verdict."""

    verdict: str
    text: str
    """`faster 27–35 %`, `equivalent ±5 %`, `undecided (+3 blocks)`, `refused`, `no verdict`."""
    word: str
    """The same without an interval: `faster`."""
    interval: str
    """In words, where the text doesn't hold it."""
    tone: str
    """CSS class: lower-1 … lower-4, higher-1 … higher-4, same, open, or none."""
    ratio: str
    unpaired: bool
    why: str


@dataclass(frozen=True)
class Clause:
    """A part of a sentence; `word` is the verdict."""

    lead: str
    word: str
    rest: str


@dataclass(frozen=True)
class Finding:
    """A sentence on one workload: two sides at all its sizes."""

    where: str
    clauses: list[Clause]
    verdict: str
    """The first of the sentence."""


def said(row: Row, margin: float) -> Said:
    """One row of comparisons, as a square or a table shows it."""
    verdict = str(row["verdict"])
    known = row["low_percent"] == row["low_percent"]
    interval = words_of(row["log_low"], row["log_high"]) if known else ""
    ratio = float(row["ratio"])
    return Said(
        verdict=verdict,
        text=_text(row, verdict, margin),
        word=verdict if verdict in DECISIVE else _text(row, verdict, margin),
        interval="" if verdict in DECISIVE else interval,
        tone=_tone(ratio) if verdict in DECISIVE else TONES.get(verdict, ""),
        ratio=words.ratio(ratio) if isfinite(ratio) else "",
        unpaired=bool(_unpaired(row)),
        why=str(row["why"]),
    )


def _text(row: Row, verdict: str, margin: float) -> str:
    match verdict:
        case "faster" | "slower":
            return f"{verdict} {words.percents(row['low_percent'], row['high_percent'])}"
        case "equivalent":
            return f"equivalent {words.margin(margin)}"
        case "undecided" if not pd.isna(row["further_blocks"]):
            return f"undecided (+{_tied(int(row['further_blocks']), 'block')})"
        case "none":
            return "no verdict"
        case _:
            return verdict


def _tied(count: int, noun: str) -> str:
    return words.plural(count, noun).replace(" ", words.NBSP)


def _tone(ratio: float) -> str:
    """A class by how far a ratio is from 1; a colour only repeats what the words say."""
    depth = 1 + sum(abs(log2(ratio)) >= bound for bound in STEPS)
    return f"{'higher' if ratio > 1 else 'lower'}-{depth}"


def sides(row: Row) -> str:
    """`opa against ethernet`, `batch 64 against batch 32`."""
    other, baseline = (side(str(row["by"]), str(row[name])) for name in ("other", "baseline"))
    return f"{other} against {baseline}"


def where(row: Row, size: bool = True) -> str:
    """What is held equal: `vgg16 over gloo, 4 GPUs`, `messages on opa, 4 GPUs`."""
    text = str(row["workload"])
    for link, name in (("on", "fabric"), ("over", "backend")):
        if name in row and not pd.isna(row[name]) and name != row["by"]:
            text += f" {link} {row[name]}"
    if size and not pd.isna(row.get("gpus")):
        text += f", {words.plural(int(row['gpus']), 'GPU')}"
    return text


def findings(comparisons: pd.DataFrame, margin: float) -> list[Finding]:
    """One sentence per workload and pair of sides, over GPU counts; those without any verdict last."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in comparisons.to_dict("records"):
        by = str(row["by"])
        names = (side(by, str(row[name])) for name in ("baseline", "other"))
        key = (by, where(row, size=False), *names)
        groups.setdefault(key, []).append(row)
    found = [_finding(key, rows, margin) for key, rows in groups.items()]
    return sorted(found, key=_without_verdict)


def _without_verdict(finding: Finding) -> bool:
    return finding.verdict == NONE


def _finding(key: tuple[str, ...], rows: Sequence[Row], margin: float) -> Finding:
    _, place, baseline, other = key
    ordered = sorted(rows, key=gpus_of)
    clauses: list[Clause] = []
    for verdict in ORDER:
        of = [row for row in ordered if row["verdict"] == verdict]
        if of and verdict in DECISIVE:
            clauses.append(_decisive(verdict, of, (baseline, other), first=not clauses))
        elif of:
            for tail, sizes in _by_tail(of, verdict):
                clauses.append(_other(verdict, sizes, tail, (baseline, other), margin, first=not clauses))
    return Finding(place, clauses, next(v for v in ORDER if any(row["verdict"] == v for row in rows)))


def gpus_of(row: Row) -> int:
    """GPUs of a row; 0 where they are what is compared."""
    return 0 if pd.isna(row.get("gpus")) else int(row["gpus"])


def _decisive(verdict: str, rows: Sequence[Row], sides: tuple[str, str], first: bool) -> Clause:
    """`opa is` **faster** `than ethernet by 27–35 % on 4 GPUs and by 55–60 % on 16`."""
    baseline, other = sides
    parts: list[str] = []
    for row in rows:
        size = words.plural(gpus_of(row), "GPU") if not parts else str(gpus_of(row))
        percents = words.percents(row["low_percent"], row["high_percent"])
        parts.append(f"by {percents} on {size}{_unpaired(row)}")
    lead, than = (f"{other} is ", f" than {baseline}") if first else ("", "")
    return Clause(lead, verdict, f"{than} {words.listed(parts)}")


def _by_tail(rows: Sequence[Row], verdict: str) -> Iterable[tuple[str, list[int]]]:
    """Sizes of which the same is to be said, as (what, sizes)."""
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(_tail(row, verdict), []).append(gpus_of(row))
    return found.items()


def _unpaired(row: Row) -> str:
    return "" if row["paired"] or row["verdict"] in (REFUSED, NONE) else " (unpaired)"


def _tail(row: Row, verdict: str) -> str:
    return _unpaired(row) + _because(row, verdict)


def _because(row: Row, verdict: str) -> str:
    if verdict == EQUIVALENT:
        return f", yet {words_of(row['log_low'], row['log_high'])}" if row["differs"] else ""
    if verdict != UNDECIDED or row["low_percent"] != row["low_percent"]:
        text = str(row["why"]).partition(": ")[2].rstrip(".")
        return f": {text}" if text else ""
    if pd.isna(row["further_blocks"]):
        return f": with this noise and ratio, {MOST_BLOCKS:,} blocks would not decide"
    more = words.plural(int(row["further_blocks"]), "more block")
    what = "a difference" if row["further_for"] == "difference" else str(row["further_for"])
    return f": {more} would probably show {what}"


def _other(
    verdict: str, sizes: list[int], tail: str, sides: tuple[str, str], margin: float, first: bool
) -> Clause:
    baseline, other = sides
    on = f" on {words.listed([str(n) for n in sizes])} {'GPU' if sizes == [1] else 'GPUs'}"
    if verdict == EQUIVALENT:
        lead, to = (f"{other} is ", f" to {baseline}") if first else ("", "")
        return Clause(lead, verdict, f"{to} within {words.margin(margin)}{on}{tail}")
    word = "no verdict" if verdict == NONE else verdict
    return Clause(f"{other} against {baseline}: " if first else "", word, f"{on}{tail}")
