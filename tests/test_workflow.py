"""What the Snakefile asks."""

import pytest

from fabricbench.workflow import is_dry_run


@pytest.mark.parametrize("arguments", [["-n"], ["--dry-run"], ["--dryrun"], ["-nq"], ["-pn"]])
def test_a_dry_run_is_recognised(arguments):
    """In each of its spellings."""
    assert is_dry_run(["snakemake", "--profile", "profiles/local", *arguments])


@pytest.mark.parametrize("arguments", [["-c2"], ["--unlock"], ["--rerun-incomplete"], ["-j", "4"]])
def test_a_real_run_is_no_dry_run(arguments):
    """Other options are not mistaken for it."""
    assert not is_dry_run(["snakemake", *arguments])
