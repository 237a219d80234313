"""Whether this node reaches others over one interface, and with packets of full size.

Nothing listens on the other side and nobody is root. A TCP connection to a closed port is refused by the
peer's kernel, which proves the way there and back. A UDP packet to a closed port, not to be fragmented and
as long as the MTU allows, is answered by ICMP if it arrives; what is too long for a switch or for the
peer's interface vanishes without a word, as it would in a measurement.
"""

import contextlib
import errno
import ipaddress
import os
import selectors
import socket
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

PORT = 33434
"""Closed on ordinary nodes, and among the ports that MPI, Gloo and NCCL listen on, for firewalls."""
CONNECT_S = 2.0
ANSWER_S = 0.3
# A kernel answers one peer with a burst of 6 ICMP errors, then one per second: a second try comes later.
AGAIN_S = 1.1
# All peers together get 1000 ICMP errors a second, in bursts of 50: many nodes that ask at once don't begin
# at once, and a full-size packet counts as vanished only if short ones beside it are answered each time.
STAGGER_S = 0.002
CONFIRMATIONS = 2
SHORT_BYTES = 128
SIZES = (576, 1280, 1400, 1450, 1492, 1496, 1500, 2044, 4092, 8192, 8896, 8996, 9000, 9216, 16384, 32768)
"""Packets that common networks carry in full; between them lies the first size that doesn't pass."""
_AT_ONCE = 200

# From linux/in.h and in6.h: don't fragment, and don't believe an earlier path MTU either.
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE = 10, 23, 3


@dataclass(frozen=True)
class Reach:
    """How one peer was reached. Packet sizes are IP packets in bytes, headers included, as an MTU."""

    reached: bool
    because: str
    """What the kernel said."""
    full_size: bool | None = None
    """Whether packets that fill the MTU arrive; None where that can't be told (ICMP is filtered,
    or limited so that answers to short packets are missing too)."""
    passed_bytes: int | None = None
    """The longest packet that was seen to arrive."""
    stopped_bytes: int | None = None
    """The shortest packet that was seen to vanish."""


def reach(interface: str, address: str, peers: Sequence[str], mtu: int) -> dict[str, Reach]:
    """Try each peer from `address` on `interface`; peers are addresses of the same family."""
    time.sleep(_share(socket.gethostname()) * STAGGER_S * len(peers))
    found: dict[str, Reach] = {}
    for first in range(0, len(peers), _AT_ONCE):
        found |= _Probe(interface, address, mtu).of(list(peers[first : first + _AT_ONCE]))
    return found


class _Probe:
    """Probes from one address; all peers at once, so that silent ones cost their time only once."""

    def __init__(self, interface: str, address: str, mtu: int) -> None:
        self._interface = interface
        self._address = address
        version = ipaddress.ip_address(address).version
        self._family = socket.AF_INET6 if version == 6 else socket.AF_INET
        self._headers = (40 if version == 6 else 20) + 8
        self._mtu = min(mtu, 65535)

    def of(self, peers: list[str]) -> dict[str, Reach]:
        connected = self._connect(peers)
        answering = [peer for peer in peers if connected[peer].reached]
        answering = self._arrived(answering, dict.fromkeys(answering, SHORT_BYTES), tries=3)
        full = self._arrived(answering, dict.fromkeys(answering, self._mtu), tries=2)
        more, vanishing = self._confirm([peer for peer in answering if peer not in full])
        full += more
        longest = self._longest(vanishing)
        found = dict(connected)
        for peer in full:
            found[peer] = replace(found[peer], full_size=True, passed_bytes=self._mtu)
        for peer, (low, high) in longest.items():
            found[peer] = replace(found[peer], full_size=False, passed_bytes=low, stopped_bytes=high)
        return found

    def _confirm(self, peers: list[str]) -> tuple[list[str], list[str]]:
        """Of peers that didn't answer full-size packets: those that do now, and those that can't be reached
        with them. One that doesn't always answer short ones either is neither: nothing is known of it.
        """
        full: list[str] = []
        for _ in range(CONFIRMATIONS if peers else 0):
            time.sleep(AGAIN_S)
            arrived = self._send(dict.fromkeys(peers, self._mtu))
            full += [peer for peer in peers if peer in arrived]
            peers = [peer for peer in peers if peer not in arrived]
            answered = self._send(dict.fromkeys(peers, SHORT_BYTES))
            peers = [peer for peer in peers if peer in answered]
        return full, peers

    def _longest(self, peers: list[str]) -> dict[str, tuple[int, int]]:
        """For peers whose full-size packets vanish: a size that arrives, and the next that doesn't."""
        sizes = [SHORT_BYTES, *(size for size in SIZES if size < self._mtu), self._mtu]
        between = {peer: (0, len(sizes) - 1) for peer in peers}
        while open_ones := [peer for peer, (low, high) in between.items() if high - low > 1]:
            middle = {peer: sum(between[peer]) // 2 for peer in open_ones}
            arrived = self._arrived(open_ones, {peer: sizes[middle[peer]] for peer in open_ones}, tries=2)
            for peer in open_ones:
                low, high = between[peer]
                between[peer] = (middle[peer], high) if peer in arrived else (low, middle[peer])
        return {peer: (sizes[low], sizes[high]) for peer, (low, high) in between.items()}

    def _connect(self, peers: list[str]) -> dict[str, Reach]:
        found: dict[str, Reach] = {}
        with contextlib.ExitStack() as opened, selectors.DefaultSelector() as waiting:
            for peer in peers:
                client = opened.enter_context(socket.socket(self._family, socket.SOCK_STREAM))
                number = self._begin(client, peer)
                if number == errno.EINPROGRESS:
                    waiting.register(client, selectors.EVENT_WRITE, peer)
                else:
                    found[peer] = _answer(number)
            for client, peer in _ready(waiting, CONNECT_S):
                found[peer] = _answer(client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        silent = Reach(False, f"no answer within {CONNECT_S:g} s")
        return {peer: found.get(peer, silent) for peer in peers}

    def _arrived(self, peers: list[str], sizes: dict[str, int], tries: int) -> list[str]:
        """Those peers that answered a packet of their size in one of some tries."""
        arrived: set[str] = set()
        for attempt in range(tries):
            missing = [peer for peer in peers if peer not in arrived]
            if not missing:
                break
            if attempt:
                time.sleep(AGAIN_S)
            arrived |= self._send({peer: sizes[peer] for peer in missing})
        return [peer for peer in peers if peer in arrived]

    def _send(self, sizes: dict[str, int]) -> set[str]:
        """Those peers whose kernel says that its port is closed (or that answer): the packet was there."""
        arrived: set[str] = set()
        with contextlib.ExitStack() as opened, selectors.DefaultSelector() as waiting:
            for peer, size in sizes.items():
                client = opened.enter_context(socket.socket(self._family, socket.SOCK_DGRAM))
                level, option = (
                    (socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER)
                    if self._family == socket.AF_INET6
                    else (socket.IPPROTO_IP, _IP_MTU_DISCOVER)
                )
                client.setsockopt(level, option, _PMTUDISC_PROBE)
                if self._begin(client, peer) == 0:
                    with contextlib.suppress(OSError):  # longer than this interface takes
                        client.send(bytes(max(0, size - self._headers)))
                        waiting.register(client, selectors.EVENT_READ, peer)
            for client, peer in _ready(waiting, ANSWER_S):
                try:
                    client.recv(1)
                except OSError as error:
                    if error.errno != errno.ECONNREFUSED:
                        continue
                arrived.add(peer)
        return arrived

    def _begin(self, client: socket.socket, peer: str) -> int:
        """Bind to our own end and connect; returns the error's number, 0 for none."""
        client.setblocking(False)
        with contextlib.suppress(OSError):  # an old kernel lets only root do so; our address binds as well
            client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self._interface.encode())
        try:
            client.bind((self._address, 0))
            return client.connect_ex((peer, PORT))
        except OSError as error:
            return error.errno or errno.EINVAL


def _share(host: str) -> float:
    """A number from 0 to 1 that is a host's own, and the same each time."""
    return zlib.crc32(host.encode()) / 2**32


def _ready(waiting: selectors.BaseSelector, seconds: float) -> Iterator[tuple[socket.socket, str]]:
    """Sockets as they become ready, each once, until all were or the time is over."""
    until = time.monotonic() + seconds
    while waiting.get_map() and (left := until - time.monotonic()) > 0:
        for key, _ in waiting.select(left):
            waiting.unregister(key.fileobj)
            assert isinstance(key.fileobj, socket.socket)
            yield key.fileobj, key.data


def _answer(number: int) -> Reach:
    if number in (0, errno.ECONNREFUSED):
        return Reach(True, "answered")
    return Reach(False, os.strerror(number))
