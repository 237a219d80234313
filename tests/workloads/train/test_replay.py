"""A replayed step: its waits are the profile's, its bytes the model's."""

import time

import pytest
from cells import PROFILE, TRAIN, a_cell

from fabricbench.workloads.train import layers

pytestmark = pytest.mark.slow  # torch takes seconds to import


def replayed(monkeypatch, profile, **params):
    """The cell, and its layers as they are replayed, of a model with 800 and 80 parameters."""
    from fabricbench.workloads.train import replay

    made_up = [layers.Layer(800, 30), layers.Layer(80, 10)]
    monkeypatch.setattr(replay, "layers_of", lambda model, image_size: made_up)
    params = TRAIN | {"profile": profile} | params
    cell = a_cell("train", "gloo", device="replay", params=params, scale={"bytes": 8, "time": 3})
    return cell, replay.timed_layers(cell)


def test_a_rate_is_spread_over_the_layers_by_multiply_adds(monkeypatch):
    """All waits add up to batch / rate × D, a third of them forward; bytes are divided by S."""
    _, found = replayed(monkeypatch, PROFILE)
    assert [layer.parameters for layer in found] == [100, 10]
    step_s = 2 / 6400 * 3
    assert [layer.forward_s for layer in found] == pytest.approx([step_s / 4, step_s / 12])
    assert [layer.backward_s for layer in found] == pytest.approx([step_s / 2, step_s / 6])


def test_a_recorded_profile_gives_layers_and_their_times(monkeypatch):
    """Times are of the profile's batch; the cell's is another, and takes proportionally long."""
    own = [{"parameters": 16, "forward_s": 0.1, "backward_s": 0.3}]
    _, (layer,) = replayed(monkeypatch, PROFILE | {"batch": 4, "layers": own})
    assert (layer.parameters, layer.forward_s, layer.backward_s) == pytest.approx((2, 0.15, 0.45))


def test_what_a_step_has_beside_its_layers_comes_after_them(monkeypatch):
    """The optimiser's step is what a recorded profile's rate has beside its layers; alone, no fixed cost."""
    from fabricbench.workloads.train.replay import Replayed

    own = [{"parameters": 16, "forward_s": 0.0001, "backward_s": 0.0003}]
    profile = {"images_per_s": 4000, "batch": 2, "layers": own, "source": "made up"}
    cell, _ = replayed(monkeypatch, profile, fixed_cost=0.002)
    trainee = Replayed(cell)
    trainee.step(trainee.model)
    facts = trainee.facts([trainee.observed()], [])
    assert facts["waits"]["n"] == 3
    assert facts["compute_s"] == pytest.approx(3 * 2 / 4000)
    assert facts["fixed_s"] == pytest.approx(0.006)
    began = time.perf_counter()
    trainee.step(lambda x: trainee.model(x))  # in DDP
    assert time.perf_counter() - began > 0.006


def test_gradients_come_in_the_order_of_backward(monkeypatch):
    """The last layer's first, each after its wait."""
    from fabricbench.workloads.train.replay import Replayed

    cell, _ = replayed(monkeypatch, PROFILE)
    trainee = Replayed(cell)
    order = []
    for number, weight in enumerate(trainee.model.weights):
        weight.register_post_accumulate_grad_hook(lambda _, number=number: order.append(number))
    trainee.step(trainee.model)
    assert order == [1, 0]
