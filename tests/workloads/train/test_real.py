"""Real compute: models, precision, and a state that the steps without DDP leave as it was."""

import pytest
from alone import Together
from cells import TRAIN, a_cell

from fabricbench.errors import LaunchError

pytestmark = pytest.mark.slow  # torch takes seconds to import


def real(**params: object) -> object:
    """A rank's model, alone."""
    from fabricbench.workloads.train.real import Real

    return Real(a_cell("train", "gloo", params=TRAIN | params), Together())


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
    heads = [p for key, p in model.named_parameters() if key.startswith(("aux", "AuxLogits"))]
    assert all(parameter.grad.abs().sum() > 0 for parameter in heads if parameter.ndim > 1)
    assert bool(heads) == (name != "resnet18")


def test_models_made_for_one_image_size_get_it():
    """A vision transformer for 64 pixels."""
    import torch

    from fabricbench.workloads.train.real import build_model

    assert build_model("vit_b_32", 64)(torch.zeros(1, 3, 64, 64)).shape == (1, 1000)


@pytest.mark.parametrize(("precision", "allowed"), [("tf32", True), ("fp32", False), ("bf16", False)])
def test_tf32_is_allowed_only_where_it_is_asked_for(precision, allowed):
    """Torch by itself has it in convolutions."""
    import torch

    from fabricbench.workloads.train.real import set_precision

    try:
        set_precision(precision)
        assert torch.backends.cuda.matmul.allow_tf32 is allowed
        assert torch.backends.cudnn.allow_tf32 is allowed
    finally:
        set_precision("fp32")


def test_gradients_stay_fp32_under_autocast():
    """What is reduced has the same size at every precision; the arithmetic does differ."""
    import torch

    gradients = {}
    for precision in ("fp32", "bf16"):
        trainee = real(precision=precision, channels_last=True)
        trainee.step(trainee.model)
        weight = trainee.model.layer1[0].conv1.weight
        assert weight.grad.dtype == torch.float32
        assert weight.is_contiguous(memory_format=torch.channels_last)
        gradients[precision] = weight.grad
    assert not torch.equal(gradients["fp32"], gradients["bf16"])


def test_restored_training_goes_on_as_if_nothing_was_trained():
    """Weights, batch statistics, momentum and random numbers: the next steps are the same to the bit."""
    import torch

    trainee = real(model="mobilenet_v2")  # it has dropout
    kept = trainee.keep()
    ends = []
    for _ in range(2):
        for _ in range(3):
            trainee.step(trainee.model)
        ends.append([value.clone() for value in trainee.model.state_dict().values()])
        trainee.restore(kept)
    assert all(torch.equal(one, other) for one, other in zip(*ends, strict=True))


def test_gradients_of_steps_without_synchronisation_do_not_add_up():
    """Each step starts from zero."""
    trainee = real()
    trainee.step(trainee.model)
    weight = trainee.model.fc.weight
    for group in trainee._optimiser.param_groups:
        group["lr"] = 0.0
    first = weight.grad.abs().sum().item()
    for _ in range(5):
        trainee.step(trainee.model)
    assert weight.grad.abs().sum().item() < 3 * first


def test_a_missing_compiler_is_one_line(monkeypatch):
    """Before anything is built."""
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(LaunchError, match=r"^compile: true: no C\+\+ compiler 'no-such-compiler -O2'"):
        real(compile=True)
