"""A cell as a job of Slurm, and the rules for options that a user adds.

Pure functions from cluster and cell to what Snakemake's Slurm executor turns into sbatch's options.

Imported while Snakemake parses, on every node as well: keep it light.
"""

import re
import shlex
from math import ceil
from types import MappingProxyType

from fabricbench.campaign import Cluster
from fabricbench.cell import Cell
from fabricbench.launch.nodes import pick

Resources = dict[str, int | str]

MACHINE = 1_000_000
"""What profiles/slurm gives of the resource `machine`: each of k concurrent cells takes a k-th of it."""

_EXECUTOR = "Snakemake's Slurm executor sets it"
_FIXED = "the cell's own nodes and ranks set it"

TAKEN = MappingProxyType(
    {
        **dict.fromkeys(("job-name", "J", "output", "o", "error", "e", "parsable", "export"), _EXECUTOR),
        **dict.fromkeys(("comment", "chdir", "D", "workdir", "wrap", "array", "a"), _EXECUTOR),
        **dict.fromkeys(("ntasks", "n", "nodes", "N", "ntasks-per-node", "ntasks-per-gpu"), _FIXED),
        **dict.fromkeys(("account", "A"), "write cluster.slurm.account"),
        **dict.fromkeys(("partition", "p"), "write cluster.slurm.partition"),
        **dict.fromkeys(("qos", "q"), "write cluster.slurm.qos"),
        **dict.fromkeys(("constraint", "C"), "write cluster.slurm.constraint"),
        "reservation": "write cluster.slurm.reservation",
        "exclusive": "write cluster.slurm.exclusive",
        **dict.fromkeys(("oversubscribe", "s", "overcommit", "O"), "write cluster.slurm.exclusive"),
        **dict.fromkeys(("requeue", "no-requeue"), "write cluster.slurm.requeue"),
        **dict.fromkeys(("gres", "gpus", "G", "gpus-per-node"), "write cluster.slurm.gpus_by and gpu_type"),
        **dict.fromkeys(("gpus-per-task", "gpus-per-socket"), "write cluster.slurm.gpus_by and gpu_type"),
        **dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu"), "write cluster.slurm.memory"),
        "switches": "write cluster.slurm.switches",
        **dict.fromkeys(("time", "t"), "write the workload's timeout, and cluster.slurm.setup"),
        **dict.fromkeys(("cpus-per-task", "c", "cpus-per-gpu"), "write cluster.cpus_per_rank"),
        **dict.fromkeys(("nodelist", "w", "nodefile", "F"), "write cluster.nodelist"),
        **dict.fromkeys(("exclude", "x"), "write cluster.exclude"),
        **dict.fromkeys(("spread-job", "contiguous"), "write cluster.placement"),
        **dict.fromkeys(("dependency", "d"), "write cluster.concurrent_cells"),
        **dict.fromkeys(("clusters", "M"), "call Snakemake on the cluster itself"),
    }
)
"""Options of sbatch that aren't the user's to add, each with what to do instead."""

# What the executor refuses anywhere in the text of slurm_extra, be it within a value (plugin 2.8.0).
_REFUSED = re.compile(
    r"--(job-name|output|error|export|comment|workdir|account|partition|mem|mem-per-cpu|ntasks|ntasks-per-gpu"
    r"|cpus-per-task|cpus-per-gpu|time|constraint|qos|nodes|clusters|gres|gpus)[=\s]|--parsable|-J|-[oeDApnctCN]\s"
)


def resources(cluster: Cluster, cell: Cell, timeout_s: float) -> Resources:
    """The Snakemake resources of a cell's job; empty on a cluster that has no jobs.

    What the configuration leaves open is left out, so that a profile's default-resources can say it.
    Text is as Slurm takes it, and `slurm_extra` as a shell takes it.
    """
    if cluster.kind != "slurm":
        return {}
    slurm = cluster.slurm
    job: Resources = {
        "nodes": cell.nodes,
        # By this key alone, whatever its value, Snakemake runs the cell in the batch script. Without it
        # the cell would be a step of its own, and the srun within would wait for ever for that step's cores.
        "mpi": "srun" if cell.gpus > 1 else "",
        "cpus_per_task": cell.cpus_per_rank,
        "runtime": minutes(cluster, timeout_s),
    }
    if cell.gpus > 1:
        job["tasks"] = cell.gpus
    for key, value in (
        ("slurm_partition", slurm.partition),
        ("slurm_account", slurm.account),
        ("constraint", slurm.constraint),
        ("qos", slurm.qos),
    ):
        if value is not None:
            job[key] = value
    if isinstance(slurm.memory, int):
        job["mem_mb"] = slurm.memory
    elif slurm.memory == "all":
        job["mem_mb"] = 0  # the executor leaves it out, see _extra
    gpus, words = _gpus(cluster, cell)
    job |= gpus
    job["slurm_extra"] = " ".join([*words, *_extra(cluster, cell)])
    if cluster.concurrent_cells > 1:
        job["machine"] = MACHINE // cluster.concurrent_cells
    return job


def minutes(cluster: Cluster, timeout_s: float) -> int:
    """The time limit of a job."""
    return ceil((timeout_s + cluster.slurm.setup_s) / 60)


def sbatch_arguments(job: Resources) -> list[str]:
    """What the executor makes of a job's resources, for `sbatch --test-only`: all that can be refused.

    Without name, output and comment, and without waiting for other cells.
    """
    arguments = [f"--nodes={job['nodes']}", f"--ntasks={job.get('tasks', 1)}"]
    for option, key in (
        ("cpus-per-task", "cpus_per_task"),
        ("time", "runtime"),
        ("partition", "slurm_partition"),
        ("account", "slurm_account"),
        ("constraint", "constraint"),
        ("qos", "qos"),
        ("gres", "gres"),
    ):
        if key in job:
            arguments.append(f"--{option}={job[key]}")
    if memory := job.get(
        "mem_mb_per_cpu"
    ):  # the executor takes it before the other, and 0 of either for none
        arguments.append(f"--mem-per-cpu={memory}")
    elif memory := job.get("mem_mb", _mb(job.get("mem"))):
        arguments.append(f"--mem={memory}")
    if "gpu" in job or "gpu_model" in job:
        model = f"{job['gpu_model']}:" if job.get("gpu_model") else ""
        arguments.append(f"--gpus={model}{job.get('gpu', 1)}")
    extra = shlex.split(str(job["slurm_extra"]))
    return [*arguments, *(word for word in extra if not word.startswith("--dependency="))]


def _mb(text: int | str | None) -> int:
    """What Snakemake makes of a size such as 4GB, in MB of 10^6; 0 for none, and for what is no size."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGTP]?)(i?)B?\s*", str(text or ""))
    if not found:
        return 0
    power = "kMGTP".index(found[2].replace("K", "k")) + 1 if found[2] else 0
    return ceil(float(found[1]) * float(1024 if found[3] else 1000) ** power / 1e6)


def why_no_option(text: str) -> str | None:
    """Why a text is no option that a user may add for sbatch; None when it is."""
    try:
        words = shlex.split(text)
    except ValueError:
        return "its quotes don't match"
    if not words or not re.match(r"--?[A-Za-z]", words[0]):
        return "is no option; write it as on sbatch's command line, as --mail-type=FAIL"
    if len(words) > 1 and any(word.startswith("-") for word in words[1:]):
        return "is more than one option; write each as a text of its own"
    long = words[0].startswith("--")
    name = words[0][2:].partition("=")[0] if long else words[0][1]
    instead = TAKEN.get(name) if long == (len(name) > 1) else None
    return f"{instead}, so remove it here" if instead else None


def _gpus(cluster: Cluster, cell: Cell) -> tuple[Resources, list[str]]:
    """How a cell with real GPUs asks for them: as a resource of the executor's, or in words of sbatch's."""
    slurm = cluster.slurm
    if cell.device != "cuda" or slurm.gpus_by == "none":
        return {}, []
    each = f"{slurm.gpu_type}:" * bool(slurm.gpu_type) + str(cell.ranks_per_node)
    if slurm.gpus_by == "gpus":  # --gpus, a number for all nodes, would be split as Slurm likes
        return {}, [f"--gpus-per-node={each}"]
    # Otherwise the executor takes the number of ranks for that of tasks on each GPU.
    return {"tasks_per_gpu": -1, "gres": f"gpu:{each}"}, []


def _extra(cluster: Cluster, cell: Cell) -> list[str]:
    """sbatch's options that the executor has no resource for, as words of a shell."""
    slurm = cluster.slurm
    words = [f"--ntasks-per-node={cell.ranks_per_node}"]
    words += ["--exclusive"] * slurm.exclusive
    words.append("--requeue" if slurm.requeue else "--no-requeue")
    if slurm.memory == "all":
        words.append('"--mem"=0')  # in quotes, as the executor would take it for a mistake
    for option, value in (("reservation", slurm.reservation), ("switches", slurm.switches)):
        if value is not None:
            words.append(f"--{option}={_word(value)}")
    if cluster.nodelist:
        words.append(f"--nodelist={_word(','.join(pick(cluster.nodelist, cell.nodes, cell.placement)))}")
    # Also when empty: after a node failed, the executor excludes all nodes of its job from then on, of which
    # the others may be needed. A dead node is Slurm's to leave out.
    words.append(f"--exclude={_word(','.join(cluster.exclude)) if cluster.exclude else ''}")
    if cluster.concurrent_cells == 1:
        # All jobs of one call of Snakemake share their name: Slurm itself runs one after the other, in the
        # order of submission, without waiting for Snakemake to see that one has ended.
        words.append("--dependency=singleton")
    for option in slurm.options:
        words += map(_word, shlex.split(option))
    return words


def _word(text: str) -> str:
    """A word as a shell takes it, in which the executor sees none of the options that it refuses."""
    word = shlex.quote(text)
    return word.replace("-", "-''") if _REFUSED.search(f"{word} ") else word
