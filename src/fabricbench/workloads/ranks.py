"""Ranks of one cell as a workload sees them: number, barrier and small objects, over either engine."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

from fabricbench.cell import Cell
from fabricbench.cores import cores_per_rank
from fabricbench.errors import LaunchError
from fabricbench.mpi_library import is_mpi, which_mpi
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

    def library(self) -> dict[str, str]:
        """Name and version of what carries the messages."""


class StoredRanks(Ranks, Protocol):
    """Ranks that also have a store beside the fabric under test."""

    def tell(self, key: str, value: Any) -> None:
        """Leave a small value of plain JSON for all ranks at the store: not over the fabric under test."""

    def hear(self, key: str) -> Any:
        """Wait for what a rank tells under this key."""


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
            self._backend(cell, seat),
            store=store,
            rank=seat.rank,
            world_size=seat.size,
            timeout=ENGINE_TIMEOUT,
        )
        self._dist = dist
        self._store = store
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def _backend(self, cell: Cell, seat: Seat) -> str:
        """torch's name of what the process group is made of."""
        return str(cell.backend["engine"])

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

    def failure(self) -> BaseException | None:
        """What went wrong in the engine, where it says so better than the exception that came of it."""
        return None

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


class MpiTorchRanks(TorchRanks):
    """Ranks of torch's default process group, which is made of MPI: one thread makes all its calls."""

    def _backend(self, cell: Cell, seat: Seat) -> str:
        """Start MPI in the thread, and make a backend of it known to torch."""
        from fabricbench.workloads import mpi_group
        from fabricbench.workloads.mpi_thread import MpiThread

        self._thread = MpiThread()
        memory = mpi_group.memory_of(cell, self._thread)
        self._mpi = self._thread.call(start_mpi)
        world = self._mpi.COMM_WORLD
        self._library = self._thread.call(check_library, self._mpi, cell)
        size, rank = self._thread.call(world.Get_size), self._thread.call(world.Get_rank)
        check_world(cell, seat, size, rank, self._library)
        places = self._thread.call(world.allgather, place_of(cell))
        self._thread.polling = share_cores(cell, places)
        self._thread.progress = world.Iprobe
        self._groups: list[mpi_group.MpiGroup] = []
        ring = cell.backend["engine"] == "ring"

        def make(options: Any, _: Any) -> mpi_group.MpiGroup:
            members = list(options.global_ranks_in_group) or list(range(size))
            comm = self._thread.call(mpi_group.communicator, world, members)
            self._groups.append(mpi_group.MpiGroup(self._thread, comm, memory, ring))
            return self._groups[-1]

        return mpi_group.register(cell.backend["engine"], make)

    def library(self) -> dict[str, str]:
        """torch's version, MPI's, and how the MPI thread waits."""
        from fabricbench.workloads.mpi_thread import BLOCKING, POLLING

        waits = POLLING if self._thread.polling else BLOCKING
        return super().library() | self._library | {"polling": waits}

    def failure(self) -> BaseException | None:
        """The first error of the MPI thread."""
        return next((group.failure for group in self._groups if group.failure), None)

    def close(self) -> None:
        """Leave together, and finalize."""
        super().close()
        self._thread.progress = None  # no call after the last
        self._thread.call(self._mpi.Finalize)


class MpiRanks:
    """Ranks of MPI_COMM_WORLD, whose thread makes its MPI calls itself."""

    def __init__(self, cell: Cell, seat: Seat) -> None:
        """Start MPI as the launcher's PMI variables say."""
        if cell.device == "cuda":
            take_gpu(cell, seat)  # before MPI starts: a CUDA-aware library takes the current one
        self._mpi = start_mpi()
        self.comm = self._mpi.COMM_WORLD
        self._library = check_library(self._mpi, cell)
        self.rank = self.comm.Get_rank()
        self.size = self.comm.Get_size()
        check_world(cell, seat, self.size, self.rank, self._library)
        self.polling = share_cores(cell, self.comm.allgather(place_of(cell)))

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.comm.Barrier()

    def gather(self, item: Any) -> list[Any]:
        """Every rank's item on rank 0."""
        return self.comm.gather(item) or []

    def share(self, item: Any) -> Any:
        """Rank 0's item on every rank."""
        return self.comm.bcast(item)

    def library(self) -> dict[str, str]:
        """mpi4py's version and the first line of the MPI library's own."""
        return self._library

    def failure(self) -> BaseException | None:
        """Its exceptions are the callers' own."""
        return None

    def close(self) -> None:
        """Finalize together."""
        self.comm.Barrier()
        self._mpi.Finalize()


def start_mpi() -> Any:
    """mpi4py's MPI, started in the calling thread, which alone may call it."""
    import mpi4py

    mpi4py.rc.finalize = False
    mpi4py.rc.thread_level = "funneled"
    from mpi4py import MPI

    return MPI


def check_library(mpi: Any, cell: Cell) -> dict[str, str]:
    """mpi4py's version and the first line of MPI's own; LaunchError where that is another than the cell's."""
    import mpi4py

    version = mpi.Get_library_version()
    loaded = version.replace("\t", " ").strip("\0 \n").split("\n")[0]
    wanted = cell.backend.get("library", "mpich")
    if which_mpi(version) != wanted:
        raise LaunchError(
            f"backends.{cell.backend['name']}.library: {wanted}, and mpi4py loads {loaded}: "
            "name that library, or use an mpi4py that is built for this one"
        )
    return {"mpi4py": mpi4py.__version__, "mpi": loaded}


def check_world(cell: Cell, seat: Seat, size: int, rank: int, library: dict[str, str]) -> None:
    """LaunchError when the library's world isn't the launcher's."""
    if size != cell.gpus:
        raise LaunchError(
            f"{cell.gpus} processes, each in a world of size {size}: launcher and library don't match "
            f"(launcher {cell.launcher}, library {' '.join(library.values())})"
        )
    if rank != seat.rank:
        raise LaunchError(f"the launcher started rank {seat.rank}, the library made it rank {rank}")


def place_of(cell: Cell) -> tuple[str, list[int]]:
    """(this machine, the cores that this rank may use); all emulated nodes are one machine."""
    machine = "" if cell.launcher == "emulated" else socket.gethostname()
    return machine, sorted(os.sched_getaffinity(0))


def share_cores(cell: Cell, places: list[tuple[str, list[int]]]) -> bool:
    """Whether the ranks of some machine, with their engine's threads, are more than the cores they have."""
    width = cores_per_rank(cell.threads_per_rank, cell.backend["engine"], cell.kind)
    for machine in {host for host, _ in places}:
        own = [set(cores) for host, cores in places if host == machine]
        if len(own) * width > len(set().union(*own)):
            return True
    return False


def ranks_class(cell: Cell) -> type[TorchRanks] | type[MpiRanks]:
    """How the ranks of a cell meet: train needs torch's process group, whatever it is made of."""
    if not is_mpi(cell.backend["engine"]):
        return TorchRanks
    return MpiTorchRanks if cell.kind == "train" else MpiRanks


@contextmanager
def meet(cell: Cell, seat: Seat) -> Iterator[TorchRanks | MpiRanks]:
    """Bring all ranks of a cell together; raises LaunchError when the world isn't the cell's.

    An exception from within is replaced by the engine's own word, where it has one.
    """
    ranks = ranks_class(cell)(cell, seat)
    check_world(cell, seat, ranks.size, ranks.rank, ranks.library())
    try:
        yield ranks
    except Exception as error:
        raise (ranks.failure() or error) from None
    ranks.close()
