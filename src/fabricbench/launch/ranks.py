"""Fork ranks after one import, seat each on its node, and watch them until all end or one fails.

A rank that raises leaves its traceback; the first failure ends the whole cell at once, so that its
neighbours' broken connections don't hide the cause. The parent touches no torch operation: a pool of
threads made before the fork would be dead in every rank.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.fabrics.emulation import die_with_parent
from fabricbench.launch.leaving import become_rank, leave_error
from fabricbench.launch.pmi import Aborted, PmiServer
from fabricbench.workloads import entry
from fabricbench.workloads.place import Seen
from fabricbench.workloads.seat import Seat

# How long after the first bad end others are waited for: a killed rank raises errors in its peers at once.
GRACE_S = 0.2


@dataclass(frozen=True)
class Seats:
    """Where ranks go: one `enter` per node, and how they meet."""

    enter: list[Callable[[], None]]
    store: str
    """host:port of torch's key-value store, served by rank 0."""
    shaping: dict[str, Any] | None
    """How the links are emulated, for the record; None for real ones."""
    listener: int | None = None
    """Descriptor of a socket already bound to the store's port, for rank 0."""
    peers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Each node's addresses on the fabric under test, by rail, where they are known."""
    seen: Sequence[Seen | None] = ()
    """What the launcher has seen of each node; ranks on others look for themselves."""


def start_ranks(cell: Cell, work: Path, find_seats: Callable[[], Seats]) -> int:
    """Import what the workload needs, fork all ranks of `cell`, and wait; 0 if every rank succeeded.

    `find_seats` is asked after the import, beside which nodes may be made.
    """
    began = time.monotonic()
    entry.preload(cell)
    imported = time.monotonic()
    seats = find_seats()
    if (threads := len(os.listdir("/proc/self/task"))) != 1:
        raise LaunchError(
            f"{threads} threads run before the ranks are forked: something computed at import time"
        )
    waited = time.monotonic() - imported
    phases = {"import": imported - began, "wait_for_nodes": waited, "forked_at": time.time()}
    server = PmiServer(cell.gpus, cell.nodes, cell.ranks_per_node)
    parent = os.getpid()
    ranks: dict[int, int] = {}
    for rank in range(cell.gpus):
        pid = os.fork()
        if pid == 0:
            _be_rank(rank, cell, work, seats, server, phases, parent)
        ranks[pid] = rank
    server.parent_only()
    return _watch(ranks, server, cell, work)


def _be_rank(
    rank: int,
    cell: Cell,
    work: Path,
    seats: Seats,
    server: PmiServer,
    phases: dict[str, float],
    parent: int,
) -> None:
    """The life of one rank; never returns."""
    status = 1
    try:
        become_rank(rank, work)
        node, local_rank = divmod(rank, cell.ranks_per_node)
        os.environ.update(server.seat(rank))
        seats.enter[node]()
        die_with_parent(parent)
        seat = Seat(
            rank=rank,
            size=cell.gpus,
            node=node,
            local_rank=local_rank,
            store=seats.store,
            listener=seats.listener if rank == 0 else None,
            peers=seats.peers,
            shaping=seats.shaping,
        )
        seen = seats.seen[node] if seats.seen else None
        entry.run_rank(cell, seat, work, phases, seen)
        status = 0
    except BaseException as error:
        leave_error(work, f"rank {rank}", error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _watch(ranks: dict[int, int], server: PmiServer, cell: Cell, work: Path) -> int:
    """Serve PMI and reap until every rank has ended; the first bad end kills the rest."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    server.selector.register(wake_read, 1, lambda descriptor: os.read(descriptor, 4096))
    waiting = dict(ranks)
    try:
        while True:  # asked before it waits: a rank may have ended before the handler stood
            if bad := _bad_ends(waiting):
                time.sleep(GRACE_S)
                _explain(bad | _bad_ends(waiting), cell, work)
                return 1
            if not waiting:
                return 0
            for key, _ in server.selector.select():
                key.data(key.fileobj)
    except Aborted as error:
        leave_error(work, "ranks", LaunchError(f"a rank called MPI_Abort: {error}"))
        return 1
    finally:
        for pid in waiting:
            os.kill(pid, signal.SIGKILL)


def _bad_ends(waiting: dict[int, int]) -> dict[int, int]:
    """Reap what has ended, forget it in `waiting`; returns rank → status of what ended badly."""
    ended = [(waiting.pop(pid), status) for pid, status in _ended() if pid in waiting]
    return {rank: status for rank, status in ended if status != 0}


def _explain(bad: dict[int, int], cell: Cell, work: Path) -> None:
    """Leave the cause: a rank killed by a signal before all exceptions, which its loss raises in others."""
    killed = {rank: status for rank, status in bad.items() if status < 0}
    rank, status = min((killed or bad).items())
    error = LaunchError(_how_it_ended(rank, rank // cell.ranks_per_node, status))
    leave_error(work, "ranks", error, is_cause=bool(killed))


def _ended() -> Iterator[tuple[int, int]]:
    """(pid, exit code or negative signal) of every child that has ended; orphans of a PID namespace too."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended[0], os.waitstatus_to_exitcode(ended[1])


def _how_it_ended(rank: int, node: int, status: int) -> str:
    if status < 0:
        return f"rank {rank} on node {node} was killed by {signal.Signals(-status).name}"
    return f"rank {rank} on node {node} ended with exit status {status}"
