"""What rank 0 says while it measures."""

import pytest

from fabricbench.workloads import progress


class Clock:
    """Time that passes only when it is told to."""

    now = 100.0

    @classmethod
    def monotonic(cls) -> float:
        """Seconds."""
        return cls.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    """The module's clock."""
    Clock.now = 100.0
    monkeypatch.setattr(progress, "time", Clock)
    return Clock


def test_a_line_tells_phase_step_time_and_rate(
    clock: type[Clock], capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate is of all ranks together."""
    progress.Progress(0, images=64).say("measuring", [0.1, 0.5, 0.1])
    assert capsys.readouterr().out == "progress: measuring: step 3, median 100 ms, 640 images/s\n"


def test_lines_are_two_seconds_apart_within_a_phase(
    clock: type[Clock], capsys: pytest.CaptureFixture[str]
) -> None:
    """A new phase is told at once."""
    said = progress.Progress(0, images=1)
    for seconds, phase in ((0, "warm-up"), (1, "warm-up"), (2.5, "warm-up"), (2.6, "measuring")):
        clock.now = 100.0 + seconds
        said.say(phase, [])
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"progress: {phase}: step 0" for phase in ("warm-up", "warm-up", "measuring")]


def test_other_ranks_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    """One rank speaks for all."""
    progress.Progress(1, images=1).say("measuring", [1.0])
    assert capsys.readouterr().out == ""
