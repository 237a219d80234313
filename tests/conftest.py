"""What all tests share: skips that CI turns into failures, and cells that are quick to make."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fabricbench.fabrics.emulation import why_unavailable

ROOT = Path(__file__).resolve().parents[1]


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


class Campaign:
    """A copy of the workflow in a folder of its own, with a small config, run by the real Snakemake."""

    def __init__(self, folder: Path, config: dict) -> None:
        """Copy what Snakemake reads and write the config."""
        self.folder = folder
        for name in ("Snakefile", "workflow", "profiles", "reports", "src"):
            source, target = ROOT / name, folder / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "default", "mini")
                shutil.copytree(source, target, ignore=ignored)
            else:
                shutil.copy(source, target)
        self.config_file = folder / "config" / "config.yaml"
        self.config_file.parent.mkdir()
        self.write(config)

    def write(self, config: dict | str) -> None:
        """Replace the config."""
        text = config if isinstance(config, str) else yaml.safe_dump(config)
        self.config_file.write_text(text, encoding="utf-8")

    @property
    def results(self) -> Path:
        """results/<campaign>."""
        return self.folder / "results" / "tiny"

    @property
    def page(self) -> Path:
        """The report."""
        return self.folder / "reports" / "tiny" / "index.html"

    def snakemake(self, *arguments: str, ok: bool | None = True, prefix: tuple[str, ...] = ()):
        """Run Snakemake with the local profile; assert its exit status unless `ok` is None."""
        command = [*prefix, sys.executable, "-m", "snakemake", "--profile", "profiles/local", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=600)
        output = done.stdout + done.stderr
        if ok is not None:
            assert (done.returncode == 0) is ok, output
        return output

    def measure(self, *arguments: str, ok: bool = True) -> set[str]:
        """Run everything that is missing; returns the cells whose record appeared or changed."""
        before = self.records()
        self.snakemake(*arguments, ok=ok)
        return {name for name, stamp in self.records().items() if before.get(name) != stamp}

    def records(self) -> dict[str, int]:
        """Records by `workload/slug` (without digest), with the time each was written."""
        found = self.results.glob("*/*-r[0-9]-*.json")
        return {f"{p.parent.name}/{p.stem[:-9]}": p.stat().st_mtime_ns for p in found if ".failed" not in p.name}


TINY = {
    "campaign": "tiny",
    "cluster": {"kind": "emulated", "nodes": 2, "gpus_per_node": 1},
    "fabrics": {
        "slow": {"interface": "eth0", "rate": "100 Mbit/s"},
        "fast": {"interface": "opa0", "rate": "400 Mbit/s"},
    },
    "backends": {"mpi": {"engine": "mpi"}},
    "gpus": [2],
    "repeats": 1,
    "workloads": {
        "micro": {"kind": "micro", "sizes": [1024], "operations": ["pingpong"], "iterations": 2, "warmup": 0},
        "cfd": {"kind": "cfd", "case": "uniform", "cells": [4, 4, 4], "warmup": 0, "steps": 2},
    },
}


@pytest.fixture
def tiny() -> dict:
    """A config of four cells that take about a second each; a fresh copy for each test to change."""
    import copy

    return copy.deepcopy(TINY)


@pytest.fixture
def campaign(tmp_path: Path, namespaces: None) -> Callable[[dict], Campaign]:
    """Make a campaign folder from a config."""
    return lambda config: Campaign(tmp_path / "campaign", config)
