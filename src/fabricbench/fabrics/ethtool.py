"""What a network card's driver says of itself, by ethtool's ioctl; nobody needs to be root.

The kernel answers for the calling process's network namespace, which /sys need not show.
"""

import array
import fcntl
import socket
import struct

_SIOCETHTOOL = 0x8946
# Commands and constants of linux/ethtool.h.
_GDRVINFO, _GSSET_INFO, _GSTRINGS, _GSTATS = 0x3, 0x37, 0x1B, 0x1D
_SS_STATS, _GSTRING_LEN = 1, 32


def driver(interface: str) -> str | None:
    """The name of an interface's driver; None where there is none."""
    try:
        answer = _ask(interface, struct.pack("I192x", _GDRVINFO))
    except OSError:
        return None
    return _text(answer[4:36]) or None


def statistics(interface: str) -> dict[str, int]:
    """A card's own counters, as `ethtool -S` shows them; empty where its driver has none."""
    try:
        answer = _ask(interface, struct.pack("IIQI", _GSSET_INFO, 0, 1 << _SS_STATS, 0))
        (count,) = struct.unpack_from("I", answer, 16)
        names = _ask(
            interface, struct.pack("III", _GSTRINGS, _SS_STATS, count) + bytes(count * _GSTRING_LEN)
        )[12:]
        values = _ask(interface, struct.pack("II", _GSTATS, count) + bytes(count * 8))[8:]
    except OSError:
        return {}
    labels = [_text(names[at : at + _GSTRING_LEN]) for at in range(0, len(names), _GSTRING_LEN)]
    return dict(zip(labels, struct.unpack(f"{count}Q", values), strict=True))


def _ask(interface: str, request: bytes) -> bytes:
    """The kernel's answer, which takes the request's place; OSError where the driver has none."""
    data = array.array("B", request)
    address, _ = data.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        # struct ifreq: the name, and where request and answer are
        fcntl.ioctl(asking, _SIOCETHTOOL, struct.pack("16sP16x", interface.encode()[:15], address))
    return data.tobytes()


def _text(field: bytes) -> str:
    return field.split(b"\0")[0].decode("ascii", "replace").strip()
