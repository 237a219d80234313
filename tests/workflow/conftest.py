"""A measured campaign, made once and copied for each test."""

import shutil
from pathlib import Path

import pytest
from campaigns import TINY, Campaign


@pytest.fixture(scope="session")
def measured_once(tmp_path_factory: pytest.TempPathFactory, namespaces: None) -> Path:
    """The tiny campaign, all cells measured and the page rendered."""
    folder = tmp_path_factory.mktemp("measured") / "campaign"
    Campaign(folder, TINY).snakemake()
    return folder


@pytest.fixture
def measured(measured_once: Path, tmp_path: Path) -> Campaign:
    """A copy of it, with its files' times."""
    folder = tmp_path / "campaign"
    shutil.copytree(measured_once, folder, symlinks=True)
    return Campaign.of(folder)
