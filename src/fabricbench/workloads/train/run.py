"""The training cell: warm up until steady, then time every step on every rank.

Beside the steps themselves, the same ranks make steps of their own model without DDP, all at once, and
steps of DDP that reduce nothing: what the difference leaves is exposed communication. One rank trains
without DDP: its rate is T(1), the base of every scaling efficiency.
"""

import contextlib
import importlib
import resource
from typing import Any

import torch
from torch import nn

from fabricbench.cell import Cell
from fabricbench.workloads.progress import Progress
from fabricbench.workloads.ranks import StoredRanks
from fabricbench.workloads.region import Outcome, Region, over_ranks
from fabricbench.workloads.train import layers, pace, real, replay, traffic
from fabricbench.workloads.train.ddp import bucket_bytes, buffer_bytes, distribute
from fabricbench.workloads.train.loop import Loop, Times
from fabricbench.workloads.train.trainee import Trainee


def preload(cell: Cell) -> None:
    """Import before the fork what a rank would otherwise import by itself, at seconds of CPU time each."""
    if cell.device == "replay":
        layers.layers_of(cell.params["model"], cell.params["image_size"])
    else:
        importlib.import_module("torchvision.models")  # brings torch._dynamo, which DDP asks for its mode


def run(cell: Cell, ranks: StoredRanks, region: Region) -> Outcome:
    """Train; samples are seconds per step as they passed here."""
    with contextlib.closing(prepare(cell, ranks)) as trainee:
        return measure(cell, ranks, region, trainee)


def prepare(cell: Cell, ranks: StoredRanks) -> Trainee:
    """What the cell's device trains."""
    return replay.prepare(cell, ranks) if cell.device == "replay" else real.Real(cell, ranks)


def measure(cell: Cell, ranks: StoredRanks, region: Region, trainee: Trainee) -> Outcome:
    """Without DDP, warm up, the steps themselves, and without synchronisation."""
    params = cell.params
    images = cell.gpus * params["batch"]
    # Replay alone is a scale model: real compute sends all its bytes and runs at its own speed.
    scale = cell.scale if cell.device == "replay" else {"bytes": 1, "time": 1}
    loop = Loop(cell, ranks, trainee, Progress(ranks.rank, images * scale["time"]))
    extra = params["extra_steps"]
    region.mark("first_step")
    alone = alone_steps(loop, region, trainee, extra) if ranks.size > 1 else None
    model = distribute(trainee.model, cell, bucket_scale=scale["bytes"])
    called = trainee.callable(model)
    warm = pace.Limits(params["warmup"], params["warmup_most"], params["budget"])
    region.mark("first_ddp_step")
    warmup_steps, steady = loop.warm_up(called, warm)
    trainee.begin()
    reset_peak_memory(cell)
    with region.timed():
        limits = pace.Limits(params["steps"], params["steps_most"], params["budget"], params["width"])
        times, stopped_by = loop.measure(called, limits)
    observed, peak = trainee.observed(), peak_memory(cell)
    nosync = None
    if isinstance(model, nn.parallel.DistributedDataParallel):
        with model.no_sync():
            loop.make("unsynchronised, unmeasured", called, trainee.settles)
            with region.timed(beside=True):
                nosync = loop.make("unsynchronised", called, extra)
    every = ranks.gather((alone or times, times, nosync, observed, peak))
    if ranks.rank != 0:
        return Outcome()
    sizes = reduced(model)
    known = {
        "images_per_step": images,
        "ddp": model is not trainee.model,
        **sizes,
        "broadcast_buffers": bool(params.get("broadcast_buffers", False)),
        "warmup_steps": warmup_steps,
        "steady": steady,
        "stopped_by": stopped_by,
        "loop_s": times.loop_s,
        "peak_memory_bytes": max(peak for *_, peak in every),
        "peak_memory_of": "gpu" if cell.device == "cuda" else "process",
        **trainee.facts([observed for *_, observed, _ in every], sizes["bucket_bytes"]),
    }
    sent = traffic.of_steps(cell, known["bucket_bytes"], buffer_bytes(model), len(times.steps))
    return Outcome(samples([each[:3] for each in every]), known, sent)


def alone_steps(loop: Loop, region: Region, trainee: Trainee, count: int) -> Times:
    """Steps of this rank's own model without DDP, all ranks at the same time; nothing of them is left."""
    kept = trainee.keep()
    called = trainee.callable(trainee.model)
    loop.make("without DDP, unmeasured", called, trainee.settles)
    with region.timed(beside=True):
        times = loop.make("without DDP", called, count)
    trainee.restore(kept)
    return times


def samples(every: list[tuple[Times, Times, Times | None]]) -> list[dict[str, Any]]:
    """The record's series from every rank's times: without DDP, as measured, without synchronisation."""
    alone, measured, nosync = zip(*every, strict=True)
    found = over_ranks([each.steps for each in measured], "step_s", "s")
    found += over_ranks([each.steps for each in alone], "alone_s", "s")
    if nosync[0] is not None:
        found += over_ranks([each.steps for each in nosync], "nosync_s", "s")
    if measured[0].loads:
        found += over_ranks([each.loads for each in measured], "load_s", "s")
    return found


def reduced(model: nn.Module) -> dict[str, Any]:
    """What is reduced per step, in bytes as sent (after scaling)."""
    own = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    sizes = bucket_bytes(model)
    return {
        "gradient_bytes": sum(p.numel() * p.element_size() for p in own.parameters() if p.requires_grad),
        "buckets": len(sizes),
        "bucket_bytes": sizes,
    }


def reset_peak_memory(cell: Cell) -> None:
    """Count the device's peak from here; a process's can't be reset."""
    if cell.device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak_memory(cell: Cell) -> int:
    """The most bytes that tensors held on this rank's GPU, or else that its process had resident."""
    if cell.device == "cuda":
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
