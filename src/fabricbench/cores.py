"""How many cores a rank needs; the doctor counts with it before cells run, and ranks are bound by it."""

# Gloo and NCCL move bytes in a thread of their own. On one core with the rank that waits for it, a short
# message took 1.8 ms instead of 0.17 (docs/emulation.md), so it gets a core as well.
ENGINE_THREADS = {"gloo": 1, "nccl": 1, "mpi": 0}


def cores_per_rank(threads: int, engine: str) -> int:
    """Cores for a rank's threads, and for those that its engine starts."""
    return threads + ENGINE_THREADS[engine]
