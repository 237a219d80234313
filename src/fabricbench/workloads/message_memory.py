"""Where MPI finds the bytes of a tensor: in the host's memory, in a page-locked copy, or on the GPU itself.

The caller's thread tells when its tensors are ready (`mark`); all else happens in the MPI thread, whose
current stream is one of its own. A class is at once the way and one operation's use of it: `opened` makes
the latter.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import torch


class Streams(Protocol):
    """What is needed of a GPU; the tests have one without a GPU."""

    def event(self) -> Any:
        """An event on the calling thread's current stream: `synchronize()` and `query()`."""

    def enter(self) -> None:
        """Make the MPI thread's stream the current one of the calling thread."""

    def follow(self, event: Any) -> None:
        """Let the MPI thread's stream wait for an event."""

    def keep(self, tensor: torch.Tensor) -> None:
        """Tell the allocator that the MPI thread's stream uses this tensor."""

    def page_locked(self, count: int) -> torch.Tensor:
        """`count` bytes of host memory that the GPU copies to and from by itself."""

    def future(self) -> Any:
        """A torch future whose readers' streams wait for what is queued where it is set."""


class CudaStreams:
    """The current GPU's, with one stream for the MPI thread."""

    def __init__(self) -> None:
        """On the caller's current device."""
        self._device = torch.device("cuda", torch.cuda.current_device())
        self._stream: Any = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]

    def event(self) -> Any:
        """Recorded."""
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def enter(self) -> None:
        """For good: the current device and stream are each thread's own."""
        torch.cuda.set_device(self._device)
        torch.cuda.set_stream(self._stream)

    def follow(self, event: Any) -> None:
        """The GPU waits, not the host."""
        self._stream.wait_event(event)

    def keep(self, tensor: torch.Tensor) -> None:
        """Its memory isn't given away before the stream is done with it."""
        tensor.record_stream(self._stream)

    def page_locked(self, count: int) -> torch.Tensor:
        """Pinned."""
        return torch.empty(count, dtype=torch.uint8, pin_memory=True)

    def future(self) -> Any:
        """Of this device."""
        return torch.futures.Future(devices=[self._device])


class HostMemory:
    """Tensors in the host's memory: MPI takes them as they are, unless they have gaps."""

    def enter(self) -> None:
        """Called in the MPI thread before all else."""

    def mark(self) -> Any:
        """On the caller's thread: what says that all that was queued until now is done."""

    def future(self) -> Any:
        """What the caller waits for; set in the MPI thread."""
        return torch.futures.Future()

    def opened(self, mark: Any) -> "HostMemory":
        """For one operation, in the MPI thread; what follows comes after the mark."""
        return self

    def down(self, tensor: torch.Tensor) -> torch.Tensor:
        """Its elements, flat and contiguous, for MPI to read and write; the same memory if that may be."""
        return tensor.detach().reshape(-1)

    def up(self, flat: torch.Tensor, tensor: torch.Tensor) -> None:
        """Bring what MPI wrote to `flat` into `tensor`, where they aren't the same memory."""
        if flat.data_ptr() != tensor.data_ptr() or not tensor.is_contiguous():
            tensor.detach().copy_(flat.view(tensor.shape))

    def like(self, flat: torch.Tensor, count: int) -> torch.Tensor:
        """Memory for `count` elements, of the type and in the place of one that `down` gave."""
        return torch.empty(count, dtype=flat.dtype, device=flat.device)

    def settle(self) -> None:
        """Return when what was computed on tensors of `down` and `like` is there for MPI to read."""

    def close(self) -> None:
        """The operation has ended."""


class DeviceMemory(HostMemory):
    """A GPU's memory as a CUDA-aware MPI takes it. MPI knows no streams: the host waits before it reads."""

    def __init__(self, streams: Streams) -> None:
        """`streams` of the GPU."""
        self._streams = streams

    def enter(self) -> None:
        """The stream."""
        self._streams.enter()

    def mark(self) -> Any:
        """An event behind what writes the tensors."""
        return self._streams.event()

    def future(self) -> Any:
        """The device's."""
        return self._streams.future()

    def opened(self, mark: Any) -> HostMemory:
        """The stream follows."""
        self._streams.follow(mark)
        return self

    def down(self, tensor: torch.Tensor) -> torch.Tensor:
        """Written when this returns."""
        self._streams.keep(tensor)
        flat = super().down(tensor)
        self.settle()
        return flat

    def up(self, flat: torch.Tensor, tensor: torch.Tensor) -> None:
        """Queued; whoever reads waits by the future."""
        self._streams.keep(tensor)
        super().up(flat, tensor)

    def settle(self) -> None:
        """The host waits for the stream."""
        self._streams.event().synchronize()


class Copies:
    """Page-locked host memory that is used again: locking it costs more than copying."""

    GRAIN = 64 * 1024

    def __init__(self, streams: Streams) -> None:
        """Without any."""
        self._streams = streams
        self._free: deque[tuple[torch.Tensor, Any]] = deque()

    def take(self, count: int) -> torch.Tensor:
        """At least `count` bytes: the smallest that are free and no longer read by the GPU, or new ones."""
        fits = [entry for entry in self._free if len(entry[0]) >= count and entry[1].query()]
        if not fits:
            return self._streams.page_locked(-(-count // self.GRAIN) * self.GRAIN)
        smallest = min(fits, key=_size)
        self._free = deque(entry for entry in self._free if entry is not smallest)
        return smallest[0]

    def give_back(self, copies: Sequence[torch.Tensor]) -> None:
        """Free once all is done that is queued now."""
        if copies:
            after = self._streams.event()
            self._free.extend((copy, after) for copy in copies)


class StagedMemory(DeviceMemory):
    """A GPU's memory through page-locked copies on the host, for an MPI that isn't CUDA-aware."""

    def __init__(self, streams: Streams, copies: Copies | None = None) -> None:
        """`copies`: those of all operations."""
        super().__init__(streams)
        self._copies = copies or Copies(streams)
        self._mine: list[torch.Tensor] = []

    def opened(self, mark: Any) -> HostMemory:
        """With copies of its own."""
        self._streams.follow(mark)
        return StagedMemory(self._streams, self._copies)

    def down(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy on the host, complete when this returns."""
        self._streams.keep(tensor)
        size = tensor.numel() * tensor.element_size()
        whole = self._copies.take(size)
        self._mine.append(whole)
        copy = whole[:size].view(tensor.dtype)
        copy.copy_(tensor.detach().reshape(-1), non_blocking=True)
        self._streams.event().synchronize()
        return copy

    def up(self, flat: torch.Tensor, tensor: torch.Tensor) -> None:
        """Queue the copy to the GPU; whoever reads waits by the future."""
        self._streams.keep(tensor)
        tensor.detach().copy_(flat.view(tensor.shape), non_blocking=True)

    def settle(self) -> None:
        """The host computes by itself."""

    def close(self) -> None:
        """The copies are free when the last is up."""
        self._copies.give_back(self._mine)
        self._mine = []


def _size(entry: tuple[torch.Tensor, Any]) -> int:
    return len(entry[0])
