"""Whether a cell's host was too busy, from what its record says."""

from dataclasses import replace

import pytest
from records import make_cell, make_record

from fabricbench.analysis.saturation import link_share, why_saturated

# As measured: 16 ranks on 8 nodes, ResNet-50 at 98 Mbit/s, S = 64, D = 4.
STEP_S = 1.02
LINK_BIT_S = 98_000_000
SENT = STEP_S * LINK_BIT_S / 8


def record(late_s=0.0, cpu=0.4, full=0.6, **changes):
    """A replayed cell of four steps: lateness at the end of compute, cores' busy share, link's used share."""
    cell = make_cell(**changes)
    cell = replace(cell, fabric=cell.fabric | {"link_bit_s": LINK_BIT_S})
    node = {"tx_bytes": [0.9 * 4 * full * SENT, 4 * full * SENT], "rx_bytes": [0.0, 0.0]}
    return make_record(
        cell,
        [STEP_S] * 4,
        facts={"waits": {"n": 6912, "step_late_s": late_s}},
        evidence={
            "host": {"n0": {"cpu_share": cpu, "cores": 2}, "n1": {"cpu_share": None, "cores": 2}},
            "formula": {"algorithm": "ring all-reduce", "nodes": {"n0": node}},
        },
    )


def test_a_host_that_kept_up_is_not_named():
    """Waits on time and cores to spare; or busy cores, and links that were full."""
    assert why_saturated(record()) == ""
    assert why_saturated(record(late_s=0.02, cpu=0.9)) == ""
    assert why_saturated(record(cpu=1.0, full=0.9)) == ""


def test_late_waits_tell_a_busy_host():
    """The sentence has the numbers and the limit."""
    assert why_saturated(record(late_s=0.0306)) == (
        "its host was too busy: the compute of a step of 1.02 s ended 30.6 ms late, 3.0% of it; "
        "at most 2% is accepted"
    )


def test_busy_cores_beside_idle_links_tell_a_busy_host():
    """Waits may end on time while the messages' own work waits for a core."""
    assert why_saturated(record(cpu=0.97, full=0.41)) == (
        "its host was too busy: 97% of its cores' time was used while the busiest link was 41% full; "
        "above 90% a link must be at least 85% full"
    )


@pytest.mark.parametrize("changes", [{"device": "cpu"}, {"launcher": "host"}])
def test_only_replayed_cells_on_emulated_nodes_are_judged(changes):
    """Real GPUs and real nodes have hosts of their own."""
    assert why_saturated(record(late_s=0.5, cpu=1.0, **changes)) == ""


def test_records_without_these_numbers_are_not_judged():
    """Records of before, of one rank, and of an unlimited link."""
    assert why_saturated(replace(record(late_s=0.5), facts={}, evidence={})) == ""
    assert why_saturated(replace(record(late_s=0.5), samples=[])) == ""
    assert link_share({}, LINK_BIT_S, 1.0) is None
    assert link_share(record().evidence, None, 1.0) is None
