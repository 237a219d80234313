"""The part of a configuration that says where cells run: the machines, and what Slurm is asked for.

Takes what satisfies the schema, with its defaults, and tells its mistakes to `mistake(path, text)`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fabricbench.campaign import Cluster, Scale, Slurm
from fabricbench.config_network import interface_mend, parse_binding, quantity
from fabricbench.config_schema import did_you_mean, shown
from fabricbench.nodelist import expand_nodelist
from fabricbench.slurm_job import why_no_option
from fabricbench.units import parse_duration, parse_memory_mib

Mistake = Callable[[str, str], None]

PLACEMENTS = ("packed", "spread")
BY_SLURM = ("slurm", "allocation")
_ONLY_FOR = {
    **dict.fromkeys(("bootstrap", "placement", "nodelist", "exclude", "cpus_per_rank"), BY_SLURM),
    **dict.fromkeys(("modules", "container"), BY_SLURM),
    **dict.fromkeys(("concurrent_cells", "slurm"), ("slurm",)),
}
"""Keys that only some kinds of cluster have."""
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TYPE = re.compile(r"[A-Za-z0-9_.]+")
_SWITCHES = re.compile(r"\d+(@\d[\d:-]*)?")


def parse_cluster(value: Mapping[str, Any], given: Mapping[str, Any], mistake: Mistake) -> Cluster:
    """The machines; `given` is what was written, without defaults."""
    kind = value["kind"]
    if kind != "emulated" and "scale" in given:
        mistake("cluster.scale", "only an emulated cluster is a scale model; remove it")
    if kind == "host" and value["nodes"] != 1:
        mistake("cluster.nodes", f"{value['nodes']}: kind host is this one machine; write 1")
    for key, kinds in _ONLY_FOR.items():
        if key in given and kind not in kinds:
            mistake(f"cluster.{key}", f"only cluster.kind {' and '.join(kinds)} has it; remove it")
    if (bootstrap := value["bootstrap"]) is not None and (text := _bootstrap_mend(bootstrap)):
        mistake("cluster.bootstrap", f"{bootstrap!r} {text}")
    nodes = _nodes("cluster.nodelist", value["nodelist"], mistake)
    exclude = _nodes("cluster.exclude", value["exclude"], mistake)
    left = tuple(node for node in nodes if node not in set(exclude))
    if nodes and not left:
        mistake(
            "cluster.exclude", f"{shown(value['exclude'])} leaves no node of cluster.nodelist; leave one in"
        )
    for index, module in enumerate(value["modules"]):
        if not module or re.search(r"[\s;&|<>$`'\"\\()]", module):
            mistake(f"cluster.modules.{index}", f"{module!r} is not one module's name, as gcc/13")
    if (container := value["container"]) is not None and (not container or container.startswith("-")):
        mistake("cluster.container", f"{container!r} is not an image; write its file, as images/bench.sif")
    placement = [value["placement"]] if isinstance(value["placement"], str) else value["placement"]
    for word in placement:
        if word not in PLACEMENTS:
            mistake("cluster.placement", f"{word!r} is not known; {did_you_mean(word, PLACEMENTS)}")
    if kind == "slurm" and "spread" in placement and not nodes:
        mistake(
            "cluster.placement",
            "spread: Slurm alone doesn't say which nodes are far apart; write cluster.nodelist, or packed",
        )
    return Cluster(
        kind=kind,
        nodes=value["nodes"],
        gpus_per_node=value["gpus_per_node"],
        binding=parse_binding(value["binding"], kind, value["gpus_per_node"], mistake),
        scale=Scale(**value["scale"]),
        bootstrap=bootstrap,
        concurrent_cells=value["concurrent_cells"],
        placement=tuple(sorted(set(placement))),
        nodelist=left,
        exclude=exclude,
        cpus_per_rank=value["cpus_per_rank"],
        modules=tuple(value["modules"]),
        container=container,
        slurm=_slurm(value["slurm"], mistake),
    )


def _slurm(value: Mapping[str, Any], mistake: Mistake) -> Slurm:
    path, names = "cluster.slurm", ("partition", "account", "qos", "constraint", "reservation")
    for key in (*names, "gpu_type"):
        text = value[key]
        if text is not None and (not text.strip() or text[0] in "'\"" or "\n" in text):
            mistake(f"{path}.{key}", f"{text!r} is no name; write it plainly, or leave it out for any")
    if (gpu_type := value["gpu_type"]) and not _TYPE.fullmatch(gpu_type):
        text = f"{gpu_type!r}: Snakemake's executor takes letters, digits, '.' and '_' only"
        mistake(f"{path}.gpu_type", f"{text}; leave it out, and choose nodes by constraint")
    switches = None if value["switches"] is None else str(value["switches"])
    if switches is not None and not _SWITCHES.fullmatch(switches):
        mistake(f"{path}.switches", f"{switches!r} is not a number of switches, as 1 or 1@01:00:00")
    memory = value["memory"]
    if memory not in (None, "all"):
        memory = quantity(parse_memory_mib, f"{path}.memory", memory, 1, mistake)
    for index, option in enumerate(value["options"]):
        if text := why_no_option(option):
            mistake(f"{path}.options.{index}", f"{option!r}: {text}")
    return Slurm(
        **{key: value[key] for key in (*names, "exclusive", "requeue", "gpus_by", "gpu_type")},
        memory=memory,
        switches=switches,
        setup_s=quantity(parse_duration, f"{path}.setup", value["setup"], 0.0, mistake),
        options=tuple(value["options"]),
    )


def _bootstrap_mend(value: str) -> str | None:
    """Why ranks can't meet over an interface of this name; None if they can."""
    if value == "lo":
        return "is loopback, which reaches no other node; write the management network's, as eth0"
    return "is a subnet; write the interface's name" if "/" in value else interface_mend(value)


def _nodes(path: str, value: str | Sequence[str] | None, mistake: Mistake) -> tuple[str, ...]:
    """The names of nodes in Slurm's notation, each once."""
    found: dict[str, None] = {}
    for where, text in _texts(path, value):
        try:
            names = expand_nodelist(text)
        except ValueError as error:
            mistake(where, f"{error}; write it as n[0-7,9]")
            continue
        for name in names or [""]:
            if not _NODE.fullmatch(name):
                mistake(where, f"{shown(text)} names no node, as n[0-7,9] does")
                break
            if name in found:
                mistake(where, f"node {name!r} stands twice; remove one")
                break
            found[name] = None
    return tuple(found)


def _texts(path: str, value: str | Sequence[str] | None) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    for index, text in enumerate([] if value is None or isinstance(value, str) else value):
        yield f"{path}.{index}", text
