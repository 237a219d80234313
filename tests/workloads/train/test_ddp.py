"""DDP as the cell's parameters say, in a world of one rank."""

from collections.abc import Iterator
from typing import Any

import pytest
from cells import TRAIN, a_cell

pytestmark = pytest.mark.slow  # torch takes seconds to import


@pytest.fixture
def world() -> Iterator[None]:
    """A process group of this process alone."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trained(**params: Any) -> Any:
    """A small model in DDP after three steps, when its buckets are arranged and logged."""
    import torch
    from torch import nn

    from fabricbench.workloads.train.ddp import distribute

    layers = [nn.Linear(256, 256), nn.BatchNorm1d(256), nn.Linear(256, 256), nn.Linear(256, 256)]
    model = distribute(nn.Sequential(*layers), a_cell("train", "gloo", params=TRAIN | params))
    for _ in range(3):
        model(torch.ones(2, 256)).sum().backward()
    return model


@pytest.mark.usefixtures("world")
def test_the_first_bucket_has_a_cap_of_its_own() -> None:
    """0.26 MB a layer: with a first bucket of 0.1 MB one layer is alone, and the other two share."""
    from fabricbench.workloads.train.ddp import bucket_bytes

    layer = (256 * 256 + 256) * 4
    small = bucket_bytes(trained(first_bucket_mb=0.1, bucket_mb=25))
    assert len(small) == 2
    assert small[0] <= layer
    assert len(bucket_bytes(trained(first_bucket_mb=25, bucket_mb=25))) == 1
    assert sum(small) == 3 * layer + 2 * 256 * 4


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("static_graph", [False, True])
@pytest.mark.parametrize("bucket_view", [False, True])
def test_what_is_asked_for_is_set(static_graph: bool, bucket_view: bool) -> None:
    """And buckets are known in every combination."""
    from fabricbench.workloads.train.ddp import bucket_bytes

    model = trained(static_graph=static_graph, bucket_view=bucket_view)
    assert (model.static_graph, model.gradient_as_bucket_view) == (static_graph, bucket_view)
    assert sum(bucket_bytes(model)) > 0


@pytest.mark.usefixtures("world")
def test_buffers_are_counted_by_type_and_only_if_they_are_sent() -> None:
    """Mean and variance of 256 channels in FP32, and a counter of 64 bits."""
    from fabricbench.workloads.train.ddp import buffer_bytes

    assert buffer_bytes(trained(broadcast_buffers=True)) == [2 * 256 * 4, 8]
    assert buffer_bytes(trained()) == []


@pytest.mark.usefixtures("world")
def test_compiled_graphs_are_cut_where_buckets_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """So gradients come bucket by bucket; a whole graph would give them all at its end."""
    import torch
    from torch import nn

    from fabricbench.workloads.train.ddp import distribute
    from fabricbench.workloads.train.real import Real

    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model: compiler(model, backend=backend))
    trainee = Real.__new__(Real)
    trainee._compiles = True

    class Network(nn.Module):  # a class of its own, as torchvision's: the compiler leaves torch's alone
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*(nn.Linear(600, 600) for _ in range(3)))  # 1.4 MB each

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)

    model = distribute(Network(), a_cell("train", "gloo", params=TRAIN | {"bucket_mb": 1}))
    trainee.callable(model)(torch.ones(2, 600)).sum().backward()
    assert len(graphs) == 3
