"""What starts a cell's ranks on the nodes of a job: one class per way, one method each.

Everything is said that a site's defaults or an outer job's variables might say otherwise: how many ranks
where, and that nobody but the ranks themselves binds them.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import fabricbench
from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.launch.base import Command, own_environment
from fabricbench.launch.nodes import tasks_per_node
from fabricbench.mpi_library import SRUN_MPI, is_mpi

PACKAGES = str(Path(fabricbench.__file__).resolve().parents[1])
"""The folder that holds this package: the checkout's src, or site-packages."""


class Starter(Protocol):
    """One way to start ranks."""

    def command(self, cell: Cell, nodes: Sequence[str], program: Sequence[str]) -> Command:
        """The command that starts `program` once for each rank, `cell.ranks_per_node` on each of `nodes`."""


class Srun:
    """One step of Slurm's own. `gpus`: the job has GPUs as a resource that steps must ask for."""

    def __init__(self, mpi: str, gpus: bool = False) -> None:
        """`mpi`: what srun's --mpi takes."""
        self.mpi = mpi
        self.gpus = gpus

    def command(self, cell: Cell, nodes: Sequence[str], program: Sequence[str]) -> Command:
        """srun, with every number given."""
        # Every rank sees all GPUs that the job has on its node; with --gpu-bind=none none knew which.
        gpus = [f"--gres={_gres(cell)}"] if self.gpus and cell.device == "cuda" else []
        return Command(
            [
                *("srun", f"--nodes={cell.nodes}", f"--ntasks={cell.gpus}"),
                *(f"--ntasks-per-node={cell.ranks_per_node}", f"--cpus-per-task={cell.cpus_per_rank}"),
                *(f"--nodelist={','.join(nodes)}", "--distribution=block:block", "--mem=0"),
                *(*gpus, "--cpu-bind=none", "--mem-bind=none", f"--mpi={self.mpi}"),
                *("--kill-on-bad-exit=1", "--overlap", "--export=ALL", "--input=none", "--label"),
                *program,
            ]
        )


class Hydra:
    """MPICH's and Intel MPI's mpiexec, which starts its proxies by srun; `gpus` as for Srun."""

    def __init__(self, gpus: bool = False) -> None:
        """Whether its step must ask for GPUs."""
        self.gpus = gpus

    def command(self, cell: Cell, nodes: Sequence[str], program: Sequence[str]) -> Command:
        """mpiexec.hydra over Slurm, on just these hosts."""
        argv = ["mpiexec.hydra", "-bootstrap", "slurm", "-hosts", ",".join(nodes)]
        argv += ["-ppn", str(cell.ranks_per_node), "-n", str(cell.gpus), *program]
        # Intel's takes a job's own placement before -ppn, unless told not to.
        own = {"I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "disable"}
        intel = own if cell.backend.get("library") == "intel-mpi" else {}
        return Command(argv, _for_inner_srun(cell, nodes, self.gpus) | intel)


class OpenMpi:
    """Open MPI's mpirun, which starts its daemons by srun; `gpus` as for Srun."""

    def __init__(self, gpus: bool = False) -> None:
        """Whether its step must ask for GPUs."""
        self.gpus = gpus

    def command(self, cell: Cell, nodes: Sequence[str], program: Sequence[str]) -> Command:
        """mpirun, with slots for just these ranks, and the cell's variables handed on by name."""
        hosts = ",".join(f"{node}:{cell.ranks_per_node}" for node in nodes)
        argv = ["mpirun", "--host", hosts, "--map-by", f"ppr:{cell.ranks_per_node}:node"]
        argv += ["--bind-to", "none", "-n", str(cell.gpus)]
        argv += [word for name in sorted(own_environment(cell)) for word in ("-x", name)]
        return Command([*argv, *program], _for_inner_srun(cell, nodes, self.gpus))


def _for_inner_srun(cell: Cell, nodes: Sequence[str], gpus: bool) -> dict[str, str]:
    """What MPI's launchers read of the job, and what tells their own srun not to bind, nor to speak PMI."""
    names = ",".join(nodes)
    asked = {"SLURM_STEP_GRES": _gres(cell)} if gpus and cell.device == "cuda" else {}
    return asked | {
        "SLURM_NODELIST": names,
        "SLURM_JOB_NODELIST": names,
        "SLURM_NNODES": str(cell.nodes),
        "SLURM_JOB_NUM_NODES": str(cell.nodes),
        "SLURM_TASKS_PER_NODE": tasks_per_node(cell.nodes, cell.ranks_per_node),
        "SLURM_MPI_TYPE": "none",
        "SLURM_OVERLAP": "1",
        "SLURM_CPU_BIND": "none",
        "SLURM_MEM_BIND": "none",
    }


def _gres(cell: Cell) -> str:
    """The GPUs of one node."""
    return f"gpu:{cell.ranks_per_node}"


def launch_of(cell: Cell) -> str:
    """How the cell's ranks start: none, pmi2, pmix, cray_shasta or mpirun."""
    if not is_mpi(cell.backend["engine"]):
        return "none"
    return str(cell.backend.get("launch") or SRUN_MPI[cell.backend.get("library", "mpich")])


def starter(cell: Cell, *, gpus: bool = False) -> Starter:
    """The way in which the ranks of `cell` start."""
    launch = launch_of(cell)
    if launch != "mpirun":
        return Srun(launch, gpus)
    library = cell.backend.get("library", "mpich")
    if library.startswith("openmpi"):
        return OpenMpi(gpus)
    if library == "cray-mpich":
        raise LaunchError(
            f"backends.{cell.backend['name']}.launch: mpirun: Cray MPICH has none; use cray_shasta"
        )
    return Hydra(gpus)


def program(cell: Cell, work: Path) -> list[str]:
    """What runs once for each rank: this interpreter, or the one of the cell's container image."""
    module = ["-m", "fabricbench.launch.task", str(work)]
    image = cell.site.get("container")
    if not image:
        return [sys.executable, *module]
    gpus = ["--nv"] if cell.device == "cuda" else []
    binds = ["--bind", PACKAGES, "--bind", str(work)]
    inside = ["apptainer", "exec", *gpus, *binds, "--env", f"PYTHONPATH={PACKAGES}", image, "python", *module]
    # The library within meets srun in a folder whose name is known only on the node.
    return ["sh", "-c", _WITH_PMIX, "sh", *inside] if launch_of(cell) == "pmix" else inside


_WITH_PMIX = (
    'test -z "$PMIX_SERVER_TMPDIR" || '
    'export APPTAINER_BIND="$PMIX_SERVER_TMPDIR${APPTAINER_BIND:+,$APPTAINER_BIND}"; exec "$@"'
)
