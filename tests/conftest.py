"""What all tests share: skips that CI turns into failures, and cells that are quick to make."""

import copy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from campaigns import TINY, Campaign

from fabricbench.fabrics.emulation import why_unavailable


def pytest_addoption(parser):
    """`--no-skips`: a test that can't run here is a failure, as in CI."""
    parser.addoption("--no-skips", action="store_true", help="fail where a test would be skipped")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Turn a skip into a failure that keeps its reason, when asked to."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and item.config.getoption("--no-skips") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, with --no-skips: {report.longrepr}"


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip where the kernel refuses user namespaces, with its mend."""
    if reason := why_unavailable():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Debian's chromium."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        pytest.skip("no chromium here: apt-get install chromium")
    return found


@pytest.fixture
def tiny() -> dict:
    """A config of four cells that take about a second each; a fresh copy for each test to change."""
    return copy.deepcopy(TINY)


@pytest.fixture
def campaign(tmp_path: Path, namespaces: None) -> Callable[[dict], Campaign]:
    """Make a campaign folder from a config."""
    return lambda config: Campaign(tmp_path / "campaign", config)
