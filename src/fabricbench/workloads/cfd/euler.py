"""Compressible Euler equations: fluxes, and a second-order finite-volume right-hand side.

States are arrays (5, …): density, three momenta, total energy. Ideal gas, ratio of specific heats 1.4.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

GAMMA = 1.4
GHOSTS = 2  # layers that a linear reconstruction on both sides of a face reads


def primitive(u: Array) -> Array:
    """Conserved (density, momenta, energy) to primitive (density, velocities, pressure)."""
    q = np.empty_like(u)
    q[0] = u[0]
    q[1:4] = u[1:4] / u[0]
    q[4] = (GAMMA - 1) * (u[4] - 0.5 * (u[1:4] * q[1:4]).sum(0))
    return q


def conserved(q: Array) -> Array:
    """Primitive to conserved."""
    u = np.empty_like(q)
    u[0] = q[0]
    u[1:4] = q[0] * q[1:4]
    u[4] = q[4] / (GAMMA - 1) + 0.5 * (u[1:4] * q[1:4]).sum(0)
    return u


def flux(q: Array, u: Array, axis: int) -> Array:
    """The flux along `axis` of a state given in both forms."""
    speed = q[1 + axis]
    f: Array = u * speed
    f[1 + axis] += q[4]
    f[4] += q[4] * speed
    return f


def fastest(q: Array, axis: int) -> Array:
    """Largest signal speed along `axis`: |velocity| + speed of sound."""
    speed: Array = np.abs(q[1 + axis]) + np.sqrt(GAMMA * q[4] / q[0])
    return speed


def rusanov(left: Array, right: Array, axis: int) -> Array:
    """The interface flux between two primitive states: the mean, with dissipation by the fastest signal."""
    u_left, u_right = conserved(left), conserved(right)
    speed = np.maximum(fastest(left, axis), fastest(right, axis))
    mean = flux(left, u_left, axis) + flux(right, u_right, axis)
    result: Array = 0.5 * (mean - speed * (u_right - u_left))
    return result


def along(axis: int, low: int, high: int | None) -> tuple[slice, ...]:
    """Interior on the other axes, [low:high] on this one, of an array with ghost layers."""
    cut = [slice(None)] + [slice(GHOSTS, -GHOSTS)] * 3
    cut[1 + axis] = slice(low, high)
    return tuple(cut)


def right_hand_side(u: Array, spacing: Sequence[float]) -> Array:
    """dU/dt of all interior cells; `u` (5, nx+4, ny+4, nz+4) with its ghost layers filled.

    Primitive variables are reconstructed linearly with central slopes (unlimited: all cases are smooth).
    """
    q = primitive(u)
    rate = np.zeros_like(u[along(0, GHOSTS, -GHOSTS)])
    for axis, width in enumerate(spacing):
        below, here, above = q[along(axis, 0, -2)], q[along(axis, 1, -1)], q[along(axis, 2, None)]
        half_slope = 0.25 * (above - below)  # of cells 1 … n+2, the interior and one ghost on each side
        face = [slice(None)] * 4
        upper = [slice(None)] * 4
        face[1 + axis], upper[1 + axis] = slice(None, -1), slice(1, None)
        lower_side = (here + half_slope)[tuple(face)]
        upper_side = (here - half_slope)[tuple(upper)]
        through = rusanov(lower_side, upper_side, axis)
        rate -= (through[tuple(upper)] - through[tuple(face)]) / width
    return rate
