"""The roll call: every rank says who and where it is, and once all are there, hears where to meet.

A launcher that starts other ranks than asked is found out here, in one line, before a library hangs or
measures something else. One JSON line each way over TCP; the connection stays open for as long as the
ranks run, so that a rank whose launcher is gone ends, and needs no thread for it.
"""

import contextlib
import fcntl
import hmac
import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fabricbench.errors import LaunchError
from fabricbench.launch.addresses import join, split

MEETING = "meeting.json"
BACKLOG = 4096
LONGEST_HELLO = 64 << 10
"""Bytes; who sends more is no rank."""
REACH_S = 60.0
"""How long a rank tries to reach the launcher."""
F_SETSIG = 10  # from linux/fcntl.h
# Linux's keepalive finds a lost node within idle + count * interval.
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}


@dataclass(frozen=True)
class Meeting:
    """What a rank finds in the work folder: where the roll call is, and over what to meet."""

    address: str
    token: str
    """Without it nobody is heard: ports of a node are open to all its users."""
    bootstrap: str
    """An interface, or empty."""


def write_meeting(work: Path, meeting: Meeting) -> None:
    """Leave it where only this user's ranks can read it."""
    descriptor = os.open(work / MEETING, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(meeting), file)


def read_meeting(work: Path) -> Meeting:
    """The inverse; raises OSError where the folder isn't seen."""
    return Meeting(**json.loads((work / MEETING).read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Hello:
    """What a rank says of itself."""

    rank: int
    size: int
    """How many ranks there are, as its launcher told it."""
    host: str
    addresses: Sequence[str]
    """This node's on the fabric under test, by rail."""
    store: str = ""
    """Rank 0: host:port of a socket that it has bound for the others."""
    step: str = ""
    """The Slurm step that it belongs to, as `5.0`."""


@dataclass(frozen=True)
class Call:
    """What every rank is told once all are there."""

    store: str
    peers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Each host's addresses on the fabric under test, by rail."""
    waited_s: float = 0.0
    """From the start of the ranks' launcher until all had come."""


class Rollcall:
    """The launcher's end: a server for `nodes` times `ranks_per_node` ranks; a context manager."""

    def __init__(self, host: str, token: str, names: Sequence[str], ranks_per_node: int) -> None:
        """Listen on `host`, port 0. `names`: the nodes in the order of the ranks."""
        self.names = names
        self.ranks_per_node = ranks_per_node
        self.size = len(names) * ranks_per_node
        self.there: dict[int, Hello] = {}
        self.refused = ""
        """Why the ranks were sent away, if they were."""
        self.lost: dict[int, float] = {}
        """Ranks whose connection is gone, and since when: they have ended, or their node has."""
        self._token = token
        self._seats: dict[socket.socket, int] = {}
        self._unread: dict[socket.socket, bytes] = {}
        self._began = time.monotonic()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = socket.create_server((host, 0), family=family, backlog=BACKLOG)
        self._server.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self._server, selectors.EVENT_READ, self._accept)
        self.address = join(host, self._server.getsockname()[1])

    def __enter__(self) -> "Rollcall":
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections, upon which ranks that are still there end."""
        for connection in [*self._unread, *self._seats, self._server]:
            connection.close()
        self.selector.close()

    @property
    def complete(self) -> bool:
        """Whether all ranks came and were told where to meet."""
        return len(self.there) == self.size and not self.refused

    @property
    def steps(self) -> set[str]:
        """The Slurm steps that the ranks belong to."""
        return {hello.step for hello in self.there.values() if hello.step}

    def long_lost(self, longest_s: float) -> str:
        """The first rank that has been gone for longer than its end may take; empty if none is."""
        rank, since = min(self.lost.items(), key=lambda each: each[1], default=(0, time.monotonic()))
        if time.monotonic() - since < longest_s:
            return ""
        return f"rank {rank} on {self.there[rank].host} is gone, and Slurm hasn't said why: look at its node"

    def missing(self) -> str:
        """The ranks that haven't come, by node; empty once all have."""
        absent = [rank for rank in range(self.size) if rank not in self.there]
        nodes = dict.fromkeys(self.names[rank // self.ranks_per_node] for rank in absent)
        if not absent:
            return ""
        return f"{len(absent)} of {self.size} ranks never came to the roll call, on {', '.join(nodes)}"

    def serve(self, timeout_s: float) -> None:
        """Handle what happens within a while; anything registered at `selector` with a call is called."""
        for key, _ in self.selector.select(timeout_s):
            key.data(key.fileobj)

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):  # until nobody waits any more
            while True:
                connection, _ = server.accept()
                connection.setblocking(False)
                keep_alive(connection)
                self._unread[connection] = b""
                self.selector.register(connection, selectors.EVENT_READ, self._read)

    def _read(self, connection: socket.socket) -> None:
        try:
            received = connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received or connection not in self._unread:  # a rank that has its answer says nothing more
            self._forget(connection)
            return
        self._unread[connection] += received
        line, end, _ = self._unread[connection].partition(b"\n")
        if end or len(line) > LONGEST_HELLO:
            hello = read_hello(line, self._token) if end else None
            if hello is None:
                self._forget(connection)
            else:
                del self._unread[connection]
                self._seats[connection] = hello.rank
                self._enter(hello)

    def _forget(self, connection: socket.socket) -> None:
        self.selector.unregister(connection)
        self._unread.pop(connection, None)
        if (rank := self._seats.pop(connection, None)) is not None:
            self.lost[rank] = time.monotonic()
        connection.close()

    def _enter(self, hello: Hello) -> None:
        if self.refused:
            wrong = self.refused
        elif hello.size != self.size or not 0 <= hello.rank < self.size:
            wrong = f"asked for {self.size} ranks, and the launcher made rank {hello.rank} of {hello.size}"
        elif hello.rank in self.there:
            wrong = f"rank {hello.rank} came twice, on {self.there[hello.rank].host} and {hello.host}"
        else:
            self.there[hello.rank] = hello
            if len(self.there) < self.size:
                return
            wrong = misplaced(list(self.there.values()), len(self.names), self.ranks_per_node)
        if wrong:
            self.refused = wrong
            answer: dict[str, Any] = {"refused": wrong}
        else:
            peers = {each.host: list(each.addresses) for each in self.there.values()}
            waited_s = time.monotonic() - self._began
            answer = asdict(Call(self.there[0].store, peers, waited_s))
        line = json.dumps(answer).encode() + b"\n"
        for connection in self._seats:
            try:
                connection.settimeout(10)  # longer than any buffer; a rank reads at once
                connection.sendall(line)
                connection.setblocking(False)
            except OSError:
                continue  # it is gone, and its launcher says how


def misplaced(hellos: Sequence[Hello], nodes: int, ranks_per_node: int) -> str:
    """What is wrong with where the ranks are: they must fill node by node, the same number on each."""
    hosts = [hello.host for hello in sorted(hellos, key=lambda hello: hello.rank)]
    blocks = [hosts[first : first + ranks_per_node] for first in range(0, len(hosts), ranks_per_node)]
    filled = [block[0] for block in blocks if len(set(block)) == 1]
    if len(blocks) == nodes == len(set(filled)) == len(filled):
        return ""
    counts = ", ".join(f"{host}: {hosts.count(host)}" for host in dict.fromkeys(hosts))
    asked = " + ".join([str(ranks_per_node)] * nodes) if nodes <= 4 else f"{ranks_per_node} each"
    right = len(set(hosts)) == nodes and all(hosts.count(host) == ranks_per_node for host in hosts)
    order = ", but not numbered node by node" if right else ""
    return f"asked for {asked} ranks on {nodes} nodes, got {counts}{order}"


def read_hello(line: bytes, token: str) -> Hello | None:
    """A rank's line; None from anyone else, whatever they send."""
    try:
        plain = json.loads(line)
        own = plain.pop("token")
        hello = Hello(**plain)
        right = isinstance(own, str) and hmac.compare_digest(own.encode(), token.encode())
        typed = type(hello.rank) is int and type(hello.size) is int
        texts = all(isinstance(text, str) for text in (hello.host, hello.store, hello.step, *hello.addresses))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None
    return hello if right and typed and texts else None


def answer(address: str, token: str, me: Hello) -> tuple[Call, socket.socket]:
    """A rank's end: say who it is, and wait until all are there; returns also the connection, to be kept.

    Raises LaunchError when the launcher can't be reached, or says what is wrong with the ranks.
    """
    connection = _connect(address)
    keep_alive(connection)
    try:
        connection.sendall(json.dumps(asdict(me) | {"token": token}).encode() + b"\n")
        with connection.makefile("rb") as lines:
            line = lines.readline()
    except OSError as error:
        raise LaunchError(f"the roll call at {address} broke off: {error.strerror}") from None
    if not line.endswith(b"\n"):
        raise LaunchError(f"the roll call at {address} ended before all ranks were there")
    told = json.loads(line)
    if "refused" in told:
        raise LaunchError(told["refused"])
    return Call(**told), connection


def end_with(connection: socket.socket) -> None:
    """Let the kernel end this process by SIGTERM as soon as the other end is gone, however it went."""
    descriptor = connection.fileno()
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | fcntl.FASYNC)
    connection.setblocking(False)
    try:
        gone = connection.recv(1) == b""
    except BlockingIOError:
        gone = False
    except OSError:
        gone = True
    if gone:  # before the kernel was asked to tell
        os._exit(128 + signal.SIGTERM)


def _connect(address: str) -> socket.socket:
    host, port = split(address)
    until = time.monotonic() + REACH_S
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=REACH_S / 4)
            connection.settimeout(None)
            return connection
        except OSError as error:
            if time.monotonic() > until:
                raise LaunchError(
                    f"{socket.gethostname()} can't reach the launcher at {address}: "
                    f"{error.strerror or error}; set cluster.bootstrap to an interface that all nodes share"
                ) from None
            time.sleep(0.5)


def keep_alive(connection: socket.socket) -> None:
    """Notice within half a minute that the other end's node is lost."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
