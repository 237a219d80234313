"""What cards' drivers say, asked of this machine's kernel or of one that is made up."""

import ctypes
import struct

import pytest
from nodes import in_cluster, on

from fabricbench.fabrics import ethtool


def kernel(answers: dict[int, bytes], asked: list[bytes]):
    """An ioctl that answers by command, and keeps the names that were asked for."""

    def ioctl(_, request, ifreq):
        name, address = struct.unpack("16sP16x", ifreq)
        (command,) = struct.unpack("I", ctypes.string_at(address, 4))
        asked.append(name)
        if command not in answers:
            raise OSError("not supported")
        ctypes.memmove(address, answers[command], len(answers[command]))

    return ioctl


def test_statistics_are_names_with_numbers(monkeypatch):
    """First how many, then the names, then the numbers."""
    answers = {
        0x37: struct.pack("IIQI", 0x37, 0, 2, 2),
        0x1B: struct.pack("III32s32s", 0x1B, 1, 2, b"rx_pause", b" tx_pause"),
        0x1D: struct.pack("II2Q", 0x1D, 2, 7, 2**40),
    }
    monkeypatch.setattr(ethtool.fcntl, "ioctl", kernel(answers, []))
    assert ethtool.statistics("eth0") == {"rx_pause": 7, "tx_pause": 2**40}
    del answers[0x1D]
    assert ethtool.statistics("eth0") == {}


def test_a_driver_is_named(monkeypatch):
    """Up to its NUL; a name that is too long for the kernel isn't sent beyond its field."""
    asked: list[bytes] = []
    answers = {0x3: struct.pack("I32s32s", 0x3, b"mlx5_core", b"1.0")}
    monkeypatch.setattr(ethtool.fcntl, "ioctl", kernel(answers, asked))
    assert ethtool.driver("an-interface-of-a-long-name") == "mlx5_core"
    assert asked == [b"an-interface-of\0"]


def test_what_has_no_driver_has_nothing_to_say():
    """Loopback, and an interface that isn't there."""
    for name in ("lo", "nosuch0"):
        assert ethtool.driver(name) is None
        assert ethtool.statistics(name) == {}


@pytest.mark.emulated
def test_the_kernel_knows_the_driver_of_a_nodes_interface(namespaces):
    """Also where /sys shows another namespace."""
    assert in_cluster(lambda nodes: on(nodes[0], ethtool.driver, "eth0")) == "veth"
