"""Ranks of one cell as a workload sees them: number, barrier and small objects, over either engine."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.mpi_library import which_mpi
from fabricbench.workloads.seat import Seat

# Longer than any cell's own time-out: the runner ends a cell, never a library's default.
ENGINE_TIMEOUT = timedelta(hours=12)


class Ranks(Protocol):
    """The few collective calls that set-up and bookkeeping need; nothing here is ever timed."""

    rank: int
    size: int

    def barrier(self) -> None:
        """Wait for all ranks."""

    def gather(self, item: Any) -> list[Any]:
        """Every rank's item on rank 0, in rank order; an empty list elsewhere."""

    def share(self, item: Any) -> Any:
        """Rank 0's item on every rank."""

    def tell(self, key: str, value: Any) -> None:
        """Leave a small value of plain JSON for all ranks at the store: not over the fabric under test."""

    def hear(self, key: str) -> Any:
        """Wait for what a rank tells under this key."""

    def library(self) -> dict[str, str]:
        """Name and version of what carries the messages."""


class TorchRanks:
    """Ranks of torch's default process group."""

    def __init__(self, cell: Cell, seat: Seat) -> None:
        """Meet at the seat's store, then open the engine's process group."""
        import torch
        import torch.distributed as dist

        torch.set_num_threads(cell.threads_per_rank)
        if (threads := torch.get_num_threads()) != cell.threads_per_rank:
            raise LaunchError(
                f"the cell asks for {cell.threads_per_rank} threads a rank, torch has {threads}"
            )
        if cell.device == "cuda":
            take_gpu(cell, seat)
        host, _, port = seat.store.rpartition(":")
        store = dist.TCPStore(  # type: ignore[attr-defined]
            host.strip("[]"),
            int(port),
            seat.size,
            is_master=seat.rank == 0,
            timeout=timedelta(seconds=60),
            master_listen_fd=seat.listener,
            use_libuv=False,  # the only server that takes a socket which is already bound
        )
        dist.init_process_group(
            cell.backend["engine"], store=store, rank=seat.rank, world_size=seat.size, timeout=ENGINE_TIMEOUT
        )
        self._dist = dist
        self._store = store
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._dist.barrier()

    def gather(self, item: Any) -> list[Any]:
        """Every rank's item on rank 0."""
        items = [None] * self.size if self.rank == 0 else None
        self._dist.gather_object(item, items)
        return items or []

    def share(self, item: Any) -> Any:
        """Rank 0's item on every rank."""
        box = [item]
        self._dist.broadcast_object_list(box)
        return box[0]

    def tell(self, key: str, value: Any) -> None:
        """Leave a small value of plain JSON for all ranks at the store."""
        self._store.set(f"told/{key}", json.dumps(value))

    def hear(self, key: str) -> Any:
        """Wait for what a rank tells under this key, as long as a cell may last."""
        self._store.wait([f"told/{key}"], ENGINE_TIMEOUT)
        return json.loads(self._store.get(f"told/{key}"))

    def library(self) -> dict[str, str]:
        """torch's version; Gloo has none of its own."""
        import torch

        return {"torch": torch.__version__}

    def close(self) -> None:
        """Leave together, so that no rank sees a closed connection before it is done."""
        self._dist.barrier()
        self._dist.destroy_process_group()


def take_gpu(cell: Cell, seat: Seat) -> None:
    """Make the GPU of this local rank the current one; LaunchError where there are too few."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < cell.ranks_per_node:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        among = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
        raise LaunchError(
            f"device: cuda: {cell.ranks_per_node} ranks on this node, and torch sees {count} GPUs{among}; "
            "ask for more GPUs, or set the workload's device to cpu or replay"
        )
    torch.cuda.set_device(seat.local_rank)


class MpiRanks:
    """Ranks of MPI_COMM_WORLD."""

    def __init__(self, cell: Cell, seat: Seat) -> None:
        """Start MPI as the launcher's PMI variables say."""
        import mpi4py

        mpi4py.rc.finalize = False
        if cell.device == "cuda":
            take_gpu(cell, seat)  # before MPI starts: a CUDA-aware library takes the current one
        from mpi4py import MPI

        self._mpi = MPI
        self.comm = MPI.COMM_WORLD
        wanted, loaded = cell.backend.get("library", "mpich"), self.library()["mpi"]
        if which_mpi(MPI.Get_library_version()) != wanted:
            raise LaunchError(
                f"backends.{cell.backend['name']}.library: {wanted}, and mpi4py loads {loaded}: "
                "name that library, or use an mpi4py that is built for this one"
            )
        self.rank = self.comm.Get_rank()
        self.size = self.comm.Get_size()

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.comm.Barrier()

    def gather(self, item: Any) -> list[Any]:
        """Every rank's item on rank 0."""
        return self.comm.gather(item) or []

    def share(self, item: Any) -> Any:
        """Rank 0's item on every rank."""
        return self.comm.bcast(item)

    def tell(self, key: str, value: Any) -> None:
        """MPI has no store beside the fabric; its workloads make a fixed number of steps."""
        raise NotImplementedError

    def hear(self, key: str) -> Any:
        """As `tell`."""
        raise NotImplementedError

    def library(self) -> dict[str, str]:
        """mpi4py's version and the first line of the MPI library's own."""
        import mpi4py

        version = self._mpi.Get_library_version().replace("\t", " ").strip("\0 \n").split("\n")[0]
        return {"mpi4py": mpi4py.__version__, "mpi": version}

    def close(self) -> None:
        """Finalize together."""
        self.comm.Barrier()
        self._mpi.Finalize()


ENGINES: dict[str, type[TorchRanks] | type[MpiRanks]] = {
    "gloo": TorchRanks,
    "nccl": TorchRanks,
    "mpi": MpiRanks,
}


@contextmanager
def meet(cell: Cell, seat: Seat) -> Iterator[TorchRanks | MpiRanks]:
    """Bring all ranks of a cell together; raises LaunchError when the world isn't the cell's."""
    ranks = ENGINES[cell.backend["engine"]](cell, seat)
    if ranks.size != cell.gpus:
        raise LaunchError(
            f"{cell.gpus} processes, each in a world of size {ranks.size}: launcher and library don't match "
            f"(launcher {cell.launcher}, library {' '.join(ranks.library().values())})"
        )
    if ranks.rank != seat.rank:
        raise LaunchError(f"the launcher started rank {seat.rank}, the library made it rank {ranks.rank}")
    yield ranks
    ranks.close()
