"""What a campaign ran on, in plain words: emulation and its assumptions, versions, counters, config."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import yaml

from fabricbench.analysis.company import beside
from fabricbench.analysis.names import natural
from fabricbench.analysis.stats import counts
from fabricbench.analysis.table import Tables
from fabricbench.report import words
from fabricbench.report.panels import DataTable, emulation_of
from fabricbench.report.published import fitted

Json = Mapping[str, Any]

NOT_KEPT = (
    "Start-up latency, eager, rendezvous and segment thresholds, TCP slow start, incast, and the cost of "
    "reduction on shared cores are not kept by a scale model. Where those decide, its ratios don't hold."
)


@dataclass(frozen=True)
class Assumption:
    """One thing that an emulated campaign rests on."""

    term: str
    text: str


def summary(cells: pd.DataFrame, fabrics: list[str]) -> str:
    """What was compared, in one sentence."""
    if cells.empty:
        return "The grid names no cells."
    jobs = cells[cells["status"] != "unsupported"]
    cells = cells if jobs.empty else jobs
    named = cells.groupby("family", sort=False)["workload"].nunique()
    workloads = [
        f"{family} in {words.plural(int(many), 'variant')}" if many > 1 else str(family)
        for family, many in named.items()
    ]
    backends = [str(name) for name in cells["backend"].unique()]
    gpus = [str(n) for n in sorted(int(n) for n in cells["gpus"].unique())]
    repeats = cells["repeat"].dropna()
    often = f", {words.plural(int(repeats.max()), 'repeat')} each" if not repeats.empty else ""
    return (
        f"{words.listed(workloads)} on {words.listed(fabrics)}, over {words.listed(backends)}, "
        f"on {words.listed(gpus)} GPUs{often}."
    )


def company(cells: pd.DataFrame) -> str:
    """How many cells shared their time, and so maybe their links, with others; "" where that can't be."""
    real = cells[~cells["emulated"].astype(bool) & cells["overlaps"].notna()]
    together, others = (int((real[name].fillna(0) > 0).sum()) for name in ("overlaps", "others"))
    if not together and (real["job"] == "").all():
        return ""
    of = f"of {words.plural(len(real), 'cell')}"
    if not beside(real).any():
        known = real["others"].notna().all()
        return f"None {of} ran at the same time as another" + (
            ", or as jobs of others on the cluster." if known else "."
        )
    said = [f"{together:,} {of} ran at the same time as another"] if together else []
    said += [f"{others:,} {of} at the same time as jobs of others on the cluster"] if others else []
    return f"{_sentence(' and '.join(said))}; comparisons say which of their cells."


def assumptions(tables: Tables) -> list[Assumption]:
    """What the emulated cells assume; nothing for a campaign on real networks."""
    cells = tables.cells[tables.cells["emulated"] & (tables.cells["status"] != "unsupported")]
    if cells.empty:
        return []
    found = [
        Assumption(
            "Nodes",
            f"Up to {words.plural(int(cells['nodes'].max()), 'node')} as network namespaces on one machine, "
            "which share its cores and memory.",
        ),
        Assumption("Links", _links(cells) + _beyond_validation(tables.facts, cells)),
    ]
    if scaled := _scales(cells):
        found.append(Assumption("Scale model", scaled))
    delays = _distinct(emulation_of(tables.facts, cell).get("delay") for cell in cells["cell"])
    found.append(
        Assumption("Delay", " ".join(f"{_sentence(delay)}." for delay in delays) or "No cell recorded how.")
    )
    found += _compute(cells)
    if chosen := fitted(tables.conclusions.published):
        found.append(Assumption("Fitted", f"To published rates: {'; '.join(chosen)}."))
    found.append(Assumption("Not kept", NOT_KEPT))
    return found


def _links(cells: pd.DataFrame) -> str:
    known = cells.dropna(subset=["rate_bit_s", "link_bit_s"])
    rates = known[
        ["fabric", "ports_per_node", "rate_bit_s", "effective_bit_s", "link_bit_s"]
    ].drop_duplicates()
    each = [
        f"{fabric} {words.reached(int(ports), rate, effective)} → {words.ports(int(ports), link)}"
        for fabric, ports, rate, effective, link in rates.itertuples(index=False)
    ]
    text = f"Shaped by tbf in both directions to the fabric's line rate / (S·D): {', '.join(each)}."
    assumed = rates.dropna(subset=["effective_bit_s"])
    if assumed.empty:
        return text
    said = [
        f"{words.ports(int(ports), effective)} effective of {words.ports(int(ports), rate)} over {fabric}"
        for fabric, ports, rate, effective, _ in assumed.itertuples(index=False)
    ]
    return f"{text} Assuming {words.listed(said)}."


def _beyond_validation(facts: Json, cells: pd.DataFrame) -> str:
    """A sentence if any cell's record says that its link is faster than was measured to be kept."""
    faster = cells["cell"].map(lambda cell: emulation_of(facts, cell).get("validated") is False)
    beyond = _distinct(words.bit_rate(rate) for rate in cells.loc[faster.astype(bool), "link_bit_s"])
    if not beyond:
        return ""
    return f" Not validated at {words.listed(beyond)}: there the machine may be what limits, not the link."


def _scales(cells: pd.DataFrame) -> str:
    """S and D explained; "" where nothing is scaled."""
    pairs = cells[["scale_bytes", "scale_time"]].drop_duplicates().itertuples(index=False)
    scales = [f"S = {words.compact(s)} and D = {words.compact(d)}" for s, d in pairs if s * d != 1]
    if not scales:
        return ""
    return (
        f"{words.listed(scales)}: bytes on the wire are divided by S and times multiplied by D, so that a "
        "link at rate / (S·D) holds up a step for the same share of its time as the real link would."
    )


def _compute(cells: pd.DataFrame) -> list[Assumption]:
    """What stands for compute, and from which profile."""
    found = []
    if (cells["device"] == "replay").any():
        replayed = cells[cells["device"] == "replay"]
        profiles = _distinct(_profile(yaml.safe_load(text)) for text in replayed["params"])
        text = (
            f"Replaced by waits in {words.listed(_distinct(replayed['workload']))}: real DDP, real buckets "
            "and real bytes on the links, but each layer waits for as long as a real GPU took. "
            f"Profiles: {'; '.join(profiles) or 'not recorded'}."
        )
        found.append(Assumption("Compute", text))
    shown = cells[cells["demonstration"]]
    if not shown.empty:
        text = (
            f"Real, on this machine's cores, in {words.listed(_distinct(shown['workload']))}. Real "
            "compute on scaled links is a model of nothing: these cells are marked, and fabrics aren't "
            "compared by them."
        )
        found.append(Assumption("Demonstration", text))
    return found


def _profile(params: Json) -> str:
    """`vgg16 at 130.9 images/s with a batch of 64 (source)`, as far as it is known."""
    profile = params.get("profile")
    if not isinstance(profile, Mapping):
        return str(profile) if profile else ""
    text = str(params.get("model", ""))
    if "images_per_s" in profile:
        text += f" at {profile['images_per_s']} images/s"
    if "batch" in profile:
        text += f" with a batch of {profile['batch']}"
    return f"{text} ({profile['source']})" if "source" in profile else text


def versions(tables: Tables) -> DataTable:
    """Distinct hosts, processors, kernels and versions, each with the number of cells it holds for."""
    seen: dict[tuple[str, str], set[str]] = {}
    for cell, entry in tables.facts["cells"].items():
        provenance = tables.facts["provenance"][entry["provenance"]]
        for pair in _described(provenance):
            seen.setdefault(pair, set()).add(cell)
    found = sorted(seen.items(), key=lambda item: [natural(text) for text in item[0]])
    rows = [[what, value, f"{len(cells):,}"] for (what, value), cells in found]
    return DataTable(["what", "value", "cells"], rows, frozenset({"cells"}))


def _described(provenance: Json) -> Iterable[tuple[str, str]]:
    for name, label in (
        ("fabricbench", "fabricbench"),
        ("revision", "git revision"),
        ("python", "Python"),
    ):
        if provenance.get(name):
            yield label, str(provenance[name])
    for nodes in provenance.get("nodes") or [{"kernel": provenance.get("kernel")}]:
        for name, label in (
            ("kernel", "kernel"),
            ("clocksource", "clock source"),
            ("governor", "CPU governor"),
        ):
            if nodes.get(name):
                yield label, str(nodes[name])
    for ranks in provenance.get("ranks") or []:
        if ranks.get("cpu"):
            yield "processor", str(ranks["cpu"])
        hosts = ranks.get("host") or []
        for host in [hosts] if isinstance(hosts, str) else hosts:
            yield "node", str(host)
        for name, version in (ranks.get("versions") or {}).items():
            yield str(name), str(version)
        for name, value in (ranks.get("environment") or {}).items():
            yield f"environment: {name}", str(value)
        for path in ranks.get("hidden_config") or []:
            yield "configuration file outside the job", str(path)


def shaping(tables: Tables) -> DataTable:
    """How links were shaped, once per distinct setting."""
    names = ["fabric", "shaping", "link", "burst", "delay", "trustworthy from"]
    shown: dict[str, Callable[[Any], str]] = {
        "shaping": str,
        "link_bit_s": words.bit_rate,
        "burst_bytes": words.size,
        "delay": str,
    }
    shown |= {"trustworthy_from_bytes": words.size}
    rows = []
    for cell, fabric in tables.cells[["cell", "fabric"]].itertuples(index=False):
        if found := emulation_of(tables.facts, cell):
            rows.append([fabric, *(_shown(found.get(name), show) for name, show in shown.items())])
    unique = [list(row) for row in dict.fromkeys(tuple(row) for row in rows)]
    return DataTable(names, unique, frozenset({"link", "burst", "trustworthy from"}))


def status_counts(cells: pd.DataFrame) -> list[tuple[str, int]]:
    """Statuses with their number: ok first, then by number."""
    return sorted(counts(cells).items(), key=lambda item: item[0] != "ok")


def barred(cells: pd.DataFrame) -> str:
    """How many cells have a value that enters no comparison, and why, the most frequent first."""
    reasons = cells.loc[cells["no_verdict"] != "", "no_verdict"].value_counts()
    if reasons.empty:
        return ""
    first = reasons.index[0]
    more = f" ({reasons.iloc[0]}), and other reasons" if len(reasons) > 1 else ""
    many = words.plural(int(reasons.sum()), "cell")
    return f"{many} measured but not compared: {first}{more}. Each is marked below."


def config_text(grid: Json) -> str:
    """The configuration as it was run, defaults filled in, as YAML."""
    return yaml.safe_dump(dict(grid["campaign"]), sort_keys=False, allow_unicode=True, width=100)


def _shown(value: Any, show: Callable[[Any], str]) -> str:
    """A recorded setting through `show`; as it is where that doesn't fit, and a dash for none."""
    if value is None:
        return words.DASH
    return show(value) if show is str or isinstance(value, int | float) else str(value)


def _distinct(values: Iterable[Any]) -> list[str]:
    """Texts in order of appearance, each once, without the empty ones."""
    return [str(value) for value in dict.fromkeys(values) if value]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
