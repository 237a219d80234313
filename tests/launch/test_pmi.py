"""The PMI-1 server, spoken to as MPICH does."""

import os
import socket

import pytest

from fabricbench.launch.pmi import Aborted, PmiServer


class Client:
    """One rank's end of the wire."""

    def __init__(self, server: PmiServer, rank: int) -> None:
        """Take the rank's socket over, without a fork."""
        self.server = server
        self.ours, self.theirs = server._pairs[rank][0], server._pairs[rank][1]

    def ask(self, line: str) -> str:
        """Send a request and let the server answer it."""
        self.theirs.sendall(line.encode() + b"\n")
        self.server.read(self.ours)
        return self.heard()

    def heard(self) -> str:
        """What the server has sent; empty when nothing."""
        self.theirs.setblocking(False)
        try:
            return self.theirs.recv(4096).decode().strip()
        except BlockingIOError:
            return ""
        finally:
            self.theirs.setblocking(True)


@pytest.fixture
def server() -> PmiServer:
    """Two nodes of two ranks."""
    return PmiServer(4, nodes=2, ranks_per_node=2)


def test_a_rank_learns_its_world(server):
    """Size and node mapping come from the launcher."""
    rank = Client(server, 0)
    assert "rc=0" in rank.ask("cmd=init pmi_version=1 pmi_subversion=1")
    assert rank.ask("cmd=get_universe_size").endswith("size=4")
    assert "value=(vector,(0,2,2))" in rank.ask("cmd=get kvsname=cell key=PMI_process_mapping")


def test_what_one_rank_puts_another_gets(server):
    """Business cards go round, equals signs and all."""
    Client(server, 0).ask("cmd=put kvsname=cell key=card-0 value=tcp$10.0.0.1=x")
    assert Client(server, 3).ask("cmd=get kvsname=cell key=card-0").endswith("value=tcp$10.0.0.1=x")


def test_an_unknown_key_is_said_to_be_unknown(server):
    """Not an empty value, and not silence."""
    assert "rc=-1" in Client(server, 1).ask("cmd=get kvsname=cell key=nothing")


def test_the_barrier_opens_when_all_have_come(server):
    """Nobody passes before the last one."""
    ranks = [Client(server, number) for number in range(4)]
    assert [rank.ask("cmd=barrier_in") for rank in ranks[:3]] == ["", "", ""]
    assert "barrier_out" in ranks[3].ask("cmd=barrier_in")
    assert all("barrier_out" in rank.heard() for rank in ranks[:3])


def test_a_request_in_two_pieces_is_answered_once(server):
    """A line may arrive in parts."""
    rank = Client(server, 0)
    rank.theirs.sendall(b"cmd=get_app")
    server.read(rank.ours)
    assert rank.heard() == ""
    assert "appnum=0" in rank.ask("num")


def test_abort_ends_the_job(server):
    """MPI_Abort in one rank is an error of the whole."""
    with pytest.raises(Aborted, match="7"):
        Client(server, 2).ask("cmd=abort exitcode=7")


def test_a_rank_that_goes_away_is_forgotten(server):
    """A closed connection is no error of the server."""
    rank = Client(server, 0)
    rank.theirs.close()
    server.read(rank.ours)
    assert rank.ours.fileno() == -1


def test_a_seated_rank_keeps_its_own_socket_alone(server):
    """The variables that MPI reads name an open descriptor; the others' sockets are closed."""
    variables = server.seat(2)
    assert variables["PMI_RANK"] == "2"
    assert variables["PMI_SIZE"] == "4"
    assert os.get_inheritable(int(variables["PMI_FD"]))
    assert [pair[1].fileno() == -1 for pair in server._pairs] == [True, True, False, True]
    assert isinstance(server._pairs[2][1], socket.socket)
