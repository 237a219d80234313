"""The thread that makes MPI calls, with requests that are made up."""

import threading

import pytest

from fabricbench.workloads.mpi_thread import LONGEST_S, SHORTEST_S, MpiThread, Patience, drive


class Request:
    """Ends at a given look; says by whom it was looked at."""

    def __init__(self, looks):
        """`looks`: how many it takes."""
        self.looks, self.threads = looks, set()

    def Test(self):  # noqa: N802 - MPI's names
        """One look."""
        self.threads.add(threading.get_ident())
        self.looks -= 1
        return self.looks <= 0

    def Wait(self):  # noqa: N802
        """At once."""
        self.threads.add(threading.get_ident())
        self.looks = 0


def finished(thread, *jobs):
    """Give jobs (generator, collective) to the thread; returns each one's end, in the order of ending."""
    ends, all_ended = [], threading.Event()

    def done(number, error):
        ends.append((number, error))
        if len(ends) == len(jobs):
            all_ended.set()

    for number, (steps, collective) in enumerate(jobs):
        thread.submit(steps, lambda error, number=number: done(number, error), collective)
    assert all_ended.wait(10)
    return ends


def waits_for(*requests):
    """Steps with one wait for each request."""
    for request in requests:
        yield [request]


def test_sleeps_double_up_to_the_longest():
    """And begin again when something happens."""
    patience = Patience()
    slept = [patience.next() for _ in range(8)]
    assert slept[:2] == [SHORTEST_S, 2 * SHORTEST_S]
    assert slept[-1] == LONGEST_S
    patience.reset()
    assert patience.next() == SHORTEST_S


@pytest.mark.parametrize("polling", [True, False])
def test_all_requests_are_looked_at_by_one_thread(polling):
    """Never by the one that submits."""
    thread = MpiThread()
    thread.polling = polling
    requests = [Request(3), Request(1), Request(2)]
    assert finished(thread, (waits_for(*requests[:2]), True), (waits_for(requests[2]), True)) != []
    assert set().union(*(request.threads for request in requests)) == {thread.thread}
    assert thread.call(threading.get_ident) == thread.thread != threading.get_ident()


def test_several_are_under_way_at_once():
    """A message that waits for its peer holds up no other, or two ranks would wait for each other."""
    thread = MpiThread()
    thread.polling = False
    never = Request(10**9)
    ended = threading.Event()
    thread.submit(waits_for(never), lambda error: None, collective=False)
    thread.submit(waits_for(Request(5)), lambda error: ended.set(), collective=False)
    assert ended.wait(10)


def test_collectives_start_in_the_order_of_submission():
    """As MPI needs on every rank."""
    thread = MpiThread()
    started = []

    def steps(number):
        started.append(number)
        yield [Request(4 - number)]

    ends = finished(thread, *((steps(number), True) for number in range(4)))
    assert started == [0, 1, 2, 3]
    assert sorted(number for number, _ in ends) == [0, 1, 2, 3]


def test_an_exception_ends_its_own_steps_alone():
    """It reaches whoever waits, and the thread goes on."""
    thread = MpiThread()

    def fails():
        yield [Request(1)]
        raise ValueError("no such rank")

    ends = dict(finished(thread, (fails(), True), (waits_for(Request(2)), True)))
    assert str(ends[0]) == "no such rank"
    assert ends[1] is None
    with pytest.raises(ZeroDivisionError):
        thread.call(divmod, 1, 0)


def test_a_library_that_is_left_alone_still_moves_bytes():
    """Without requests it is called now and then."""
    called = threading.Event()
    MpiThread(progress=called.set)
    assert called.wait(10)


def test_steps_run_in_the_calling_thread_too():
    """For programs that make their MPI calls themselves."""
    requests = [Request(3), Request(2)]
    drive(waits_for(*requests), polling=True)
    assert all(request.looks <= 0 for request in requests)
    assert requests[0].threads == {threading.get_ident()}
