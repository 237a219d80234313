"""The verdict over counters: what is verified, what is caught, and what can't be said."""

import copy

import pytest

from fabricbench.fabrics.evidence import declare, judge
from fabricbench.fabrics.node import Rails

MB = 10**6
TCP = {"counters": ["eth0"], "same_wire": [], "fall_back": [], "unit": 1448, "headers": 66}


def counted(**interfaces: float) -> dict[str, dict[str, int]]:
    """As many MB sent as received on each."""
    return {name: {"rx_bytes": round(mb * MB), "tx_bytes": round(mb * MB)} for name, mb in interfaces.items()}


def evidence(low: float = 100, high: float | None = None, declared=None, idle=None, **interfaces: float):
    """Two nodes alike: what each must send (MB), what it declares, and what its counters saw."""
    bounds = [low * MB, (low if high is None else high) * MB]
    formula = {"tx_bytes": bounds, "rx_bytes": bounds, "tx_messages": 1, "rx_messages": 1}
    nodes = ("n0", "n1")
    return {
        "nodes": {node: counted(**interfaces) for node in nodes},
        "baseline": {node: idle or {} for node in nodes},
        "declared": dict.fromkeys(nodes, declared or TCP),
        "formula": {"algorithm": "ring all-reduce", "nodes": dict.fromkeys(nodes, formula)},
    }


def test_bytes_on_the_declared_interface_are_verified():
    """Payload plus headers on eth0 and next to nothing elsewhere."""
    verdict = judge(evidence(eth0=104.6, eth1=0.1), 2)
    assert verdict.verdict == "verified"
    assert verdict.because == "eth0 carried 100 % of what ring all-reduce sends, up to 100 MB a node"
    assert verdict.of_formula == pytest.approx(1.0, abs=0.005)


def test_bytes_on_another_interface_are_mislabelled_and_where_is_named():
    """The declared interface is still, another carries the bytes."""
    verdict = judge(evidence(eth0=0.1, eth1=104), 2)
    assert verdict.verdict == "mislabelled"
    assert "eth0 of n0 sent 0.1 MB of the 100 MB" in verdict.because
    assert verdict.because.endswith("eth1 sent 104 MB")


def test_bytes_on_no_interface_are_mislabelled_as_shared_memory():
    """Nothing crossed any network."""
    verdict = judge(evidence(eth0=0, eth1=0), 2)
    assert verdict.verdict == "mislabelled"
    assert "shared memory" in verdict.because


def test_one_node_that_went_elsewhere_is_enough():
    """Of two nodes one used another interface."""
    found = evidence(eth0=104.6, eth1=0)
    found["nodes"]["n1"] = counted(eth0=0, eth1=104.6)
    assert judge(found, 2).verdict == "mislabelled"
    assert "n1" in judge(found, 2).because


def test_a_declared_interface_short_of_the_payload_is_mislabelled():
    """Half here, half there is not what the cell says."""
    assert judge(evidence(eth0=52, eth1=52), 2).verdict == "mislabelled"


def test_much_beside_the_declared_interface_proves_nothing():
    """All bytes where they belong, and half as much on another network: something else is going on."""
    verdict = judge(evidence(eth0=104.6, eth1=50), 2)
    assert verdict.verdict == "unverified"
    assert "eth1 sent 50 MB beside it" in verdict.because


def test_more_bytes_than_the_algorithm_explains_prove_nothing():
    """Other traffic on the declared interface."""
    assert judge(evidence(eth0=130), 2).verdict == "unverified"


def test_what_an_idle_node_carries_is_allowed_for():
    """The same bytes are verified when the idle node was seen to carry the rest."""
    idle = {"eth0": {"rx_bytes": 9.0 * MB, "tx_bytes": 9.0 * MB}}
    assert judge(evidence(eth0=125, idle=idle), 2).verdict == "verified"
    assert judge(evidence(eth0=125), 2).verdict == "unverified"
    beside = {"eth1": {"rx_bytes": 50.0 * MB, "tx_bytes": 50.0 * MB}}
    assert judge(evidence(eth0=104.6, eth1=55, idle=beside), 2).verdict == "verified"


def test_a_range_of_algorithms_is_a_range_of_bytes():
    """Between the least and the most that the library may have sent."""
    assert judge(evidence(low=100, high=200, eth0=150), 2).verdict == "verified"
    assert judge(evidence(low=100, high=200, eth0=99), 2).verdict == "mislabelled"
    assert judge(evidence(low=100, high=200, eth0=240), 2).verdict == "unverified"


def test_few_bytes_prove_nothing():
    """Below 10 MB a proof would rest on noise, whatever the counters say."""
    assert judge(evidence(low=9.9, eth0=10.4), 2).verdict == "too little to prove"
    assert judge(evidence(low=9.9, eth0=100), 2).verdict == "too little to prove"
    assert judge(evidence(low=10, eth0=10.4), 2).verdict == "verified"


def test_few_bytes_are_enough_on_nodes_that_nothing_else_uses():
    """Emulated nodes are the cell's own, so 2 MB prove what takes 10 MB on real ones."""
    for low, verdict in ((3, "verified"), (1, "too little to prove")):
        found = evidence(low, eth0=low * 1.046) | {"emulation": {"shaping": "tbf"}}
        assert judge(found, 2).verdict == verdict


def test_few_bytes_that_are_missing_are_missed():
    """Seen elsewhere they disprove the label at any size; seen nowhere they leave it open."""
    elsewhere = judge(evidence(low=0.5, eth0=0.001, eth1=0.52), 2)
    assert elsewhere.verdict == "mislabelled"
    assert "eth1 sent 0.52 MB" in elsewhere.because
    assert judge(evidence(low=0.5, eth0=0.001), 2).verdict == "unverified"
    assert judge(evidence(low=0.05, eth0=0.001, eth1=0.05), 2).verdict == "too little to prove"


def test_one_node_has_nothing_to_prove():
    """Loopback and shared memory are lawful there."""
    assert judge({}, 1).verdict == "not applicable"


def test_loopback_between_ranks_of_a_node_is_lawful():
    """lo can't leave the node, so what it carries isn't elsewhere."""
    assert judge(evidence(eth0=104.6, lo=500), 2).verdict == "verified"


def test_an_unreadable_counter_leaves_a_cell_unverified():
    """No counter of the adapter, and nothing suspicious elsewhere."""
    rdma = TCP | {"counters": ["mlx5_0:1"]}
    verdict = judge(evidence(declared=rdma, eth0=0.2), 2)
    assert verdict.verdict == "unverified"
    assert "mlx5_0:1" in verdict.because


def test_a_silent_fall_back_to_tcp_is_caught_even_without_the_adapters_counter():
    """The bytes of an RDMA cell seen on a network interface are in the wrong place."""
    rdma = TCP | {"counters": ["mlx5_0:1"]}
    assert judge(evidence(declared=rdma, eth0=104), 2).verdict == "mislabelled"


def test_tcp_over_an_infiniband_port_is_not_rdma():
    """IP over InfiniBand goes through the same port: the interface's own counter gives it away."""
    rdma = TCP | {"counters": ["mlx5_0:1"], "fall_back": ["ib0"], "unit": 4096}
    verdict = judge(evidence(declared=rdma, **{"mlx5_0:1": 105, "ib0": 104}), 2)
    assert verdict.verdict == "mislabelled"
    assert "as TCP: ib0 sent 104 MB" in verdict.because
    assert judge(evidence(declared=rdma, **{"mlx5_0:1": 101, "ib0": 1}), 2).verdict == "verified"


def test_rdma_of_a_tcp_cell_is_named():
    """The adapter under the interface took the bytes, past TCP."""
    tcp = TCP | {"same_wire": ["mlx5_1:1"]}
    verdict = judge(evidence(declared=tcp, **{"eth0": 0.1, "mlx5_1:1": 105}), 2)
    assert verdict.verdict == "mislabelled"
    assert "mlx5_1:1 sent 105 MB" in verdict.because


@pytest.mark.parametrize("idle_mb", [30, 120])
def test_a_node_that_is_busy_when_idle_proves_nothing(idle_mb):
    """What it carries anyway might be all of what was counted, however it is scaled."""
    idle = {"eth0": {"rx_bytes": idle_mb * MB, "tx_bytes": idle_mb * MB}}
    verdict = judge(evidence(eth0=104.6, idle=idle), 2)
    assert verdict.verdict == "unverified"
    assert f"would carry {idle_mb} MB in that time when idle" in verdict.because


def test_rails_share_the_bytes():
    """Two rails with half each are verified; one that stands still isn't."""
    two = TCP | {"counters": ["eth0", "eth1"]}
    assert judge(evidence(declared=two, eth0=52, eth1=53), 2).verdict == "verified"
    verdict = judge(evidence(declared=two, eth0=104.6, eth1=0), 2)
    assert verdict.verdict == "unverified"
    assert "eth1 of n0, one of 2 rails" in verdict.because


def test_acknowledgements_of_a_one_way_stream_are_allowed_for():
    """A node that sends 500 MB and must receive 11 also receives their acknowledgements."""
    found = evidence(low=11, eth0=0)
    for node in ("n0", "n1"):
        formula = found["formula"]["nodes"][node] | {"tx_bytes": [500 * MB, 500 * MB]}
        found["formula"]["nodes"][node] = formula
        found["nodes"][node]["eth0"] = {"tx_bytes": 523 * MB, "rx_bytes": 20 * MB}
    verdict = judge(found, 2)
    assert verdict.verdict == "verified"
    assert verdict.of_formula == pytest.approx(1.0, abs=0.01)


FACTS = {
    "interfaces": {
        "eth0": {"mtu": 1500, "kind": None, "lower": [], "adapter": None},
        "veth0": {"mtu": 1500, "kind": "veth", "lower": [], "adapter": None},
        "bond0": {"mtu": 9000, "kind": "bond", "lower": ["eth2", "eth3"], "adapter": None},
        "bond0.7": {"mtu": 9000, "kind": "vlan", "lower": ["bond0"], "adapter": None},
        "eth2": {"mtu": 9000, "kind": None, "lower": [], "adapter": "mlx5_2"},
        "eth3": {"mtu": 9000, "kind": None, "lower": [], "adapter": None},
        "ib0": {"mtu": 2044, "kind": None, "lower": [], "adapter": "mlx5_0"},
    },
    "adapters": {"mlx5_0": {"ports": {"1": {}}}, "mlx5_2": {"ports": {"1": {}}}},
}


def test_a_card_counts_segments_and_a_veth_counts_packets():
    """The formula's unit: one segment on a card, on a veth as many as a packet may hold."""
    fabric = {"port": 1}
    assert declare(fabric, "tcp", FACTS, Rails(("eth0",)), None)["unit"] == 1448
    assert declare(fabric, "tcp", FACTS, Rails(("veth0",)), 2)["unit"] == 2 * 1448
    assert declare(fabric, "tcp", FACTS, Rails(("veth0",)), None)["unit"] == 45 * 1448


def test_what_lies_below_an_interface_lawfully_sees_the_same_bytes():
    """A VLAN on a bond of two cards, one with an RDMA port: none of them is elsewhere."""
    declared = declare({"port": 1}, "tcp", FACTS, Rails(("bond0.7",)), None)
    assert set(declared["same_wire"]) == {"bond0", "eth2", "eth3", "mlx5_2:1"}
    found = evidence(declared=declared, **{"bond0.7": 101, "bond0": 101, "eth2": 50, "eth3": 51})
    assert judge(found, 2).verdict == "verified"


def test_rdma_is_proven_by_the_port_alone():
    """The adapter's interface is elsewhere for RDMA, and the same wire for TCP."""
    rails = Rails(("ib0",), ("mlx5_0",))
    assert declare({"port": 1}, "rdma", FACTS, rails, None)["counters"] == ["mlx5_0:1"]
    assert declare({"port": 1}, "rdma", FACTS, rails, None)["same_wire"] == []
    assert declare({"port": 1}, "rdma", FACTS, rails, None)["fall_back"] == ["ib0"]
    assert declare({"port": 1}, "tcp", FACTS, rails, None)["same_wire"] == ["mlx5_0:1"]


def test_judging_leaves_the_evidence_as_it_was():
    """A pure function."""
    given = evidence(eth0=104.6)
    before = copy.deepcopy(given)
    judge(given, 2)
    assert given == before
