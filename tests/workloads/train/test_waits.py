"""The replayed GPU's clock: errors of single waits don't add up, and what is left is counted."""

import threading

import pytest

from fabricbench.workloads.train import waits


class Clock:
    """A host whose sleeps end `late` seconds late."""

    now = 100.0
    late = 0.3

    def perf_counter(self):
        """The time on it."""
        return self.now

    def sleep(self, seconds):
        """Its time passes."""
        self.now += seconds + self.late


@pytest.fixture
def clock(monkeypatch):
    """A made-up host in the place of `time`."""
    made_up = Clock()
    monkeypatch.setattr(waits, "time", made_up)
    return made_up


def test_waits_run_to_absolute_deadlines(clock):
    """A late wake-up shortens the next wait: if each sleep is 0.3 s too long, ten of 1 s take 10.3 s."""
    device = waits.Device()
    device.start()
    for _ in range(10):
        device.busy(1.0)
    device.end()
    assert pytest.approx(110.3) == clock.now
    assert device.lateness() == {
        "n": 10,
        **dict.fromkeys(("mean_late_s", "p99_late_s", "latest_s", "step_late_s"), pytest.approx(0.3)),
        "drift_s": pytest.approx(0.3),
    }


def test_the_overshoot_of_this_host_is_slept_less(clock):
    """What the calibration measures is taken off each sleep, and waits end on time."""
    clock.late = 0.0004
    device = waits.Device(waits.overshoot())
    device.start()
    for _ in range(100):
        device.busy(0.001)
    device.end()
    assert clock.now - 100.0 - waits.CALIBRATIONS * 0.0005 == pytest.approx(0.1)
    assert device.lateness()["latest_s"] == pytest.approx(0.0, abs=1e-9)


def test_another_process_is_no_overshoot(clock):
    """A host that is busy while it is calibrated doesn't make all waits short."""
    assert waits.overshoot() == waits.MOST_OVERSHOOT_S


def test_what_held_the_host_up_is_counted_as_lateness(clock):
    """Work between two waits, longer than the second: that one ends late, and so does the step."""
    clock.late = 0.0
    device = waits.Device()
    for pause in (0.0, 4.0, 0.0):
        device.start()
        device.busy(1.0)
        clock.now += pause
        device.busy(1.0)
        device.end()
    late = device.lateness()
    assert (late["n"], late["latest_s"], late["step_late_s"]) == (6, 3.0, 0.0)
    assert late["drift_s"] == pytest.approx(1.0)
    device.forget()
    assert device.lateness() == {}


def test_the_worst_rank_stands_for_all():
    """Means are over all waits; quantiles and ends of steps are of the rank where they are worst."""
    quick = {"n": 300, "mean_late_s": 0.0, "p99_late_s": 0.1, "latest_s": 0.2, "step_late_s": 0.0}
    slow = {"n": 100, "mean_late_s": 0.4, "p99_late_s": 0.5, "latest_s": 0.6, "step_late_s": 0.3}
    found = waits.together([quick | {"drift_s": 0.1}, {}, slow | {"drift_s": -0.2}])
    assert found == slow | {"n": 400, "mean_late_s": pytest.approx(0.1), "drift_s": -0.2}
    assert waits.together([{}]) == {}


def test_a_wait_lets_other_threads_run():
    """Polling too: a thread that needs the interpreter gets it while the device is busy."""
    counted = [0]
    stop = threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    device = waits.Device(overshoot_s=10.0, spins=True)
    device.start()
    before = counted[0]
    device.busy(0.05)
    assert counted[0] > before
    stop.set()
    thread.join()
