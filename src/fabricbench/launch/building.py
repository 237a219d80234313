"""The nodes of an emulated cluster, made and looked at by a child process while this one imports torch.

Namespaces live by their open descriptors, which pass from process to process. So what takes half a second
for 8 nodes costs a second core instead of time, and ranks needn't look at their node again, each by itself.
"""

import os
import pickle
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabricbench.cell import Cell
from fabricbench.errors import LaunchError
from fabricbench.fabrics import emulation
from fabricbench.workloads.place import Seen, examine, look

_MOST_BYTES = 1 << 20
_LENGTH_BYTES = 8


@dataclass(frozen=True)
class Built:
    """An emulated cluster: its nodes, how its links are shaped, and what was seen on each node.

    `seen` holds None for a node on which the fabric wasn't found: its ranks look again, and say so.
    """

    nodes: list[emulation.Node]
    shaping: dict[str, Any]
    peers: Mapping[str, Sequence[str]]
    """Each node's addresses on the fabric under test, by rail."""
    seen: list[Seen | None]


class Building:
    """A cluster in the making. The calling process must be in the hub's namespaces, and stay there."""

    def __init__(self, cell: Cell, links: Sequence[emulation.Link]) -> None:
        """Fork the child that makes it."""
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        parent = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            here.close()
            _build_and_send(cell, links, there, parent)
        there.close()
        self._socket = here

    def finished(self) -> Built:
        """Wait for the child and take the cluster over; raises what stopped it."""
        with self._socket:
            built = _received(self._socket)
        os.waitpid(self._child, 0)
        if isinstance(built, Exception):
            raise built
        return built


def _build_and_send(cell: Cell, links: Sequence[emulation.Link], there: socket.socket, parent: int) -> None:
    """The life of the child; never returns."""
    try:
        emulation.die_with_parent(parent)
        try:
            content: Built | Exception = _build(cell, links)
        except Exception as error:
            content = error
        _send(content, there)
    finally:
        os._exit(0)


def _build(cell: Cell, links: Sequence[emulation.Link]) -> Built:
    nodes, shaping = emulation.build(cell.nodes, links)
    peers = {
        node.name: [emulation.address(rail, k) for rail, _ in enumerate(cell.fabric["interface"])]
        for k, node in enumerate(nodes)
    }
    return Built(nodes, shaping, peers, [_look_at(node, cell, peers) for node in nodes])


def _look_at(node: emulation.Node, cell: Cell, peers: Mapping[str, Sequence[str]]) -> Seen | None:
    """What a rank on this node would see before it meets the others."""
    node.enter()
    try:
        return examine(cell, look(cell), peers)
    except LaunchError:
        return None


def _send(content: Built | Exception, to: socket.socket) -> None:
    """Send a pickle: its length, its bytes, then the descriptors of each node's namespaces."""
    data = pickle.dumps(content)
    to.sendall(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
    for node in content.nodes if isinstance(content, Built) else []:
        socket.send_fds(to, [b"n"], list(node.namespaces.values()))


def _received(connection: socket.socket) -> Built | Exception:
    """The inverse of `_send`; descriptors are this process's own."""
    content = _exactly(connection, int.from_bytes(_exactly(connection, _LENGTH_BYTES), "big"))
    built: Built | Exception = pickle.loads(content)
    if isinstance(built, Exception):
        return built
    nodes = []
    for node in built.nodes:
        _, descriptors, *_ = socket.recv_fds(connection, 1, len(node.namespaces))
        names = dict(zip(node.namespaces, descriptors, strict=True))
        nodes.append(emulation.Node(node.name, node.management_address, names))
    return Built(nodes, built.shaping, built.peers, built.seen)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(min(_MOST_BYTES, count - len(data)))
        if not more:
            raise LaunchError("the process that makes the emulated nodes has ended without a word")
        data += more
    return data
