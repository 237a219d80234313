"""What a launcher is: one class that says which command starts a cell's ranks."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fabricbench.cell import Cell
from fabricbench.launch.asking import asking

# What a user's shell may carry that would choose another network, protocol or algorithm than the cell's.
INHERITED = (
    *("NCCL_", "OFI_NCCL_", "UCX_", "UCC_", "HCOLL_", "SHARP_", "FI_", "GLOO_", "TORCH_"),
    *("PSM_", "PSM2_", "PSM3_", "HFI_"),
    *("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "MPIR_CVAR_", "MPIR_PARAM_", "MPICH_", "MV2_", "I_MPI_"),
    *("PMI_", "PMIX_"),
    *("OMP_", "GOMP_", "KMP_"),
)
_PLACES = ("I_MPI_ROOT", "FI_PROVIDER_PATH")
"""Of these families, those that say where a library lies, as its module set them."""
THREAD_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

# What the runner tells a launcher beside the cell.
RUNNER = "FABRICBENCH_RUNNER"
"""The runner's process number: whoever finds another parent has lost it."""
NEIGHBOURS = "FABRICBENCH_NEIGHBOURS"
"""Idle interfaces that an emulated node has beside the cell's own."""
BOOTSTRAP = "FABRICBENCH_BOOTSTRAP"
"""The interface over which the ranks of a job meet; empty: what host names resolve to."""
NODELIST, EXCLUDE = "FABRICBENCH_NODELIST", "FABRICBENCH_EXCLUDE"
"""The nodes of a job that a cell may have, and those that it may not; empty: no wish."""
MISSING = "missing"
"""A file in the work folder that says which ranks never came, of a cell that was ended."""
RANK_LOG = "rank-{}.log"
"""Where a rank writes what it prints, in the cell's work folder."""


@dataclass(frozen=True)
class Command:
    """What the runner starts: arguments, and the variables set over the inherited environment."""

    argv: list[str]
    env: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 0.0
    """How long it has, once told to end by SIGTERM, to end what it started elsewhere."""


class Launcher(Protocol):
    """How ranks start. A new launcher is one class and one row in LAUNCHERS."""

    in_a_job: bool
    """Whether ranks run on the nodes of a Slurm job, and so the work folder must be seen by all of them,
    or on this machine, which then measures one cell at a time."""

    def command(self, cell: Cell, work: Path) -> Command:
        """The command that starts all ranks of `cell`; they leave result.json in `work`."""


def python_module(module: str, *arguments: str) -> list[str]:
    """This interpreter running one of our modules."""
    return [sys.executable, "-m", module, *arguments]


def inherited_choice(name: str) -> bool:
    """Whether a variable may choose another network, protocol or algorithm than the cell's."""
    return name.startswith(INHERITED) and name not in _PLACES


def cell_environment(cell: Cell, inherited: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The environment of a cell's ranks, and the names of inherited variables that were unset."""
    unset = sorted(name for name in inherited if inherited_choice(name) or name in cell.unset)
    kept = {name: value for name, value in inherited.items() if name not in unset}
    return kept | own_environment(cell), unset


def own_environment(cell: Cell) -> dict[str, str]:
    """The variables that a cell sets for its ranks, whatever they inherit."""
    threads = dict.fromkeys(THREAD_COUNTS, str(cell.threads_per_rank))
    fixed = {"OPENBLAS_NUM_THREADS": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    # numpy's BLAS is in no measured path, and its pool would start threads before the ranks are
    # forked. GPUs are numbered as the machine has them, so that a rank's card is known before it is used.
    asked = asking(cell.backend, cell.environment)
    asked = {name: value for name, value in asked.items() if name not in cell.unset}
    return threads | fixed | asked | dict(cell.environment)
