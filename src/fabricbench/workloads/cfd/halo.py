"""Halo exchange: two layers of cells with each of six neighbours, by persistent non-blocking messages."""

import time
from typing import Any

import numpy as np

from fabricbench.workloads.cfd.euler import GHOSTS, Array, along
from fabricbench.workloads.cfd.mesh import Block


class Halo:
    """Exchanges the faces of one block; axes that one process spans are copied, periodically."""

    def __init__(self, comm: Any, block: Block) -> None:
        """Allocate the buffers and open the persistent requests, once for the whole run."""
        self._local = [axis for axis in range(3) if comm.Get_size() == 1 or _spans(comm, block, axis)]
        self._faces: list[tuple[Array, Array, int, bool]] = []
        receives, sends = [], []
        for axis in set(range(3)) - set(self._local):
            shape = [5, *block.cells]
            shape[1 + axis] = GHOSTS
            for upper in (False, True):
                out, into = np.empty(shape), np.empty(shape)
                neighbour = block.neighbours[axis][upper]
                # What leaves upwards arrives from below: the tag tells the two apart when both are one rank.
                receives.append(comm.Recv_init(into, neighbour, tag=2 * axis + (not upper)))
                sends.append(comm.Send_init(out, neighbour, tag=2 * axis + upper))
                self._faces.append((out, into, axis, upper))
        self._requests = receives + sends
        self.wait_s = 0.0
        """Seconds spent in waiting for messages so far, without packing and copying."""
        self.bytes_sent = sum(out.nbytes for out, *_ in self._faces)
        """Bytes that this rank sends in one exchange."""

    def exchange(self, u: Array, mpi: Any) -> None:
        """Fill the ghost layers of `u` (5, nx+4, ny+4, nz+4)."""
        for out, _, axis, upper in self._faces:
            out[...] = u[along(axis, -2 * GHOSTS, -GHOSTS) if upper else along(axis, GHOSTS, 2 * GHOSTS)]
        mpi.Prequest.Startall(self._requests)
        for axis in self._local:
            u[along(axis, 0, GHOSTS)] = u[along(axis, -2 * GHOSTS, -GHOSTS)]
            u[along(axis, -GHOSTS, None)] = u[along(axis, GHOSTS, 2 * GHOSTS)]
        began = time.perf_counter()
        mpi.Prequest.Waitall(self._requests)
        self.wait_s += time.perf_counter() - began
        for _, into, axis, upper in self._faces:
            u[along(axis, -GHOSTS, None) if upper else along(axis, 0, GHOSTS)] = into

    def close(self) -> None:
        """Free the requests, before MPI is finalized."""
        for request in self._requests:
            request.Free()


def _spans(comm: Any, block: Block, axis: int) -> bool:
    return bool(block.neighbours[axis][0] == comm.Get_rank())
