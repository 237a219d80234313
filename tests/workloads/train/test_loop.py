"""The loop over steps: who decides, and what is timed."""

from collections.abc import Callable
from typing import Any

import pytest
from alone import Together
from cells import a_cell

from fabricbench.workloads.progress import Progress
from fabricbench.workloads.train.pace import Limits

pytestmark = pytest.mark.slow  # torch takes seconds to import


class Clock:
    """Time that passes only in steps and loads."""

    now = 0.0

    @classmethod
    def perf_counter(cls) -> float:
        """Seconds."""
        return cls.now


@pytest.fixture
def step_lasts(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Make a loop on a rank whose steps and loads last as given."""
    from fabricbench.workloads.train import loop
    from fabricbench.workloads.train.trainee import Trainee

    Clock.now = 0.0
    monkeypatch.setattr(loop, "time", Clock)

    def make(steps: Callable[[int], float], load_s: float = 0.0, ranks: Together | None = None) -> Any:
        class Timed(Trainee):
            loads, made = load_s > 0, 0

            def load(self) -> None:
                Clock.now += load_s

            def step(self, model: Callable[..., Any]) -> None:
                Clock.now += steps(self.made)
                self.made += 1

        return loop.Loop(a_cell("train", "gloo"), ranks or Together(), Timed(), Progress(1, 1.0))

    return make


def test_every_rank_makes_as_many_steps_as_rank_0_decides(step_lasts: Callable[..., Any]) -> None:
    """Rank 1's own times would have stopped it by width long before."""
    store: dict[str, str] = {}
    limits = Limits(3, 50, 5.0, 0.02)
    wild = step_lasts(lambda n: 0.1 + 0.1 * (n % 2), ranks=Together(0, 2, store))
    times, reason = wild.measure(None, limits)
    assert reason == "budget"
    quiet = step_lasts(lambda n: 0.1, ranks=Together(1, 2, store))
    followed, heard = quiet.measure(None, limits)
    assert (len(followed.steps), heard) == (len(times.steps), "budget")
    assert len(store) < 8, "one decision per chunk of about two seconds"


def test_a_fixed_number_of_steps(step_lasts: Callable[..., Any]) -> None:
    """`steps_most` that equals `steps`."""
    times, reason = step_lasts(lambda n: 0.5).measure(None, Limits(7, 7, 1.0, 0.02))
    assert (len(times.steps), reason) == (7, "width")
    times, reason = step_lasts(lambda n: 0.5).measure(None, Limits(7, 7, 1.0, 0.0))
    assert (len(times.steps), reason) == (7, "steps")


def test_waiting_for_input_is_outside_the_step(step_lasts: Callable[..., Any]) -> None:
    """And all ranks begin a step together, so that one rank's input isn't another's communication."""
    ranks = Together()
    times = step_lasts(lambda n: 0.2, load_s=0.3, ranks=ranks).make("", None, 4)
    assert times.steps == pytest.approx([0.2] * 4)
    assert times.loads == pytest.approx([0.3] * 4)
    assert ranks.barriers == 4


def test_a_warm_up_ends_when_steady(step_lasts: Callable[..., Any]) -> None:
    """Not before, and at the latest after `most` steps or the budget."""
    count, steady = step_lasts(lambda n: 1.0 if n < 10 else 0.1).warm_up(None, Limits(5, 50, 30.0))
    assert steady
    assert count < 10, "the medians of ten equal steps agree"
    count, steady = step_lasts(lambda n: 1.0 / (n + 1)).warm_up(None, Limits(5, 20, 30.0))
    assert (count, steady) == (20, False)
    count, steady = step_lasts(lambda n: 10.0 * 1.2**n).warm_up(None, Limits(5, 50, 30.0))
    assert (count, steady) == (5, False)


def test_minutes_of_compiling_do_not_end_a_warm_up(step_lasts: Callable[..., Any]) -> None:
    """The budget counts typical steps."""
    count, steady = step_lasts(lambda n: 300.0 if n == 0 else 1 / n).warm_up(None, Limits(5, 50, 30.0))
    assert count > 5
    assert steady or count == 50
