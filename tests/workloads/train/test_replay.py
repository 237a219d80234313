"""Training's parts: layers by multiply-adds, and waits to deadlines."""

import pytest
from cells import PROFILE, TRAIN, a_cell

from fabricbench.workloads.train import layers

pytestmark = pytest.mark.slow  # torch takes seconds to import


@pytest.mark.parametrize(
    ("model", "image_size", "parameters", "gmacs"),
    [
        ("mobilenet_v2", 224, 3_504_872, 0.30),
        ("resnet18", 224, 11_689_512, 1.81),
        ("resnet50", 224, 25_557_032, 4.09),
        ("inception_v3", 299, 23_834_568, 5.71),
        ("vgg16", 224, 138_357_544, 15.47),
    ],
)
def test_layers_add_up_to_the_published_model(model, image_size, parameters, gmacs):
    """All parameters of the main network, and the multiply-adds that its papers state."""
    found = layers.measure(model, image_size)
    assert sum(layer.parameters for layer in found) == parameters
    assert sum(layer.macs for layer in found) / 1e9 == pytest.approx(gmacs, abs=0.015)


def test_layers_are_found_again_in_the_cache(monkeypatch, tmp_path):
    """The second time torchvision isn't asked; a damaged cache is made anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert layers.cached("resnet18", 64) is None
    found = layers.layers_of("resnet18", 64)
    monkeypatch.setattr(layers, "measure", None)
    assert layers.layers_of("resnet18", 64) == found
    next(tmp_path.rglob("*.json")).write_text("[{")
    assert layers.cached("resnet18", 64) is None


def test_waits_run_to_absolute_deadlines(monkeypatch):
    """A late wake-up shortens the next wait: if each sleep is 0.3 s too long, ten of 1 s take 10.3 s."""
    from fabricbench.workloads.train import replay

    class Clock:
        now = 100.0

        @classmethod
        def perf_counter(cls):
            return cls.now

        @classmethod
        def sleep(cls, seconds):
            cls.now += seconds + 0.3

    monkeypatch.setattr(replay, "time", Clock)
    device = replay.Device()
    device.start()
    for _ in range(10):
        device.busy(1.0)
    assert pytest.approx(110.3) == Clock.now
    assert device.late_s == pytest.approx(0.0)
    Clock.now += 5.0
    device.busy(1.0)
    assert device.late_s == pytest.approx(4.3)


def test_a_replayed_step_takes_the_profile_s_time_spread_over_the_layers():
    """The waits of all layers add up to batch / rate × D, by multiply-adds."""
    from fabricbench.workloads.train.replay import ReplayedModel, step_seconds

    cell = a_cell("train", "gloo", params=TRAIN | {"profile": PROFILE}, scale={"bytes": 8, "time": 3})
    assert step_seconds(cell) == pytest.approx(2 / 6400 * 3)
    model = ReplayedModel([layers.Layer(800, 30), layers.Layer(80, 10)], 1.0, byte_scale=8)
    assert model.times == [0.75, 0.25]
    assert [weight.numel() for weight in model.weights] == [100, 10]
