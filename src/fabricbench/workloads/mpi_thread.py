"""The one thread of a rank that makes MPI calls, and how it waits.

Work is a generator: it starts MPI operations, yields the requests that must end before it goes on, and so
lets several operations be under way at once. MPI is started in this thread (MPI_THREAD_FUNNELED), so that
no library needs more than one thread's worth of locks.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

Steps = Generator[Sequence[Any], None, None]
"""Yields MPI requests that must end before it is resumed."""
Done = Callable[[BaseException | None], None]
"""Called in the MPI thread with what went wrong, or None."""

SHORTEST_S = 20e-6
LONGEST_S = 1e-3
"""Sleeps between two looks at a request, doubled from the one to the other."""
IDLE_S = 10e-3
"""Without requests: bytes that a library still holds leave only while someone calls it."""
BLOCKING, POLLING = "blocking", "polling with sleeps"


class Patience:
    """Sleeps that grow while nothing happens, so that ranks which share cores leave them to others."""

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        """`longest_s`: no sleep is longer."""
        self._longest_s = longest_s
        self._next_s = SHORTEST_S

    def next(self) -> float:
        """Seconds to sleep now."""
        now = self._next_s
        self._next_s = min(2 * now, self._longest_s)
        return now

    def reset(self) -> None:
        """Something happened."""
        self._next_s = SHORTEST_S


def all_ended(requests: Sequence[Any]) -> bool:
    """Whether every MPI request has ended; those that have become null requests."""
    ended = [request.Test() for request in requests]  # each of them, since each call also moves bytes
    return all(ended)


def wait(requests: Sequence[Any], polling: bool) -> None:
    """Wait for all: in MPI (which spins), or looking with sleeps between."""
    if not polling:
        for request in requests:
            request.Wait()
        return
    patience = Patience()
    while not all_ended(requests):
        time.sleep(patience.next())


def drive(steps: Steps, polling: bool) -> None:
    """Run a generator of requests to its end in the calling thread."""
    for requests in steps:
        wait(requests, polling)


class MpiThread:
    """Runs generators of requests; those of collectives in the order in which they were given."""

    def __init__(self, progress: Callable[[], object] | None = None) -> None:
        """`progress`: an MPI call that moves bytes, made now and then while no request is under way."""
        self.polling = True
        """Whether collectives are looked at with sleeps between, rather than waited for in MPI."""
        self.progress = progress
        self._inbox: SimpleQueue[tuple[Steps, Done, bool]] = SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="mpi", daemon=True)
        self._thread.start()

    @property
    def thread(self) -> int | None:
        """The thread's identifier."""
        return self._thread.ident

    def submit(self, steps: Steps, done: Done, collective: bool = True) -> None:
        """Start `steps` after those given before; a collective may be waited for in MPI itself."""
        self._inbox.put((steps, done, collective))

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """What `function` returns or raises, called in the MPI thread."""
        answer: Future[T] = Future()

        def once() -> Steps:
            answer.set_result(function(*arguments))
            yield from ()

        def done(error: BaseException | None) -> None:
            if error is not None:
                answer.set_exception(error)

        self.submit(once(), done)
        return answer.result()

    def _loop(self) -> None:
        active: list[_Active] = []
        patience = Patience()
        while True:
            for steps, done, collective in self._arrived(active, patience):
                started = _Active(steps, done)
                if started.advance(blocking=collective and not self.polling):
                    active.append(started)
                patience.reset()
            moved = [one for one in active if one.moves()]
            if moved:
                patience.reset()
            active = [one for one in active if not one.ended]

    def _arrived(self, active: list["_Active"], patience: Patience) -> Iterator[tuple[Steps, Done, bool]]:
        """What came in; waits for it as long as nothing else is to be done."""
        try:
            if not active and self.progress is None:
                yield self._inbox.get()
            else:
                yield self._inbox.get(timeout=patience.next() if active else IDLE_S)
            while True:
                yield self._inbox.get_nowait()
        except Empty:
            if not active and self.progress is not None:
                self.progress()


class _Active:
    """Steps under way, and the requests that they wait for."""

    def __init__(self, steps: Steps, done: Done) -> None:
        self._steps, self._done = steps, done
        self._requests: Sequence[Any] = ()
        self.ended = False

    def moves(self) -> bool:
        """Go on if the requests have ended; returns whether they had."""
        try:
            ready = all_ended(self._requests)
        except Exception as error:
            return self._end(error)
        if ready:
            self.advance(blocking=False)
        return ready

    def advance(self, blocking: bool) -> bool:
        """Run to the next wait, or to the end if all waits may block; returns whether it is under way."""
        try:
            while True:
                self._requests = next(self._steps)
                if blocking:
                    wait(self._requests, polling=False)
                elif self._requests:
                    return True
        except StopIteration:
            self._end(None)
        except Exception as error:
            self._end(error)
        return False

    def _end(self, error: BaseException | None) -> bool:
        self.ended = True
        self._done(error)
        return True
