"""What a node has counted: bytes by network interface and RDMA port, and signs of congestion."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from fabricbench.fabrics.ethtool import statistics as card_statistics

Counters = dict[str, dict[str, int]]
"""Counter's name (an interface, or `adapter:port`) → rx_bytes and tx_bytes."""

WORDS_OF_4 = 4
"""InfiniBand and Omni-Path ports count data in words of four bytes."""
PORT_CONGESTION = ("port_xmit_wait", "port_xmit_discards")
HW_CONGESTION = (
    *("np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled", "out_of_sequence", "packet_seq_err"),
    *("local_ack_timeout_err", "rnr_nak_retry_err", "retrans_pkts", "retrans_bytes", "rx_drops"),
)
CXI_SENT, CXI_RECEIVED = "hni_sts_tx_ok_octets", "hni_sts_rx_ok_octets"
CXI_CONGESTION = ("hni_rx_paused_0", "hni_tx_paused_0", "pct_retry_srb_requests", "pct_sct_timeouts")
TCP = {
    "RetransSegs": "tcp_retransmits",
    "TCPLostRetransmit": "tcp_lost_retransmits",
    "InCEPkts": "ecn_marked",
}
"""What is taken from /proc/net/snmp and netstat, under which name."""
TELLING = ("pause", "ecn", "cnp", "discard", "dropped", "buffer_errors")
"""Parts of the names of a network card's own statistics that speak of congestion."""

REFRESH_S = {"bnxt_en": 1.1}
"""Drivers whose counters lag: they copy their card's numbers to the host once in this time."""


def read(sys: Path = Path("/sys"), proc: Path = Path("/proc")) -> Counters:
    """Bytes by counter, as of now, since the node came up."""
    return interfaces(proc) | adapter_ports(sys)


def interfaces(proc: Path = Path("/proc")) -> Counters:
    """rx_bytes and tx_bytes of every interface of the calling process's network namespace."""
    counters = {}
    for line in (proc / "self/net/dev").read_text(encoding="ascii").splitlines()[2:]:
        name, _, numbers = line.partition(":")
        words = numbers.split()
        counters[name.strip()] = {"rx_bytes": int(words[0]), "tx_bytes": int(words[8])}
    return counters


def adapter_ports(sys: Path = Path("/sys")) -> Counters:
    """rx_bytes and tx_bytes of every RDMA port that can be read: InfiniBand, Omni-Path, EFA, cxi."""
    found: Counters = {}
    for port in _ports(sys):
        name = f"{port.parent.parent.name}:{port.name}"
        sent = _number(port / "counters/port_xmit_data")
        received = _number(port / "counters/port_rcv_data")
        if sent is not None and received is not None:
            found[name] = {"rx_bytes": received * WORDS_OF_4, "tx_bytes": sent * WORDS_OF_4}
            continue
        sent, received = _number(port / "hw_counters/tx_bytes"), _number(port / "hw_counters/rx_bytes")
        if sent is not None and received is not None:  # EFA counts bytes, and only there
            rdma = {way: _number(port / f"hw_counters/rdma_{way}_bytes") or 0 for way in ("read", "write")}
            found[name] = {
                "rx_bytes": received
                + rdma["read"]
                + (_number(port / "hw_counters/rdma_write_recv_bytes") or 0),
                "tx_bytes": sent + rdma["write"] + (_number(port / "hw_counters/rdma_read_resp_bytes") or 0),
            }
    for device in sorted((sys / "class/cxi").glob("cxi*")):
        telemetry = device / "device/telemetry"
        sent, received = _number(telemetry / CXI_SENT), _number(telemetry / CXI_RECEIVED)
        if sent is not None and received is not None:
            found[f"{device.name}:1"] = {"rx_bytes": received, "tx_bytes": sent}
    return found


def congestion(sys: Path = Path("/sys"), proc: Path = Path("/proc")) -> dict[str, int]:
    """Counters that grow when a network is crowded or loses packets, by name, as of now."""
    found = _tcp(proc)
    for port in _ports(sys):
        name = f"{port.parent.parent.name}:{port.name}"
        for folder, names in (("counters", PORT_CONGESTION), ("hw_counters", HW_CONGESTION)):
            found |= {
                f"{name} {what}": n for what in names if (n := _number(port / folder / what)) is not None
            }
    for device in sorted((sys / "class/cxi").glob("cxi*")):
        for what in CXI_CONGESTION:
            if (number := _number(device / "device/telemetry" / what)) is not None:
                found[f"{device.name}:1 {what}"] = number
    for interface in interfaces(proc):
        for what, number in card_statistics(interface).items():
            if any(word in what for word in TELLING):
                found[f"{interface} {what}"] = number
    return found


def difference(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """How much each grew, without those that didn't."""
    return {name: grown for name, now in after.items() if (grown := now - before.get(name, 0)) != 0}


def grown(after: Counters, before: Counters) -> Counters:
    """Bytes by counter between two readings; a counter that is new counts from 0."""
    nothing = {"rx_bytes": 0, "tx_bytes": 0}
    return {
        name: {way: count - before.get(name, nothing)[way] for way, count in now.items()}
        for name, now in after.items()
    }


def _ports(sys: Path) -> Iterator[Path]:
    yield from sorted((sys / "class/infiniband").glob("*/ports/*"))


def _number(path: Path) -> int | None:
    """A counter's file as a number (cxi adds the time of reading after an @); None where there is none."""
    try:
        return int(path.read_text(encoding="ascii").split("@")[0])
    except (OSError, ValueError):
        return None


def _tcp(proc: Path) -> dict[str, int]:
    """Retransmissions and ECN marks, of the calling process's network namespace."""
    found = {}
    for file in ("snmp", "netstat"):
        try:
            lines = (proc / "self/net" / file).read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        for names, numbers in zip(lines[::2], lines[1::2], strict=False):
            for name, number in zip(names.split()[1:], numbers.split()[1:], strict=False):
                if name in TCP:
                    found[TCP[name]] = int(number)
    return found
