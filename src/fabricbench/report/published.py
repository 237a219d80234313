"""The campaign's rates beside the published ones that it repeats: words, rows and a figure."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import pandas as pd

from fabricbench.analysis.published import EFFECTIVE, MODELS, gaps
from fabricbench.report import figures, words

Json = Mapping[str, Any]

NAMES = {
    "emulated": "emulated",
    "overlap": "overlap, computed",
    "no_overlap": "no overlap",
    "null": "no network",
}
RIVALS = ("no_overlap", "null")
"""The simpler models that an emulation has to beat."""


@dataclass(frozen=True)
class Estimate:
    """One model's rate, and by how much it is off."""

    value: str
    error: str


@dataclass(frozen=True)
class RateLine:
    """A published rate and what each model makes of it."""

    model: str
    fabric: str
    published: str
    fits: str
    """What was chosen by this rate; "" for a prediction."""
    spread: str
    """Of the emulated rate, over repeats."""
    estimates: list[Estimate]
    """In the order of MODELS."""


@dataclass(frozen=True)
class GapLine:
    """How far one fabric is behind another: published, and by each model."""

    what: str
    published: str
    resolved: bool
    """Whether the reference can tell it from nothing."""
    by_model: list[str]


@dataclass(frozen=True)
class Published:
    """The section; `lines` is empty for a campaign that repeats nothing."""

    about: str
    outcome: str
    columns: list[str]
    """Heads of the models' columns."""
    lines: list[RateLine]
    gap_title: str
    gap_lines: list[GapLine]
    order: str
    svg: str
    limits: list[str]


NOTHING = Published("", "", [], [], "", [], "", "", [])


def against_published(frame: pd.DataFrame, campaign: Json, baseline: str) -> Published:
    """The section on published rates, from what analysis.published made of them; `baseline` may be ""."""
    told = campaign.get("published")
    if not told or frame.empty:
        return NOTHING
    between = gaps(frame, baseline if baseline in set(frame["fabric"]) else str(frame["fabric"].iloc[0]))
    ranked = _ranked(frame, between)
    several = frame["backend"].nunique() > 1
    unresolved = float(told["unresolved"])
    return Published(
        about=_about(frame, told),
        outcome=_outcome(frame),
        columns=[NAMES[name] for name in MODELS],
        lines=[_line(row, several) for row in ranked.to_dict("records")],
        gap_title=_gap_title(between, frame, baseline),
        gap_lines=_gaps(between, several, unresolved),
        order=_order(between),
        svg=figures.by_error(
            ranked.assign(label=[_label(row, several) for row in ranked.to_dict("records")]),
            {name: NAMES[name] for name in MODELS},
            unresolved=unresolved,
            title="Error against each published rate, by model",
        ),
        limits=_limits(frame, between, campaign, unresolved),
    )


def fitted(frame: pd.DataFrame) -> list[str]:
    """What was chosen by which published rate, a clause each."""
    clauses = []
    for row in frame[frame["fits"] != ""].drop_duplicates(["model", "fabric"]).to_dict("records"):
        if row["fits"] == EFFECTIVE:
            what = f"what {row['fabric']} reaches, {words.bit_rate(row['effective_bit_s'])},"
        else:
            what = f"the fixed cost of a step, {words.seconds(row['fixed_cost_s'], words.compact)},"
        clauses.append(f"{what} by {row['model']} over {row['fabric']}")
    return clauses


def _about(frame: pd.DataFrame, told: Json) -> str:
    gpus = words.listed([str(n) for n in sorted(set(frame["gpus"]))])
    backends = words.listed(list(dict.fromkeys(frame["backend"])))
    engine = told["engine"]
    return (
        f"{told['title']} ({told['url']}): images/s of {gpus} GPUs ({told['device']}) with {engine}. Beside "
        f"each rate stands this campaign’s, EMULATED, with {backends} in the place of {engine}, and three "
        "models that are only computed and may use the same fitted rates: overlap is DDP’s, at this "
        "campaign’s own values; no overlap reduces after the compute; no network is one GPU’s step and a "
        "fixed cost."
    )


def _outcome(frame: pd.DataFrame) -> str:
    """How good the predictions are, against the simpler models."""
    predicted = frame[(frame["fits"] == "") & frame["emulated"].notna()]
    if predicted.empty:
        return "No prediction has a result yet."
    errors = {name: predicted[f"{name}_error"].abs() for name in MODELS}
    own = errors["emulated"]
    rivals = words.listed([f"{_percent(errors[name].sum())} with {NAMES[name]}" for name in RIVALS])
    nearer = words.listed([f"{int((own < errors[name]).sum())} than {NAMES[name]}" for name in RIVALS])
    return (
        f"{words.plural(len(predicted), 'rate')} of {len(frame)} predicted, the others fitted. The "
        f"predictions’ errors add up to {_percent(own.sum())}, against {rivals}; of {len(predicted)} "
        f"predictions, nearer are {nearer}. The largest error, fitted rates included, is "
        f"{_percent(float(frame['emulated_error'].abs().max()))}."
    )


def _percent(share: float) -> str:
    """Per cent with a decimal, also from 10 on."""
    return f"{100 * share:.1f}{words.NBSP}%"


def _ranked(frame: pd.DataFrame, between: pd.DataFrame) -> pd.DataFrame:
    """Models by their published gap, the widest first."""
    place = {model: at for at, model in enumerate(dict.fromkeys(between["model"]))}
    return frame.sort_values("model", key=lambda models: models.map(place), kind="stable")


def _line(row: Mapping[Any, Any], several: bool) -> RateLine:
    spread = words.span(row["emulated_min"], row["emulated_max"]) if row["repeats"] > 1 else ""
    return RateLine(
        model=str(row["model"]),
        fabric=_over(row, several),
        published=words.number(row["published"], 4),
        fits=str(row["fits"]).replace("_", " "),
        spread=spread,
        estimates=[
            Estimate(words.number(row[name], 4), words.percent(100 * row[f"{name}_error"], sign=True))
            for name in MODELS
        ],
    )


def _over(row: Mapping[Any, Any], several: bool) -> str:
    return f"{row['fabric']}, {row['backend']}" if several else str(row["fabric"])


def _label(row: Mapping[Any, Any], several: bool) -> str:
    return f"{row['model']} {_over(row, several)}"


def _gaps(between: pd.DataFrame, several: bool, unresolved: float) -> list[GapLine]:
    """A line per gap, named by no more than tells it from the others."""
    fabrics = between["fabric"].nunique() > 1
    return [
        GapLine(
            what=" ".join(
                [row["model"], *([row["fabric"]] if fabrics else []), *([row["backend"]] if several else [])]
            ),
            published=words.percent(100 * row["published"], sign=True),
            resolved=abs(row["published"]) >= unresolved,
            by_model=[words.percent(100 * row[name], sign=True) for name in MODELS],
        )
        for row in between.to_dict("records")
    ]


def _gap_title(between: pd.DataFrame, frame: pd.DataFrame, baseline: str) -> str:
    others = words.listed(list(dict.fromkeys(between["fabric"])))
    base = baseline if baseline in set(frame["fabric"]) else str(frame["fabric"].iloc[0])
    return f"{others} against {base}" if len(between) else ""


def _order(between: pd.DataFrame) -> str:
    """Whether models are in the published order by their gap; "" where that can't be said."""
    if between["fabric"].nunique() != 1 or between["backend"].nunique() != 1 or len(between) < 2:
        return ""
    if between["emulated"].isna().any():
        return ""
    published, own = (
        list(between.assign(size=between[name].abs()).sort_values("size", ascending=False)["model"])
        for name in ("published", "emulated")
    )
    if published == own:
        return f"In the published order, the widest first: {' > '.join(own)}."
    return f"Not in the published order: here {' > '.join(own)}, published {' > '.join(published)}."


def _limits(frame: pd.DataFrame, between: pd.DataFrame, campaign: Json, unresolved: float) -> list[str]:
    """What must not be read out of the section."""
    said = []
    if clauses := fitted(frame):
        said.append(f"Fitted, so no evidence for the model: {'; '.join(clauses)}.")
    if small := [
        str(row["model"]) for row in between.to_dict("records") if abs(row["published"]) < unresolved
    ]:
        names = words.listed(list(dict.fromkeys(small)))
        said.append(
            f"The reference’s own rates are off by up to {words.percent(100 * unresolved)} where nothing "
            f"should make them differ, so the gap of {names} can’t be told from none."
        )
    said += _impossible(frame, campaign)
    return said


def _impossible(frame: pd.DataFrame, campaign: Json) -> list[str]:
    """That a simpler model fits only with rates that the wire doesn't have."""
    above = []
    for row in frame.drop_duplicates("fabric").to_dict("records"):
        line = campaign["fabrics"][row["fabric"]].get("rate_bit_s")
        if line and isfinite(row["no_overlap_bit_s"]) and row["no_overlap_bit_s"] > line:
            has = f"{row['fabric']}, which has {words.bit_rate(line)}"
            above.append(f"{words.bit_rate(row['no_overlap_bit_s'])} over {has}")
    return [f"The model without overlap comes so near only by taking {words.listed(above)}."] if above else []
