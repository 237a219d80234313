"""From configuration files to a campaign: merge, validate, fill in defaults, normalise units.

A mistake is one line that names key, value and mend; all mistakes of a configuration are told at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from fabricbench import config_train
from fabricbench.campaign import (
    Backend,
    Campaign,
    Cluster,
    Comparison,
    Fabric,
    Matcher,
    Workload,
)
from fabricbench.config_cluster import parse_cluster
from fabricbench.config_environment import check_cells, check_variables
from fabricbench.config_network import (
    check_shared,
    environment,
    parse_backend,
    parse_fabric,
    quantity,
)
from fabricbench.config_published import parse_published
from fabricbench.config_schema import did_you_mean, properties, schema, schema_mistakes, shown, with_defaults
from fabricbench.config_values import environment_mistakes, value_mistakes
from fabricbench.errors import ConfigError
from fabricbench.strict_yaml import read_yaml
from fabricbench.units import parse_duration, parse_share, parse_sizes
from fabricbench.variants import PARAMETERS, axis_values, combinations, resolve, text

_RESERVED_CAMPAIGNS = ("templates", "references")
_RESERVED_WORKLOADS = ("tables", "partial", "logs", "grid.json")
"""Names of the project's own: below reports/, and below results/<campaign>/."""

T = TypeVar("T")


def load_config(paths: Sequence[Path]) -> dict[str, Any]:
    """The files' contents, merged key by key; where two differ, or have lists, the later wins.

    Raises ConfigError with file and line for what isn't YAML, doubled keys, and names that YAML turned
    into something else.
    """
    merged: dict[str, Any] = {}
    for path in paths:
        content = read_yaml(Path(path))
        if not isinstance(content, dict | None):
            raise ConfigError(f"{path}: must be a mapping of keys to values")
        merged = _merged(merged, content or {})
    return merged


def parse_config(raw: Mapping[str, Any]) -> Campaign:
    """A campaign from a raw configuration; raises ConfigError with one line per mistake."""
    if mistakes := value_mistakes(raw):
        raise ConfigError("\n".join(mistakes))
    given = _plain(raw)
    if mistakes := sorted({*schema_mistakes(given), *environment_mistakes(raw)}):
        raise ConfigError("\n".join(mistakes))
    parser = _Parser(given)
    campaign = parser.campaign()
    if parser.mistakes:
        raise ConfigError("\n".join(dict.fromkeys(parser.mistakes)))
    return campaign


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two mappings as one, recursively; `over` wins."""
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = _merged(result[key], value) if both else value
    return result


def _plain(value: Any) -> Any:
    """Dicts, lists and scalars only; whole floats become ints, so that 1 and 1.0 are the same."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _Parser:
    """Parses one configuration that satisfies the schema, and gathers the mistakes it finds."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.mistakes: list[str] = []
        self._given = given
        self._config = _plain(with_defaults(_with_image_sizes(given)))

    def campaign(self) -> Campaign:
        """The campaign; of use only if there are no mistakes after it."""
        config = self._config
        cluster = parse_cluster(config["cluster"], self._given.get("cluster", {}), self._mistake)
        if config["campaign"] in _RESERVED_CAMPAIGNS:
            self._mistake("campaign", f"{config['campaign']!r} is a folder of reports/; take another name")
        for name in set(config["workloads"]) & set(_RESERVED_WORKLOADS):
            self._mistake(f"workloads.{name}", "this name is taken in the folder of results; take another")
        fabrics = {
            name: parse_fabric(name, value, self._given["fabrics"][name], cluster, self._mistake)
            for name, value in sorted(config["fabrics"].items())
        }
        check_shared(fabrics, self._mistake)
        backends = {
            name: parse_backend(name, value, cluster, self._mistake)
            for name, value in sorted(config["backends"].items())
        }
        workloads = {name: self._workload(name, cluster) for name in sorted(config["workloads"])}
        campaign = Campaign(
            name=config["campaign"],
            cluster=cluster,
            fabrics=fabrics,
            backends=backends,
            workloads=workloads,
            gpus=tuple(sorted(set(config["gpus"]))),
            repeats=config["repeats"],
            seed=config["seed"],
            compare=self._comparisons(fabrics, backends, workloads, cluster),
            margin=self._quantity(_positive_share, "margin", config["margin"], 0.05),
            pair_within_s=self._quantity(_positive_duration, "pair_within", config["pair_within"], 3600.0),
            allow_version_differences=config["allow_version_differences"],
            accept_failures=config["accept_failures"],
            published=parse_published(config["published"], cluster, fabrics, workloads, self._mistake),
            environment=environment(config["environment"]),
            only=self._matchers("only", config["only"], workloads.values(), cluster),
            leave_out=self._matchers("except", config["except"], workloads.values(), cluster),
        )
        check_variables(campaign, self._mistake)
        if not self.mistakes:  # or names and options may be wrong
            check_cells(campaign, self._mistake)
        return campaign

    def _mistake(self, path: str, text: str) -> None:
        self.mistakes.append(f"config: {path}: {text}")

    def _quantity(self, parse: Callable[[Any], T], path: str, value: Any, fallback: T) -> T:
        return quantity(parse, path, value, fallback, self._mistake)

    def _comparisons(
        self,
        fabrics: Mapping[str, Fabric],
        backends: Mapping[str, Backend],
        workloads: Mapping[str, Workload],
        cluster: Cluster,
    ) -> tuple[Comparison, ...]:
        """The axes asked for, each once; fabrics from the first by name if none is."""
        libraries = {backend.options.get("library") for backend in backends.values()} - {None}
        known = {
            "fabric": sorted(fabrics),
            "backend": sorted(backends),
            "library": sorted(map(str, libraries)),
            "placement": [*cluster.placement] if cluster.by_slurm else [],
            **_compared_values(workloads.values()),
        }
        asked = self._config["compare"] or [{"by": "fabric", "baseline": known["fabric"][0]}]
        found = tuple(Comparison(by=value["by"], baseline=text(value["baseline"])) for value in asked)
        for index, one in enumerate(found):
            if one.by in PARAMETERS and not known[one.by]:
                mend = f"give it as a list ({one.by}: [a, b]) to compare its values"
                self._mistake(f"compare.{index}.by", f"{one.by!r} has one value in every workload; {mend}")
            elif one.baseline not in known[one.by]:
                hint = did_you_mean(one.baseline, known[one.by])
                self._mistake(f"compare.{index}.baseline", f"{one.baseline!r} is no {one.by} here; {hint}")
            if one.by in [other.by for other in found[:index]]:
                self._mistake(f"compare.{index}.by", f"{one.by!r} is there twice; keep one baseline")
        return found

    def _workload(self, name: str, cluster: Cluster) -> Workload:
        config, path = self._config, f"workloads.{name}"
        value = config["workloads"][name]
        ranks = value["ranks_per_node"] or cluster.gpus_per_node
        if ranks > cluster.gpus_per_node:
            limit = cluster.gpus_per_node
            self._mistake(
                f"{path}.ranks_per_node", f"{ranks} is above cluster.gpus_per_node, {limit}; lower it"
            )
        if value["device"] == "cuda" and cluster.kind == "emulated":
            text = "'cuda' is for real machines; on an emulated cluster use replay, or cpu"
            self._mistake(f"{path}.device", text)
        params = self._params(name, value, cluster)
        workload = Workload(
            name=name,
            kind=value["kind"],
            params=params,
            variants=self._variants(name, value["kind"], params),
            device=value["device"],
            fabrics=self._names(f"{path}.fabrics", value["fabrics"], config["fabrics"]),
            backends=self._names(f"{path}.backends", value["backends"], config["backends"]),
            gpus=tuple(sorted(set(value["gpus"] or config["gpus"]))),
            repeats=value["repeats"] or config["repeats"],
            ranks_per_node=ranks,
            threads_per_rank=value["threads_per_rank"],
            timeout_s=self._quantity(_positive_duration, f"{path}.timeout", value["timeout"], 1.0),
            environment=environment(value["environment"]),
            only=(),
            leave_out=(),
        )
        only = self._matchers(f"{path}.only", value["only"], [workload], cluster)
        leave_out = self._matchers(f"{path}.except", value["except"], [workload], cluster)
        return Workload(**{**vars(workload), "only": only, "leave_out": leave_out})

    def _params(self, name: str, value: Mapping[str, Any], cluster: Cluster) -> dict[str, Any]:
        """The parameters that the workload's kind defines; what can't change the measurement is left out."""
        kind, path = value["kind"], f"workloads.{name}"
        keys = properties(schema()["$defs"][kind], value)
        params = {key: value[key] for key in sorted(keys) if key != "device"}
        if kind == "train":
            params = self._train_params(path, params, value["device"], cluster)
        if kind == "micro":
            step = params.pop("step")
            given = params["sizes"]
            params["sizes"] = self._quantity(lambda v: parse_sizes(v, step), f"{path}.sizes", given, [1])
            params["operations"] = list(dict.fromkeys(params["operations"]))
        if kind == "cfd" and (grid := params["process_grid"]):
            wanted = value["gpus"] or self._config["gpus"]
            if prod(grid) not in wanted:
                self._mistake(f"{path}.process_grid", f"{grid} is for {prod(grid)} ranks, gpus is {wanted}")
        return params

    def _train_params(
        self, path: str, params: dict[str, Any], device: str, cluster: Cluster
    ) -> dict[str, Any]:
        """Training's parameters: units as numbers, without what the device doesn't use."""
        for key, wrong in config_train.mistakes(params, device, cluster.kind):
            self._mistake(f"{path}.{key}", wrong)
        budget, width, fixed = params["budget"], params["width"], params["fixed_cost"]
        params["budget"] = self._quantity(_positive_duration, f"{path}.budget", budget, 30.0)
        params["width"] = self._quantity(parse_share, f"{path}.width", width, 0.02)
        params["fixed_cost"] = self._quantity(parse_duration, f"{path}.fixed_cost", fixed, 0.0)
        return config_train.used(params, device)

    def _variants(self, name: str, kind: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Every combination of a workload's parameters, with what depends on several of them looked up."""
        given = self._given["workloads"][name]
        found = []
        for variant in combinations(kind, params):
            if "image_size" not in given and "model" in variant:
                variant |= config_train.image_size(variant["model"])
            try:
                found.append(resolve(variant))
            except ValueError as error:
                self._mistake(f"workloads.{name}.profile", f"for {variant.get('model')}: {error}")
        return tuple(found)

    def _names(self, path: str, names: Sequence[str] | None, known: Mapping[str, Any]) -> tuple[str, ...]:
        """Names that exist, sorted; all known ones for None."""
        for index, name in enumerate(names or ()):
            if name not in known:
                self._mistake(f"{path}.{index}", f"{name!r} is not defined; {did_you_mean(name, known)}")
        return tuple(sorted(set(known if names is None else names)))

    def _matchers(
        self,
        path: str,
        values: Sequence[Mapping[str, Any]],
        workloads: Iterable[Workload],
        cluster: Cluster,
    ) -> tuple[Matcher, ...]:
        """Matchers whose every value occurs in the grid of these workloads."""
        workloads = list(workloads)
        known: dict[str, set[Any]] = {
            "workload": {workload.name for workload in workloads},
            "fabric": set(self._config["fabrics"]),
            "backend": set(self._config["backends"]),
            "gpus": {gpus for workload in workloads for gpus in workload.gpus},
            "repeat": set(range(1, max((workload.repeats for workload in workloads), default=0) + 1)),
            "placement": {"packed", *cluster.placement} if cluster.by_slurm else set(),
            **_values(workloads),
        }
        matchers = []
        for index, value in enumerate(values):
            matcher = {key: tuple(_listed(wanted)) for key, wanted in value.items() if wanted is not None}
            for key, wanted in matcher.items():
                for item in wanted:
                    if item not in known[key]:
                        hint = did_you_mean(item, map(text, sorted(known[key])))
                        self._mistake(f"{path}.{index}.{key}", f"{shown(item)} matches nothing; {hint}")
            params = {key: matcher.pop(key) for key in PARAMETERS if key in matcher}
            matchers.append(Matcher(**matcher, params=params))
        return tuple(matchers)


def _with_image_sizes(given: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the image size that some models need, where none is given; see `_variants`."""
    workloads = {
        name: config_train.image_size(value.get("model")) | value
        for name, value in given["workloads"].items()
    }
    return {**given, "workloads": workloads}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _values(workloads: Iterable[Workload]) -> dict[str, set[Any]]:
    """By parameter that may be a list, the values that it has in the variants of these workloads."""
    found: dict[str, set[Any]] = {name: set() for name in PARAMETERS}
    for workload in workloads:
        for variant in workload.variants:
            for name, value in axis_values(workload.kind, variant):
                found[name].add(value)
    return found


def _compared_values(workloads: Iterable[Workload]) -> dict[str, list[str]]:
    """By parameter, as text, the values of workloads in which it has several."""
    found: dict[str, set[Any]] = {name: set() for name in PARAMETERS}
    for workload in workloads:
        for name, values in _values([workload]).items():
            found[name] |= values if len(values) > 1 else set()
    return {name: list(map(text, sorted(values))) for name, values in found.items()}


def _positive_share(value: float | str) -> float:
    share = parse_share(value)
    if share <= 0:
        raise ValueError("must be above 0")
    return share


def _positive_duration(value: float | str) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError("must be above 0")
    return seconds
