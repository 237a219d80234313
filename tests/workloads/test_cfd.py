"""The flow solver's parts and its accuracy."""

import math
from itertools import pairwise

import numpy as np
import pytest
from cells import CFD, a_cell

from fabricbench.errors import LaunchError
from fabricbench.workloads.cfd import euler, mesh
from fabricbench.workloads.cfd.cases import CASES


@pytest.mark.parametrize(
    ("cells", "size", "grid"),
    [
        ((64, 64, 64), 8, (2, 2, 2)),
        ((64, 64, 16), 4, (2, 2, 1)),
        ((9, 8, 8), 3, (3, 1, 1)),
        ((4, 4, 64), 16, (1, 1, 16)),
        ((5, 5, 5), 1, (1, 1, 1)),
    ],
)
def test_the_process_grid_divides_with_the_least_halo(cells, size, grid):
    """Near-cubic blocks where the mesh allows them."""
    assert mesh.process_grid(cells, size) == grid


def test_a_mesh_that_does_not_divide_is_refused_with_the_nearest():
    """The line names mesh, ranks and a mesh that would do."""
    with pytest.raises(LaunchError, match=r"\[5, 7, 5\] don't divide over 4 ranks .*: \[5, 8, 5\]"):
        mesh.process_grid((5, 7, 5), 4)


@pytest.mark.parametrize(("cells", "ranks"), [((4, 1, 1), 1), ((8, 1, 8), 2), ((4, 4, 4), 27)])
def test_blocks_thinner_than_the_ghost_layers_are_refused(cells, ranks):
    """A neighbour would read cells that the block doesn't have."""
    with pytest.raises(LaunchError, match="at least 2 a side"):
        mesh.process_grid(cells, ranks)


def test_a_wanted_process_grid_is_taken_or_refused():
    """Its places must be the ranks."""
    assert mesh.process_grid((8, 8, 8), 4, [1, 4, 1]) == (1, 4, 1)
    with pytest.raises(LaunchError, match=r"\[2, 1, 1\] has 2 places for 4 ranks"):
        mesh.process_grid((8, 8, 8), 4, [2, 1, 1])


def test_blocks_tile_the_mesh_and_neighbours_agree():
    """Every cell belongs to one block; who is above me has me below."""
    cells, grid = (8, 6, 4), (2, 3, 2)
    blocks = [mesh.block(cells, grid, rank) for rank in range(math.prod(grid))]
    owned = np.zeros(cells, int)
    for block in blocks:
        owned[tuple(slice(s, s + n) for s, n in zip(block.start, block.cells, strict=True))] += 1
    assert (owned == 1).all()
    for rank, block in enumerate(blocks):
        for axis in range(3):
            assert blocks[block.neighbours[axis][1]].neighbours[axis][0] == rank


def test_primitive_and_conserved_are_inverse():
    """A state converted there and back is the same."""
    rng = np.random.default_rng(1)
    q = rng.uniform(0.5, 2.0, (5, 3, 3, 3))
    assert np.allclose(euler.primitive(euler.conserved(q)), q, rtol=1e-14)


def test_the_flux_of_equal_states_is_the_physical_flux():
    """Without a jump the interface adds no dissipation."""
    q = np.random.default_rng(2).uniform(0.5, 2.0, (5, 2, 2, 2))
    for axis in range(3):
        assert np.allclose(euler.rusanov(q, q, axis), euler.flux(q, euler.conserved(q), axis))


def test_a_free_stream_has_no_rate_of_change():
    """To round-off."""
    u = euler.conserved(CASES["uniform"].state(*np.meshgrid(*[np.arange(8.0)] * 3, indexing="ij"), 0.0))
    assert np.abs(euler.right_hand_side(u, (0.1, 0.1, 0.1))).max() < 1e-12


@pytest.mark.slow
def test_the_vortex_converges_at_second_order():
    """Halving the cells divides the density error by about four."""
    from fabricbench.workloads.cfd.run import Solver
    from fabricbench.workloads.ranks import MpiRanks
    from fabricbench.workloads.seat import Seat

    ranks = MpiRanks(a_cell("cfd", gpus=1, nodes=1), Seat(0, 1, 0, 0, ""))
    errors = []
    for n in (32, 64, 128):
        cell = a_cell("cfd", gpus=1, nodes=1, params=CFD | {"cells": [n, n, 2]})
        solver = Solver(cell, ranks)
        while solver.time < 0.5:
            solver.step()
        errors.append(solver.error())
    orders = [math.log2(coarse / fine) for coarse, fine in pairwise(errors)]
    assert orders[-1] > 1.7
