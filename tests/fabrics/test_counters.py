"""Counters of interfaces, RDMA ports and congestion, from files as kernels write them."""

import socket

from fabricbench.fabrics import counters


def write(root, files: dict[str, object]) -> None:
    """Files with their contents below a folder."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")


def test_this_machines_interfaces_are_counted():
    """Every interface that the kernel names has both counters."""
    found = counters.interfaces()
    assert set(found) == {name for _, name in socket.if_nameindex()}
    assert all(counts["rx_bytes"] >= 0 and counts["tx_bytes"] >= 0 for counts in found.values())


def test_infiniband_and_omni_path_ports_count_words_of_four_bytes(tmp_path):
    """port_xmit_data and port_rcv_data, times four."""
    folder = "class/infiniband/hfi1_0/ports/1/counters"
    write(tmp_path, {f"{folder}/port_xmit_data": 250, f"{folder}/port_rcv_data": 500})
    assert counters.adapter_ports(tmp_path) == {"hfi1_0:1": {"tx_bytes": 1000, "rx_bytes": 2000}}


def test_efa_counts_bytes_in_its_own_counters(tmp_path):
    """Sends, RDMA reads and writes of both sides are all of its bytes."""
    folder = "class/infiniband/rdmap0s6/ports/1/hw_counters"
    numbers = {"tx_bytes": 100, "rx_bytes": 200, "rdma_read_bytes": 7, "rdma_write_bytes": 1000}
    numbers |= {"rdma_write_recv_bytes": 3000, "rdma_read_resp_bytes": 5}
    write(tmp_path, {f"{folder}/{name}": number for name, number in numbers.items()})
    assert counters.adapter_ports(tmp_path) == {"rdmap0s6:1": {"tx_bytes": 1105, "rx_bytes": 3207}}


def test_slingshot_counts_octets_with_the_time_of_reading(tmp_path):
    """The number before the @."""
    folder = "class/cxi/cxi0/device/telemetry"
    sent, received = f"{folder}/{counters.CXI_SENT}", f"{folder}/{counters.CXI_RECEIVED}"
    write(tmp_path, {sent: "1234@1700000000.5", received: "99@1700000000.5"})
    assert counters.adapter_ports(tmp_path) == {"cxi0:1": {"tx_bytes": 1234, "rx_bytes": 99}}


def test_a_port_without_readable_counters_is_left_out(tmp_path):
    """Not zero, which would be a measurement."""
    write(tmp_path, {"class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE"})
    assert counters.adapter_ports(tmp_path) == {}


def test_congestion_is_named_with_its_port(tmp_path):
    """Waits and notifications of a RoCE port, retransmissions of TCP."""
    port = "class/infiniband/mlx5_1/ports/1"
    write(tmp_path, {f"{port}/counters/port_xmit_wait": 12, f"{port}/hw_counters/np_cnp_sent": 3})
    write(tmp_path, {"self/net/snmp": "Tcp: InSegs RetransSegs\nTcp: 900 17"})
    write(tmp_path, {"self/net/netstat": "TcpExt: TCPLostRetransmit\nTcpExt: 2\nIpExt: InCEPkts\nIpExt: 5"})
    write(tmp_path, {"self/net/dev": "two lines\nof head"})
    assert counters.congestion(tmp_path, tmp_path) == {
        "tcp_retransmits": 17,
        "tcp_lost_retransmits": 2,
        "ecn_marked": 5,
        "mlx5_1:1 port_xmit_wait": 12,
        "mlx5_1:1 np_cnp_sent": 3,
    }


def test_only_what_grew_is_kept():
    """Differences without zeros; a counter that is new counts from nothing."""
    assert counters.difference({"a": 5, "b": 7, "c": 1}, {"a": 5, "b": 3}) == {"b": 4, "c": 1}
    now = {"eth0": {"rx_bytes": 9, "tx_bytes": 8}, "eth1": {"rx_bytes": 1, "tx_bytes": 2}}
    before = {"eth0": {"rx_bytes": 4, "tx_bytes": 8}}
    assert counters.grown(now, before) == {
        "eth0": {"rx_bytes": 5, "tx_bytes": 0},
        "eth1": {"rx_bytes": 1, "tx_bytes": 2},
    }


def test_a_card_without_statistics_has_none():
    """Loopback's driver keeps none, and an interface that isn't there has none either."""
    assert counters.card_statistics("lo") == {}
    assert counters.card_statistics("nosuch0") == {}
