"""One set of versions: pyproject's ranges, the lock, and the conda environment."""

import runpy
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PINS = runpy.run_path(str(ROOT / "workflow/envs/generate.py"))


def test_the_lock_satisfies_every_range():
    """Each direct dependency is locked, at a version that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in project["dependencies"] + project["optional-dependencies"]["test"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(PINS["locked"]()[requirement.name.lower()]), text


def test_the_conda_environment_has_the_same_pins():
    """workflow/envs/fabricbench.yaml is what `make lock` writes."""
    assert (ROOT / "workflow/envs/fabricbench.yaml").read_text() == PINS["environment"]()
