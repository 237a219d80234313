"""The micro-benchmark cell: ping-pong, one-way stream and all-reduce by message size.

Each operation is written once over a channel; gloo and MPI differ in the channel alone.
"""

import time
from typing import Any

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.fabrics.traffic import Formula, point_to_point, together
from fabricbench.fabrics.traffic import allreduce as allreduce_formula
from fabricbench.workloads.micro.channel import Channel, open_channel
from fabricbench.workloads.ranks import Ranks
from fabricbench.workloads.region import Outcome, Region, series

# As many messages in flight as OSU's bandwidth test has, within 4 MB so that large ones aren't endless.
WINDOW_MESSAGES = 64
WINDOW_BYTES = 4 * 2**20


def preload(cell: Cell) -> None:
    """Import numpy, and torch for GPUs' memory, once for all ranks."""
    import numpy  # noqa: F401

    if cell.device == "cuda":
        import torch  # noqa: F401


def run(cell: Cell, ranks: Ranks, region: Region) -> Outcome:
    """Measure each operation at each size, between rank 0 and the last rank or over all of them."""
    channel = open_channel(cell, ranks)
    samples = []
    with region.timed():
        for operation in cell.params["operations"]:
            for size in cell.params["sizes"]:
                values = OPERATIONS[operation](
                    channel, size, cell.params["warmup"], cell.params["iterations"]
                )
                samples.append(series(f"{operation}_s", "s", values, bytes=size))
    wrong = ranks.gather(check(channel, max(cell.params["sizes"])))
    if ranks.rank != 0:
        return Outcome()
    if not all(wrong):
        raise LaunchError(
            f"ranks {[r for r, right in enumerate(wrong) if not right]} got a wrong all-reduce result"
        )
    facts = {"checked": True, "window": {str(s): window(s) for s in cell.params["sizes"]}}
    return Outcome(samples, facts, traffic(cell))


def traffic(cell: Cell) -> Formula:
    """What all operations at all sizes send, warm-up included, since it is within the measured region."""
    rounds = cell.params["warmup"] + cell.params["iterations"]
    last = cell.gpus - 1
    sent = []
    for operation in cell.params["operations"]:
        for size in cell.params["sizes"]:
            if operation == "allreduce":
                one = allreduce_formula(
                    cell.backend, cell.environment, cell.gpus, cell.ranks_per_node, max(4, size // 4 * 4)
                )
                sent.append(one.times(rounds))
            elif operation == "stream":
                sent.append(point_to_point(0, last, size, window(size) * rounds))
                sent.append(point_to_point(last, 0, 1, rounds))
            else:
                sent += [point_to_point(0, last, size, rounds), point_to_point(last, 0, size, rounds)]
    return together(sent)


def pingpong(channel: Channel, size: int, warmup: int, iterations: int) -> list[float]:
    """One-way seconds (half a round trip) between rank 0 and the last rank; other ranks stand by."""
    buffer = channel.buffer(size)
    values = []
    for _ in range(warmup + iterations):
        began = time.perf_counter()
        if channel.rank == 0:
            channel.send(buffer, channel.last)
            channel.receive(buffer, channel.last)
        elif channel.rank == channel.last:
            channel.receive(buffer, 0)
            channel.send(buffer, 0)
        values.append((time.perf_counter() - began) / 2)
    channel.barrier()
    return values[warmup:]


def window(size: int) -> int:
    """How many messages of `size` bytes are in flight at once."""
    return max(1, min(WINDOW_MESSAGES, WINDOW_BYTES // size))


def stream(channel: Channel, size: int, warmup: int, iterations: int) -> list[float]:
    """Seconds per message from rank 0 to the last rank: a window of them, then one acknowledgement."""
    count = window(size)
    buffers = [channel.buffer(size) for _ in range(count)]
    answer = channel.buffer(1)
    values = []
    for _ in range(warmup + iterations):
        began = time.perf_counter()
        if channel.rank == 0:
            channel.send_all(buffers, channel.last)
            channel.receive(answer, channel.last)
        elif channel.rank == channel.last:
            channel.receive_all(buffers, 0)
            channel.send(answer, 0)
        values.append((time.perf_counter() - began) / count)
    channel.barrier()
    return values[warmup:]


def allreduce(channel: Channel, size: int, warmup: int, iterations: int) -> list[float]:
    """Seconds per all-reduce (sum of float32) of `size` bytes over all ranks, each begun together."""
    buffer = channel.buffer(max(4, size // 4 * 4))
    values = []
    for _ in range(warmup + iterations):
        for _ in range(channel.rails):  # Gloo takes rails in turn, by operation: each all-reduce the next one
            channel.barrier()
        began = time.perf_counter()
        channel.allreduce(buffer)
        values.append(time.perf_counter() - began)
    return values[warmup:]


OPERATIONS: dict[str, Any] = {"pingpong": pingpong, "stream": stream, "allreduce": allreduce}


def check(channel: Channel, size: int) -> bool:
    """Outside the timed region: the sum of every rank's number arrives on this rank, in every element."""
    buffer = channel.buffer(max(4, size // 4 * 4))
    channel.as_float32(buffer)[:] = channel.rank + 1
    channel.settle()
    channel.allreduce(buffer)
    return bool((channel.as_float32(buffer) == channel.size * (channel.size + 1) / 2).all())
