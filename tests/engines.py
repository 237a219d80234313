"""A workload for tests that is run as training is: two steps of DDP, and torch's collectives, on an engine.

As a program it is a launcher whose cells of kind `train` run this instead.
"""

import sys
import threading
from pathlib import Path

from fabricbench.launch import emulated, host
from fabricbench.launch.leaving import report_launch_error
from fabricbench.workloads import entry
from fabricbench.workloads.region import Outcome
from fabricbench.workloads.seat import read_cell

IMAGES, STEPS = 8, 2


def preload(cell):
    """What ranks need."""
    import torch._dynamo  # noqa: F401


def run(cell, ranks, region):
    """Facts: how far parameters are from those of one rank on the whole batch, and what else was wrong."""
    import torch

    device = torch.device("cuda", torch.cuda.current_device()) if cell.device == "cuda" else None
    if cell.params["breaks"]:
        return broken(ranks, device)
    wrong = [*collectives(ranks, device), *callers(ranks)]
    every = ranks.gather((trained(ranks, device), wrong))
    if ranks.rank != 0:
        return Outcome()
    away = max(distance for distance, _ in every)
    return Outcome(facts={"away": away, "wrong": sorted({text for _, texts in every for text in texts})})


def trained(ranks, device):
    """The largest difference between a parameter trained by all ranks and by one, in double precision."""
    import torch

    generator = torch.Generator().manual_seed(5)
    images = torch.randn(IMAGES, 3, 8, 8, generator=generator, dtype=torch.float64).to(device)
    labels = torch.randint(0, 10, (IMAGES,), generator=generator).to(device)
    alone, together = network().to(device), network().to(device)
    steps(alone, alone.parameters(), images, labels)
    wrapped = torch.nn.parallel.DistributedDataParallel(
        together, bucket_cap_mb_list=[0.002, 0.02], gradient_as_bucket_view=True
    )
    own = slice(ranks.rank * IMAGES // ranks.size, (ranks.rank + 1) * IMAGES // ranks.size)
    steps(wrapped, together.parameters(), images[own], labels[own])
    pairs = zip(alone.parameters(), together.parameters(), strict=True)
    return max((one - other).abs().max().item() for one, other in pairs)


def network():
    """The same on every rank."""
    import torch
    from torch import nn

    torch.manual_seed(3)
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 50), nn.ReLU(), nn.Linear(50, 10)]
    return nn.Sequential(*layers).double()


def steps(model, parameters, images, labels):
    """Of plain training with momentum."""
    import torch

    optimiser = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimiser.step()


def collectives(ranks, device):
    """Names of torch's collectives that gave something else than they should."""
    import torch
    import torch.distributed as dist

    rank, size = ranks.rank, ranks.size
    of = {"device": device}
    wrong = []

    def check(name, right):
        if not right:
            wrong.append(f"{name} on rank {rank}")

    check("share", ranks.share({"rank": rank}) == {"rank": 0})
    check("gather", ranks.gather("x" * rank) == (["x" * r for r in range(size)] if rank == 0 else []))
    everyone = [None] * size
    dist.all_gather_object(everyone, rank)
    check("all_gather_object", everyone == list(range(size)))
    sums = [
        (kind, n) for kind in ("float32", "float64", "bfloat16", "float16", "int64") for n in (1, 3, 70001)
    ]
    for kind, count in sums:
        tensor = torch.full((count,), rank + 1, dtype=getattr(torch, kind), **of)
        dist.all_reduce(tensor)
        check(f"sum of {count} {kind}", bool((tensor == size * (size + 1) // 2).all()))
    for name, expected in (("MIN", 1), ("MAX", size), ("PRODUCT", {2: 2, 4: 24}[size])):
        tensor = torch.tensor(rank + 1.0, **of)
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
        check(name, tensor.item() == expected)
    gaps = torch.zeros(4, 3, **of).t() + rank
    dist.broadcast(gaps, src=1)
    check("broadcast of a tensor with gaps", bool((gaps == 1).all()))
    dist.all_reduce(gaps)
    check("sum of a tensor with gaps", bool((gaps == size).all()))
    parts = [torch.empty(2, **of) for _ in range(size)]
    dist.all_gather(parts, torch.tensor([1.0, rank], **of))
    check("all_gather", [part[1].item() for part in parts] == list(range(size)))
    pair = dist.new_group([0, 1])
    if rank < 2:
        tensor = torch.tensor([rank + 1.0], **of)
        dist.all_reduce(tensor, group=pair)
        check("sum over two of the ranks", tensor.item() == 3)
    came, sent = torch.empty(100_000, **of), torch.full((100_000,), float(rank), **of)
    for work in [dist.irecv(came, (rank - 1) % size), dist.isend(sent, (rank + 1) % size)]:
        work.wait()  # posted by all ranks in the same order: one at a time they would wait for each other
    check("send and receive", bool((came == (rank - 1) % size).all()))
    dist.barrier()
    return wrong


def callers(ranks):
    """Whether MPI was called by one thread, which isn't this one."""
    thread = getattr(ranks, "_thread", None)
    if thread is None:
        return []
    from mpi4py import MPI

    right = not MPI.Is_thread_main() and thread.call(MPI.Is_thread_main)
    funnelled = MPI.Query_thread() == MPI.THREAD_FUNNELED
    alone = thread.call(threading.get_ident) == thread.thread != threading.get_ident()
    return [] if right and funnelled and alone else ["MPI was started in another thread than calls it"]


def broken(ranks, device):
    """One rank sends to another that doesn't exist; the others wait."""
    import torch
    import torch.distributed as dist

    if ranks.rank == ranks.size - 1:
        group = dist.distributed_c10d._get_default_group()
        group.send([torch.ones(1, device=device)], ranks.size + 7, 0).wait()
    ranks.barrier()
    return Outcome()


def main(work):
    """The launcher of the cell."""
    entry.KINDS["train"] = "engines"
    launcher = host if read_cell(work).launcher == "host" else emulated
    with report_launch_error(work):
        return launcher.main(work)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
