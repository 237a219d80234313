"""How many cores a rank needs; the doctor counts with it before cells run, and ranks are bound by it."""

from fabricbench.mpi_library import is_mpi


def engine_threads(engine: str, kind: str) -> int:
    """Threads that an engine starts beside a rank's own, for a workload of this kind.

    Gloo and NCCL move bytes in a thread of their own. On one core with the rank that waits for it, a short
    message took 1.8 ms instead of 0.17 (docs/emulation.md), so it gets a core as well. Training over MPI has
    a thread that makes the MPI calls; other workloads make them themselves.
    """
    return 0 if is_mpi(engine) and kind != "train" else 1


def cores_per_rank(threads: int, engine: str, kind: str) -> int:
    """Cores for a rank's threads, and for those that its engine starts."""
    return threads + engine_threads(engine, kind)
