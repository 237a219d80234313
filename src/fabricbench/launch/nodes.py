"""Which of a job's nodes a cell takes, and what its launcher may know of the job around it.

In the code key: whatever is here decides where ranks run.
"""

from collections.abc import Mapping, Sequence

from fabricbench.errors import LaunchError
from fabricbench.nodelist import expand_nodelist

_IDS = {
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CLUSTER_NAME", "SLURM_WORKING_CLUSTER", "SLURM_CONF"),
    *("SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST", "SLURM_TOPOLOGY_ADDR"),
}


def job_nodes(environment: Mapping[str, str], told: str) -> list[str]:
    """The job's nodes in Slurm's order: by SLURM_JOB_NODELIST, else as scontrol tells (`told`).

    A job with --no-kill outlives a node that dies: the variable still names it, scontrol doesn't.
    """
    told = "" if told == "(null)" else told
    try:
        alive = expand_nodelist(told)
        names = expand_nodelist(environment.get("SLURM_JOB_NODELIST") or told)
    except ValueError as error:
        raise LaunchError(f"the nodes of this Slurm job: {error}") from None
    names = [name for name in names if name in alive] or names
    if not names:
        raise LaunchError(
            "the nodes of this Slurm job can't be found: SLURM_JOB_NODELIST isn't set, and "
            "`scontrol show job` doesn't tell; add scontrol to PATH"
        )
    return names


def pick(nodes: Sequence[str], count: int, placement: str) -> list[str]:
    """So many of the nodes, in their order: the first (packed), or evenly spaced ones (spread)."""
    if placement != "spread" or count >= len(nodes):
        return list(nodes[:count])
    return [nodes[place * len(nodes) // count] for place in range(count)]


def choose(nodes: Sequence[str], count: int, placement: str, only: str, exclude: str, kind: str) -> list[str]:
    """The `count` nodes of a cell among a job's, in the job's order, by which Slurm numbers ranks.

    `only` (empty for all) and `exclude` are in Slurm's notation; `pick` goes by the order of `only`. So all
    cells of one size run on the same nodes. Raises LaunchError when too few are allowed; `kind` is the
    cluster's, for the mend.
    """
    wanted, unwanted = _named("nodelist", only), set(_named("exclude", exclude))
    there = set(nodes)
    allowed = [node for node in wanted or nodes if node in there and node not in unwanted]
    if len(allowed) < count:
        asked = "".join(
            f", cluster.{key}: {text}" for key, text in (("nodelist", only), ("exclude", exclude)) if text
        )
        mend = "get a larger allocation, or leave out GPU counts"
        if kind != "allocation":
            mend = "see cluster.nodelist and exclude in the config, and call Snakemake again"
        raise LaunchError(
            f"this cell takes {count} nodes, and this job has {len(allowed)} for it ({_few(nodes)}{asked}); "
            + mend
        )
    chosen = set(pick(allowed, count, placement))
    return [node for node in nodes if node in chosen]


def tasks_per_node(nodes: int, ranks: int) -> str:
    """SLURM_TASKS_PER_NODE for as many ranks on each node."""
    return f"{ranks}(x{nodes})" if nodes > 1 else str(ranks)


def outside_of_steps(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without Slurm's variables but those that say which job this is.

    Left alone, those of a batch script or of a step around this process are options to every srun: they
    started two ranks where four were asked for, and nest a step in a step.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in _IDS or not name.startswith(("SLURM_", "SRUN_", "SBATCH_", "SALLOC_"))
    }


def _named(key: str, text: str) -> list[str]:
    try:
        return expand_nodelist(text) if text else []
    except ValueError as error:
        raise LaunchError(f"cluster.{key}: {error}") from None


def _few(names: Sequence[str]) -> str:
    return ",".join(names) if len(names) <= 4 else f"{names[0]} to {names[-1]}, {len(names)} nodes"
