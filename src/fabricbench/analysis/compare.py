"""Comparisons along one axis, the rest held equal: how much, how sure, and what may be said of it.

Everything is worked out on logarithms of ratios, other over baseline. Formulas, the meaning of each verdict
and the limits: docs/statistics.md.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log1p, nan, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from fabricbench import variants
from fabricbench.analysis import barred_cells, blocks, company
from fabricbench.analysis.blocks import SIDES

Floats = npt.NDArray[np.float64]

FASTER, SLOWER, EQUIVALENT, UNDECIDED = "faster", "slower", "equivalent", "undecided"
REFUSED, NONE = "refused", "none"
VERDICTS = (FASTER, SLOWER, EQUIVALENT, UNDECIDED, REFUSED, NONE)

BOOTSTRAP_FROM = 10
"""Blocks: fewer show a bootstrap too little of the noise (a percentile bootstrap of 5 covers 83 %)."""
POWER = 0.8
"""`further_blocks` is how many more decide in this share of cases, if the ratio and noise seen are true."""
MOST_BLOCKS = 1000
"""If more would be needed than this, `further_blocks` is none."""

NUMBERS = [
    *(
        "n_blocks",
        "n_baseline",
        "n_other",
        "n_unused",
        "paired",
        "why_unpaired",
        "method",
        "beside",
        "left_out",
    ),
    *("log_ratio", "log_low", "log_high", "log_inner_low", "log_inner_high"),
    *("boot_low", "boot_high", "boot_inner_low", "boot_inner_high"),
    *("sd", "df", "error", "p", "p_holm", "comparisons_of_workload", "p_tost"),
]
SAID = [
    *("verdict", "direction", "low_percent", "high_percent", "differs"),
    *("further_blocks", "further_for", "flags", "why"),
]
TEXTS = ("verdict", "direction", "further_for", "why")
LEAST = [
    "comparison",
    "workload",
    "family",
    "by",
    "baseline",
    "other",
    "mixed",
    "versions_differ",
    "no_verdict",
]
"""What an empty table of comparisons has besides."""


@dataclass(frozen=True)
class Axis:
    """What is compared: every value of the column `by` against `baseline`."""

    by: str
    baseline: str


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How comparisons are judged."""

    margin: float = 0.05
    """A share: two are equivalent if neither takes more time than the other by more than this."""
    confidence: float = 0.95
    """Of intervals; 1 less it is the level of the tests."""
    pair_within_s: float = blocks.PAIR_WITHIN_S
    allow_versions: bool = False
    """Whether cells of different library versions may be compared: when that is the question."""
    resamples: int = 2000
    seed: int = 1

    @property
    def level(self) -> float:
        """Of each test: how often it may be wrong."""
        return 1 - self.confidence


@dataclass(frozen=True)
class _About:
    """What is looked up of cells, by their row."""

    logs: Floats
    steadiness: list[str]
    no_verdict: list[str]
    beside: list[bool]


def compare(
    cells: pd.DataFrame,
    axes: Sequence[Axis],
    rules: Rules | None = None,
    flags: Mapping[str, str] | pd.Series | None = None,
) -> pd.DataFrame:
    """One row per axis × other value × held-equal key that the table has on both sides.

    flags: steadiness by cell (`within.cell_flags`); without it, the column `steadiness` is read. A text
    column `no_verdict`, where it isn't empty, says why a cell may enter no verdict: it is left out
    (`left_out` says how many and why), and a side that has no other gets none. Holm's adjustment is over
    all rows of one workload of the config (`family`, or else `workload`) that this call returns: make one
    call with all axes. An axis may be a parameter of workloads (along.along).

    ratio, log_ratio: other over baseline, of values of which more is better. log_low and log_high enclose
    it with `confidence`, log_inner_… with the confidence that the test of equivalence needs (90 %); boot_…
    are the same from a bootstrap (NaN below 10 blocks). p: that both are equally fast; p_holm: adjusted;
    p_tost: that they differ by `margin` or more. direction: which way the estimate points; low_percent to
    high_percent: how much more time it takes (slower) or how much more it does in the same time (faster),
    negative the other way round. differs: the test of a difference holds, whatever the verdict.
    further_blocks: see POWER.
    """
    rules = rules or Rules()
    steadiness = _texts(cells, "steadiness")
    if flags is not None:
        by_cell = {str(cell): str(word) for cell, word in dict(flags).items()}
        steadiness = [by_cell.get(cell, "") for cell in _texts(cells, "cell")]
    measured = [_measure(cells, axis, rules, steadiness) for axis in axes]
    filled = [frame for frame in measured if not frame.empty] or [pd.DataFrame(columns=LEAST)]
    table = pd.concat(filled, ignore_index=True)
    columns = list(dict.fromkeys([*LEAST, *table.columns, *NUMBERS, *SAID]))
    table = _tested(table.reindex(columns=columns), rules)
    rows = _records(table)
    said = [_judge(row, rules) for row in rows]
    for name in SAID:
        if name != "flags":
            dtype = "string" if name in TEXTS else object
            table[name] = pd.Series([row[name] for row in said], dtype=dtype, index=table.index)
    table["ratio"] = np.exp(table["log_ratio"])
    integers = dict.fromkeys(
        ("n_blocks", "n_baseline", "n_other", "n_unused", "further_blocks", "comparisons_of_workload"),
        "Int64",
    )
    floats = dict.fromkeys(("low_percent", "high_percent"), float)
    texts = dict.fromkeys(
        ("method", "why_unpaired", "flags", "beside", "left_out", "by", "baseline", "other"), "string"
    )
    booleans = dict.fromkeys(("paired", "differs"), bool)
    return table.astype({**integers, **floats, **booleans, **texts}).drop(
        columns=["comparison", "no_verdict"]
    )


def t_interval(mean: Any, sd_of_mean: Any, df: Any, confidence: float) -> tuple[Any, Any]:
    """Student's interval around a mean."""
    half = special.stdtrit(df, (1 + confidence) / 2) * sd_of_mean
    return mean - half, mean + half


def p_of_difference(mean: Any, sd_of_mean: Any, df: Any) -> Any:
    """Two-sided p of a t-test that the mean is zero. Without any noise: 0, or 1 if the mean is zero."""
    return 2 * special.stdtr(df, -np.abs(_over(mean, sd_of_mean)))


def p_of_equivalence(mean: Any, sd_of_mean: Any, df: Any, reach: float) -> Any:
    """The larger p of two one-sided t-tests, that the mean is -reach or less, and reach or more."""
    below = special.stdtr(df, -_over(mean + reach, sd_of_mean))
    above = special.stdtr(df, _over(mean - reach, sd_of_mean))
    return np.maximum(below, above)


def holm(p: Floats) -> Floats:
    """Holm's adjusted p-values; NaN stays NaN and counts for nothing."""
    adjusted = np.full(len(p), nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1) if len(order) else steps
    return adjusted


def bootstrap(
    values: Floats, confidences: Sequence[float], resamples: int, seed: int
) -> list[tuple[Floats, Floats]]:
    """For each confidence, the intervals of the rows' means by a bootstrap over their values, studentised.

    Each resample's t replaces Student's: that keeps the coverage at 10 blocks, where a percentile bootstrap
    falls short (docs/statistics.md). All rows share the draws, so a row's answer depends on no other.
    """
    rows, n = values.shape
    draws = np.random.default_rng([seed, n]).integers(0, n, (resamples, n))
    tails = [(1 + sign * confidence) / 2 for confidence in confidences for sign in (1, -1)]
    bounds = np.empty((len(tails), rows))
    for row, own in enumerate(values):
        mean, error = own.mean(), own.std(ddof=1) / sqrt(n)
        again = own[draws]
        means = again.mean(axis=1)
        errors = np.sqrt(np.maximum((again**2).mean(axis=1) - means**2, 0) / (n - 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(errors > 1e-9 * error, (means - mean) / errors, 0.0)
        bounds[:, row] = mean - np.quantile(t, tails) * error
    return [(bounds[2 * i], bounds[2 * i + 1]) for i in range(len(confidences))]


def further_blocks(
    log_ratio: float, sd: float, have: int, rules: Rules, holm_factor: float = 1.0, paired: bool = True
) -> tuple[int | None, str]:
    """How many more blocks decide, and for what ("difference" or "equivalence"), whichever takes fewer.

    With the ratio and noise seen, so many blocks in all bring the test to its level with a power of 80 %.
    None if the noise isn't known, or if it takes more than MOST_BLOCKS, or if the ratio lies at the margin.
    """
    if not sd >= 0 or have < 1:
        return None, ""
    away, reach = abs(log_ratio), log1p(rules.margin)

    def spread(n: int) -> tuple[int, float]:
        return n - 1 if paired else 2 * (n - 1), max(sd / sqrt(n), 1e-12)

    def difference(n: int) -> float:
        df, error = spread(n)
        limit = special.stdtrit(df, 1 - rules.level / holm_factor / 2)
        return float(special.stdtr(df, away / error - limit))

    def equivalence(n: int) -> float:
        df, error = spread(n)
        limit = special.stdtrit(df, 1 - rules.level)
        below = special.stdtr(df, (reach - away) / error - limit)
        return float(below + special.stdtr(df, (reach + away) / error - limit) - 1)

    sizes = range(max(have + 1, 2), MOST_BLOCKS + 1)
    powers = {"difference": difference, "equivalence": equivalence}
    reached = {what: bisect_left(sizes, POWER, key=power) for what, power in powers.items()}
    found = {what: sizes[at] - have for what, at in reached.items() if at < len(sizes)}
    if not found:
        return None, ""
    nearest = min(found, key=lambda what: found[what])
    return found[nearest], nearest


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _over(value: Any, error: Any) -> Any:
    """value / error, and its limit where there's no error."""
    value, error = np.asarray(value, dtype=float), np.asarray(error, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        limit = np.where(value == 0, 0.0, np.sign(value) * inf)
        return np.where(error == 0, limit, value / error)


def _measure(cells: pd.DataFrame, axis: Axis, rules: Rules, steadiness: list[str]) -> pd.DataFrame:
    """Means, noise and degrees of freedom of every comparison along one axis; no judgement yet."""
    found = blocks.find(
        cells,
        axis.by,
        axis.baseline,
        pair_within_s=rules.pair_within_s,
        allow_versions=rules.allow_versions,
    )
    about = _About(
        logs=np.log(cells["value"].where(blocks.usable(cells)).to_numpy(dtype=float, na_value=nan)),
        steadiness=steadiness,
        no_verdict=_texts(cells, "no_verdict"),
        beside=company.beside(cells).tolist(),
    )
    pairs = _by_comparison(found.pairs, ["baseline_row", "other_row"])
    rest = _by_comparison(found.unpaired, ["side", "row", "why"])
    rows = []
    for row in _records(found.comparisons):
        number = row["comparison"]
        rows.append(row | _one(row, pairs.get(number, []), rest.get(number, []), about))
    return _with_bootstrap(pd.DataFrame(rows), rules)


def _most_frequent(words: list[str]) -> str:
    return max(sorted(set(words)), key=words.count, default="")


def _by_comparison(frame: pd.DataFrame, columns: list[str]) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for number, *values in frame[["comparison", *columns]].itertuples(index=False, name=None):
        found.setdefault(int(number), []).append(tuple(values))
    return found


def _texts(cells: pd.DataFrame, name: str) -> list[str]:
    """A text column, empty where the table has none."""
    if name not in cells:
        return [""] * len(cells)
    return [str(text) for text in cells[name].astype("string").fillna("")]


def _one(
    comparison: Mapping[str, Any], paired: list[tuple[Any, ...]], alone: list[tuple[Any, ...]], about: _About
) -> dict[str, Any]:
    """One comparison's numbers. Blocks are used if they hold at least half of the smaller side's cells."""
    every = [[p[at] for p in paired] + [r for side, r, _ in alone if side == SIDES[at]] for at in (0, 1)]
    barred = [[row for row in rows if about.no_verdict[row]] for rows in every]
    paired, alone = barred_cells.without(paired, alone, {row for rows in barred for row in rows})
    sides = [[pair[side] for pair in paired] for side in (0, 1)]
    left = [[row for side, row, _ in alone if side == name] for name in SIDES]
    blocked = len(paired)
    least_left = min(len(rows) for rows in left)
    as_blocks = blocked >= 1 and (bool(comparison["versions_differ"]) or blocked >= least_left)
    used = sides if as_blocks else [sides[side] + left[side] for side in (0, 1)]
    first, second = (about.logs[rows] for rows in used)
    names = [variants.side(str(comparison["by"]), str(comparison[side])) for side in SIDES]
    found: dict[str, Any] = {
        "n_blocks": blocked,
        "n_baseline": len(first),
        "n_other": len(second),
        "n_unused": sum(map(len, left)) if as_blocks else 0,
        "paired": as_blocks,
        "method": "",
        "flags": _flagged(used, names, about.steadiness),
        "beside": _beside(used, names, about.beside),
        "why_unpaired": "" if as_blocks else _most_frequent([why for _, _, why in alone]),
        "left_out": barred_cells.left_out(every, barred, names, about.no_verdict),
        "no_verdict": barred_cells.no_verdict(comparison, every, barred, about.no_verdict),
        "log_ratio": nan,
        "sd": nan,
        "df": nan,
        "error": nan,
        "values": None,
    }
    if found["no_verdict"] or not len(first) or not len(second):
        return found
    if as_blocks:
        ratios = second - first
        n = len(ratios)
        found |= {"method": "one block", "log_ratio": float(ratios.mean()), "values": ratios}
        if n > 1:
            sd = float(ratios.std(ddof=1))
            found |= {"method": "paired t", "sd": sd, "df": n - 1, "error": sd / sqrt(n)}
        return found
    found |= {"method": "two samples", "log_ratio": float(second.mean() - first.mean())}
    if min(len(first), len(second)) > 1:
        parts = [float(side.var(ddof=1)) / len(side) for side in (first, second)]
        below = sum(part**2 / (len(side) - 1) for part, side in zip(parts, (first, second), strict=True))
        df = sum(parts) ** 2 / below if below > 0 else len(first) + len(second) - 2.0
        spread = sqrt(float(first.var(ddof=1)) + float(second.var(ddof=1)))
        found |= {"method": "Welch t", "sd": spread, "df": df, "error": sqrt(sum(parts))}
    return found


def _flagged(used: list[list[int]], names: Sequence[str], steadiness: Sequence[str]) -> str:
    """How many cells of either side weren't steady, as "drifting: 2 of 5 cells of ethernet"."""
    said = []
    for word in ("drifting", "two-humped"):
        for name, rows in zip(names, used, strict=True):
            if many := sum(word in steadiness[row] for row in rows):
                said.append(f"{word}: {many} of {len(rows)} cells of {name}")
    return ", ".join(said)


def _beside(used: list[list[int]], names: Sequence[str], beside: Sequence[bool]) -> str:
    """How many cells of either side shared their time with others, as "2 of 5 cells of ethernet"."""
    counted = [
        (sum(beside[row] for row in rows), len(rows), name) for name, rows in zip(names, used, strict=True)
    ]
    return ", ".join(f"{many} of {all_of} cells of {name}" for many, all_of, name in counted if many)


def _with_bootstrap(table: pd.DataFrame, rules: Rules) -> pd.DataFrame:
    """From ten blocks on, a second interval that assumes no distribution; NaN elsewhere."""
    names = ("boot_low", "boot_high", "boot_inner_low", "boot_inner_high")
    numbers = {name: np.full(len(table), nan) for name in names}
    if "values" in table:
        lengths = np.array([0 if values is None else len(values) for values in table["values"]], dtype=int)
        for n in np.unique(lengths[lengths >= BOOTSTRAP_FROM]):
            rows = np.flatnonzero(lengths == n)
            matrix = np.stack(list(table["values"].iloc[rows]))
            # Two one-sided tests at a level are an interval that leaves out twice that level.
            confidences = (rules.confidence, 1 - 2 * rules.level)
            found = bootstrap(matrix, confidences, rules.resamples, rules.seed)
            for prefix, (low, high) in zip(("boot", "boot_inner"), found, strict=True):
                numbers[f"{prefix}_low"][rows], numbers[f"{prefix}_high"][rows] = low, high
    return table.drop(columns="values", errors="ignore").assign(**numbers)


def _tested(table: pd.DataFrame, rules: Rules) -> pd.DataFrame:
    """Adds intervals and p-values; Holm within a workload of the config. What is refused enters no test."""
    facts = _records(table[["mixed", "versions_differ", "paired"]])
    allowed = pd.Series([not _refusal(row) for row in facts], index=table.index, dtype=bool)
    for name in ("log_ratio", "sd", "df", "error"):
        table[name] = table[name].astype(float).where(allowed)
    mean, error, df = (table[name].to_numpy(dtype=float) for name in ("log_ratio", "error", "df"))
    table["log_low"], table["log_high"] = t_interval(mean, error, df, rules.confidence)
    table["log_inner_low"], table["log_inner_high"] = t_interval(mean, error, df, 1 - 2 * rules.level)
    table["p"] = p_of_difference(mean, error, df)
    table["p_tost"] = p_of_equivalence(mean, error, df, log1p(rules.margin))
    p = table["p"].to_numpy(dtype=float)
    adjusted, family = np.full(len(p), nan), np.zeros(len(p), dtype=int)
    workloads = table["workload"] if table["family"].isna().all() else table["family"]
    for rows in table.groupby(workloads, sort=False, dropna=False).indices.values():
        adjusted[rows] = holm(p[rows])
        family[rows] = np.count_nonzero(~np.isnan(p[rows]))
    table["p_holm"], table["comparisons_of_workload"] = adjusted, family
    return table.drop(columns="error")


def _refusal(row: Mapping[str, Any]) -> str:
    """Why two sides can't be compared at all, or ""."""
    if row["mixed"]:
        return str(row["mixed"])
    if row["versions_differ"] and not row["paired"]:
        return f"the sides ran with different libraries ({row['versions_differ']}), which wasn't allowed"
    return ""


def _judge(row: Mapping[str, Any], rules: Rules) -> dict[str, Any]:
    """The verdict on one row, with the sentence that says why."""
    said: dict[str, Any] = {
        "verdict": UNDECIDED,
        "direction": "",
        "low_percent": nan,
        "high_percent": nan,
        "differs": False,
        "further_blocks": None,
        "further_for": "",
    }
    if refusal := _refusal(row):
        return said | {"verdict": REFUSED, "why": f"Refused: {refusal}."}
    if row["no_verdict"]:
        return said | {"verdict": NONE, "why": f"No verdict: {row['no_verdict']}."}
    mean, p = row["log_ratio"], row["p"]
    if np.isnan(mean):
        lacking = " or ".join(row[side] for side in SIDES if not row[f"n_{side}"])
        return said | {"why": f"Undecided: no good cell of {lacking}."}
    said["direction"] = SLOWER if mean < 0 else FASTER
    if np.isnan(p):
        return said | {"why": _why_no_interval(row)}
    said["low_percent"], said["high_percent"] = in_percent(row["log_low"], row["log_high"])
    reach = log1p(rules.margin)
    sure, inner = True, True
    if not np.isnan(row["boot_low"]):
        sure = row["boot_low"] > 0 or row["boot_high"] < 0
        inner = row["boot_inner_low"] > -reach and row["boot_inner_high"] < reach
    said["differs"] = bool(row["p_holm"] < rules.level and sure)
    if row["p_tost"] < rules.level and inner:
        said["verdict"] = EQUIVALENT
    elif said["differs"]:
        said["verdict"] = said["direction"]
    else:
        factor = row["p_holm"] / p if p > 0 and row["p_holm"] < 1 else row["comparisons_of_workload"]
        have = min(int(row["n_baseline"]), int(row["n_other"]))
        said["further_blocks"], said["further_for"] = further_blocks(
            mean, row["sd"], have, rules, max(1.0, factor), bool(row["paired"])
        )
    return said | {"why": _why(row, said, rules, sure and inner)}


def in_percent(log_low: float, log_high: float) -> tuple[float, float]:
    """An interval of the log ratio as percent, from less to more in the direction of its middle.

    Slower by a %: it takes a % more time for the same work. Faster by a %: a % more work in the same time.
    """
    if log_low + log_high < 0:
        log_low, log_high = -log_high, -log_low
    return 100 * (exp(log_low) - 1), 100 * (exp(log_high) - 1)


def _why_no_interval(row: Mapping[str, Any]) -> str:
    if row["paired"]:
        core = "Undecided: one block gives no interval, since nothing shows how much blocks differ"
    else:
        core = f"Undecided: {row['n_baseline']} against {row['n_other']} cells that form no blocks give no "
        core += "interval; each side needs 2 at least"
    return f"{core}{_barred(row)}{_company(row)}."


def _barred(row: Mapping[str, Any]) -> str:
    return f"; left out: {row['left_out']}" if row["left_out"] else ""


def _company(row: Mapping[str, Any]) -> str:
    return f"; beside other cells or jobs: {row['beside']}" if row["beside"] else ""


def _why(row: Mapping[str, Any], said: Mapping[str, Any], rules: Rules, bootstrap_agrees: bool) -> str:
    over = (
        f"{row['n_blocks']} blocks"
        if row["paired"]
        else f"{row['n_baseline']} against {row['n_other']} cells, unpaired ({row['why_unpaired']}), so what "
        "differs may be nodes or time"
    )
    span = words_of(row["log_low"], row["log_high"])
    margin = f"±{100 * rules.margin:g} %"
    difference = f"{row['method']}, p = {row['p']:.2g}, by Holm {row['p_holm']:.2g}"
    equivalence = f"two one-sided t-tests, p = {row['p_tost']:.2g}"
    match said["verdict"]:
        case "equivalent":
            inner = words_of(row["log_inner_low"], row["log_inner_high"])
            core = (
                f"Equivalent within {margin} ({equivalence}): {inner} by the {100 - 200 * rules.level:g} % "
            )
            core += f"interval{f', and yet they differ: {span} ({difference})' if said['differs'] else ''}"
        case "faster" | "slower":
            core = f"{span[0].upper()}{span[1:]} ({difference})"
        case _:
            core = f"Undecided: {span}; neither a difference ({difference}) nor equivalence within {margin} "
            core += f"({equivalence}) is shown"
            core += "" if bootstrap_agrees else " by t-test and bootstrap alike"
            core += _further(said)
    flagged = f"; not steady: {row['flags']}" if row["flags"] else ""
    unused = f"; {_cells(row['n_unused'])} without a partner left out" if row["n_unused"] else ""
    return f"{core}; {over}{unused}{_barred(row)}{flagged}{_company(row)}."


def _cells(number: int) -> str:
    return f"{number} cell{'' if number == 1 else 's'}"


def words_of(log_low: float, log_high: float) -> str:
    """An interval of the log ratio in words: "slower by 2.0 to 5.1 %", "from 1 % slower to 2 % faster"."""
    if log_low < 0 < log_high:
        return f"from {100 * (exp(-log_low) - 1):.1f} % slower to {100 * (exp(log_high) - 1):.1f} % faster"
    low, high = in_percent(log_low, log_high)
    return f"{SLOWER if log_low + log_high < 0 else FASTER} by {low:.1f} to {high:.1f} %"


def _further(said: Mapping[str, Any]) -> str:
    more = said["further_blocks"]
    if more is None:
        return f"; with this noise and ratio, {MOST_BLOCKS} blocks would not decide"
    return f"; {more} more block{'s' if more > 1 else ''} would probably show {_a(said['further_for'])}"


def _a(what: str) -> str:
    return "a difference" if what == "difference" else what
