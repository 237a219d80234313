"""A periodic Cartesian mesh cut into equal blocks by a 3D process grid."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fabricbench.errors import LaunchError
from fabricbench.fabrics.traffic import Formula, point_to_point, together

Triple = tuple[int, int, int]

THINNEST = 2
"""Cells per side of a block: a neighbour reads two layers of it."""


@dataclass(frozen=True)
class Block:
    """One rank's part: cells per axis, where it starts in the whole, and its neighbours' ranks."""

    cells: Triple
    start: Triple
    neighbours: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
    """Per axis the rank below and the rank above; itself where one process spans the axis."""


def process_grid(cells: Triple, size: int, wanted: Sequence[int] | None = None) -> Triple:
    """The grid of `size` processes with the least halo, or the wanted one.

    Raises LaunchError, naming the nearest mesh that would do, when blocks would not be equal or would be
    thinner than the ghost layers that their neighbours read.
    """
    if wanted is not None:
        px, py, pz = wanted
        if px * py * pz != size:
            raise LaunchError(f"process_grid {list(wanted)} has {px * py * pz} places for {size} ranks")
        grids = [(px, py, pz)]
    else:
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        grids = [(px, py, size // (px * py)) for px in divisors for py in divisors if size % (px * py) == 0]
    fitting = [grid for grid in grids if fits(cells, grid)]
    if not fitting:
        over = f"the process grid {list(wanted)}" if wanted else f"{size} ranks"
        near = min((nearest(cells, grid) for grid in grids), key=lambda mesh: _distance(cells, mesh))
        raise LaunchError(
            f"cells {list(cells)} don't divide over {over} into equal blocks of at least {THINNEST} a side; "
            f"the nearest that do: {list(near)}"
        )
    return min(fitting, key=lambda grid: (halo_cells(cells, grid), max(grid), grid))


def fits(cells: Triple, grid: Triple) -> bool:
    """Whether blocks are equal, and thick enough."""
    return all(n % p == 0 and n // p >= THINNEST for n, p in zip(cells, grid, strict=True))


def nearest(cells: Triple, grid: Triple) -> Triple:
    """The mesh nearest to `cells` that fits a process grid."""
    nx, ny, nz = (max(THINNEST, round(n / p)) * p for n, p in zip(cells, grid, strict=True))
    return nx, ny, nz


def _distance(one: Triple, other: Triple) -> int:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))


def halo_cells(cells: Triple, grid: Triple) -> int:
    """Cells in one layer of a block's faces that belong to other ranks."""
    own = [n // p for n, p in zip(cells, grid, strict=True)]
    return sum(2 * math.prod(own) // own[axis] for axis in range(3) if grid[axis] > 1)


def block(cells: Triple, grid: Triple, rank: int) -> Block:
    """The block of `rank`, the last axis fastest, of a mesh that divides."""
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


def halo_traffic(cells: Triple, grid: Triple, rank: int, bytes_per_cell: int) -> Formula:
    """What one rank sends in one exchange: each face's cells to the neighbour there, on other ranks only."""
    own = block(cells, grid, rank)
    faces = [
        point_to_point(rank, neighbour, math.prod(own.cells) // own.cells[axis] * bytes_per_cell)
        for axis in range(3)
        for neighbour in own.neighbours[axis]
        if neighbour != rank
    ]
    return replace(together(faces), algorithm="halo exchange")
