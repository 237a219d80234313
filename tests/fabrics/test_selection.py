"""The selection table, row by row.

What each row gives is written here by hand, from the libraries' documentation, not taken from the table.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cells import a_fabric

from fabricbench.errors import ConfigError, LaunchError
from fabricbench.fabrics import selection
from fabricbench.fabrics.selection import OPTIONS, RAILS, TABLE, environment, on_node, path, why_unsupported

# kind | way | provider | path | variables. The fabric has net0, and the adapter dev1 or hfi1_1, port 2.
NO_HPCX = "OMPI_MCA_coll_hcoll_enable=0 OMPI_MCA_coll_ucc_enable=0"
"""What every row of Open MPI begins with."""

ROWS = """
emulated     | gloo           |               | tcp  | GLOO_SOCKET_IFNAME=net0
emulated     | mpich/ofi      |               | tcp  | MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp FI_TCP_IFACE=net0

ethernet-tcp | gloo           |               | tcp  | GLOO_SOCKET_IFNAME=net0
ethernet-tcp | nccl           |               | tcp  | NCCL_NET=Socket NCCL_NET_PLUGIN=none NCCL_SOCKET_IFNAME==net0 NCCL_IB_DISABLE=1
ethernet-tcp | mpich/ofi      | tcp           | tcp  | MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp FI_TCP_IFACE=net0
ethernet-tcp | mpich/ucx      |               | tcp  | MPIR_CVAR_CH4_NETMOD=ucx UCX_TLS=tcp,sm,self UCX_NET_DEVICES=net0
ethernet-tcp | intel-mpi/ofi  | tcp           | tcp  | I_MPI_FABRICS=shm:ofi FI_PROVIDER=tcp FI_TCP_IFACE=net0
ethernet-tcp | openmpi4/tcp   |               | tcp  | NO_HPCX OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self,vader OMPI_MCA_btl_tcp_if_include=net0
ethernet-tcp | openmpi5/tcp   |               | tcp  | NO_HPCX OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self,sm OMPI_MCA_btl_tcp_if_include=net0
ethernet-tcp | openmpi4/ucx   |               | tcp  | NO_HPCX OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any UCX_TLS=tcp,sm,self UCX_NET_DEVICES=net0
ethernet-tcp | openmpi5/ucx   |               | tcp  | NO_HPCX OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any UCX_TLS=tcp,sm,self UCX_NET_DEVICES=net0
ethernet-tcp | openmpi4/ofi   | tcp           | tcp  | NO_HPCX OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi OMPI_MCA_mtl_ofi_provider_include=tcp FI_PROVIDER=tcp FI_TCP_IFACE=net0
ethernet-tcp | openmpi5/ofi   | tcp           | tcp  | NO_HPCX OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi OMPI_MCA_mtl_ofi_provider_include=tcp FI_PROVIDER=tcp FI_TCP_IFACE=net0

roce         | gloo           |               | tcp  | GLOO_SOCKET_IFNAME=net0
roce         | nccl           |               | rdma | NCCL_NET=IB NCCL_IB_HCA==dev1:2
roce         | mpich/ofi      | verbs;ofi_rxm | rdma | MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER='verbs;ofi_rxm' FI_VERBS_IFACE=net0
roce         | mpich/ofi      | psm3          | rdma | MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=psm3 PSM3_NIC=dev1
roce         | mpich/ucx      |               | rdma | MPIR_CVAR_CH4_NETMOD=ucx UCX_TLS=rc,sm,self UCX_NET_DEVICES=dev1:2
roce         | intel-mpi/ofi  | verbs;ofi_rxm | rdma | I_MPI_FABRICS=shm:ofi FI_PROVIDER='verbs;ofi_rxm' FI_VERBS_IFACE=net0
roce         | intel-mpi/ofi  | psm3          | rdma | I_MPI_FABRICS=shm:ofi FI_PROVIDER=psm3 PSM3_NIC=dev1
roce         | cray-mpich/ofi | verbs;ofi_rxm | rdma | MPICH_GPU_SUPPORT_ENABLED=0 MPICH_OFI_USE_PROVIDER='verbs;ofi_rxm' FI_PROVIDER='verbs;ofi_rxm' FI_VERBS_IFACE=net0
roce         | cray-mpich/ucx |               | rdma | MPICH_GPU_SUPPORT_ENABLED=0 UCX_TLS=rc,sm,self UCX_NET_DEVICES=dev1:2
roce         | openmpi4/tcp   |               | tcp  | NO_HPCX OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self,vader OMPI_MCA_btl_tcp_if_include=net0
roce         | openmpi5/tcp   |               | tcp  | NO_HPCX OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self,sm OMPI_MCA_btl_tcp_if_include=net0
roce         | openmpi4/ucx   |               | rdma | NO_HPCX OMPI_MCA_pml=ucx UCX_TLS=rc,sm,self UCX_NET_DEVICES=dev1:2
roce         | openmpi5/ucx   |               | rdma | NO_HPCX OMPI_MCA_pml=ucx UCX_TLS=rc,sm,self UCX_NET_DEVICES=dev1:2

infiniband   | gloo           |               | tcp  | GLOO_SOCKET_IFNAME=net0
infiniband   | nccl           |               | rdma | NCCL_NET=IB NCCL_IB_HCA==dev1:2
infiniband   | mpich/ofi      | verbs;ofi_rxm | rdma | MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER='verbs;ofi_rxm' FI_VERBS_IFACE=net0
infiniband   | mpich/ucx      |               | rdma | MPIR_CVAR_CH4_NETMOD=ucx UCX_TLS=rc,sm,self UCX_NET_DEVICES=dev1:2
infiniband   | intel-mpi/ofi  | mlx           | rdma | I_MPI_FABRICS=shm:ofi FI_PROVIDER=mlx UCX_TLS=rc,sm,self UCX_NET_DEVICES=dev1:2
infiniband   | intel-mpi/ofi  | verbs;ofi_rxm | rdma | I_MPI_FABRICS=shm:ofi FI_PROVIDER='verbs;ofi_rxm' FI_VERBS_IFACE=net0
infiniband   | cray-mpich/ofi | verbs;ofi_rxm | rdma | MPICH_GPU_SUPPORT_ENABLED=0 MPICH_OFI_USE_PROVIDER='verbs;ofi_rxm' FI_PROVIDER='verbs;ofi_rxm' FI_VERBS_IFACE=net0
infiniband   | cray-mpich/ucx |               | rdma | MPICH_GPU_SUPPORT_ENABLED=0 UCX_TLS=rc,sm,self UCX_NET_DEVICES=dev1:2
infiniband   | openmpi4/tcp   |               | tcp  | NO_HPCX OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self,vader OMPI_MCA_btl_tcp_if_include=net0
infiniband   | openmpi5/tcp   |               | tcp  | NO_HPCX OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self,sm OMPI_MCA_btl_tcp_if_include=net0
infiniband   | openmpi4/ucx   |               | rdma | NO_HPCX OMPI_MCA_pml=ucx UCX_TLS=rc,sm,self UCX_NET_DEVICES=dev1:2
infiniband   | openmpi5/ucx   |               | rdma | NO_HPCX OMPI_MCA_pml=ucx UCX_TLS=rc,sm,self UCX_NET_DEVICES=dev1:2

omnipath     | gloo           |               | tcp  | GLOO_SOCKET_IFNAME=net0
omnipath     | nccl           | psm2          | rdma | NCCL_NET='AWS Libfabric' FI_PROVIDER=psm2 HFI_UNIT=1
omnipath     | nccl           | opx           | rdma | NCCL_NET='AWS Libfabric' FI_PROVIDER=opx FI_OPX_HFI_SELECT=1
omnipath     | mpich/ofi      | psm2          | rdma | MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=psm2 HFI_UNIT=1
omnipath     | mpich/ofi      | opx           | rdma | MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=opx FI_OPX_HFI_SELECT=1
omnipath     | intel-mpi/ofi  | psm2          | rdma | I_MPI_FABRICS=shm:ofi FI_PROVIDER=psm2 HFI_UNIT=1
omnipath     | intel-mpi/ofi  | opx           | rdma | I_MPI_FABRICS=shm:ofi FI_PROVIDER=opx FI_OPX_HFI_SELECT=1
omnipath     | openmpi4/tcp   |               | tcp  | NO_HPCX OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self,vader OMPI_MCA_btl_tcp_if_include=net0
omnipath     | openmpi5/tcp   |               | tcp  | NO_HPCX OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self,sm OMPI_MCA_btl_tcp_if_include=net0
omnipath     | openmpi4/ofi   | opx           | rdma | NO_HPCX OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi FI_PROVIDER=opx FI_OPX_HFI_SELECT=1
omnipath     | openmpi5/ofi   | opx           | rdma | NO_HPCX OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi FI_PROVIDER=opx FI_OPX_HFI_SELECT=1
omnipath     | openmpi4/ofi   | psm2          | rdma | NO_HPCX OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi FI_PROVIDER=psm2 HFI_UNIT=1
omnipath     | openmpi5/ofi   | psm2          | rdma | NO_HPCX OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi FI_PROVIDER=psm2 HFI_UNIT=1
omnipath     | openmpi4/psm2  |               | rdma | NO_HPCX OMPI_MCA_pml=cm OMPI_MCA_mtl=psm2 HFI_UNIT=1
omnipath     | openmpi5/psm2  |               | rdma | NO_HPCX OMPI_MCA_pml=cm OMPI_MCA_mtl=psm2 HFI_UNIT=1

slingshot    | gloo           |               | tcp  | GLOO_SOCKET_IFNAME=net0
slingshot    | nccl           | cxi           | rdma | NCCL_NET='AWS Libfabric' NCCL_SOCKET_IFNAME==net0 NCCL_CROSS_NIC=1 FI_PROVIDER=cxi FI_CXI_DEVICE_NAME=dev1 FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_RX_MATCH_MODE=software
slingshot    | mpich/ofi      | cxi           | rdma | MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=cxi FI_CXI_DEVICE_NAME=dev1 FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_RX_MATCH_MODE=software
slingshot    | intel-mpi/ofi  | cxi           | rdma | I_MPI_FABRICS=shm:ofi I_MPI_OFI_LIBRARY_INTERNAL=0 FI_PROVIDER=cxi FI_CXI_DEVICE_NAME=dev1 FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_RX_MATCH_MODE=software
slingshot    | cray-mpich/ofi | cxi           | rdma | MPICH_GPU_SUPPORT_ENABLED=0 MPICH_OFI_USE_PROVIDER=cxi FI_PROVIDER=cxi FI_CXI_DEVICE_NAME=dev1 FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_RX_MATCH_MODE=software
slingshot    | openmpi4/tcp   |               | tcp  | NO_HPCX OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self,vader OMPI_MCA_btl_tcp_if_include=net0
slingshot    | openmpi5/tcp   |               | tcp  | NO_HPCX OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self,sm OMPI_MCA_btl_tcp_if_include=net0
slingshot    | openmpi4/ofi   | cxi           | rdma | NO_HPCX OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi FI_PROVIDER=cxi FI_CXI_DEVICE_NAME=dev1 FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_RX_MATCH_MODE=software
slingshot    | openmpi5/ofi   | cxi           | rdma | NO_HPCX OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi FI_PROVIDER=cxi FI_CXI_DEVICE_NAME=dev1 FI_CXI_DEFAULT_CQ_SIZE=131072 FI_CXI_RX_MATCH_MODE=software

efa          | gloo           |               | tcp  | GLOO_SOCKET_IFNAME=net0
efa          | nccl           | efa           | rdma | NCCL_NET='AWS Libfabric' FI_PROVIDER=efa FI_EFA_IFACE=dev1
efa          | mpich/ofi      | efa           | rdma | MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=efa FI_EFA_IFACE=dev1
efa          | intel-mpi/ofi  | efa           | rdma | I_MPI_FABRICS=shm:ofi FI_PROVIDER=efa FI_EFA_IFACE=dev1
efa          | openmpi4/tcp   |               | tcp  | NO_HPCX OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self,vader OMPI_MCA_btl_tcp_if_include=net0
efa          | openmpi5/tcp   |               | tcp  | NO_HPCX OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,self,sm OMPI_MCA_btl_tcp_if_include=net0
efa          | openmpi4/ofi   | efa           | rdma | NO_HPCX OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi FI_PROVIDER=efa FI_EFA_IFACE=dev1
efa          | openmpi5/ofi   | efa           | rdma | NO_HPCX OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi FI_PROVIDER=efa FI_EFA_IFACE=dev1
"""  # noqa: E501

# kind | ways | how the reason starts
UNSUPPORTED = """
emulated     | nccl                                          | nccl moves data between the GPUs of one machine past
emulated     | mpich/ucx intel-mpi/ofi cray-mpich/ofi cray-mpich/ucx | emulated nodes start MPI ranks for MPICH
emulated     | openmpi4/tcp openmpi4/ucx openmpi4/ofi openmpi4/psm2 | emulated nodes start MPI ranks for MPICH
emulated     | openmpi5/tcp openmpi5/ucx openmpi5/ofi openmpi5/psm2 | emulated nodes start MPI ranks for MPICH
ethernet-tcp | cray-mpich/ofi cray-mpich/ucx                 | Cray MPICH has no documented way over TCP
ethernet-tcp | openmpi4/psm2 openmpi5/psm2                   | psm2 is Omni-Path's own
roce         | openmpi4/ofi openmpi5/ofi                     | Open MPI reaches InfiniBand and RoCE through UCX
roce         | openmpi4/psm2 openmpi5/psm2                   | psm2 is Omni-Path's own
infiniband   | openmpi4/ofi openmpi5/ofi                     | Open MPI reaches InfiniBand and RoCE through UCX
infiniband   | openmpi4/psm2 openmpi5/psm2                   | psm2 is Omni-Path's own
omnipath     | mpich/ucx openmpi4/ucx openmpi5/ucx           | UCX reaches Omni-Path through verbs only
omnipath     | cray-mpich/ofi cray-mpich/ucx                 | Cray MPICH is for Slingshot, InfiniBand and RoCE
slingshot    | mpich/ucx openmpi4/ucx openmpi5/ucx           | UCX has no transport for Slingshot
slingshot    | cray-mpich/ucx                                | Cray MPICH has UCX for InfiniBand and RoCE only
slingshot    | openmpi4/psm2 openmpi5/psm2                   | psm2 is Omni-Path's own
efa          | mpich/ucx openmpi4/ucx openmpi5/ucx           | no documented way for UCX to use EFA
efa          | cray-mpich/ofi cray-mpich/ucx                 | Cray MPICH is for Slingshot, InfiniBand and RoCE
efa          | openmpi4/psm2 openmpi5/psm2                   | psm2 is Omni-Path's own
"""  # noqa: E501

# kind | way | options | what they add to, or change in, the row's variables (- takes out), or !reason
WITH_OPTIONS = """
ethernet-tcp | nccl           | gpudirect=true  | !TCP stages GPU data through the host
ethernet-tcp | nccl           | gpudirect=false |
ethernet-tcp | nccl           | algorithm=Ring  | NCCL_ALGO=Ring
ethernet-tcp | nccl           | protocol=^LL128 | NCCL_PROTO=^LL128
ethernet-tcp | nccl           | channels=4      | NCCL_MIN_NCHANNELS=4 NCCL_MAX_NCHANNELS=4
ethernet-tcp | nccl           | ports_per_node=2 | NCCL_SOCKET_IFNAME==net0,net1
ethernet-tcp | gloo           | ports_per_node=2 | GLOO_SOCKET_IFNAME=net0,net1
ethernet-tcp | mpich/ofi      | gpudirect=true buffers=device  | !TCP stages GPU data
ethernet-tcp | mpich/ofi      | gpudirect=false buffers=device | MPIR_CVAR_ENABLE_GPU=1 MPIR_CVAR_CH4_OFI_ENABLE_HMEM=0
ethernet-tcp | mpich/ofi      | buffers=device  | MPIR_CVAR_ENABLE_GPU=1
ethernet-tcp | mpich/ofi      | ports_per_node=2 | !libfabric's tcp provider takes one interface
ethernet-tcp | mpich/ucx      | buffers=device  | MPIR_CVAR_ENABLE_GPU=1 UCX_TLS=tcp,sm,self,cuda
ethernet-tcp | mpich/ucx      | buffers=device gpudirect=true | !TCP stages GPU data
ethernet-tcp | mpich/ucx      | buffers=device gpudirect=false | MPIR_CVAR_ENABLE_GPU=1 UCX_TLS=tcp,sm,self,cuda
ethernet-tcp | intel-mpi/ofi  | buffers=device  | !Intel MPI has no documented way here
ethernet-tcp | openmpi4/tcp   | buffers=device  | OMPI_MCA_btl=tcp,self,smcuda
ethernet-tcp | openmpi4/tcp   | buffers=device gpudirect=false | OMPI_MCA_btl=tcp,self,smcuda
ethernet-tcp | openmpi4/tcp   | buffers=device gpudirect=true  | !TCP stages GPU data
ethernet-tcp | openmpi4/tcp   | ports_per_node=2 | OMPI_MCA_btl_tcp_if_include=net0,net1
ethernet-tcp | openmpi5/tcp   | buffers=device  | OMPI_MCA_btl=tcp,self,smcuda
ethernet-tcp | openmpi5/tcp   | buffers=device gpudirect=false | OMPI_MCA_btl=tcp,self,smcuda
ethernet-tcp | openmpi5/tcp   | buffers=device gpudirect=true  | !TCP stages GPU data
ethernet-tcp | mpich/ucx      | ports_per_node=2 | UCX_NET_DEVICES=net0,net1 UCX_MAX_RNDV_RAILS=2 UCX_MAX_EAGER_RAILS=2
ethernet-tcp | openmpi5/ofi   | ports_per_node=2 | !libfabric's tcp provider takes one interface
infiniband   | nccl           | gpudirect=true  | NCCL_NET_GDR_LEVEL=SYS
infiniband   | nccl           | gpudirect=false | NCCL_NET_GDR_LEVEL=LOC NCCL_DMABUF_ENABLE=0
infiniband   | nccl           | ports_per_node=2 | NCCL_IB_HCA==dev1:2,dev2:2
infiniband   | mpich/ucx      | buffers=device gpudirect=true | MPIR_CVAR_ENABLE_GPU=1 UCX_TLS=rc,sm,self,cuda UCX_IB_GPU_DIRECT_RDMA=y
infiniband   | mpich/ofi      | buffers=device gpudirect=true | MPIR_CVAR_ENABLE_GPU=1 MPIR_CVAR_CH4_OFI_ENABLE_HMEM=1
infiniband   | mpich/ofi      | ports_per_node=2 | !libfabric's verbs provider takes one interface
infiniband   | intel-mpi/ofi  | ports_per_node=2 | UCX_NET_DEVICES=dev1:2,dev2:2 UCX_MAX_RNDV_RAILS=2 UCX_MAX_EAGER_RAILS=2
infiniband   | openmpi5/ucx   | buffers=device gpudirect=true  | UCX_TLS=rc,sm,self,cuda UCX_IB_GPU_DIRECT_RDMA=y
infiniband   | openmpi5/ucx   | buffers=device gpudirect=false | UCX_TLS=rc,sm,self,cuda UCX_IB_GPU_DIRECT_RDMA=n
infiniband   | openmpi5/ucx   | ports_per_node=2 | UCX_NET_DEVICES=dev1:2,dev2:2 UCX_MAX_RNDV_RAILS=2 UCX_MAX_EAGER_RAILS=2
infiniband   | cray-mpich/ucx | buffers=device gpudirect=true  | MPICH_GPU_SUPPORT_ENABLED=1 UCX_TLS=rc,sm,self,cuda UCX_IB_GPU_DIRECT_RDMA=y
infiniband   | openmpi5/tcp   | buffers=device gpudirect=true  | !TCP stages GPU data
roce         | mpich/ofi/psm3 | ports_per_node=2 | !psm3 is used with one adapter here
omnipath     | nccl           | gpudirect=true  | NCCL_NET_GDR_LEVEL=SYS PSM2_CUDA=1 PSM2_GPUDIRECT=1
omnipath     | nccl           | gpudirect=false | NCCL_NET_GDR_LEVEL=LOC PSM2_GPUDIRECT=0
omnipath     | nccl/opx       | gpudirect=true  | NCCL_NET_GDR_LEVEL=SYS
omnipath     | nccl/opx       | ports_per_node=2 | !libfabric's opx provider takes one adapter
omnipath     | openmpi4/psm2  | buffers=device gpudirect=true  | PSM2_CUDA=1 PSM2_GPUDIRECT=1
omnipath     | openmpi4/psm2  | buffers=device gpudirect=false | PSM2_CUDA=1 PSM2_GPUDIRECT=0
omnipath     | openmpi4/psm2  | buffers=device  | PSM2_CUDA=1
omnipath     | openmpi4/psm2  | ports_per_node=2 | -HFI_UNIT PSM2_MULTIRAIL=1 PSM2_MULTIRAIL_MAP=1:2,2:2
omnipath     | openmpi4/ofi/psm2 | buffers=device gpudirect=false | PSM2_CUDA=1 PSM2_GPUDIRECT=0
omnipath     | mpich/ofi      | ports_per_node=2 | -HFI_UNIT PSM2_MULTIRAIL=1 PSM2_MULTIRAIL_MAP=1:2,2:2
omnipath     | openmpi5/ofi   | buffers=device  |
omnipath     | openmpi5/ofi   | buffers=device gpudirect=true  | !no switch is known for gpudirect: true on openmpi5/ofi
slingshot    | nccl           | gpudirect=true  | NCCL_NET_GDR_LEVEL=SYS
slingshot    | nccl           | ports_per_node=2 | NCCL_SOCKET_IFNAME==net0,net1 FI_CXI_DEVICE_NAME=dev1,dev2
slingshot    | cray-mpich/ofi | buffers=device  | MPICH_GPU_SUPPORT_ENABLED=1
slingshot    | cray-mpich/ofi | buffers=device gpudirect=true  | MPICH_GPU_SUPPORT_ENABLED=1
slingshot    | cray-mpich/ofi | buffers=device gpudirect=false | !Cray MPICH reads GPU memory by GPUDirect or not
slingshot    | openmpi5/ofi   | buffers=device gpudirect=false | !no switch is known for gpudirect: false
efa          | nccl           | gpudirect=true  | NCCL_NET_GDR_LEVEL=SYS FI_EFA_USE_DEVICE_RDMA=1
efa          | nccl           | gpudirect=false | NCCL_NET_GDR_LEVEL=LOC FI_EFA_USE_DEVICE_RDMA=0
efa          | openmpi4/ofi   | buffers=device gpudirect=true  | FI_EFA_USE_DEVICE_RDMA=1
efa          | nccl           | ports_per_node=2 | FI_EFA_IFACE=dev1,dev2
"""  # noqa: E501


def lines(table: str) -> list[tuple[str, ...]]:
    """The lines of a table above, as tuples of texts."""
    return [tuple(text.strip() for text in line.split("|")) for line in table.splitlines() if line]


def variables(text: str) -> dict[str, str]:
    """NAME=VALUE words as a shell reads them."""
    words = (word.partition("=") for word in shlex.split(text.replace("NO_HPCX", NO_HPCX)))
    return {name: value for name, _, value in words}


def the_fabric(kind: str, provider: str | None = None, ports: int = 1) -> dict[str, Any]:
    """A fabric with port 2 of every adapter."""
    adapters = ["hfi1_1", "hfi1_2"] if kind == "omnipath" else ["dev1", "dev2"]
    emulated = kind == "emulated"
    names = {"interface": ["net0", "net1"][:ports], "adapter": [] if emulated else adapters[:ports]}
    return a_fabric(kind, port=2, provider=provider or None, ports_per_node=ports, **names)


def the_backend(way: str, **options: Any) -> dict[str, Any]:
    """A backend that goes this way."""
    library, _, transport = way.partition("/")
    if not transport:
        return {"name": way, "engine": way, **options}
    mpi = {"library": library, "transport": transport, "buffers": "host"}
    return {"name": "mpi", "engine": "mpi", **mpi, **options}


def row_ids(rows: list[tuple[str, ...]]) -> list[str]:
    """Readable ids of tests."""
    return ["-".join(filter(None, row[:3])) for row in rows]


@pytest.mark.parametrize(("kind", "way", "provider", "by", "text"), lines(ROWS), ids=row_ids(lines(ROWS)))
def test_row_gives_each_library_its_form(kind: str, way: str, provider: str, by: str, text: str) -> None:
    """Each library gets exactly these variables, in the form that it takes, and these counters prove it."""
    fabric, backend = the_fabric(kind, provider), the_backend(way)
    assert why_unsupported(fabric, backend, "cuda") is None
    assert environment(fabric, backend, "cuda") == variables(text)
    assert path(fabric, backend) == by


REASONS = [(kind, way, reason) for kind, ways, reason in lines(UNSUPPORTED) for way in ways.split()]


@pytest.mark.parametrize(("kind", "way", "reason"), REASONS, ids=["-".join(row[:2]) for row in REASONS])
def test_unsupported_row_has_a_reason(kind: str, way: str, reason: str) -> None:
    """What can't be selected says why, also when its environment is asked for."""
    fabric, backend = the_fabric(kind), the_backend(way)
    assert str(why_unsupported(fabric, backend, "cuda")).startswith(reason)
    with pytest.raises(ConfigError, match=re.escape(reason)):
        environment(fabric, backend, "cuda")


def test_every_row_has_its_expectation() -> None:
    """No row of the table is without a line above, and no line without its row."""
    supported = [(kind, way, provider) for kind, way, provider, *_ in lines(ROWS)]
    unsupported = [(kind, way, "") for kind, way, _ in REASONS]
    assert sorted(supported + unsupported) == sorted(TABLE)


def test_first_provider_is_the_default() -> None:
    """Without a provider a fabric has its kind's first line above for this way."""
    first: dict[tuple[str, str], str] = {}
    for kind, way, _, _, text in lines(ROWS):
        first.setdefault((kind, way), text)
    for (kind, way), text in first.items():
        assert environment(the_fabric(kind), the_backend(way), "cuda") == variables(text)


@dataclass
class Case:
    """One line of WITH_OPTIONS, read."""

    fabric: dict[str, Any]
    plain: dict[str, Any]
    backend: dict[str, Any]
    expected: str


def option_case(kind: str, way: str, options: str, expected: str) -> Case:
    """A line of WITH_OPTIONS: the fabric, the backend without and with options, what is expected."""
    words = way.split("/")
    provider = words.pop() if words[-1] in ("opx", "psm3") or len(words) == 3 else None
    given: dict[str, Any] = dict(option.split("=") for option in options.split())
    ports = int(given.pop("ports_per_node", 1))
    typed = {name: {"true": True, "false": False}.get(value, value) for name, value in given.items()}
    if "channels" in typed:
        typed["channels"] = int(typed["channels"])
    way = "/".join(words)
    return Case(the_fabric(kind, provider, ports), the_backend(way), the_backend(way, **typed), expected)


@pytest.mark.parametrize("line", lines(WITH_OPTIONS), ids=row_ids(lines(WITH_OPTIONS)))
def test_options_change_what_they_say(line: tuple[str, str, str, str]) -> None:
    """Options and several ports add or change exactly these variables, or are unsupported with a reason."""
    case = option_case(*line)
    if case.expected.startswith("!"):
        assert str(why_unsupported(case.fabric, case.backend, "cuda")).startswith(case.expected[1:])
        return
    assert why_unsupported(case.fabric, case.backend, "cuda") is None
    one_port = the_fabric(case.fabric["kind"], case.fabric["provider"])
    before = environment(one_port, case.plain, "cuda")
    after = environment(case.fabric, case.backend, "cuda")
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    gone = {f"-{name}": "" for name in before.keys() - after.keys()}
    assert changed | gone == {
        name: value for name, value in variables(case.expected).items() if before.get(name) != value
    }


def test_every_option_row_is_used_above() -> None:
    """Each entry of OPTIONS and of RAILS is part of at least one line above."""
    options, rails = set(), set()
    for line in lines(WITH_OPTIONS):
        case = option_case(*line)
        row = selection._row(case.fabric, case.backend)
        parts = (case.backend["engine"], *row.parts)
        for option, value in selection._options(case.backend):
            options |= {(part, option, value) for part in parts} | {(part, option, "*") for part in parts}
        if case.fabric["ports_per_node"] > 1:
            rails |= set(row.parts)
    missing = set(OPTIONS) - options
    alike = {(part.replace("4", "5"), *rest) for part, *rest in options}
    alike |= {(part.replace("5", "4"), *rest) for part, *rest in options}
    assert missing <= alike
    assert set(RAILS) <= rails


@pytest.mark.parametrize(
    ("way", "options", "reason"),
    [
        ("nccl", {}, "nccl needs device cuda; the workload's device is cpu"),
        (
            "openmpi5/ucx",
            {"buffers": "device"},
            "buffers: device needs device cuda; the workload's device is",
        ),
        ("openmpi5/psm2", {}, "psm2 is Omni-Path's own"),
    ],
)
def test_gpu_memory_needs_a_gpu(way: str, options: dict[str, Any], reason: str) -> None:
    """What sends from a GPU's memory is unsupported without one; the impossible says its own reason first."""
    assert str(why_unsupported(the_fabric("infiniband"), the_backend(way, **options), "cpu")).startswith(
        reason
    )


@pytest.mark.parametrize(
    ("kind", "way", "provider", "reason"),
    [
        ("token-ring", "gloo", None, "no way is known for gloo to use a fabric of kind token-ring"),
        (
            "infiniband",
            "mpich/ofi",
            "mlx",
            "mpich/ofi takes verbs;ofi_rxm here; the fabric's provider is mlx",
        ),
        (
            "omnipath",
            "openmpi4/psm2",
            "opx",
            "the fabric's provider is opx, which is libfabric's; use transport",
        ),
    ],
)
def test_what_no_row_has(kind: str, way: str, provider: str | None, reason: str) -> None:
    """A kind or provider that the table doesn't have for a way is unsupported, with the mend."""
    assert str(why_unsupported(the_fabric(kind, provider), the_backend(way), "cuda")).startswith(reason)


def test_weakest_row_is_marked() -> None:
    """NCCL over OPX carries a note; NCCL over psm2 doesn't."""
    assert "least documented" in str(selection.note(the_fabric("omnipath", "opx"), the_backend("nccl")))
    assert selection.note(the_fabric("omnipath", "psm2"), the_backend("nccl")) is None


@pytest.mark.parametrize(
    ("kind", "library", "transport"),
    [
        ("ethernet-tcp", "mpich", "ofi"), ("infiniband", "mpich", "ofi"), ("ethernet-tcp", "openmpi4", "tcp"),
        ("roce", "openmpi5", "ucx"), ("infiniband", "openmpi4", "ucx"), ("omnipath", "openmpi5", "psm2"),
        ("slingshot", "openmpi5", "ofi"), ("efa", "openmpi4", "ofi"), ("slingshot", "cray-mpich", "ofi"),
        ("infiniband", "intel-mpi", "ofi"),
    ],
)  # fmt: skip
def test_default_transport_suits_the_fabric(kind: str, library: str, transport: str) -> None:
    """Open MPI's transport follows the fabric; the others' is libfabric, and the default is supported."""
    assert selection.default_transport(kind, library) == transport
    assert why_unsupported(the_fabric(kind), the_backend(f"{library}/{transport}"), "cpu") is None


def test_prefix_of_another_name_is_exact() -> None:
    """NCCL matches prefixes, so eth0 would also take eth0.100: it gets '='; the others take plain names."""
    fabric = a_fabric("ethernet-tcp", interface=["eth0"])
    assert environment(fabric, the_backend("nccl"), "cuda")["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert environment(fabric, the_backend("gloo"), "cpu")["GLOO_SOCKET_IFNAME"] == "eth0"
    assert environment(fabric, the_backend("openmpi5/ucx"), "cpu")["UCX_NET_DEVICES"] == "eth0"
    tcp = environment(fabric, the_backend("openmpi5/tcp"), "cpu")
    assert tcp["OMPI_MCA_btl_tcp_if_include"] == "eth0"


@pytest.mark.parametrize(
    ("interface", "ports", "supported"),
    [(["e"], 1, False), (["eth0", "e"], 1, False), (["a", "b"], 2, True), (["e0"], 1, True)],
)
def test_gloo_takes_no_name_of_one_letter(interface: list[str], ports: int, supported: bool) -> None:
    """PyTorch ignores a GLOO_SOCKET_IFNAME of one letter; of two such ports it has a longer text."""
    fabric = a_fabric("ethernet-tcp", interface=interface, ports_per_node=ports)
    reason = why_unsupported(fabric, the_backend("gloo"), "cpu")
    assert (reason is None) is supported
    assert supported or "Gloo takes no name of one letter" in str(reason)
    assert why_unsupported(fabric, the_backend("mpich/ofi"), "cpu") is None or ports == 2


@dataclass
class NodeRails:
    """What a node found."""

    interfaces: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


def test_names_that_differ_are_filled_on_each_node() -> None:
    """With more names than ports, tokens stay until a node says which it has; the adapter's port is known."""
    fabric = a_fabric("infiniband", interface=["ib0", "ibp1"], adapter=["mlx5_0", "mlx5_2"], port=2)
    nccl = environment(fabric, the_backend("nccl"), "cuda")
    gloo = environment(fabric, the_backend("gloo"), "cpu")
    assert nccl["NCCL_IB_HCA"] == "={adapter:2}"
    assert gloo == {"GLOO_SOCKET_IFNAME": "{interface}"}
    rails = NodeRails(("ibp1",), ("mlx5_2",), ("10.0.0.7",))
    assert on_node(nccl, rails)["NCCL_IB_HCA"] == "=mlx5_2:2"
    assert on_node(gloo, rails) == {"GLOO_SOCKET_IFNAME": "ibp1"}
    assert on_node({"A": "{address}|{adapter:port} {x} {interface"}, rails) == {
        "A": "10.0.0.7|mlx5_2:1 {x} {interface"
    }


def test_rails_of_a_node_are_joined() -> None:
    """Several ports become the list that each library takes."""
    rails = NodeRails(("hsn0", "hsn1"), ("hfi1_0", "hfi1_1"), ("10.0.0.1", "10.0.1.1"))
    given = {"A": "={interface}", "B": "{adapter:3}", "C": "{unit}", "D": "{unit:1}", "E": "{address}"}
    assert on_node(given, rails) == {
        "A": "=hsn0,hsn1", "B": "hfi1_0:3,hfi1_1:3", "C": "0,1", "D": "0:1,1:1", "E": "10.0.0.1,10.0.1.1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "rails", "line"),
    [
        ("{adapter}", NodeRails(("eth0",)), "A={adapter}: this node's fabric has no adapter; name it in the"),
        ("{unit}", NodeRails((), ("opap1s0",)), "A={unit}: adapter opap1s0 has no unit number in its name"),
    ],
)
def test_a_token_that_a_node_cannot_fill(value: str, rails: NodeRails, line: str) -> None:
    """A name that a node doesn't have is one line, not an empty value."""
    with pytest.raises(LaunchError, match=re.escape(line)):
        on_node({"A": value}, rails)


def test_default_config_selects_as_before() -> None:
    """The emulated cluster's names are certain: nothing is left to fill."""
    fabric = a_fabric()
    assert "{" not in "".join(environment(fabric, the_backend("mpich/ofi"), "cpu").values())


DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "fabrics.md"


def documented_table() -> str:
    """TABLE as docs/fabrics.md shows it: ways by kinds, `tcp` or `rdma` with its providers, or a dash."""
    kinds = list(dict.fromkeys(kind for kind, _, _ in TABLE))
    ways = list(dict.fromkeys(way for _, way, _ in TABLE))
    out = [f"| | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for way in ways:
        texts = []
        for kind in kinds:
            providers = [p for k, w, p in TABLE if (k, w) == (kind, way) and not TABLE[k, w, p].unsupported]
            by = path(the_fabric(kind), the_backend(way)) if providers else "–"
            texts.append(f"{by} ({', '.join(providers)})" if any(providers) else by)
        out.append(f"| {way} | {' | '.join(texts)} |")
    return "\n".join(out)


def test_document_shows_the_table() -> None:
    """The table in docs/fabrics.md is the table in force, and every reason stands there."""
    text = DOCUMENT.read_text(encoding="utf-8")
    assert documented_table() in text
    words = " ".join(text.split())
    assert [
        row.unsupported for row in TABLE.values() if row.unsupported and row.unsupported not in words
    ] == []


@dataclass
class OnNode:
    """Rails of one node."""

    interfaces: tuple[str, ...] = ("eth0",)
    adapters: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ("10.0.0.1",)


def test_nccl_is_told_where_a_node_has_ipv6_alone() -> None:
    """Unset, NCCL looks for an IPv4 address; a user's own setting wins."""
    variables = environment(the_fabric("ethernet-tcp"), the_backend("nccl"), "cuda")
    assert "NCCL_SOCKET_FAMILY" not in selection.on_node(variables, OnNode())
    ipv6 = OnNode(addresses=("fd00::1",))
    assert selection.on_node(variables, ipv6)["NCCL_SOCKET_FAMILY"] == "AF_INET6"
    own = variables | {"NCCL_SOCKET_FAMILY": "AF_INET"}
    assert selection.on_node(own, ipv6)["NCCL_SOCKET_FAMILY"] == "AF_INET"
