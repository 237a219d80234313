"""MPI's point-to-point within one process, for tests: ranks are generators that take turns."""

from collections import defaultdict, deque
from collections.abc import Iterable

import numpy as np


class Request:
    """Ends when its condition holds."""

    def __init__(self, condition):
        """`condition()` is asked at each look."""
        self.condition, self.ended = condition, False

    def Test(self):  # noqa: N802 - MPI's names
        """Whether it has ended."""
        self.ended = self.ended or self.condition()
        return self.ended

    def Wait(self):  # noqa: N802
        """For what needs no other rank."""
        assert self.Test(), "would wait for ever"


class Wire:
    """What is under way between ranks: messages that stay in order, as MPI's do."""

    def __init__(self, ranks):
        """Of so many ranks."""
        self.ranks = ranks
        self.under_way = defaultdict(deque)
        self.sent = defaultdict(int)

    def comm(self, rank):
        """One rank's communicator."""
        return Comm(self, rank)


class Comm:
    """A rank's end. A send ends when it has been received, as long messages' do."""

    def __init__(self, wire, rank):
        """Rank `rank` of the wire."""
        self.wire, self.rank = wire, rank

    def Get_rank(self):  # noqa: N802
        """Its number."""
        return self.rank

    def Get_size(self):  # noqa: N802
        """How many there are."""
        return self.wire.ranks

    def Isend(self, array, to, tag):  # noqa: N802
        """The bytes are read when they are received: what is changed before is a mistake that shows."""
        message = {"array": array, "received": False}
        self.wire.under_way[self.rank, to, tag].append(message)
        self.wire.sent[self.rank, to] += array.nbytes
        return Request(lambda: message["received"])

    def Irecv(self, array, source, tag):  # noqa: N802
        """In the order in which receives were posted."""
        waiting = self.wire.under_way[source, self.rank, tag, "receives"]
        place = object()
        waiting.append(place)
        under_way = self.wire.under_way[source, self.rank, tag]

        def arrived():
            if not under_way or waiting[0] is not place:
                return False
            message = under_way.popleft()
            waiting.popleft()
            assert len(message["array"]) == len(array)
            array[:] = message["array"]
            message["received"] = True
            return True

        return Request(arrived)


def take_turns(generators: Iterable):
    """Run all to their ends; fails when none can go on."""
    waiting = dict.fromkeys(generators, ())
    while waiting:
        moved = False
        for generator, requests in list(waiting.items()):
            if not all([request.Test() for request in requests]):  # noqa: C419 - each is looked at
                continue
            moved = True
            try:
                waiting[generator] = next(generator)
            except StopIteration:
                del waiting[generator]
        assert moved, "no rank can go on"


def numbers(rank, count):
    """Whole numbers that tell ranks and places apart, whose sums are exact."""
    return np.arange(count, dtype=np.float64) + 1000 * rank
