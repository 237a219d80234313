"""A small campaign, run by the real Snakemake in a folder of its own."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]


class Campaign:
    """A copy of the workflow in a folder of its own, with a small config, run by the real Snakemake."""

    def __init__(self, folder: Path, config: dict) -> None:
        """Copy what Snakemake reads and write the config."""
        self.folder = folder
        folder.mkdir(parents=True)
        for name in ("Snakefile", "workflow", "profiles", "reports", "src"):
            source, target = ROOT / name, folder / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "default", "mini")
                shutil.copytree(source, target, ignore=ignored)
            else:
                shutil.copy(source, target)
        (folder / "config").mkdir()
        self.write(config)

    @classmethod
    def of(cls, folder: Path) -> "Campaign":
        """One that exists."""
        campaign = cls.__new__(cls)
        campaign.folder = folder
        return campaign

    @property
    def config_file(self) -> Path:
        """What a user edits."""
        return self.folder / "config" / "config.yaml"

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

    def snakemake(self, *arguments: str, ok: bool = True, profile: str = "profiles/local") -> str:
        """Run Snakemake and assert how it ends; returns all that it prints."""
        command = [sys.executable, "-m", "snakemake", "--profile", profile, *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=600)
        output = done.stdout + done.stderr
        assert (done.returncode == 0) is ok, output
        return output

    def measure(self, *arguments: str, **options: Any) -> set[str]:
        """Run everything that is missing; returns the cells (without digest) whose record was written."""
        before = self._records()
        self.snakemake(*arguments, **options)
        return {
            name for (name, path), written in self._records().items() if before.get((name, path)) != written
        }

    def records(self) -> set[str]:
        """All cells that have a record, as `workload/slug` without digest."""
        return {name for name, _ in self._records()}

    def _records(self) -> dict[tuple[str, Path], int]:
        paths = [path for path in self.results.glob("*/*-r[0-9]-*.json") if ".failed" not in path.name]
        return {(f"{path.parent.name}/{path.stem[:-9]}", path): path.stat().st_mtime_ns for path in paths}


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
