"""Why Slurm wouldn't take a job, and which key of the config mends it: from its words and its partitions.

Slurm often says no more than "Requested node configuration is not available". What is asked is then held
against what the partition's nodes have. And it takes jobs that can never start, such as one with a time limit
above the partition's: these are found as well.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from fabricbench.slurm_words import Pool, gpus_of, node_names, seconds, whole

NO_CONTROLLER = re.compile(
    r"unable to contact slurm|connect failure|socket timed out|no answer from slurm", re.I
)
_FOR_NOW = re.compile(r"down, drained or reserved|not usable now|is in use", re.I)
"""What will pass: such a job waits."""
_NOT_AVAILABLE = re.compile(r"node configuration is not available", re.I)
_VAGUE = re.compile(
    r"resource \(gres\)|partition configuration|node count specification|more processors|memory required",
    re.I,
)
"""Words that may be of what nodes lack, or of something else."""
_OF_TIME = re.compile(r"time limit|partition configuration", re.I)
ANY = "cluster.slurm"
"""The key where none is known."""

_OPTIONS = {
    **dict.fromkeys(("-N", "--nodes"), "nodes"),
    **dict.fromkeys(("-n", "--ntasks"), "tasks"),
    **dict.fromkeys(("--ntasks-per-node", "--tasks-per-node"), "tasks_per_node"),
    **dict.fromkeys(("-c", "--cpus-per-task"), "cpus"),
    **dict.fromkeys(("-p", "--partition"), "partition"),
    **dict.fromkeys(("-t", "--time"), "time"),
    **dict.fromkeys(("-C", "--constraint"), "constraint"),
    "--mem": "memory",
    "--gres": "gres",
    "--gpus-per-node": "gpus",
    **dict.fromkeys(("-G", "--gpus"), "gpus_in_all"),
    "--gpus-per-task": "gpus_per_task",
    **dict.fromkeys(("-A", "--account"), "account"),
    **dict.fromkeys(("-q", "--qos"), "qos"),
    "--reservation": "reservation",
    **dict.fromkeys(("-w", "--nodelist"), "nodelist"),
    **dict.fromkeys(("-x", "--exclude"), "exclude"),
}


class Said(NamedTuple):
    """The key to change, and a sentence on what is wrong and its mend."""

    key: str
    why: str
    stops: bool = True
    """False where Slurm itself takes the job, or only says that it waits: it is a guess then."""


def parse_arguments(arguments: Sequence[str]) -> dict[str, str]:
    """What is asked, by the names in _OPTIONS; the last of a kind counts, as for sbatch."""
    found: dict[str, str] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=") if word.startswith("--") else (word[:2], "", word[2:])
        if name not in _OPTIONS:
            continue
        if not equals and not value and words:
            value = words.pop(0)
        found[_OPTIONS[name]] = value
    return found


def explain(accepted: bool, words: str, arguments: Sequence[str], pools: Sequence[Pool]) -> Said | None:
    """What to change so that Slurm takes a request; None where there is nothing.

    `accepted`, `words`: how `sbatch --test-only` ended. A request that only has to wait, since nodes are
    down, drained or reserved, is no refusal.
    """
    asked = parse_arguments(arguments)
    here = _chosen(asked, pools)
    waits = accepted or bool(_FOR_NOW.search(words))
    if said := _beyond_nodes(asked, here):
        return said._replace(stops=not waits)
    if (accepted or _OF_TIME.search(words)) and (said := _beyond_limit(asked, here)):
        return said._replace(stops=not accepted)
    if waits:
        return None
    if _NOT_AVAILABLE.search(words):
        return _lacking(asked, here) if here else Said(ANY, "no node can have it")
    if _VAGUE.search(words) and here and (said := _lacking(asked, here)) and said.key != ANY:
        return said
    return _known(words, asked, pools, here)


def absent(arguments: Sequence[str], pools: Sequence[Pool]) -> list[str]:
    """Nodes that are down or drained, for which a request has to wait; none where there are enough others."""
    asked = parse_arguments(arguments)
    here = _chosen(asked, pools)
    if (feature := asked.get("constraint", "")) and re.fullmatch(r"\w+", feature):
        here = [pool for pool in here if feature in pool.features]
    wanted, excluded = (node_names(asked.get(key, "")) for key in ("nodelist", "exclude"))
    usable = {name: pool.up for pool in here for name in pool.names if name not in excluded}
    if wanted:
        usable = {name: up for name, up in usable.items() if name in wanted}
    if not sum(usable.values()) < (whole(asked.get("nodes", "1")) or 1) <= len(usable):
        return []
    return sorted((name for name, up in usable.items() if not up), key=lambda name: (len(name), name))


def _chosen(asked: Mapping[str, str], pools: Sequence[Pool]) -> list[Pool]:
    """The pools of the partitions that are asked for, or of the default one."""
    if "partition" in asked:
        names = asked["partition"].split(",")
        return [pool for pool in pools if pool.partition in names]
    return [pool for pool in pools if pool.default]


def _beyond_nodes(asked: Mapping[str, str], here: Sequence[Pool]) -> Said | None:
    """A partition's limit on a job's nodes, which Slurm may say or let the job wait by."""
    nodes = whole(asked.get("nodes", "1")) or 1
    limits = [pool.most_nodes for pool in here]
    if not limits or None in limits or nodes <= (most := max(limit for limit in limits if limit is not None)):
        return None
    why = f"{nodes} nodes asked, a job in partition {_names(here)} may have {most}; choose another partition"
    return Said("cluster.slurm.partition", f"{why}, or set cluster.nodes to {most}")


def _beyond_limit(asked: Mapping[str, str], here: Sequence[Pool]) -> Said | None:
    """Slurm takes a job above the partition's limit, unless told otherwise, and never starts it."""
    wanted = seconds(asked.get("time", ""))
    limits = [pool.limit_s for pool in here]
    if wanted is None or not limits or None in limits:
        return None
    longest = max(limit for limit in limits if limit is not None)
    if wanted <= longest:
        return None
    return Said(
        "timeout",
        f"a time limit of {_minutes(wanted)} is above the {_minutes(longest)} of partition {_names(here)}: "
        "such a job waits for ever; lower the workload's timeout or cluster.slurm.setup, or choose another "
        "cluster.slurm.partition",
    )


def _known(words: str, asked: Mapping[str, str], pools: Sequence[Pool], here: Sequence[Pool]) -> Said:
    """The key and mend for words that name what is wrong."""
    for pattern, name, why in _SAYINGS:
        if re.search(pattern, words, re.I):
            value = asked.get(name.rpartition(".")[2], "")
            there = {
                "cluster.slurm.partition": f"; there are {_names(pools)}" if pools else "",
                "cluster.slurm.constraint": _features(here),
            }.get(name, "")
            return Said(name, f"{f'{value}: ' if value else ''}{why}{there}")
    return Said(ANY, "Slurm refuses the job")


_SAYINGS = (
    (r"group not permitted to use this partition|partition.*access|account.*not permitted to use this part",
     "cluster.slurm.partition", "you may not use this partition; choose another"),
    (r"invalid partition", "cluster.slurm.partition", "no such partition"),
    (r"partition configuration|node count specification", "cluster.slurm.partition",
     "the partition's limits don't allow this many nodes; choose another, or fewer gpus"),
    (r"invalid account|account.*invalid", "cluster.slurm.account",
     "Slurm doesn't let you use this account there; `sacctmgr show associations user=$USER` lists yours"),
    (r"invalid qos|qos.*not permitted", "cluster.slurm.qos",
     "Slurm doesn't let you use this QOS; `sacctmgr show associations user=$USER format=qos` lists yours"),
    (r"accounting/qos policy|AssocMax|AssocGrp|QOSMax|QOSGrp", "cluster.slurm.qos",
     "a limit of the account or QOS forbids it; choose another, or ask for less"),
    (r"invalid feature", "cluster.slurm.constraint", "no node has it"),
    (r"reservation", "cluster.slurm.reservation",
     "no such reservation, or not yours; `scontrol show reservation` lists them"),
    (r"time limit|--time specification", "timeout",
     "the time limit isn't allowed; change the workload's timeout or cluster.slurm.setup"),
    (r"unrecognized option|invalid option|option .*requires|ambiguous|doesn't allow an argument",
     "cluster.slurm.options", "sbatch doesn't know the option; correct it"),
    (r"invalid node name", "cluster.nodelist", "it, or cluster.exclude, names nodes that Slurm doesn't have"),
    (r"invalid number of nodes|node count", "cluster.nodelist", "names more nodes than the job has"),
    (r"gres|gpu", "cluster.slurm.gpus_by", "Slurm doesn't know these GPUs; try gpus, or none"),
    (r"memory", "cluster.slurm.memory", "no node has that much; lower it"),
    (r"more processors|cpu count", "cluster.cpus_per_rank", "more cores than there are; lower it"),
)  # fmt: skip


def _lacking(asked: Mapping[str, str], here: Sequence[Pool]) -> Said | None:
    """What no node has, or too few nodes have; None where enough nodes have all, so that they are down."""
    nodes = whole(asked.get("nodes", "1")) or 1
    where = f"partition {_names(here)}"
    have = sum(pool.nodes for pool in here)
    if have < nodes:
        mend = f"choose another partition, or set cluster.nodes to {have}"
        return Said("cluster.slurm.partition", f"{nodes} nodes asked, {where} has {have}; {mend}")
    if strange := sorted(node_names(asked.get("nodelist", "")) - _members(here)):
        return Said("cluster.nodelist", f"{', '.join(strange)}: not in {where}; take them out")
    fitting = _without(here, node_names(asked.get("exclude", "")))
    if (left := sum(pool.nodes for pool in fitting)) < nodes:
        return Said("cluster.exclude", f"{nodes} nodes asked, {left} of {where} are left; exclude fewer")
    for need in _needs(asked, fitting, where):
        fitting = [pool for pool in fitting if need.met(pool)]
        if (some := sum(pool.nodes for pool in fitting)) < nodes:
            return Said(need.key, need.why + (f" ({some} of {nodes} nodes would do)" if some else ""))
    if all(pool.up for pool in here):
        return Said(ANY, f"{where} can't give these nodes as they are asked for")
    return None


class _Need(NamedTuple):
    """Something that each of a job's nodes must have."""

    key: str
    met: Callable[[Pool], bool]
    why: str


def _needs(asked: Mapping[str, str], here: Sequence[Pool], where: str) -> Iterator[_Need]:
    tasks = whole(asked.get("tasks_per_node", "1")) or 1
    constraint = asked.get("constraint", "")
    if re.fullmatch(r"[\w.-]+([&,][\w.-]+)*", constraint):
        features = frozenset(re.split("[&,]", constraint))
        why = f"{constraint}: too few nodes of {where} have it{_features(here)}"
        yield _Need("cluster.slurm.constraint", lambda pool: features <= pool.features, why)
    yield from _gpu_needs(asked, here, where, tasks)
    cpus = tasks * (whole(asked.get("cpus", "1")) or 1)
    most_cpus, most_mb = max(pool.cpus for pool in here), max(pool.memory_mb for pool in here)
    why = (
        f"{tasks} × {cpus // tasks} cores asked of each node, {where} has {most_cpus} at most; lower it, or "
    )
    why += "the workload's threads_per_rank or ranks_per_node"
    yield _Need("cluster.cpus_per_rank", lambda pool: pool.cpus >= cpus, why)
    memory_mb = megabytes(asked.get("memory", ""))
    why = f"{memory_mb} MB asked of each node, {where} has {most_mb} MB at most; lower it"
    yield _Need("cluster.slurm.memory", lambda pool: pool.memory_mb >= memory_mb, why)


def _gpu_needs(asked: Mapping[str, str], here: Sequence[Pool], where: str, tasks: int) -> Iterator[_Need]:
    wanted = gpus_of(asked.get("gres", "")) | gpus_of(f"gpu:{asked['gpus']}" if "gpus" in asked else "")
    each = gpus_of(f"gpu:{asked['gpus_per_task']}" if "gpus_per_task" in asked else "")
    wanted |= {kind: tasks * count for kind, count in each.items()}
    # Slurm might split these otherwise, but each node of a cell has as many ranks as the next.
    in_all = gpus_of(f"gpu:{asked['gpus_in_all']}" if "gpus_in_all" in asked else "")
    nodes = whole(asked.get("nodes", "1")) or 1
    wanted |= {kind: -(-count // nodes) for kind, count in in_all.items()}
    there = sorted({f"{count} × {kind or 'gpu'}" for pool in here for kind, count in pool.gpus.items()})
    for kind, count in wanted.items():
        if not there:
            why = f"no node of {where} has GPUs that Slurm knows; with none it isn't asked for them"
            yield _Need("cluster.slurm.gpus_by", _never, why)
        elif kind and not any(kind in pool.gpus for pool in here):
            why = f"{kind}: no node of {where} has such GPUs, they have {', '.join(there)}"
            yield _Need("cluster.slurm.gpu_type", _never, why)
        else:
            why = f"{count} GPUs asked of each node, those of {where} have {', '.join(there)}; lower the "
            why += "workload's ranks_per_node"
            yield _Need("ranks_per_node", partial(_has_gpus, kind, count), why)


def _never(_: Pool) -> bool:
    return False


def _has_gpus(kind: str, count: int, pool: Pool) -> bool:
    return (pool.gpus.get(kind, 0) if kind else sum(pool.gpus.values())) >= count


def megabytes(text: str) -> int:
    """`9G` → 9216, `500` → 500; 0 for what is none."""
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", text.strip(), re.I)
    if found is None:
        return 0
    return int(int(found[1]) * {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}[found[2].upper()])


def _members(here: Sequence[Pool]) -> frozenset[str]:
    return frozenset[str]().union(*(pool.names for pool in here))


def _without(here: Sequence[Pool], names: frozenset[str]) -> list[Pool]:
    """The pools less some nodes."""
    left = [replace(pool, nodes=pool.nodes - len(pool.names & names)) for pool in here]
    return [pool for pool in left if pool.nodes > 0]


def _features(here: Sequence[Pool]) -> str:
    there = sorted(frozenset[str]().union(*(pool.features for pool in here)))
    return f"; nodes have {', '.join(there)}" if there else "; nodes have no features"


def _names(pools: Sequence[Pool]) -> str:
    return ", ".join(dict.fromkeys(pool.partition for pool in pools))


def _minutes(duration_s: float) -> str:
    return f"{duration_s / 60:g} min"
