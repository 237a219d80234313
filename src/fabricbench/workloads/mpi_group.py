"""A torch.distributed backend over mpi4py, so that DDP runs unmodified on MPI.

All MPI calls are made by one thread (mpi_thread). Several operations may be under way at once. Types that MPI
lacks are sent as bytes; to be added, float16 and bfloat16 are widened to float32 and narrowed afterwards.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.workloads.message_memory import CudaStreams, DeviceMemory, HostMemory, StagedMemory
from fabricbench.workloads.mpi_thread import MpiThread, Steps
from fabricbench.workloads.ring import ring_allreduce

BACKENDS = {"mpi": "fabricbench_mpi", "ring": "fabricbench_ring"}
"""torch's names of this backend: with the library's all-reduce, or with a ring over its messages."""

WIDENED = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
ADDABLE = {
    *(torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *WIDENED,
}
MOST_TAGS = 2**14
"""Less than any MPI's largest tag."""

Tensors = Sequence[torch.Tensor]

# torch's stubs know its own two ways to call each, of which Python sees one.
_ProcessGroup: Any = dist.ProcessGroup
_Work: Any = dist.distributed_c10d.Work


def register(engine: str, make: Callable[[Any, Any], "MpiGroup"]) -> str:
    """Make a backend known to torch; returns its name, for init_process_group. `make` as torch calls it."""
    name = BACKENDS[engine]
    dist.Backend.register_backend(name, make, extended_api=True, devices=["cpu", "cuda"])
    return name


def communicator(world: Any, members: list[int]) -> Any:
    """A communicator of these ranks of `world`, apart from all other messages. Called in the MPI thread."""
    if len(members) == world.Get_size():
        return world.Dup()
    return world.Create_group(world.Get_group().Incl(members))


def memory_of(cell: Cell, thread: MpiThread) -> Callable[[torch.Tensor], HostMemory]:
    """How tensors reach MPI: by where they are, and where the backend has its buffers."""
    host = HostMemory()
    if cell.device != "cuda":
        return lambda tensor: host
    streams = CudaStreams()
    of_gpu = DeviceMemory(streams) if cell.backend["buffers"] == "device" else StagedMemory(streams)
    thread.call(of_gpu.enter)  # before MPI starts: a CUDA-aware library takes the current device
    return lambda tensor: of_gpu if tensor.is_cuda else host


class MpiGroup(_ProcessGroup):  # type: ignore[misc]
    """One communicator's collectives and messages. Ranks are the communicator's."""

    def __init__(
        self, thread: MpiThread, comm: Any, memory: Callable[[torch.Tensor], HostMemory], ring: bool
    ) -> None:
        """`comm` is this group's own; `memory` gives the way for tensors like the one given."""
        super().__init__(thread.call(comm.Get_rank), thread.call(comm.Get_size))
        self._thread, self._comm, self._memory, self._ring = thread, comm, memory, ring
        self._rings = 0
        self.failure: BaseException | None = None
        """The first that went wrong."""

    # --- what torch calls --------------------------------------------------------------------------------

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Any:
        """Reduce each tensor over all ranks, in place: SUM, AVG, MIN, MAX or PRODUCT."""
        operation = _operation(opts)
        tag = self._rings = (self._rings + 1) % MOST_TAGS  # the same on every rank: all make the same calls

        def steps(memory: HostMemory) -> Steps:
            for tensor in tensors:
                yield from self._reduce(memory, tensor, operation, tag)

        return self._start("all-reduce", tensors, steps)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        """The same."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Tensors, opts: Any = None) -> Any:
        """As an all-reduce: the others' tensors are free to hold anything."""
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Any:
        """The root's tensors on every rank."""
        root = 0 if opts is None else opts.rootRank

        def steps(memory: HostMemory) -> Steps:
            for tensor in tensors:
                flat = memory.down(tensor)
                yield from self._collective("bcast", _bytes(flat), root)
                memory.up(flat, tensor)

        return self._start("broadcast", tensors, steps)

    def allgather(self, outputs: Sequence[list[torch.Tensor]], inputs: Tensors, opts: Any = None) -> Any:
        """Every rank's input on every rank, in the order of ranks."""

        def steps(memory: HostMemory) -> Steps:
            for into, tensor in zip(outputs, inputs, strict=True):
                yield from self._gather_all(memory, into, tensor)

        return self._start("all-gather", [*inputs, *_flat(outputs)], steps)

    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """The same into one tensor, one rank's after another's."""

        def steps(memory: HostMemory) -> Steps:
            yield from self._gather_all(memory, list(output.view(self.size(), -1)), tensor)

        return self._start("all-gather", [tensor, output], steps)

    all_gather_single = _allgather_base  # a later torch's name

    def gather(self, outputs: Sequence[list[torch.Tensor]], inputs: Tensors, opts: Any = None) -> Any:
        """Every rank's input on the root, whose outputs alone count."""
        root = 0 if opts is None else opts.rootRank
        into = outputs[0] if self.rank() == root else []

        def steps(memory: HostMemory) -> Steps:
            flat = memory.down(inputs[0])
            whole = memory.like(flat, flat.numel() * len(into))
            yield from self._collective("gather", _bytes(flat), _bytes(whole) if into else None, root)
            _scatter_into(memory, whole, into)

        return self._start("gather", [*inputs, *into], steps)

    def scatter(self, outputs: Tensors, inputs: Sequence[list[torch.Tensor]], opts: Any = None) -> Any:
        """Each rank's part of the root's inputs."""
        root = 0 if opts is None else opts.rootRank
        parts = inputs[0] if self.rank() == root else []

        def steps(memory: HostMemory) -> Steps:
            flat = memory.down(outputs[0])
            whole = _together(memory, parts) if parts else None
            yield from self._collective(
                "scatter", None if whole is None else _bytes(whole), _bytes(flat), root
            )
            memory.up(flat, outputs[0])

        return self._start("scatter", [*outputs, *parts], steps)

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[list[torch.Tensor]], opts: Any = None) -> Any:
        """As an all-reduce of all parts, of which each rank keeps its own."""
        operation = _operation(opts)
        tag = self._rings = (self._rings + 1) % MOST_TAGS

        def steps(memory: HostMemory) -> Steps:
            for into, parts in zip(outputs, inputs, strict=True):
                whole = torch.cat([part.detach().reshape(-1) for part in parts])
                yield from self._reduce(memory, whole, operation, tag)
                memory.up(whole.view(self.size(), -1)[self.rank()], into)

        return self._start("reduce-scatter", [*outputs, *_flat(inputs)], steps)

    def _reduce_scatter_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """The same from one tensor."""
        return self.reduce_scatter([output], [list(tensor.view(self.size(), -1))], opts)

    reduce_scatter_single = _reduce_scatter_base  # a later torch's name

    def barrier(self, opts: Any = None) -> Any:
        """Wait for all ranks."""

        def steps(memory: HostMemory) -> Steps:
            yield from self._collective("barrier")

        return self._start("barrier", [], steps)

    def send(self, tensors: Tensors, to: int, tag: int = 0) -> Any:
        """Send to a rank."""

        def steps(memory: HostMemory) -> Steps:
            for tensor in tensors:
                yield [self._comm.Isend(_bytes(memory.down(tensor)), to, tag)]

        return self._start(f"send to rank {to}", tensors, steps, collective=False)

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> Any:
        """Receive from a rank."""

        def steps(memory: HostMemory) -> Steps:
            for tensor in tensors:
                flat = memory.down(tensor)
                yield [self._comm.Irecv(_bytes(flat), source, tag)]
                memory.up(flat, tensor)

        return self._start(f"receive from rank {source}", tensors, steps, collective=False)

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """As registered."""
        return BACKENDS["ring" if self._ring else "mpi"]

    # --- in the MPI thread -------------------------------------------------------------------------------

    def _collective(self, name: str, *arguments: Any) -> Steps:
        """MPI's blocking call, or the non-blocking one where ranks share cores."""
        if self._thread.polling:
            yield [getattr(self._comm, f"I{name}")(*arguments)]
        else:
            getattr(self._comm, name.capitalize())(*arguments)

    def _reduce(self, memory: HostMemory, tensor: torch.Tensor, operation: str, tag: int) -> Steps:
        """All-reduce of one tensor in place."""
        if tensor.is_sparse or tensor.dtype not in ADDABLE:
            kind = "sparse" if tensor.is_sparse else str(tensor.dtype).removeprefix("torch.")
            raise LaunchError(f"{kind} tensors can't be reduced over MPI here")
        wide = WIDENED.get(tensor.dtype)
        flat = memory.down(tensor if wide is None else tensor.detach().to(wide))
        averaged = operation == "avg"
        if self._ring:
            add = _Reducing("sum" if averaged else operation, memory)
            yield from ring_allreduce(self._comm, _buffer(flat), add, _like(memory, flat), tag)
        else:
            yield from self._collective("allreduce", _in_place(), _buffer(flat), _mpi_op(operation))
        if averaged:
            flat.div_(self.size()) if flat.is_floating_point() else flat.floor_divide_(self.size())
        memory.up(flat, tensor)

    def _gather_all(self, memory: HostMemory, into: Tensors, tensor: torch.Tensor) -> Steps:
        flat = memory.down(tensor)
        whole = memory.like(flat, flat.numel() * self.size())
        yield from self._collective("allgather", _bytes(flat), _bytes(whole))
        _scatter_into(memory, whole, into)

    def _start(
        self,
        name: str,
        tensors: Tensors,
        make: Callable[[HostMemory], Steps],
        collective: bool = True,
    ) -> Any:
        """Hand an operation to the MPI thread; returns torch's Work, which holds `tensors` or the error."""
        memory = self._memory(tensors[0] if tensors else torch.empty(0))
        mark, work = memory.mark(), MpiWork(memory.future())

        def steps() -> Steps:
            opened = memory.opened(mark)
            try:
                yield from make(opened)
            finally:
                opened.close()

        def done(error: BaseException | None) -> None:
            if error is not None:
                error = LaunchError(f"{name} over MPI, rank {self.rank()}: {one_line(error)}")
                self.failure = self.failure or error
            work.end(list(tensors), error)

        self._thread.submit(steps(), done, collective)
        return work


class MpiWork(_Work):  # type: ignore[misc]
    """An operation under way, as torch waits for it."""

    def __init__(self, future: Any) -> None:
        """`future`: one that knows the tensors' device."""
        super().__init__()
        self._began = future
        self._error: BaseException | None = None
        # An exception as the future's result would be a result to DDP; one raised on the way is an error.
        self._future = future.then(self._unless_failed)

    def end(self, result: list[torch.Tensor], error: BaseException | None) -> None:
        """Wake those who wait; called in the MPI thread."""
        self._error = error
        self._began.set_result(result)

    def _unless_failed(self, future: Any) -> Any:
        if self._error is not None:
            raise self._error
        return future.value()

    def wait(self, timeout: Any = None) -> bool:
        """Until it has ended; on a GPU, let the current stream wait for it. Raises what went wrong."""
        self._began.wait()
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Whether it has ended."""
        return bool(self._began.done())

    def get_future(self) -> Any:
        """What DDP and `then` use."""
        return self._future

    def result(self) -> list[torch.Tensor]:
        """The tensors."""
        return list(self._began.value())


def one_line(error: BaseException) -> str:
    """An exception's text without line breaks; its type where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


# --- tensors as MPI takes them ---------------------------------------------------------------------------


def _buffer(flat: torch.Tensor) -> Any:
    """What mpi4py takes for a flat tensor: numpy's view on the host, the tensor itself on a GPU."""
    return flat.numpy() if flat.device.type == "cpu" else flat


def _bytes(flat: torch.Tensor) -> Any:
    """The same as bytes, for what is moved and not added."""
    return _buffer(flat.view(torch.uint8))


_IN_PLACE: dict[str, Any] = {
    "sum": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
}


class _Reducing:
    """Reduces one segment into another, on whichever device they are."""

    def __init__(self, operation: str, memory: HostMemory) -> None:
        self._memory, self._function = memory, _IN_PLACE[operation]

    def __call__(self, into: Any, other: Any) -> None:
        """In place, and done when it returns."""
        first = torch.as_tensor(into)
        self._function(first, torch.as_tensor(other), out=first)
        self._memory.settle()


def _like(memory: HostMemory, flat: torch.Tensor) -> Callable[[int], Any]:
    def scratch(count: int) -> Any:
        return _buffer(memory.like(flat, count))

    return scratch


def _together(memory: HostMemory, parts: Tensors) -> torch.Tensor:
    """All parts one after another, for MPI to read."""
    return memory.down(torch.cat([part.detach().reshape(-1) for part in parts]))


def _scatter_into(memory: HostMemory, whole: torch.Tensor, into: Tensors) -> None:
    """Each part of what was gathered to its tensor."""
    size = whole.numel() // max(1, len(into))
    for number, tensor in enumerate(into):
        memory.up(whole[number * size : (number + 1) * size], tensor)


def _flat(lists: Sequence[Sequence[torch.Tensor]]) -> Iterator[torch.Tensor]:
    return (tensor for tensors in lists for tensor in tensors)


_WORDS = {"SUM": "sum", "AVG": "avg", "MIN": "min", "MAX": "max", "PRODUCT": "product"}


def _operation(opts: Any) -> str:
    """torch's reduction in one word; LaunchError for one that isn't here."""
    wanted = dist.ReduceOp.SUM if opts is None else opts.reduceOp
    for name, word in _WORDS.items():
        if wanted == getattr(dist.ReduceOp, name):
            return word
    raise LaunchError(f"no such reduction over MPI here: there are {', '.join(_WORDS)}")


def _mpi_op(word: str) -> Any:
    from mpi4py import MPI

    return {"sum": MPI.SUM, "avg": MPI.SUM, "product": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX}[word]


def _in_place() -> Any:
    from mpi4py import MPI

    return MPI.IN_PLACE
