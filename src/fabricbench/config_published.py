"""The part of a configuration that says which published rates it repeats, resolved to the rates themselves.

Takes what satisfies the schema, with its defaults, and tells its mistakes to `mistake(path, text)`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fabricbench.campaign import Cluster, Fabric, Published, PublishedRate, Workload
from fabricbench.config_network import Mistake
from fabricbench.config_schema import did_you_mean, shown
from fabricbench.references import Reference, Row, names, read_reference


def parse_published(
    value: Mapping[str, Any] | None,
    cluster: Cluster,
    fabrics: Mapping[str, Fabric],
    workloads: Mapping[str, Workload],
    mistake: Mistake,
) -> Published | None:
    """The reference with those of its rates that the grid has cells for; None where none is asked for."""
    if value is None:
        return None
    if cluster.kind != "emulated":
        mistake(
            "published",
            f"a scale model repeats published rates, and cluster.kind is {cluster.kind}; remove it",
        )
        return None
    if value["reference"] not in (known := names()):
        hint = did_you_mean(value["reference"], known)
        mistake(
            "published.reference", f"{shown(value['reference'])} is no file of reports/references; {hint}"
        )
        return None
    reference = read_reference(value["reference"])
    rows = [row for row in reference.rows if row.engine == value["engine"] and row.gpus > 1]
    if not rows:
        hint = did_you_mean(value["engine"], _distinct(row.engine for row in reference.rows if row.gpus > 1))
        mistake("published.engine", f"{shown(value['engine'])} has no rates in {reference.name}; {hint}")
        return None
    wrong = [*_wrong_fabrics(value["fabrics"], fabrics, rows), *_wrong_fits(value, rows)]
    for path, text in wrong:
        mistake(f"published.{path}", text)
    if wrong:
        return None
    fits = {(one["model"], one["fabric"]): one["fits"] for one in value["fitted"]}
    return Published(
        reference=reference.name,
        title=reference.title,
        url=reference.url,
        device=reference.device,
        unresolved=reference.unresolved,
        engine=value["engine"],
        rates=_rates(value["fabrics"], reference, rows, fits, workloads, mistake),
    )


def _wrong_fabrics(
    given: Mapping[str, str], fabrics: Mapping[str, Fabric], rows: Sequence[Row]
) -> Iterator[tuple[str, str]]:
    """(key, text) of names that one side doesn't know."""
    theirs = _distinct(row.fabric for row in rows)
    for name, meant in given.items():
        if name not in fabrics:
            yield f"fabrics.{name}", f"no such fabric here; {did_you_mean(name, fabrics)}"
        if meant not in theirs:
            hint = did_you_mean(meant, theirs)
            yield f"fabrics.{name}", f"{shown(meant)} is no fabric of the reference; {hint}"


def _wrong_fits(value: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """The same of what was fitted: each value by one rate, each rate for one value."""
    models = _distinct(row.model for row in rows)
    rates: set[tuple[str, str]] = set()
    values: set[tuple[str, str]] = set()
    for index, one in enumerate(value["fitted"]):
        for key, known in (("model", models), ("fabric", sorted(value["fabrics"]))):
            if one[key] not in known:
                hint = did_you_mean(one[key], known)
                yield f"fitted.{index}.{key}", f"{shown(one[key])} has no published rate; {hint}"
        rate = (one["model"], one["fabric"])
        fits = (one["fits"], one["fabric"] if one["fits"] == "effective" else "")
        if rate in rates:
            yield f"fitted.{index}", f"{' over '.join(rate)} is there twice; a rate can fit one value"
        if fits in values:
            yield f"fitted.{index}.fits", f"{one['fits']} is fitted twice; keep one rate for it"
        rates.add(rate)
        values.add(fits)


def _rates(
    fabrics: Mapping[str, str],
    reference: Reference,
    rows: Sequence[Row],
    fits: Mapping[tuple[str, str], str],
    workloads: Mapping[str, Workload],
    mistake: Mistake,
) -> tuple[PublishedRate, ...]:
    """Rates that some workload runs: same model, batch, GPUs, and GPUs per node."""
    rates = []
    for name, meant in sorted(fabrics.items()):
        for row in rows:
            alone = reference.one_gpu(row.model, row.batch_per_gpu)
            if (
                row.fabric == meant
                and alone
                and any(_runs(workload, row, name) for workload in workloads.values())
            ):
                rates.append(
                    PublishedRate(
                        model=row.model,
                        fabric=name,
                        batch=row.batch_per_gpu,
                        gpus=row.gpus,
                        images_per_s=row.images_per_second,
                        one_gpu_images_per_s=alone,
                        fits=fits.get((row.model, name)),
                    )
                )
    if not rates:
        each = _distinct(
            f"{row.batch_per_gpu} on {row.gpus} GPUs, {row.gpus_per_node} per node" for row in rows
        )
        models = ", ".join(_distinct(row.model for row in rows))
        mistake(
            "published",
            f"no workload trains one of {models} as the reference did: by replay, batch {' or '.join(each)}",
        )
    elif left := sorted(set(fits) - {(rate.model, rate.fabric) for rate in rates}):
        mistake("published.fitted", f"{left[0][0]} over {left[0][1]} is no cell of the grid; measure it, too")
    return tuple(rates)


def _runs(workload: Workload, row: Row, fabric: str) -> bool:
    """Whether a workload has cells that stand for a published rate."""
    if workload.kind != "train" or workload.device != "replay" or fabric not in workload.fabrics:
        return False
    models, batches = (_each(workload.params[name]) for name in ("model", "batch"))
    alike = row.model in models and row.batch_per_gpu in batches
    return alike and row.gpus in workload.gpus and min(workload.ranks_per_node, row.gpus) == row.gpus_per_node


def _each(value: Any) -> list[Any]:
    """The values of an axis; a scalar is one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
