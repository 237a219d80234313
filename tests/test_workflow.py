"""What the Snakefile asks."""

from pathlib import Path

import pytest

from fabricbench.config import load_config
from fabricbench.workflow import UserError, is_dry_run, prepare

PAPER = Path(__file__).resolve().parents[1] / "config" / "examples" / "paper.yaml"


@pytest.mark.parametrize("arguments", [["-n"], ["--dry-run"], ["--dryrun"], ["-nq"], ["-pn"]])
def test_a_dry_run_is_recognised(arguments):
    """In each of its spellings."""
    assert is_dry_run(["snakemake", "--profile", "profiles/local", *arguments])


@pytest.mark.parametrize("arguments", [["-c2"], ["--unlock"], ["--rerun-incomplete"], ["-j", "4"]])
def test_a_real_run_is_no_dry_run(arguments):
    """Other options are not mistaken for it."""
    assert not is_dry_run(["snakemake", *arguments])


def test_cells_of_a_real_cluster_are_not_started_yet(tmp_path):
    """Snakemake is refused with one line that says what does work, before anything is written."""
    with pytest.raises(
        UserError, match=r"cluster\.kind: slurm: its cells can't be started yet; `fabricbench"
    ):
        prepare(load_config([PAPER]), [str(PAPER)], tmp_path, may_write=True)
    assert list(tmp_path.iterdir()) == []
