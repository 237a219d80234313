"""A real Slurm cluster for the whole session, and small campaigns on it."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from campaigns import ROOT
from slurm_campaigns import SLURM_TINY, SlurmCampaign

from fabricbench.testbed import Cluster, Spec, why_unavailable


@pytest.fixture(scope="session")
def slurm() -> None:
    """Skip where there can be no testbed, with its mend."""
    if reason := why_unavailable():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def cluster(slurm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four nodes of 4 CPUs and 2 GPUs with eth0 and opa0; tests' folders and the checkout are shared."""
    with Cluster.up(Spec(shared=(tmp_path_factory.getbasetemp(), ROOT))) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _mended(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test broke on the cluster is whole again for the next one."""
    yield
    if "cluster" in request.fixturenames:
        request.getfixturevalue("cluster").mend()


@pytest.fixture
def slurm_tiny() -> dict:
    """A config of few cells that take about a second each; a fresh copy for each test to change."""
    return copy.deepcopy(SLURM_TINY)


@pytest.fixture
def slurm_campaign(cluster: Cluster, tmp_path: Path) -> Callable[[dict], SlurmCampaign]:
    """Make a campaign folder from a config."""
    return lambda config: SlurmCampaign(cluster, tmp_path / "campaign", config)
