"""Which variables make an engine use a fabric: tables, and the few functions that read them.

TABLE has one row per kind of fabric, way to communicate and libfabric provider. A row names its parts,
and PARTS has the variables of each, in the form that this library takes; or it says why there is no way.
OPTIONS has what a backend's options add, RAILS what several ports per node add. A new kind of fabric is
new rows.

Values hold tokens for names that differ between clusters or nodes: `{interface}`, `{adapter}`,
`{adapter:port}`, `{unit}` (an adapter's number), `{unit:port}` and `{address}`; several ports are joined
by commas. `fill` puts in the names that are the same on every node, `on_node` the others.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fabricbench.errors import ConfigError, LaunchError
from fabricbench.mpi_library import is_mpi


@dataclass(frozen=True)
class Row:
    """How one engine is made to use one kind of fabric, or why it can't be."""

    parts: tuple[str, ...] = ()
    """Keys of PARTS; the later wins."""
    unsupported: str | None = None
    note: str | None = None
    """What a reader should know before trusting this row."""


class Rails(Protocol):
    """The ports of one node that a fabric stands for, as found on that node."""

    @property
    def interfaces(self) -> Sequence[str]:
        """Names of network interfaces."""

    @property
    def adapters(self) -> Sequence[str]:
        """Names of RDMA adapters."""

    @property
    def addresses(self) -> Sequence[str]:
        """The interfaces' addresses, without prefix length."""


# HPC-X's collectives open an InfiniBand card by themselves, whatever carries the messages.
_OMPI = {"OMPI_MCA_coll_hcoll_enable": "0", "OMPI_MCA_coll_ucc_enable": "0"}
_OMPI_UCX = {**_OMPI, "OMPI_MCA_pml": "ucx"}
_OMPI_OFI = {**_OMPI, "OMPI_MCA_pml": "cm", "OMPI_MCA_mtl": "ofi"}
_OMPI_PSM2 = {**_OMPI, "OMPI_MCA_pml": "cm", "OMPI_MCA_mtl": "psm2"}
_OMPI_TCP = {**_OMPI, "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl_tcp_if_include": "{interface}"}

PARTS: Mapping[str, Mapping[str, str]] = {
    # Gloo takes plain names and rejects patterns.
    "gloo": {"GLOO_SOCKET_IFNAME": "{interface}"},
    # NCCL takes prefixes: '=' makes all names of the list exact. NCCL_NET fails where it can't be had,
    # instead of falling back; a plugin would ignore NCCL_IB_DISABLE.
    "nccl/socket": {
        "NCCL_NET": "Socket",
        "NCCL_NET_PLUGIN": "none",
        "NCCL_SOCKET_IFNAME": "={interface}",
        "NCCL_IB_DISABLE": "1",
    },
    "nccl/ib": {"NCCL_NET": "IB", "NCCL_IB_HCA": "={adapter:port}"},
    # The plugin's name: the one that all its releases answer to. NCCL_NET_PLUGIN beside it breaks it.
    "nccl/ofi": {"NCCL_NET": "AWS Libfabric"},
    "nccl/slingshot": {"NCCL_SOCKET_IFNAME": "={interface}", "NCCL_CROSS_NIC": "1"},
    "mpich/ofi": {"MPIR_CVAR_CH4_NETMOD": "ofi"},
    "mpich/ucx": {"MPIR_CVAR_CH4_NETMOD": "ucx"},
    "intel-mpi/ofi": {"I_MPI_FABRICS": "shm:ofi"},
    "intel-mpi/system-ofi": {"I_MPI_OFI_LIBRARY_INTERNAL": "0"},
    # Which of the two Cray MPICH is, a module decides.
    "cray-mpich/ofi": {"MPICH_GPU_SUPPORT_ENABLED": "0"},
    "cray-mpich/ucx": {"MPICH_GPU_SUPPORT_ENABLED": "0"},
    "cray-mpich/cxi": {"MPICH_OFI_USE_PROVIDER": "cxi"},
    "cray-mpich/verbs": {"MPICH_OFI_USE_PROVIDER": "verbs;ofi_rxm"},
    "openmpi4/tcp": {**_OMPI_TCP, "OMPI_MCA_btl": "tcp,self,vader"},
    "openmpi5/tcp": {**_OMPI_TCP, "OMPI_MCA_btl": "tcp,self,sm"},
    "openmpi4/ucx": _OMPI_UCX,
    "openmpi5/ucx": _OMPI_UCX,
    # Left alone, Open MPI takes UCX for RDMA devices only.
    "openmpi/ucx-tcp": {"OMPI_MCA_pml_ucx_tls": "any", "OMPI_MCA_pml_ucx_devices": "any"},
    "openmpi4/ofi": _OMPI_OFI,
    "openmpi5/ofi": _OMPI_OFI,
    # Left alone, Open MPI leaves out libfabric's tcp.
    "openmpi/ofi-tcp": {"OMPI_MCA_mtl_ofi_provider_include": "tcp"},
    "openmpi4/psm2": _OMPI_PSM2,
    "openmpi5/psm2": _OMPI_PSM2,
    "ucx/tcp": {"UCX_TLS": "tcp,sm,self", "UCX_NET_DEVICES": "{interface}"},
    "ucx/rc": {"UCX_TLS": "rc,sm,self", "UCX_NET_DEVICES": "{adapter:port}"},
    "psm2": {"HFI_UNIT": "{unit}"},
    "ofi/tcp": {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": "{interface}"},
    "ofi/verbs": {"FI_PROVIDER": "verbs;ofi_rxm", "FI_VERBS_IFACE": "{interface}"},
    "ofi/psm3": {"FI_PROVIDER": "psm3", "PSM3_NIC": "{adapter}"},
    "ofi/mlx": {"FI_PROVIDER": "mlx", "UCX_TLS": "rc,sm,self", "UCX_NET_DEVICES": "{adapter:port}"},
    "ofi/psm2": {"FI_PROVIDER": "psm2", "HFI_UNIT": "{unit}"},
    "ofi/opx": {"FI_PROVIDER": "opx", "FI_OPX_HFI_SELECT": "{unit}"},
    "ofi/cxi": {
        "FI_PROVIDER": "cxi",
        "FI_CXI_DEVICE_NAME": "{adapter}",
        "FI_CXI_DEFAULT_CQ_SIZE": "131072",
        "FI_CXI_RX_MATCH_MODE": "software",
    },
    "ofi/efa": {"FI_PROVIDER": "efa", "FI_EFA_IFACE": "{adapter}"},
}
"""Variables by part of a way: what chooses the engine's transport, and what chooses the device."""

_TCP_PARTS = {"gloo", "nccl/socket", "openmpi4/tcp", "openmpi5/tcp", "ucx/tcp", "ofi/tcp"}
"""Parts whose bytes the interface counts; those of all others only the adapter's port counts."""

PROVIDERS = {
    "ethernet-tcp": ("tcp",),
    "roce": ("verbs;ofi_rxm", "psm3"),
    "infiniband": ("verbs;ofi_rxm", "mlx"),
    "omnipath": ("psm2", "opx"),
    "slingshot": ("cxi",),
    "efa": ("efa",),
}
"""The providers that a fabric of each kind may name."""

LIBRARIES = {
    "mpich": ("ofi", "ucx"),
    "intel-mpi": ("ofi",),
    "cray-mpich": ("ofi", "ucx"),
    "openmpi4": ("tcp", "ucx", "ofi", "psm2"),
    "openmpi5": ("tcp", "ucx", "ofi", "psm2"),
}
"""The MPI libraries, each with its transports; the first is the default where the kind has no other."""

_OPEN_MPI_TRANSPORT = {
    "roce": "ucx",
    "infiniband": "ucx",
    "omnipath": "psm2",
    "slingshot": "ofi",
    "efa": "ofi",
}

_OPEN_MPI = ("openmpi4", "openmpi5")
_NO_TCP_CRAY = Row(unsupported="Cray MPICH has no documented way over TCP; use another library")
_NO_UCX_CRAY = Row(unsupported="Cray MPICH has UCX for InfiniBand and RoCE only; use transport ofi")
_NO_CRAY = Row(unsupported="Cray MPICH is for Slingshot, InfiniBand and RoCE; use another library")
_NO_PSM2 = Row(unsupported="psm2 is Omni-Path's own; use another transport")
_OMPI_RDMA = Row(unsupported="Open MPI reaches InfiniBand and RoCE through UCX; use transport ucx")
_OPA_UCX = Row(
    unsupported="UCX reaches Omni-Path through verbs only, at a third of its rate (openucx/ucx #3196); "
    "use psm2, or ofi"
)
_NO_UCX_SLINGSHOT = Row(unsupported="UCX has no transport for Slingshot; use transport ofi")
_NO_UCX_EFA = Row(unsupported="no documented way for UCX to use EFA; use transport ofi")
_EMULATED_MPI = Row(
    unsupported="emulated nodes start MPI ranks for MPICH over libfabric; use library mpich, transport ofi"
)
_WEAKEST = "NCCL over OPX is the least documented row of this table: look at its evidence first"
_SYSTEM_OFI = "Intel MPI's own libfabric may lack cxi, so the system's is taken"


def _open_mpi(kind: str, transport: str, *parts: str) -> dict[tuple[str, str, str], Row]:
    """The rows of both Open MPI versions, which differ in their first part alone."""
    provider = parts[-1].removeprefix("ofi/") if transport == "ofi" else ""
    return {
        (kind, f"{library}/{transport}", provider): Row((f"{library}/{transport}", *parts))
        for library in _OPEN_MPI
    }


def _both(kind: str, transport: str, row: Row) -> dict[tuple[str, str, str], Row]:
    return {(kind, f"{library}/{transport}", ""): row for library in _OPEN_MPI}


TABLE: Mapping[tuple[str, str, str], Row] = {
    ("emulated", "gloo", ""): Row(("gloo",)),
    ("emulated", "nccl", ""): Row(
        unsupported="nccl moves data between the GPUs of one machine past the network, "
        "so not over emulated links"
    ),
    ("emulated", "mpich/ofi", ""): Row(("mpich/ofi", "ofi/tcp")),
    ("emulated", "mpich/ucx", ""): _EMULATED_MPI,
    ("emulated", "intel-mpi/ofi", ""): _EMULATED_MPI,
    ("emulated", "cray-mpich/ofi", ""): _EMULATED_MPI,
    ("emulated", "cray-mpich/ucx", ""): _EMULATED_MPI,
    **_both("emulated", "tcp", _EMULATED_MPI),
    **_both("emulated", "ucx", _EMULATED_MPI),
    **_both("emulated", "ofi", _EMULATED_MPI),
    **_both("emulated", "psm2", _EMULATED_MPI),
    #
    ("ethernet-tcp", "gloo", ""): Row(("gloo",)),
    ("ethernet-tcp", "nccl", ""): Row(("nccl/socket",)),
    ("ethernet-tcp", "mpich/ofi", "tcp"): Row(("mpich/ofi", "ofi/tcp")),
    ("ethernet-tcp", "mpich/ucx", ""): Row(("mpich/ucx", "ucx/tcp")),
    ("ethernet-tcp", "intel-mpi/ofi", "tcp"): Row(("intel-mpi/ofi", "ofi/tcp")),
    ("ethernet-tcp", "cray-mpich/ofi", ""): _NO_TCP_CRAY,
    ("ethernet-tcp", "cray-mpich/ucx", ""): _NO_TCP_CRAY,
    **_open_mpi("ethernet-tcp", "tcp"),
    **_open_mpi("ethernet-tcp", "ucx", "openmpi/ucx-tcp", "ucx/tcp"),
    **_open_mpi("ethernet-tcp", "ofi", "openmpi/ofi-tcp", "ofi/tcp"),
    **_both("ethernet-tcp", "psm2", _NO_PSM2),
    #
    ("roce", "gloo", ""): Row(("gloo",), note="Gloo has TCP only: TCP over the adapter's interface"),
    ("roce", "nccl", ""): Row(("nccl/ib",)),
    ("roce", "mpich/ofi", "verbs;ofi_rxm"): Row(("mpich/ofi", "ofi/verbs")),
    ("roce", "mpich/ofi", "psm3"): Row(("mpich/ofi", "ofi/psm3")),
    ("roce", "mpich/ucx", ""): Row(("mpich/ucx", "ucx/rc")),
    ("roce", "intel-mpi/ofi", "verbs;ofi_rxm"): Row(("intel-mpi/ofi", "ofi/verbs")),
    ("roce", "intel-mpi/ofi", "psm3"): Row(("intel-mpi/ofi", "ofi/psm3")),
    ("roce", "cray-mpich/ofi", "verbs;ofi_rxm"): Row(("cray-mpich/ofi", "cray-mpich/verbs", "ofi/verbs")),
    ("roce", "cray-mpich/ucx", ""): Row(("cray-mpich/ucx", "ucx/rc")),
    **_open_mpi("roce", "tcp"),
    **_open_mpi("roce", "ucx", "ucx/rc"),
    **_both("roce", "ofi", _OMPI_RDMA),
    **_both("roce", "psm2", _NO_PSM2),
    #
    ("infiniband", "gloo", ""): Row(("gloo",), note="Gloo has TCP only: IP over InfiniBand"),
    ("infiniband", "nccl", ""): Row(("nccl/ib",)),
    ("infiniband", "mpich/ofi", "verbs;ofi_rxm"): Row(("mpich/ofi", "ofi/verbs")),
    ("infiniband", "mpich/ucx", ""): Row(("mpich/ucx", "ucx/rc")),
    ("infiniband", "intel-mpi/ofi", "mlx"): Row(("intel-mpi/ofi", "ofi/mlx")),
    ("infiniband", "intel-mpi/ofi", "verbs;ofi_rxm"): Row(("intel-mpi/ofi", "ofi/verbs")),
    ("infiniband", "cray-mpich/ofi", "verbs;ofi_rxm"): Row(
        ("cray-mpich/ofi", "cray-mpich/verbs", "ofi/verbs")
    ),
    ("infiniband", "cray-mpich/ucx", ""): Row(("cray-mpich/ucx", "ucx/rc")),
    **_open_mpi("infiniband", "tcp"),
    **_open_mpi("infiniband", "ucx", "ucx/rc"),
    **_both("infiniband", "ofi", _OMPI_RDMA),
    **_both("infiniband", "psm2", _NO_PSM2),
    #
    ("omnipath", "gloo", ""): Row(("gloo",), note="Gloo has TCP only: IP over Omni-Path"),
    ("omnipath", "nccl", "psm2"): Row(("nccl/ofi", "ofi/psm2")),
    ("omnipath", "nccl", "opx"): Row(("nccl/ofi", "ofi/opx"), note=_WEAKEST),
    ("omnipath", "mpich/ofi", "psm2"): Row(("mpich/ofi", "ofi/psm2")),
    ("omnipath", "mpich/ofi", "opx"): Row(("mpich/ofi", "ofi/opx")),
    ("omnipath", "mpich/ucx", ""): _OPA_UCX,
    ("omnipath", "intel-mpi/ofi", "psm2"): Row(("intel-mpi/ofi", "ofi/psm2")),
    ("omnipath", "intel-mpi/ofi", "opx"): Row(("intel-mpi/ofi", "ofi/opx")),
    ("omnipath", "cray-mpich/ofi", ""): _NO_CRAY,
    ("omnipath", "cray-mpich/ucx", ""): _NO_CRAY,
    **_open_mpi("omnipath", "tcp"),
    **_both("omnipath", "ucx", _OPA_UCX),
    **_open_mpi("omnipath", "ofi", "ofi/opx"),
    **_open_mpi("omnipath", "ofi", "ofi/psm2"),
    **_open_mpi("omnipath", "psm2", "psm2"),
    #
    ("slingshot", "gloo", ""): Row(("gloo",), note="Gloo has TCP only: TCP over the hsn interface"),
    ("slingshot", "nccl", "cxi"): Row(("nccl/ofi", "nccl/slingshot", "ofi/cxi")),
    ("slingshot", "mpich/ofi", "cxi"): Row(("mpich/ofi", "ofi/cxi")),
    ("slingshot", "mpich/ucx", ""): _NO_UCX_SLINGSHOT,
    ("slingshot", "intel-mpi/ofi", "cxi"): Row(
        ("intel-mpi/ofi", "intel-mpi/system-ofi", "ofi/cxi"), note=_SYSTEM_OFI
    ),
    ("slingshot", "cray-mpich/ofi", "cxi"): Row(("cray-mpich/ofi", "cray-mpich/cxi", "ofi/cxi")),
    ("slingshot", "cray-mpich/ucx", ""): _NO_UCX_CRAY,
    **_open_mpi("slingshot", "tcp"),
    **_both("slingshot", "ucx", _NO_UCX_SLINGSHOT),
    **_open_mpi("slingshot", "ofi", "ofi/cxi"),
    **_both("slingshot", "psm2", _NO_PSM2),
    #
    ("efa", "gloo", ""): Row(("gloo",), note="Gloo has TCP only: TCP over the ENA interface"),
    ("efa", "nccl", "efa"): Row(("nccl/ofi", "ofi/efa")),
    ("efa", "mpich/ofi", "efa"): Row(("mpich/ofi", "ofi/efa")),
    ("efa", "mpich/ucx", ""): _NO_UCX_EFA,
    ("efa", "intel-mpi/ofi", "efa"): Row(("intel-mpi/ofi", "ofi/efa")),
    ("efa", "cray-mpich/ofi", ""): _NO_CRAY,
    ("efa", "cray-mpich/ucx", ""): _NO_CRAY,
    **_open_mpi("efa", "tcp"),
    **_both("efa", "ucx", _NO_UCX_EFA),
    **_open_mpi("efa", "ofi", "ofi/efa"),
    **_both("efa", "psm2", _NO_PSM2),
}
"""By kind of fabric, way (engine, or MPI library/transport) and libfabric provider ("" where none is
named); of several providers the first is the default."""

_TCP_STAGES = "TCP stages GPU data through the host, so it has no GPUDirect; write gpudirect: false"

OPTIONS: Mapping[tuple[str, str, str], Mapping[str, str] | str] = {
    ("nccl", "algorithm", "*"): {"NCCL_ALGO": "{value}"},
    ("nccl", "protocol", "*"): {"NCCL_PROTO": "{value}"},
    ("nccl", "channels", "*"): {"NCCL_MIN_NCHANNELS": "{value}", "NCCL_MAX_NCHANNELS": "{value}"},
    #
    ("nccl/socket", "gpudirect", "true"): _TCP_STAGES,
    ("nccl/socket", "gpudirect", "false"): {},
    ("nccl/ib", "gpudirect", "true"): {"NCCL_NET_GDR_LEVEL": "SYS"},
    ("nccl/ib", "gpudirect", "false"): {"NCCL_NET_GDR_LEVEL": "LOC", "NCCL_DMABUF_ENABLE": "0"},
    ("nccl/ofi", "gpudirect", "true"): {"NCCL_NET_GDR_LEVEL": "SYS"},
    ("nccl/ofi", "gpudirect", "false"): {"NCCL_NET_GDR_LEVEL": "LOC"},
    ("mpich/ofi", "gpudirect", "true"): {"MPIR_CVAR_CH4_OFI_ENABLE_HMEM": "1"},
    ("mpich/ofi", "gpudirect", "false"): {"MPIR_CVAR_CH4_OFI_ENABLE_HMEM": "0"},
    ("cray-mpich/ofi", "gpudirect", "true"): {},
    ("cray-mpich/ofi", "gpudirect", "false"): "Cray MPICH reads GPU memory by GPUDirect or not at all; "
    "write buffers: host, without gpudirect",
    ("openmpi4/tcp", "gpudirect", "true"): _TCP_STAGES,
    ("openmpi4/tcp", "gpudirect", "false"): {},
    ("openmpi5/tcp", "gpudirect", "true"): _TCP_STAGES,
    ("openmpi5/tcp", "gpudirect", "false"): {},
    ("ucx/tcp", "gpudirect", "true"): _TCP_STAGES,
    ("ucx/tcp", "gpudirect", "false"): {},
    ("ucx/rc", "gpudirect", "true"): {"UCX_IB_GPU_DIRECT_RDMA": "y"},
    ("ucx/rc", "gpudirect", "false"): {"UCX_IB_GPU_DIRECT_RDMA": "n"},
    ("ofi/tcp", "gpudirect", "true"): _TCP_STAGES,
    ("ofi/tcp", "gpudirect", "false"): {},
    ("ofi/psm2", "gpudirect", "true"): {"PSM2_CUDA": "1", "PSM2_GPUDIRECT": "1"},
    ("ofi/psm2", "gpudirect", "false"): {"PSM2_GPUDIRECT": "0"},
    ("psm2", "gpudirect", "true"): {"PSM2_CUDA": "1", "PSM2_GPUDIRECT": "1"},
    ("psm2", "gpudirect", "false"): {"PSM2_GPUDIRECT": "0"},
    ("ofi/efa", "gpudirect", "true"): {"FI_EFA_USE_DEVICE_RDMA": "1"},
    ("ofi/efa", "gpudirect", "false"): {"FI_EFA_USE_DEVICE_RDMA": "0"},
    #
    ("mpich/ofi", "buffers", "device"): {"MPIR_CVAR_ENABLE_GPU": "1"},
    ("mpich/ucx", "buffers", "device"): {"MPIR_CVAR_ENABLE_GPU": "1"},
    ("intel-mpi/ofi", "buffers", "device"): "Intel MPI has no documented way here to send from the memory "
    "of CUDA devices; use another library",
    ("cray-mpich/ofi", "buffers", "device"): {"MPICH_GPU_SUPPORT_ENABLED": "1"},
    ("cray-mpich/ucx", "buffers", "device"): {"MPICH_GPU_SUPPORT_ENABLED": "1"},
    ("openmpi4/tcp", "buffers", "device"): {"OMPI_MCA_btl": "tcp,self,smcuda"},
    ("openmpi5/tcp", "buffers", "device"): {"OMPI_MCA_btl": "tcp,self,smcuda"},
    ("openmpi4/ofi", "buffers", "device"): {},
    ("openmpi5/ofi", "buffers", "device"): {},
    ("ucx/tcp", "buffers", "device"): {"UCX_TLS": "tcp,sm,self,cuda"},
    ("ucx/rc", "buffers", "device"): {"UCX_TLS": "rc,sm,self,cuda"},
    ("ofi/psm2", "buffers", "device"): {"PSM2_CUDA": "1"},
    ("psm2", "buffers", "device"): {"PSM2_CUDA": "1"},
}
"""By part (or engine), option and value: what is added, or why this can't be had. An option that no part
of a row knows is unsupported there."""

_PSM2_RAILS = {"HFI_UNIT": None, "PSM2_MULTIRAIL": "1", "PSM2_MULTIRAIL_MAP": "{unit:port}"}

# Left alone, UCX uses two rails for long messages and one for short ones.
_UCX_RAILS = {"UCX_MAX_RNDV_RAILS": "{ports}", "UCX_MAX_EAGER_RAILS": "{ports}"}

RAILS: Mapping[str, Mapping[str, str | None] | str] = {
    "ofi/tcp": "libfabric's tcp provider takes one interface; use a fabric with ports_per_node: 1",
    "ofi/verbs": "libfabric's verbs provider takes one interface; use a fabric with ports_per_node: 1",
    "ofi/psm3": "psm3 is used with one adapter here; use a fabric with ports_per_node: 1",
    "ofi/opx": "libfabric's opx provider takes one adapter; use a fabric with ports_per_node: 1",
    "ofi/psm2": _PSM2_RAILS,
    "psm2": _PSM2_RAILS,
    "ucx/rc": _UCX_RAILS,
    "ucx/tcp": _UCX_RAILS,
    "ofi/mlx": _UCX_RAILS,
}
"""By part: what several ports per node change (`{ports}` is their number, None removes a variable), or why
they can't be used. All others take a list of names; how many of them one rank uses is the library's choice
(one each for libfabric's cxi and efa), which the evidence shows by rail."""

_TOKEN = re.compile(r"\{(interface|address|adapter|unit)(?::(port|\d+))?\}")
TOKENS = ("interface", "adapter", "adapter:port", "unit", "unit:port", "address")
"""What a value may hold in braces; a port may also be a number."""
_UNIT = re.compile(r"hfi\d+_(\d+)")


def environment(fabric: Mapping[str, Any], backend: Mapping[str, Any], device: str) -> dict[str, str]:
    """The variables that make `backend` use `fabric`, both as a cell has them.

    Names that only a node knows stay tokens. Raises ConfigError, with the reason, where
    `why_unsupported` gives one.
    """
    if reason := why_unsupported(fabric, backend, device):
        raise ConfigError(f"fabric {fabric['name']} on backend {backend['name']}: {reason}")
    row = _row(fabric, backend)
    variables: dict[str, str | None] = {}
    for part in row.parts:
        variables |= PARTS[part]
    for _, found in _extras(row, fabric, backend):
        assert not isinstance(found, str)  # or why_unsupported would have said so
        variables |= found
    return fill({name: value for name, value in variables.items() if value is not None}, fabric)


def why_unsupported(fabric: Mapping[str, Any], backend: Mapping[str, Any], device: str) -> str | None:
    """Why `backend` can't use `fabric` for a workload on `device`; None when it can."""
    row = _row(fabric, backend)
    if row.unsupported:
        return row.unsupported
    if backend["engine"] == "nccl" and device != "cuda":
        return f"nccl needs device cuda; the workload's device is {device}"
    if backend.get("buffers") == "device" and device != "cuda":
        return f"buffers: device needs device cuda; the workload's device is {device}"
    if "gloo" in row.parts and fabric["ports_per_node"] == 1:
        for name in fabric["interface"]:
            if len(name) == 1:
                return f"Gloo takes no name of one letter, and would choose for itself; rename {name}"
    known = set()
    for (option, value), found in _extras(row, fabric, backend):
        if isinstance(found, str):
            return found
        known.add((option, value))
    for option, value in _options(backend):
        if (option, value) not in known:
            return f"no switch is known for {option}: {value} on {way(fabric, backend)}; leave it out"
    return None


def path(fabric: Mapping[str, Any], backend: Mapping[str, Any]) -> str:
    """Whose counters prove the bytes: "tcp" (the interface's) or "rdma" (the adapter port's)."""
    return "tcp" if _TCP_PARTS.intersection(_row(fabric, backend).parts) else "rdma"


def note(fabric: Mapping[str, Any], backend: Mapping[str, Any]) -> str | None:
    """What a reader should know of this row of the table; None for nothing."""
    return _row(fabric, backend).note


def why_unfilled(value: str, fabric: Mapping[str, Any]) -> str | None:
    """Why a fabric can't fill the tokens of a value, as far as its definition says it; None when it can."""
    adapters, kind = fabric["adapter"], fabric["kind"]
    for token in _TOKEN.finditer(value):
        if token[1] in ("adapter", "unit") and not adapters and kind in ("emulated", "ethernet-tcp"):
            return f"no adapter is named for {token[0]}; name it, or set this for another fabric only"
        if token[1] == "unit" and not all(map(_UNIT.fullmatch, adapters)):
            return f"{token[0]} is the number of an adapter such as hfi1_0, and not of {', '.join(adapters)}"
        if token[1] == "unit" and not adapters and kind != "omnipath":
            return f"{token[0]} is the number of an adapter such as hfi1_0, which {kind} hasn't"
    return None


def plugin_clash(
    fabric: Mapping[str, Any], backend: Mapping[str, Any], given: Mapping[str, str | None]
) -> str | None:
    """Why a user's NCCL_NET_PLUGIN breaks the table's NCCL_NET; None when it doesn't."""
    wanted = PARTS["nccl/ofi"]["NCCL_NET"]
    if "nccl/ofi" not in _row(fabric, backend).parts or given.get("NCCL_NET", wanted) != wanted:
        return None
    if (plugin := given.get("NCCL_NET_PLUGIN")) is None:
        return None
    return f"{plugin!r} keeps NCCL from finding NCCL_NET={wanted!r}; remove it, or set NCCL_NET as well"


def way(fabric: Mapping[str, Any], backend: Mapping[str, Any]) -> str:
    """The way to communicate, as the table has it: the engine, or MPI library/transport."""
    if not is_mpi(backend["engine"]):
        return str(backend["engine"])
    library = backend.get("library", "mpich")
    return f"{library}/{backend.get('transport') or default_transport(fabric['kind'], library)}"


def default_transport(kind: str, library: str) -> str:
    """The transport of an MPI library that is best for a kind of fabric."""
    open_mpi = _OPEN_MPI_TRANSPORT if library in _OPEN_MPI else {}
    return open_mpi.get(kind, LIBRARIES[library][0])


def fill(variables: Mapping[str, str], fabric: Mapping[str, Any]) -> dict[str, str]:
    """Variables with those names put in that are the same on every node; other tokens stay.

    A fabric with as many names as ports has them on every node. The adapter's port is always known.
    """
    ports = fabric["ports_per_node"]
    names = {
        "interface": fabric["interface"] if len(fabric["interface"]) == ports else (),
        "adapter": fabric["adapter"] if len(fabric["adapter"]) == ports else (),
    }
    names["unit"] = names["adapter"] if all(map(_UNIT.fullmatch, names["adapter"])) else ()

    def replace(token: re.Match[str]) -> str:
        kind, port = token[1], str(fabric["port"]) if token[2] == "port" else token[2]
        if found := names.get(kind):
            return _joined(kind, found, port)
        return f"{{{kind}:{port}}}" if port else token[0]

    return {name: _TOKEN.sub(replace, value) for name, value in variables.items()}


def on_node(variables: Mapping[str, str], rails: Rails) -> dict[str, str]:
    """Variables with the names of one node put in; raises LaunchError when the node has none."""
    names = {
        "interface": rails.interfaces,
        "address": rails.addresses,
        "adapter": rails.adapters,
        "unit": rails.adapters,
    }
    filled = {}
    for variable, value in variables.items():
        for token in _TOKEN.finditer(value):
            if not names[token[1]]:
                raise LaunchError(
                    f"{variable}={value}: this node's fabric has no {token[1]}; name it in the fabric"
                )
            bad = [name for name in names[token[1]] if token[1] == "unit" and not _UNIT.fullmatch(name)]
            if bad:
                raise LaunchError(
                    f"{variable}={value}: adapter {bad[0]} has no unit number in its name, as hfi1_0 has; "
                    f"set {variable} in the fabric's environment"
                )
        filled[variable] = _TOKEN.sub(
            lambda token: _joined(token[1], names[token[1]], "1" if token[2] == "port" else token[2]), value
        )
    if "NCCL_SOCKET_IFNAME" in filled and rails.addresses and all(":" in one for one in rails.addresses):
        filled.setdefault("NCCL_SOCKET_FAMILY", "AF_INET6")  # unset, NCCL looks for IPv4 and finds none
    return filled


def _joined(kind: str, names: Sequence[str], port: str | None) -> str:
    """The names in a token's place."""
    if kind == "unit":
        names = [str(int(name.rsplit("_", 1)[-1])) for name in names]
    return ",".join(f"{name}:{port}" if port else name for name in names)


def _row(fabric: Mapping[str, Any], backend: Mapping[str, Any]) -> Row:
    """The row of TABLE: by the fabric's provider if it names one, otherwise the default's."""
    kind, by = fabric["kind"], way(fabric, backend)
    rows = {provider: row for (k, w, provider), row in TABLE.items() if (k, w) == (kind, by)}
    if not rows:
        return Row(unsupported=f"no way is known for {by} to use a fabric of kind {kind}")
    provider = fabric["provider"]
    if by.endswith("/psm2") and provider not in (None, "psm2"):
        return Row(
            unsupported=f"the fabric's provider is {provider}, which is libfabric's; use transport ofi"
        )
    if "" in rows:
        return rows[""]
    if provider is None:
        return next(iter(rows.values()))
    return rows.get(provider) or Row(
        unsupported=f"{by} takes {' or '.join(rows)} here; the fabric's provider is {provider}"
    )


def _with_ports(found: Mapping[str, str | None] | str, ports: int) -> Mapping[str, str | None] | str:
    if isinstance(found, str):
        return found
    return {name: value and value.replace("{ports}", str(ports)) for name, value in found.items()}


def _options(backend: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """The options of a backend that change something, as OPTIONS names them."""
    for option in ("buffers", "gpudirect", "algorithm", "protocol", "channels"):
        value = backend.get(option)
        if value is not None and (option, value) != ("buffers", "host"):
            yield option, str(value).lower() if isinstance(value, bool) else str(value)


def _extras(
    row: Row, fabric: Mapping[str, Any], backend: Mapping[str, Any]
) -> Iterable[tuple[tuple[str, str], Mapping[str, str | None] | str]]:
    """((option, value), what it adds or why it can't) for rails and options, in the order of applying."""
    if fabric["ports_per_node"] > 1:
        for part in row.parts:
            if part in RAILS:
                yield ("ports_per_node", ""), _with_ports(RAILS[part], fabric["ports_per_node"])
    for option, value in _options(backend):
        for part in (backend["engine"], *row.parts):
            found = OPTIONS.get((part, option, value))
            if found is None and (any_value := OPTIONS.get((part, option, "*"))) is not None:
                assert not isinstance(any_value, str)
                found = {name: text.replace("{value}", value) for name, text in any_value.items()}
            if found is not None:
                yield (option, value), found
