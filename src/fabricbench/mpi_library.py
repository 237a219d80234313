"""The MPI libraries: which one is loaded, by what it says of itself, and how srun starts its ranks."""

import re
from types import MappingProxyType

# Cray's and Intel's say "MPICH" as well, being made from it, so the order counts.
_SAYS = (
    ("cray-mpich", r"CRAY MPICH"),
    ("intel-mpi", r"Intel\(R\) MPI"),
    ("openmpi4", r"Open MPI v4\."),
    ("openmpi5", r"Open MPI v5\."),
    ("mpich", r"MPICH"),
)

SRUN_MPI = MappingProxyType(
    {
        **{"mpich": "pmi2", "intel-mpi": "pmi2", "cray-mpich": "cray_shasta"},
        **{"openmpi4": "pmix", "openmpi5": "pmix"},
    }
)
"""srun's --mpi for each library, where the backend doesn't say."""


MPI_ENGINES = ("mpi", "ring")
"""Engines whose messages an MPI library carries: its own all-reduce, or a ring over its messages."""


def is_mpi(engine: object) -> bool:
    """Whether an engine's messages go through an MPI library."""
    return engine in MPI_ENGINES


def which_mpi(version: str) -> str | None:
    """The config's word for the library of this MPI_Get_library_version; None if it is another."""
    return next((word for word, pattern in _SAYS if re.search(pattern, version, re.IGNORECASE)), None)
