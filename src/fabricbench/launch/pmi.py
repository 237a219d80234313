"""A PMI-1 server: what an MPI library asks of its launcher, spoken over one socket per rank.

MPICH started without one makes a silent world of size 1; with it, forked processes are one MPI job.
The wire protocol is one line of `key=value` words per request (MPICH's "simple PMI", version 1.1).
"""

import contextlib
import selectors
import socket
from collections.abc import Callable


class Aborted(Exception):
    """A rank called MPI_Abort."""


class PmiServer:
    """Serves the key-value space and the barrier of one MPI world of `size` ranks."""

    def __init__(self, size: int, nodes: int, ranks_per_node: int) -> None:
        """Ranks are numbered node by node; the mapping tells MPICH which ranks may share memory."""
        self.size = size
        self._values = {"PMI_process_mapping": f"(vector,(0,{nodes},{ranks_per_node}))"}
        self._waiting: list[socket.socket] = []
        self._unread: dict[socket.socket, bytes] = {}
        self.selector = selectors.DefaultSelector()
        self._pairs = [socket.socketpair() for _ in range(size)]
        for server, _ in self._pairs:
            self._unread[server] = b""
            self.selector.register(server, selectors.EVENT_READ, self.read)

    def seat(self, rank: int) -> dict[str, str]:
        """In the forked rank: keep its own socket alone, and return the variables that MPI reads."""
        for number, (server, client) in enumerate(self._pairs):
            server.close()
            if number != rank:
                client.close()
        descriptor = self._pairs[rank][1].fileno()
        self._pairs[rank][1].set_inheritable(True)
        return {"PMI_FD": str(descriptor), "PMI_RANK": str(rank), "PMI_SIZE": str(self.size)}

    def parent_only(self) -> None:
        """In the parent, after the forks: close the ranks' ends, so that a dead rank reads as closed."""
        for _, client in self._pairs:
            client.close()

    def read(self, connection: socket.socket) -> None:
        """Answer what one rank has sent; raises Aborted when it asks to end the job."""
        try:
            received = connection.recv(65536)
        except ConnectionError:
            received = b""
        if not received:
            self.selector.unregister(connection)
            connection.close()
            return
        *lines, self._unread[connection] = (self._unread[connection] + received).split(b"\n")
        for line in lines:
            with contextlib.suppress(ConnectionError):  # the rank is gone; the launcher sees how
                self._answer(
                    connection, dict(word.split("=", 1) for word in line.decode().split() if "=" in word)
                )

    def _answer(self, connection: socket.socket, request: dict[str, str]) -> None:
        command = request.get("cmd", "")
        if command == "barrier_in":
            self._waiting.append(connection)
            if len(self._waiting) == self.size:
                for rank in self._waiting:
                    rank.sendall(b"cmd=barrier_out rc=0\n")
                self._waiting = []
            return
        if command == "abort":
            raise Aborted(request.get("error_msg", request.get("exitcode", "")))
        answers: dict[str, Callable[[], str]] = {
            "init": lambda: "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": lambda: "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024",
            "get_appnum": lambda: "cmd=appnum rc=0 appnum=0",
            "get_my_kvsname": lambda: "cmd=my_kvsname rc=0 kvsname=cell",
            "get_universe_size": lambda: f"cmd=universe_size rc=0 size={self.size}",
            "finalize": lambda: "cmd=finalize_ack rc=0",
            "put": lambda: self._put(request),
            "get": lambda: self._get(request),
        }
        if command in answers:
            connection.sendall(answers[command]().encode() + b"\n")

    def _put(self, request: dict[str, str]) -> str:
        self._values[request["key"]] = request["value"]
        return "cmd=put_result rc=0"

    def _get(self, request: dict[str, str]) -> str:
        value = self._values.get(request["key"])
        return (
            "cmd=get_result rc=-1 msg=no_such_key" if value is None else f"cmd=get_result rc=0 value={value}"
        )
