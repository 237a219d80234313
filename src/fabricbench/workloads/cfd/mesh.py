"""A periodic Cartesian mesh cut into equal blocks by a 3D process grid."""

import itertools
import math
from dataclasses import dataclass

from fabricbench.errors import LaunchError

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Block:
    """One rank's part: cells per axis, where it starts in the whole, and its neighbours' ranks."""

    cells: Triple
    start: Triple
    neighbours: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
    """Per axis the rank below and the rank above; itself where one process spans the axis."""


def process_grid(cells: Triple, size: int) -> Triple:
    """The grid of `size` processes that divides the mesh with the least halo; LaunchError if none does."""
    counts = range(1, size + 1)
    fitting = [
        (px, py, pz)
        for px, py, pz in itertools.product(counts, counts, counts)
        if px * py * pz == size and not (cells[0] % px or cells[1] % py or cells[2] % pz)
    ]
    if not fitting:
        raise LaunchError(
            f"cells {list(cells)} don't divide over {size} ranks; "
            f"the nearest that do: {list(nearest(cells, size))}"
        )
    return min(fitting, key=lambda grid: (halo_cells(cells, grid), grid))


def nearest(cells: Triple, size: int) -> Triple:
    """The mesh nearest to `cells` whose longest axis divides over `size` ranks."""
    longest = max(range(3), key=cells.__getitem__)
    rounded = list(cells)
    rounded[longest] = max(1, round(cells[longest] / size)) * size
    return rounded[0], rounded[1], rounded[2]


def halo_cells(cells: Triple, grid: Triple) -> int:
    """Cells in one layer of a block's faces that belong to other ranks."""
    own = [n // p for n, p in zip(cells, grid, strict=True)]
    return sum(2 * math.prod(own) // own[axis] for axis in range(3) if grid[axis] > 1)


def block(cells: Triple, grid: Triple, rank: int) -> Block:
    """The block of `rank`, the last axis fastest; LaunchError if the mesh doesn't divide."""
    if any(n % p for n, p in zip(cells, grid, strict=True)):
        raise LaunchError(f"cells {list(cells)} don't divide over the process grid {list(grid)}")
    place = (rank // (grid[1] * grid[2]), rank // grid[2] % grid[1], rank % grid[2])
    own = tuple(n // p for n, p in zip(cells, grid, strict=True))

    def rank_at(axis: int, step: int) -> int:
        moved = list(place)
        moved[axis] = (moved[axis] + step) % grid[axis]
        return (moved[0] * grid[1] + moved[1]) * grid[2] + moved[2]

    neighbours = [(rank_at(axis, -1), rank_at(axis, 1)) for axis in range(3)]
    start = tuple(i * n for i, n in zip(place, own, strict=True))
    return Block(
        (own[0], own[1], own[2]),
        (start[0], start[1], start[2]),
        (neighbours[0], neighbours[1], neighbours[2]),
    )
