"""Flows with a known answer. Each gives the state at a point and a time, on a periodic box."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fabricbench.workloads.cfd.euler import GAMMA, Array


@dataclass(frozen=True)
class Case:
    """`state(x, y, z, t)`: primitive variables (5, …); `size`: the box's edges."""

    size: tuple[float, float, float]
    state: Callable[[Array, Array, Array, float], Array]


def uniform(x: Array, y: Array, z: Array, t: float) -> Array:
    """A free stream: nothing may change."""
    ones = np.ones(np.broadcast_shapes(x.shape, y.shape, z.shape))
    return np.stack([ones, 0.3 * ones, 0.2 * ones, 0.1 * ones, ones])


def vortex(x: Array, y: Array, z: Array, t: float) -> Array:
    """Isentropic vortex of strength 5, carried diagonally through a 10 × 10 box (Shu 1998); exact."""
    dx = (x - 5 - t + 5) % 10 - 5
    dy = (y - 5 - t + 5) % 10 - 5
    radius2 = dx**2 + dy**2 + 0 * z
    swirl = 5 / (2 * np.pi) * np.exp(0.5 * (1 - radius2))
    temperature = 1 - (GAMMA - 1) / (2 * GAMMA) * swirl**2
    density = temperature ** (1 / (GAMMA - 1))
    return np.stack([density, 1 - swirl * dy, 1 + swirl * dx, 0 * radius2, density * temperature])


CASES = {
    "uniform": Case((1.0, 1.0, 1.0), uniform),
    "vortex": Case((10.0, 10.0, 10.0), vortex),
}
