"""A model's layers: all its parameters and multiply-adds, in the order of gradients."""

from itertools import pairwise

import pytest

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
        ("regnet_y_400mf", 224, 4_344_144, 0.40),
        ("vit_b_16", 224, 86_567_656, 17.56),
        ("swin_t", 224, 28_288_354, 4.49),
    ],
)
def test_layers_add_up_to_the_published_model(model, image_size, parameters, gmacs):
    """All parameters of the main network, and the multiply-adds that its papers state."""
    found = layers.measure(model, image_size)
    assert sum(layer.parameters for layer in found) == parameters
    assert sum(layer.macs for layer in found) / 1e9 == pytest.approx(gmacs, abs=0.015)


@pytest.mark.parametrize("model", ["resnet18", "googlenet", "inception_v3", "squeezenet1_0"])
def test_gradients_become_ready_in_reverse_order_of_the_layers(model):
    """Branches too: autograd goes back through what the forward pass did, the last first."""
    import torch
    from torchvision.models import get_model

    network = get_model(model, weights=None, **layers.without_heads(model)).eval()
    place, ready = {}, []
    with layers.Seen(network, lambda: float(len(place))) as seen:
        for module in network.modules():
            module.register_forward_hook(lambda module, *_: remember(module))

        def remember(module):
            for parameter in module.parameters(recurse=False):
                place.setdefault(parameter, len(place))

        output = network(torch.zeros(1, 3, 96, 96))
    for parameter in network.parameters():
        parameter.register_post_accumulate_grad_hook(lambda parameter: ready.append(place[parameter]))
    output.sum().backward()
    assert len(ready) == len(place) >= len(seen.layers)
    # Within a layer (a convolution and its normalisation, a weight and its bias) the order may differ.
    assert all(later - earlier < 4 for earlier, later in pairwise(ready))
    assert ready[0] > ready[-1]


def test_layers_are_found_again_in_the_cache(monkeypatch, tmp_path):
    """The second time torchvision isn't asked; a damaged cache is made anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(layers, "_known", {})
    assert layers.cached("resnet18", 64) is None
    found = layers.layers_of("resnet18", 64)
    monkeypatch.setattr(layers, "measure_apart", None)
    layers._known.clear()
    assert layers.layers_of("resnet18", 64) == found
    next(tmp_path.rglob("*.json")).write_text("[{")
    assert layers.cached("resnet18", 64) is None


def test_what_stops_the_measurement_is_one_line(monkeypatch, tmp_path):
    """A size that a model can't take is told with the model's name, not as a traceback."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(layers.LaunchError, match=r"^the layers of alexnet at image_size 8 can't be told: .*"):
        layers.measure_apart("alexnet", 8)
