"""Two calls of Snakemake on one campaign: the second one stops before it touches anything."""

import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fabricbench import campaign_lock
from fabricbench.campaign_lock import InUse, hold, may_be_in_use

HOLDER = """
import sys, pathlib
from fabricbench.campaign_lock import hold
hold(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_call_is_told_who_holds_it_until_that_one_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it ends, by SIGKILL too: the system frees it."""
    monkeypatch.setattr(campaign_lock, "PAUSE_S", 0.0)
    folder = tmp_path / "results" / "mine"
    assert not may_be_in_use(folder)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert may_be_in_use(folder)
    with pytest.raises(InUse) as error:
        hold(folder)
    assert f"(host {socket.gethostname()}, process {holder.pid})" in str(error.value)
    assert "\n" not in str(error.value)
    holder.kill()
    holder.communicate()
    assert not may_be_in_use(folder)
    hold(folder)
    hold(folder)
    assert not may_be_in_use(folder)
    assert (folder / ".lock").read_text().endswith(f"process {os.getpid()}\n")


def test_without_locks_the_call_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some parallel file systems have none; then nobody knows who runs."""

    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    hold(tmp_path)
    assert may_be_in_use(tmp_path)
    hold(tmp_path)
