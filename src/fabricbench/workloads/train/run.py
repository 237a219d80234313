"""The training cell: warm up, then time every step on every rank.

One rank trains without DDP: its rate is T(1), the base of every scaling efficiency.
"""

import importlib
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fabricbench.cell import Cell
from fabricbench.fabrics.traffic import Formula, allreduce
from fabricbench.workloads.ranks import Ranks
from fabricbench.workloads.region import Outcome, Region, over_ranks
from fabricbench.workloads.train import layers, replay
from fabricbench.workloads.train.ddp import distribute

SEED = 20080857


def preload(cell: Cell) -> None:
    """Import before the fork what a rank would otherwise import by itself, at seconds of CPU time each."""
    if cell.device == "replay":
        layers.layers_of(cell.params["model"], cell.params["image_size"])
    else:
        importlib.import_module("torchvision.models")  # brings torch._dynamo, which DDP asks for its mode


def run(cell: Cell, ranks: Ranks, region: Region) -> Outcome:
    """Train for `warmup` + `steps` steps; samples are seconds per step as they passed here."""
    torch.manual_seed(SEED)
    train_one, model = (replay.prepare if cell.device == "replay" else prepare_real)(cell, ranks)
    region.first_step()
    for _ in range(cell.params["warmup"]):
        train_one()
    steps = []
    network = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    device = network.device if isinstance(network, replay.ReplayedModel) else None
    if device is not None:
        device.late_s = 0.0  # of the measured steps alone
    with region.timed():
        for _ in range(cell.params["steps"]):
            began = time.perf_counter()
            train_one()  # ends when every gradient is reduced: the one synchronisation point of a step
            if cell.device == "cuda":
                torch.cuda.synchronize()  # kernels and NCCL run behind the host's back
            steps.append(time.perf_counter() - began)
    every = ranks.gather((steps, device.late_s if device is not None else None))
    if ranks.rank != 0:
        return Outcome()
    known = facts(cell, model)
    if device is not None:
        known["latest_wait_s"] = max(late for _, late in every)
    return Outcome(over_ranks([own for own, _ in every], "step_s", "s"), known, traffic(cell, known))


def traffic(cell: Cell, known: dict[str, Any]) -> Formula:
    """One all-reduce per bucket and step."""
    buckets = known["buckets"] or 1
    size = known["gradient_bytes"] / buckets
    one = allreduce(cell.backend, cell.environment, cell.gpus, cell.ranks_per_node, size)
    return one.times(buckets * cell.params["steps"])


def facts(cell: Cell, model: nn.Module) -> dict[str, Any]:
    """Images per step over all ranks, and what is reduced per step (bytes as sent, so after scaling)."""
    own = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    buckets = 0
    if isinstance(model, nn.parallel.DistributedDataParallel):
        logged = model._get_ddp_logging_data()  # type: ignore[no-untyped-call]
        buckets = len([size for size in str(logged.get("rebuilt_bucket_sizes", "")).split(",") if size])
    counted = {
        "images_per_step": cell.gpus * cell.params["batch"],
        "gradient_bytes": sum(p.numel() * p.element_size() for p in own.parameters() if p.requires_grad),
        "buckets": buckets,
        "ddp": own is not model,
    }
    if isinstance(own, replay.ReplayedModel):
        counted["compute_s"] = sum(own.times)
    return counted


def prepare_real(cell: Cell, ranks: Ranks) -> tuple[Callable[[], None], nn.Module]:
    """A torchvision model, synthetic images on the device, and the plain training step."""
    device = torch.device("cuda", torch.cuda.current_device()) if cell.device == "cuda" else None
    model = distribute(build_model(cell.params["model"]).to(device), cell)
    generator = torch.Generator().manual_seed(SEED + ranks.rank)
    size = cell.params["image_size"]
    images = torch.randn(cell.params["batch"], 3, size, size, generator=generator).to(device)
    labels = torch.randint(0, 1000, (cell.params["batch"],), generator=generator).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def train_one() -> None:
        optimiser.zero_grad(set_to_none=False)  # gradients are views of DDP's buckets
        loss_of(model(images), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return train_one, model


def build_model(name: str) -> nn.Module:
    """A torchvision classification model with random weights, 1000 classes; ValueError if there is none."""
    from torchvision.models import get_model

    model: nn.Module = get_model(name, weights=None, **INIT.get(name, {}))
    return model.train()


# Their default initialisation draws from a truncated normal distribution: half a minute, for nothing here.
INIT = {"inception_v3": {"init_weights": False}, "googlenet": {"init_weights": False}}


def loss_of(output: Any, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy, with auxiliary heads weighted as their papers do (Inception 0.4, GoogLeNet 0.3)."""
    entropy = nn.functional.cross_entropy
    if isinstance(output, torch.Tensor):
        return entropy(output, labels)
    main, *others = [head for head in output if head is not None]
    if len(output) == 3:  # GoogLeNet: logits, aux_logits2, aux_logits1
        return entropy(main, labels) + sum(0.3 * entropy(head, labels) for head in others)
    return entropy(main, labels) + sum(0.4 * entropy(head, labels) for head in others)
