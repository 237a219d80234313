"""Send, receive and all-reduce of byte buffers over either engine."""

from collections.abc import Sequence
from typing import Any, Protocol

from fabricbench.cell import Cell
from fabricbench.workloads.ranks import MpiRanks, Ranks


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


def open_channel(cell: Cell, ranks: Ranks) -> Channel:
    """The channel of the cell's engine."""
    rails = cell.fabric["ports_per_node"]
    return MpiChannel(ranks, rails) if isinstance(ranks, MpiRanks) else TorchChannel(ranks, rails)


class MpiChannel:
    """Over mpi4py's buffer calls, on numpy memory."""

    def __init__(self, ranks: MpiRanks, rails: int) -> None:
        """On MPI_COMM_WORLD."""
        from mpi4py import MPI

        self._mpi, self._comm = MPI, ranks.comm
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
        """MPI_Allreduce in place."""
        self._comm.Allreduce(self._mpi.IN_PLACE, self.as_float32(buffer), op=self._mpi.SUM)


class TorchChannel:
    """Over torch.distributed, on tensors."""

    def __init__(self, ranks: Ranks, rails: int) -> None:
        """On the default process group."""
        import torch
        import torch.distributed as dist

        self._torch, self._dist = torch, dist
        self.rank, self.size, self.last = ranks.rank, ranks.size, ranks.size - 1
        self.rails, self.barrier = rails, ranks.barrier

    def buffer(self, count: int) -> Any:
        """A uint8 tensor."""
        return self._torch.full((count,), 1, dtype=self._torch.uint8)

    def as_float32(self, buffer: Any) -> Any:
        """A view."""
        return buffer.view(self._torch.float32)

    def send(self, buffer: Any, to: int) -> None:
        """dist.send."""
        self._dist.send(buffer, to)

    def receive(self, buffer: Any, source: int) -> None:
        """dist.recv."""
        self._dist.recv(buffer, source)

    def send_all(self, buffers: Sequence[Any], to: int) -> None:
        """dist.isend, then wait for each."""
        self._wait([self._dist.isend(buffer, to) for buffer in buffers])

    def receive_all(self, buffers: Sequence[Any], source: int) -> None:
        """dist.irecv, then wait for each."""
        self._wait([self._dist.irecv(buffer, source) for buffer in buffers])

    @staticmethod
    def _wait(requests: list[Any]) -> None:
        for request in requests:
            request.wait()

    def allreduce(self, buffer: Any) -> None:
        """dist.all_reduce in place."""
        self._dist.all_reduce(self.as_float32(buffer))
