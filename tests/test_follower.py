"""A cell's progress reaches its log while it runs."""

from pathlib import Path

import pytest

from fabricbench.follower import Follower


def test_whole_lines_of_progress_are_passed_on_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What else a rank prints stays for the end, and half a line waits for its other half."""
    log = tmp_path / "rank-0.log"
    follower = Follower(log)
    follower.look(at_once=True)  # no rank has begun
    log.write_text("a library's words\nprogress: warm-up: step 1\nprogress: measu")
    follower.look(at_once=True)
    assert capsys.readouterr().out == "warm-up: step 1\n"
    with log.open("a") as file:
        file.write("ring: step 3\n")
    follower.look(at_once=True)
    assert capsys.readouterr().out == "measuring: step 3\n"


def test_a_log_is_not_read_at_every_poll(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two looks in a row are one."""
    log = tmp_path / "rank-0.log"
    log.write_text("progress: a\n")
    follower = Follower(log)
    follower.look()
    with log.open("a") as file:
        file.write("progress: b\n")
    follower.look()
    assert capsys.readouterr().out == "a\n"
