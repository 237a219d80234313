"""How a cell's libraries are asked to say which network they took.

They speak while they set up and not on the way of a message. A user's own setting wins.
"""

from collections.abc import Mapping

from fabricbench.mpi_library import is_mpi

ASK: Mapping[str, Mapping[str, str]] = {
    "nccl": {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"},
    "mpich": {"MPIR_CVAR_DEBUG_SUMMARY": "1"},
    "cray-mpich": {"MPICH_OFI_VERBOSE": "1", "MPICH_OFI_NIC_VERBOSE": "1"},
    "intel-mpi": {"I_MPI_DEBUG": "5"},
    "openmpi4": {"OMPI_MCA_pml_base_verbose": "10", "OMPI_MCA_mtl_base_verbose": "10"},
    "openmpi5": {"OMPI_MCA_pml_base_verbose": "10", "OMPI_MCA_mtl_base_verbose": "10"},
}
"""By engine, or MPI library."""


def asking(backend: Mapping[str, object], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that make the libraries speak, without those that the cell sets itself."""
    engine = str(backend["engine"])
    asked = dict(ASK.get(str(backend.get("library", "mpich")) if is_mpi(engine) else engine, {}))
    if any(name.startswith("UCX_") for name in environment):
        asked |= {"UCX_LOG_LEVEL": "info"}
    provider = environment.get("FI_PROVIDER", "")
    if provider and provider != "tcp":
        asked |= {"FI_LOG_LEVEL": "info", "FI_LOG_SUBSYS": "core,fabric,domain"}
    if provider.startswith("psm2") or environment.get("OMPI_MCA_mtl") == "psm2":
        asked |= {"PSM2_IDENTIFY": "1"}
    return {name: value for name, value in asked.items() if name not in environment}
