"""A real replayed cell on a host that other work keeps busy."""

import multiprocessing
from collections.abc import Iterator

import pytest
from cells import TRAIN, a_cell, a_fabric

from fabricbench.analysis.saturation import why_saturated
from fabricbench.record import Record, read_record
from fabricbench.runner import run_cell

pytestmark = pytest.mark.slow

RATE_BIT_S = 50_000_000
SPINNERS_PER_CORE = 12


def spin() -> None:
    """Keep a core busy until killed."""
    while True:
        pass


@pytest.fixture
def busy_host() -> Iterator[None]:
    """Many times more work than the machine has cores for."""
    count = SPINNERS_PER_CORE * multiprocessing.cpu_count()
    spinners = [multiprocessing.Process(target=spin, daemon=True) for _ in range(count)]
    for spinner in spinners:
        spinner.start()
    yield
    for spinner in spinners:
        spinner.kill()
        spinner.join()


def test_a_cell_on_a_busy_host_says_so(busy_host, tmp_path):
    """Its waits end late, or its links idle while no core does; either way it enters no comparison."""
    cell = a_cell(
        "train",
        "gloo",
        device="replay",
        gpus=4,
        ranks_per_node=2,
        fabric=a_fabric(rate_bit_s=RATE_BIT_S, link_bit_s=RATE_BIT_S),
        scale={"bytes": 64, "time": 1},
        params=TRAIN
        | {
            "image_size": 224,
            "profile": {"images_per_s": 20.0, "batch": 2, "source": "made up: 100 ms a step"},
        },
    )
    path = tmp_path / f"{Record(cell=cell, code_key='', status='ok').id}.json"
    path.parent.mkdir()
    assert run_cell(cell, "", path, timeout_s=600, accept_failures=False, neighbours=[]) == 0
    record = read_record(path)
    assert record.evidence["host"]["n0"]["cpu_share"] > 0.9
    assert why_saturated(record).startswith("its host was too busy: ")
