"""Send, receive and all-reduce of byte buffers over either engine, in the host's memory or a GPU's.

Over MPI a GPU's memory is sent as it is (buffers: device, a CUDA-aware library), or through the host.
Engine ring differs from mpi in its all-reduce alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from fabricbench.cell import Cell
from fabricbench.workloads.mpi_thread import drive, wait
from fabricbench.workloads.ranks import MpiRanks, Ranks
from fabricbench.workloads.ring import ring_allreduce


class Channel(Protocol):
    """What the operations need. Buffers are whatever the engine sends without a copy."""

    rank: int
    size: int
    last: int
    rails: int

    def buffer(self, count: int) -> Any:
        """A buffer of `count` bytes, written once, so that its pages exist."""

    def as_float32(self, buffer: Any) -> Any:
        """The same memory as an array of float32."""

    def send(self, buffer: Any, to: int) -> None:
        """Send and wait."""

    def receive(self, buffer: Any, source: int) -> None:
        """Receive and wait."""

    def send_all(self, buffers: Sequence[Any], to: int) -> None:
        """Send all at once, then wait for all."""

    def receive_all(self, buffers: Sequence[Any], source: int) -> None:
        """Receive all at once, then wait for all."""

    def allreduce(self, buffer: Any) -> None:
        """Sum float32 over all ranks, in place."""

    def barrier(self) -> None:
        """Wait for all ranks."""

    def settle(self) -> None:
        """Wait until what was written to buffers is there: a GPU works behind the host's back."""


def open_channel(cell: Cell, ranks: Ranks) -> Channel:
    """The channel of the cell's engine."""
    rails = cell.fabric["ports_per_node"]
    if not isinstance(ranks, MpiRanks):
        return TorchChannel(ranks, rails, cell.device)
    made: type[MpiChannel] = MpiChannel
    if cell.device == "cuda":
        made = DeviceMpiChannel if cell.backend["buffers"] == "device" else StagedMpiChannel
    return made(ranks, rails, ring=cell.backend["engine"] == "ring")


class MpiChannel:
    """Over mpi4py's buffer calls, on numpy memory."""

    def __init__(self, ranks: MpiRanks, rails: int, ring: bool = False) -> None:
        """On MPI_COMM_WORLD; `ring`: its all-reduce is a ring over messages, and not the library's."""
        from mpi4py import MPI

        self._mpi, self._comm, self._ring, self._polling = MPI, ranks.comm, ring, ranks.polling
        self.rank, self.size, self.last = ranks.rank, ranks.size, ranks.size - 1
        self.rails, self.barrier = rails, ranks.barrier

    def buffer(self, count: int) -> Any:
        """numpy bytes."""
        import numpy as np

        return np.full(count, 1, np.uint8)

    def as_float32(self, buffer: Any) -> Any:
        """A view."""
        return buffer.view("float32")

    def send(self, buffer: Any, to: int) -> None:
        """MPI_Send."""
        self._comm.Send(buffer, to)

    def receive(self, buffer: Any, source: int) -> None:
        """MPI_Recv."""
        self._comm.Recv(buffer, source)

    def send_all(self, buffers: Sequence[Any], to: int) -> None:
        """MPI_Isend, then MPI_Waitall."""
        self._mpi.Request.Waitall([self._comm.Isend(buffer, to) for buffer in buffers])

    def receive_all(self, buffers: Sequence[Any], source: int) -> None:
        """MPI_Irecv, then MPI_Waitall."""
        self._mpi.Request.Waitall([self._comm.Irecv(buffer, source) for buffer in buffers])

    def allreduce(self, buffer: Any) -> None:
        """In place."""
        self._sum(self.as_float32(buffer))

    def _sum(self, array: Any) -> None:
        """MPI_Allreduce, its non-blocking form where ranks share cores, or the ring."""
        if self._ring:
            drive(ring_allreduce(self._comm, array, self._add, self._like(array)), self._polling)
        elif self._polling:
            wait([self._comm.Iallreduce(self._mpi.IN_PLACE, array, op=self._mpi.SUM)], polling=True)
        else:
            self._comm.Allreduce(self._mpi.IN_PLACE, array, op=self._mpi.SUM)

    def _add(self, into: Any, other: Any) -> None:
        """In place."""
        into += other

    def _like(self, array: Any) -> Callable[[int], Any]:
        """What makes memory such as the array's."""
        import numpy as np

        return partial(np.empty, dtype=array.dtype)

    def settle(self) -> None:
        """The host's memory is written at once."""


class DeviceMpiChannel(MpiChannel):
    """A CUDA-aware library reads and writes the GPU's memory by itself."""

    memory = "cuda"

    def buffer(self, count: int) -> Any:
        """A tensor, which mpi4py hands on by its CUDA array interface."""
        import torch

        buffer = torch.full((count,), 1, dtype=torch.uint8, device=self.memory)
        self.settle()
        return buffer

    def as_float32(self, buffer: Any) -> Any:
        """A view."""
        import torch

        return buffer.view(torch.float32)

    def _add(self, into: Any, other: Any) -> None:
        """In place, and done before MPI reads it."""
        into += other
        self.settle()

    def _like(self, array: Any) -> Callable[[int], Any]:
        """On the same device."""
        import torch

        return partial(torch.empty, dtype=array.dtype, device=array.device)

    def settle(self) -> None:
        """MPI knows nothing of torch's streams."""
        import torch

        if self.memory == "cuda":
            torch.cuda.synchronize()


@dataclass(frozen=True)
class Staged:
    """A GPU's buffer, and its copy in the host's page-locked memory."""

    device: Any
    host: Any

    def down(self) -> Any:
        """Copy to the host and wait; returns the host's bytes."""
        self.host.copy_(self.device)
        return self.host.numpy()

    def up(self) -> None:
        """Copy from the host and wait."""
        self.device.copy_(self.host)


class StagedMpiChannel(MpiChannel):
    """Each message is copied to the host, sent, and copied up again: a GPU without CUDA-aware MPI."""

    memory = "cuda"

    def buffer(self, count: int) -> Any:
        """Both copies."""
        import torch

        host = torch.full((count,), 1, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
        return Staged(host.to(self.memory, copy=True), host)

    def as_float32(self, buffer: Any) -> Any:
        """The GPU's."""
        import torch

        return buffer.device.view(torch.float32)

    def send(self, buffer: Any, to: int) -> None:
        """Down, MPI_Send."""
        super().send(buffer.down(), to)

    def receive(self, buffer: Any, source: int) -> None:
        """MPI_Recv, up."""
        super().receive(buffer.host.numpy(), source)
        buffer.up()

    def send_all(self, buffers: Sequence[Any], to: int) -> None:
        """All down, then MPI_Isend and MPI_Waitall."""
        super().send_all([buffer.down() for buffer in buffers], to)

    def receive_all(self, buffers: Sequence[Any], source: int) -> None:
        """MPI_Irecv and MPI_Waitall, then all up."""
        super().receive_all([buffer.host.numpy() for buffer in buffers], source)
        for buffer in buffers:
            buffer.up()

    def allreduce(self, buffer: Any) -> None:
        """Down, all-reduce in the host's memory, up."""
        self._sum(buffer.down().view("float32"))
        buffer.up()


class TorchChannel:
    """Over torch.distributed, on tensors."""

    def __init__(self, ranks: Ranks, rails: int, device: str) -> None:
        """On the default process group; `device` is cpu or cuda (NCCL)."""
        import torch
        import torch.distributed as dist

        self._torch, self._dist, self._device = torch, dist, device
        self.rank, self.size, self.last = ranks.rank, ranks.size, ranks.size - 1
        self.rails, self.barrier = rails, ranks.barrier

    def buffer(self, count: int) -> Any:
        """A uint8 tensor."""
        return self._torch.full((count,), 1, dtype=self._torch.uint8, device=self._device)

    def as_float32(self, buffer: Any) -> Any:
        """A view."""
        return buffer.view(self._torch.float32)

    def send(self, buffer: Any, to: int) -> None:
        """dist.send."""
        self._dist.send(buffer, to)
        self.settle()

    def receive(self, buffer: Any, source: int) -> None:
        """dist.recv."""
        self._dist.recv(buffer, source)
        self.settle()

    def send_all(self, buffers: Sequence[Any], to: int) -> None:
        """dist.isend, then wait for each."""
        self._wait([self._dist.isend(buffer, to) for buffer in buffers])

    def receive_all(self, buffers: Sequence[Any], source: int) -> None:
        """dist.irecv, then wait for each."""
        self._wait([self._dist.irecv(buffer, source) for buffer in buffers])

    def _wait(self, requests: list[Any]) -> None:
        for request in requests:
            request.wait()
        self.settle()

    def allreduce(self, buffer: Any) -> None:
        """dist.all_reduce in place."""
        self._dist.all_reduce(self.as_float32(buffer))
        self.settle()

    def settle(self) -> None:
        """NCCL's calls only queue work on the GPU."""
        if self._device == "cuda":
            self._torch.cuda.synchronize()
