"""From tables to what may be said by a campaign's rules: steadiness, comparisons, controls, thresholds."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pandas as pd

from fabricbench.analysis import threshold, within
from fabricbench.analysis.blocks import HELD
from fabricbench.analysis.compare import Axis, Rules, compare
from fabricbench.analysis.control import control, without_second_names
from fabricbench.analysis.published import published
from fabricbench.analysis.scaling import scaling

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Conclusions:
    """Frames of one campaign; each function's docstring has its columns."""

    series: pd.DataFrame
    """One row per cell, metric and message size (within.summary)."""
    ranks: pd.DataFrame
    """One row per cell with several ranks (within.slowest_ranks)."""
    scaling: pd.DataFrame
    """One row per training or flow cell (scaling.scaling)."""
    comparisons: pd.DataFrame
    """One row per compared pair (compare.compare), all axes of the config together."""
    sizes: pd.DataFrame
    """The same for each message size of micro cells (threshold.per_size)."""
    controls: pd.DataFrame
    """One row per A/A control (control.control)."""
    thresholds: pd.DataFrame
    """From how many GPUs, or bytes, on a choice matters; `of` says which."""
    published: pd.DataFrame
    """One row per published rate that the campaign repeats (published.published)."""


def conclude(cells: pd.DataFrame, samples: pd.DataFrame, campaign: Json, facts: Json) -> Conclusions:
    """What cells and samples say under a campaign's rules (grid.json's `campaign`; defaults where absent)."""
    rules, axes = rules_of(campaign), axes_of(campaign, cells)
    series = within.summary(samples)
    flags = within.cell_flags(series)
    pairs = second_names(campaign)
    single = without_second_names(cells, pairs)
    comparisons = compare(single, axes, rules, flags)
    by_size = threshold.per_size(single, series, _trusted_from(facts))
    sizes = compare(by_size, axes, rules, None)
    thresholds = [
        threshold.from_gpus(comparisons).assign(of="gpus"),
        threshold.from_bytes(sizes).assign(of="bytes"),
    ]
    return Conclusions(
        series=series,
        ranks=within.slowest_ranks(samples),
        scaling=scaling(cells, samples),
        comparisons=_keyed(comparisons),
        sizes=_keyed(sizes),
        controls=_keyed(control(cells, pairs, rules, flags)),
        thresholds=pd.concat(
            [one for one in thresholds if not one.empty] or thresholds[:1], ignore_index=True
        ),
        published=published(cells, facts, campaign),
    )


def _keyed(frame: pd.DataFrame) -> pd.DataFrame:
    """With every column that a comparison may hold equal, also when there is no row."""
    return frame.reindex(columns=list(dict.fromkeys([*HELD, *frame.columns])))


def rules_of(campaign: Json) -> Rules:
    """The config's margin, length of a block and seed."""
    return Rules(
        margin=float(campaign.get("margin", 0.05)),
        pair_within_s=float(campaign.get("pair_within_s", 3600.0)),
        allow_versions=bool(campaign.get("allow_version_differences", False)),
        seed=int(campaign.get("seed", 1)),
    )


def axes_of(campaign: Json, cells: pd.DataFrame) -> list[Axis]:
    """The config's comparisons; fabrics, from the first by name, where it has none."""
    return axes_along(campaign, cells["fabric"].dropna())


def axes_along(campaign: Json, fabrics: Iterable[str]) -> list[Axis]:
    """The same, from the names of the fabrics that are used."""
    asked = [Axis(one["by"], one["baseline"]) for one in campaign.get("compare") or []]
    names = sorted({str(name) for name in fabrics if name})
    return asked or [Axis("fabric", name) for name in names[:1]]


def second_names(campaign: Json) -> list[tuple[str, str]]:
    """Fabrics that are one network under two names, variables included: (the first by name, another)."""
    fabrics = campaign.get("fabrics", {})
    plain = {
        name: json.dumps({key: value for key, value in fabric.items() if key != "name"}, sort_keys=True)
        for name, fabric in sorted(fabrics.items())
        if "interface" in fabric
    }
    pairs = [(one, other) for one, other in combinations(plain, 2) if plain[one] == plain[other]]
    seconds = {again for _, again in pairs}
    return [(one, again) for one, again in pairs if one not in seconds]


def _trusted_from(facts: Json) -> dict[str, float]:
    """By cell, from how many bytes on its emulated link holds its rate."""
    found = {}
    for cell, of in facts.get("cells", {}).items():
        shaping = (of.get("evidence") or {}).get("emulation") or {}
        if (least := shaping.get("trustworthy_from_bytes")) is not None:
            found[str(cell)] = float(least)
    return found
