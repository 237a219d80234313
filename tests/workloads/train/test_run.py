"""The training cell's parts: auxiliary heads."""

import pytest

pytestmark = pytest.mark.slow  # torch takes seconds to import


@pytest.mark.parametrize("name", ["resnet18", "inception_v3", "googlenet"])
def test_auxiliary_heads_take_part_in_the_loss(name):
    """Every parameter of the network as trained gets a gradient."""
    import torch

    from fabricbench.workloads.train.real import build_model, loss_of

    torch.manual_seed(1)
    model = build_model(name)
    size = 299 if name == "inception_v3" else 64
    images = torch.randn(2, 3, size, size)
    loss_of(model(images), torch.tensor([1, 2])).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
