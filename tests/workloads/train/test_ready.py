"""When DDP's buckets have their gradients, as the replayed backward pass fills them."""

import pytest

pytestmark = pytest.mark.slow  # torch takes seconds to import


@pytest.mark.parametrize(
    ("buckets", "ready_s"),
    [
        ([400], [4.0]),
        ([240, 160], [4 / 3 + 4 / 3, 4.0]),
        ([240, 120, 40], [4 / 3 + 4 / 3, 4 / 3 + 2.0, 4.0]),
        ([], []),
    ],
)
def test_a_bucket_is_ready_with_its_last_gradient(buckets: list[int], ready_s: list[float]) -> None:
    """The last layer's come first; what all forward passes take stands before them."""
    from fabricbench.workloads.train.replay import ReplayedModel, Timed
    from fabricbench.workloads.train.waits import Device

    layers = [Timed(size, time / 3, time * 2 / 3) for size, time in ((10, 1.0), (30, 1.0), (60, 2.0))]
    assert ReplayedModel(layers, Device()).ready_s(buckets) == pytest.approx(ready_s)
