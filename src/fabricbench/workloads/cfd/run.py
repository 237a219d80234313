"""The flow-solver cell: explicit Runge–Kutta steps, a halo per stage, one global reduction per step.

First version: second-order finite volumes. The process grid, the halo and what is measured stay when the
scheme becomes a high-order one.
"""

import time

import numpy as np

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.fabrics.traffic import together
from fabricbench.workloads.cfd import euler, mesh
from fabricbench.workloads.cfd.cases import CASES
from fabricbench.workloads.cfd.halo import Halo
from fabricbench.workloads.ranks import MpiRanks
from fabricbench.workloads.region import Outcome, Region, over_ranks, series

STAGES = 3
ROUND_OFF = 1e-12
HALO_BYTES_PER_CELL = euler.GHOSTS * 5 * 8
"""A face's cell sends this many layers of five doubles."""


def preload(cell: Cell) -> None:
    """All imports are at the top: numpy alone."""


class Solver:
    """One rank's block of the flow."""

    def __init__(self, cell: Cell, ranks: MpiRanks) -> None:
        """Cut the mesh, fill the initial state."""
        from mpi4py import MPI

        self.mpi, self.comm = MPI, ranks.comm
        nx, ny, nz = cell.params["cells"]
        cells = (nx, ny, nz)
        self.grid = mesh.process_grid(cells, ranks.size, cell.params["process_grid"])
        self.block = mesh.block(cells, self.grid, ranks.rank)
        self.case = CASES[cell.params["case"]]
        self.cfl = cell.params["cfl"]
        self.spacing = tuple(edge / n for edge, n in zip(self.case.size, cells, strict=True))
        self.halo = Halo(ranks.comm, self.block)
        self.time = 0.0
        # Ones, since the corners among the ghosts are never filled and must not divide by zero.
        self.u = np.ones((5, *(n + 2 * euler.GHOSTS for n in self.block.cells)))
        self.interior = self.u[euler.along(0, euler.GHOSTS, -euler.GHOSTS)]
        self.interior[...] = euler.conserved(self.exact())

    def exact(self) -> euler.Array:
        """The case's primitive state at the cell centres, now."""
        axes = [
            (start + np.arange(n) + 0.5) * width
            for start, n, width in zip(self.block.start, self.block.cells, self.spacing, strict=True)
        ]
        x, y, z = np.meshgrid(*axes, indexing="ij", sparse=True)
        return self.case.state(x, y, z, self.time)

    def rate(self) -> euler.Array:
        """Exchange halos, then evaluate the right-hand side."""
        self.halo.exchange(self.u, self.mpi)
        return euler.right_hand_side(self.u, self.spacing)

    def time_step(self) -> float:
        """The same for all ranks: CFL over the sum of the axes' fastest signals."""
        q = euler.primitive(self.interior)
        signal = sum(euler.fastest(q, axis) / self.spacing[axis] for axis in range(3))
        fastest = float(self.comm.allreduce(float(np.max(signal)), op=self.mpi.MAX))
        return float(self.cfl) / fastest

    def step(self) -> None:
        """One step of the three-stage strong-stability-preserving Runge–Kutta scheme."""
        dt = self.time_step()
        before = self.interior.copy()
        self.interior += dt * self.rate()
        self.interior[...] = 0.75 * before + 0.25 * (self.interior + dt * self.rate())
        self.interior[...] = (before + 2 * (self.interior + dt * self.rate())) / 3
        self.time += dt

    def totals(self) -> euler.Array:
        """The five conserved quantities over the whole box, per cell."""
        own = self.interior.sum(axis=(1, 2, 3))
        whole = np.empty_like(own)
        self.comm.Allreduce(own, whole)
        mean: euler.Array = whole / float(self.comm.allreduce(self.interior[0].size))
        return mean

    def error(self) -> float:
        """Root mean square difference of the density from the exact solution."""
        difference = ((self.interior[0] - self.exact()[0]) ** 2).sum()
        count = self.comm.allreduce(self.interior[0].size)
        return float(np.sqrt(self.comm.allreduce(float(difference)) / count))


def run(cell: Cell, ranks: MpiRanks, region: Region) -> Outcome:
    """Step the flow; samples are seconds per step and the halo's share. No rate without a passed check."""
    solver = Solver(cell, ranks)
    for _ in range(cell.params["warmup"]):
        solver.step()
    before = solver.totals()
    steps, halos = [], []
    with region.timed():
        for _ in range(cell.params["steps"]):
            began, halo_before = time.perf_counter(), solver.halo.wait_s
            solver.step()
            steps.append(time.perf_counter() - began)
            halos.append(solver.halo.wait_s - halo_before)
    drift = float(np.abs(solver.totals() - before).max() / np.abs(before).max())
    error = solver.error()
    solver.halo.close()
    if not drift < ROUND_OFF or (cell.params["case"] == "uniform" and not error < ROUND_OFF):
        raise LaunchError(
            f"the flow is wrong: conserved quantities drift by {drift:.1e}, density error {error:.1e}"
        )
    per_rank = ranks.gather((steps, halos))
    if ranks.rank != 0:
        return Outcome()
    samples = over_ranks([own for own, _ in per_rank], "step_s", "s")
    samples.append(series("halo_wait_s", "s", halos))
    dof = 5 * int(np.prod(cell.params["cells"]))
    return Outcome(
        samples,
        {
            "dof": dof,
            "dof_per_rank": dof // ranks.size,
            "stages_per_step": STAGES,
            "process_grid": list(solver.grid),
            "halo_bytes_per_step": STAGES * solver.halo.bytes_sent,
            "conservation_drift": drift,
            "density_error": error,
        },
        together(
            mesh.halo_traffic(cell.params["cells"], solver.grid, rank, HALO_BYTES_PER_CELL).times(
                STAGES * cell.params["steps"]
            )
            for rank in range(ranks.size)
        ),
    )
