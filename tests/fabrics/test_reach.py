"""Probes between nodes: who answers, and up to which packet size."""

import errno
import os

import pytest
from nodes import in_cluster, on, only_ipv6, set_mtu, take_down

from fabricbench.fabrics import reach as module
from fabricbench.fabrics.reach import Reach, reach


def from_n0(peers, mtu=1500, address="10.77.0.1", interface="eth0"):
    """n0's answers, as plain data."""
    return {peer: vars(answer) for peer, answer in reach(interface, address, peers, mtu).items()}


@pytest.mark.emulated
def test_a_peer_is_reached_with_packets_of_full_size(namespaces):
    """Nothing listens and nobody is root on the other side."""
    answers = in_cluster(lambda nodes: on(nodes[0], from_n0, ["10.77.0.2", "10.77.0.3"]), 3)
    assert answers["10.77.0.2"] == answers["10.77.0.3"] == vars(Reach(True, "answered", True, 1500, None))


@pytest.mark.emulated
def test_who_isnt_there_is_not_reached(namespaces, monkeypatch):
    """A node whose fabric interface is down is not reached over the management network instead."""
    monkeypatch.setattr(module, "CONNECT_S", 0.3)

    def ask(nodes):
        on(nodes[1], take_down, "eth0")
        return on(nodes[0], from_n0, ["10.77.0.2", "10.76.0.2"])

    for answer in in_cluster(ask).values():
        assert not answer["reached"]
        assert answer["because"] == "no answer within 0.3 s"


@pytest.mark.emulated
def test_full_size_packets_that_vanish_are_told_with_their_size(namespaces, monkeypatch):
    """MTU 9000 here, 1500 on the way: short messages pass, long ones would hang; the size is found."""
    monkeypatch.setattr(module, "ANSWER_S", 0.1)

    def ask(nodes):
        on(nodes[0], set_mtu, "eth0", 9000)
        return on(nodes[0], from_n0, ["10.77.0.2"], 9000)

    (answer,) = in_cluster(ask).values()
    assert answer["reached"]
    assert (answer["full_size"], answer["passed_bytes"], answer["stopped_bytes"]) == (False, 1500, 2044)


@pytest.mark.emulated
def test_ipv6_alone_will_do(namespaces):
    """The same over addresses of IPv6, where a packet's headers are longer."""

    def ask(nodes):
        for k in (0, 1):
            on(nodes[k], only_ipv6, "eth0", f"fd00::{k + 1}/64")
        return on(nodes[0], from_n0, ["fd00::2"], 1500, "fd00::1")

    if not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this kernel has no IPv6")
    assert in_cluster(ask) == {"fd00::2": vars(Reach(True, "answered", True, 1500, None))}


def test_an_address_that_isnt_ours_is_an_answer_and_no_exception():
    """The kernel's word is kept for the report."""
    answer = reach("lo", "203.0.113.1", ["127.0.0.1"], 1500)["127.0.0.1"]
    assert answer == Reach(False, os.strerror(errno.EADDRNOTAVAIL))


class Network:
    """Peers behind a network: which packets of each are answered, try by try."""

    def __init__(self, monkeypatch, answers) -> None:
        """`answers(size, attempt)`: whether the n-th packet of a size is answered."""
        self.sent: list[int] = []
        monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
        monkeypatch.setattr(module._Probe, "_connect", lambda _, peers: dict.fromkeys(peers, Reach(True, "")))

        def send(_, sizes):
            arrived = set()
            for peer, size in sizes.items():
                self.sent.append(size)
                if answers(size, self.sent.count(size)):
                    arrived.add(peer)
            return arrived

        monkeypatch.setattr(module._Probe, "_send", send)

    def reach(self):
        """The one peer's answer on an interface of MTU 9000."""
        return reach("eth0", "10.0.0.1", ["10.0.0.2"], 9000)["10.0.0.2"]


def test_a_peer_that_limits_its_icmp_is_not_a_network_that_drops(monkeypatch):
    """Short packets beside the full-size ones are lost too: nothing is known, and no cell is stopped."""
    answer = Network(monkeypatch, lambda size, attempt: size == 128 and attempt == 1).reach()
    assert (answer.reached, answer.full_size, answer.stopped_bytes) == (True, None, None)


def test_full_size_packets_that_arrive_late_arrive(monkeypatch):
    """The first two tries were lost to the peer's limit."""
    answer = Network(monkeypatch, lambda size, attempt: size == 128 or attempt == 3).reach()
    assert (answer.full_size, answer.passed_bytes) == (True, 9000)


def test_a_network_that_drops_only_long_packets_does_so_each_time(monkeypatch):
    """Short ones are answered beside every full-size one that isn't."""
    network = Network(monkeypatch, lambda size, attempt: size <= 1500)
    answer = network.reach()
    assert (answer.full_size, answer.passed_bytes, answer.stopped_bytes) == (False, 1500, 2044)
    assert network.sent[:7] == [128, 9000, 9000, 9000, 128, 9000, 128]


def test_nodes_begin_apart_by_their_name(monkeypatch):
    """In a cluster of 512 within a second, the same each time; of 4 nodes within 6 ms."""
    slept = []
    Network(monkeypatch, lambda size, attempt: True)
    monkeypatch.setattr(module.time, "sleep", slept.append)
    for count, most in ((511, 1.022), (3, 0.006)):
        slept.clear()
        for host in ("n0", "n1", "n0"):
            monkeypatch.setattr(module.socket, "gethostname", lambda host=host: host)
            reach("eth0", "10.0.0.1", [f"10.0.{k // 256}.{k % 256}" for k in range(count)], 1500)
        assert len(set(slept)) == 2
        assert slept[0] == slept[2]
        assert 0 <= min(slept) <= max(slept) < most
