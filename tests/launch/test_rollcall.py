"""The roll call: who is let in, what is found wrong, and what every rank hears."""

import json
import os
import socket
import threading
from dataclasses import asdict, replace

import pytest

from fabricbench.errors import LaunchError
from fabricbench.launch.addresses import meeting_address
from fabricbench.launch.rollcall import (
    Hello,
    Meeting,
    Rollcall,
    answer,
    end_with,
    join,
    misplaced,
    read_hello,
    read_meeting,
    split,
    write_meeting,
)

TOKEN = "a secret"


def hellos(*hosts: str) -> list[Hello]:
    """One rank after the other, each on a host."""
    return [Hello(rank, len(hosts), host, [f"10.0.0.{host[1:]}"]) for rank, host in enumerate(hosts)]


def come(rollcall: Rollcall, ranks: list[Hello]) -> list[object]:
    """Let ranks come all at once; what each hears, or the reason for which it was sent away."""
    heard: list[object] = [None] * len(ranks)
    kept = []

    def one(number: int) -> None:
        try:
            heard[number], connection = answer(rollcall.address, TOKEN, ranks[number])
            kept.append(connection)
        except LaunchError as error:
            heard[number] = str(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(ranks))]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        rollcall.serve(0.01)
    for connection in kept:
        connection.close()
    return heard


def test_all_ranks_hear_where_to_meet_and_who_is_where():
    """The store of rank 0, and each host's addresses on the fabric."""
    ranks = hellos("n0", "n0", "n1", "n1")
    ranks[0] = replace(ranks[0], store="10.1.0.1:4711", step="7.0")
    with Rollcall("127.0.0.1", TOKEN, ["n0", "n1"], 2) as rollcall:
        heard = come(rollcall, ranks)
        assert rollcall.complete
        assert rollcall.steps == {"7.0"}
    assert {call.store for call in heard} == {"10.1.0.1:4711"}
    assert heard[3].peers == {"n0": ["10.0.0.0"], "n1": ["10.0.0.1"]}


def test_512_ranks_are_called_in_one_go():
    """64 nodes of 8 ranks, all connecting together."""
    names = [f"n{number}" for number in range(64)]
    with Rollcall("127.0.0.1", TOKEN, names, 8) as rollcall:
        heard = come(rollcall, hellos(*(name for name in names for _ in range(8))))
    assert {len(call.peers) for call in heard} == {64}


def test_an_ipv6_address_is_met_in_brackets():
    """host:port, back and forth."""
    assert split(join("fe80::1", 80)) == ("fe80::1", 80)
    try:
        rollcall = Rollcall("::1", TOKEN, ["n0"], 1)
    except OSError:
        pytest.skip("no IPv6 here")
    with rollcall:
        assert rollcall.address.startswith("[::1]:")
        assert come(rollcall, hellos("n0"))[0].peers == {"n0": ["10.0.0.0"]}


def test_strangers_are_neither_heard_nor_do_they_disturb():
    """Noise, another's token, half a line, an endless one, a line of the wrong type: all are let go."""
    with Rollcall("127.0.0.1", TOKEN, ["n0"], 1) as rollcall:
        host, port = split(rollcall.address)
        own = asdict(hellos("n0")[0])
        lines = [
            b"GET / HTTP/1.1\r\n\r\n",
            b"[1]\n",
            b"null\n",
            b"\xff\n",
            b"x" * 100_000,
            b"half a line",
            b"",
        ]
        lines += [json.dumps(own | {"token": "another"}).encode() + b"\n", json.dumps(own).encode() + b"\n"]
        lines += [json.dumps(own | {"token": TOKEN, "rank": "0"}).encode() + b"\n"]
        lines += [json.dumps(own | {"token": TOKEN, "more": 1}).encode() + b"\n"]
        strangers = []
        for line in lines:
            stranger = socket.create_connection((host, port))
            stranger.sendall(line)
            strangers.append(stranger)
            rollcall.serve(0.01)
            rollcall.serve(0.01)
        assert rollcall.there == {}
        assert come(rollcall, hellos("n0"))[0].peers
        for stranger in strangers:
            stranger.close()


@pytest.mark.parametrize(
    ("hosts", "says"),
    [
        (("n0", "n0", "n1", "n1"), ""),
        (("n0", "n0", "n0", "n1"), "asked for 2 + 2 ranks on 2 nodes, got n0: 3, n1: 1"),
        (("n0",) * 4, "asked for 2 + 2 ranks on 2 nodes, got n0: 4"),
        (("n0", "n1", "n2", "n3"), "asked for 2 + 2 ranks on 2 nodes, got n0: 1, n1: 1, n2: 1, n3: 1"),
        (("n0", "n1", "n0", "n1"), "got n0: 2, n1: 2, but not numbered node by node"),
    ],
)
def test_ranks_that_sit_elsewhere_than_asked_are_refused(hosts, says):
    """The line says what was asked for and what came."""
    found = misplaced(hellos(*hosts), 2, 2)
    assert found.endswith(says) if says else not found
    with Rollcall("127.0.0.1", TOKEN, ["n0", "n1"], 2) as rollcall:
        heard = come(rollcall, hellos(*hosts))
        assert (rollcall.refused, rollcall.complete) == (found, not says)
    assert not says or set(heard) == {found}


def test_a_world_of_another_size_is_refused_at_once():
    """Each of two processes that takes itself for the only rank is sent away before the other comes."""
    with Rollcall("127.0.0.1", TOKEN, ["n0", "n1"], 1) as rollcall:
        heard = come(rollcall, [Hello(0, 1, "n0", [])])
    assert heard == ["asked for 2 ranks, and the launcher made rank 0 of 1"]


def test_a_rank_that_comes_twice_is_refused():
    """Two launchers in one cell, say."""
    with Rollcall("127.0.0.1", TOKEN, ["n0", "n1"], 1) as rollcall:
        heard = come(rollcall, [Hello(0, 2, "n0", []), Hello(0, 2, "n1", [])])
    assert len(set(heard)) == 1
    assert "rank 0 came twice, on " in heard[0]


def test_ranks_that_never_come_are_named_by_node():
    """For the reason of a cell that ran out of time."""
    with Rollcall("127.0.0.1", TOKEN, ["n0", "n1", "n2"], 2) as rollcall:
        rollcall.there = {0: Hello(0, 6, "n0", []), 1: Hello(1, 6, "n0", []), 3: Hello(3, 6, "n1", [])}
        assert rollcall.missing() == "3 of 6 ranks never came to the roll call, on n1, n2"


def test_a_rank_that_is_gone_for_long_is_lost():
    """Its node's power was cut, say, which Slurm notices minutes later."""
    with Rollcall("127.0.0.1", TOKEN, ["n0"], 2) as rollcall:
        come(rollcall, hellos("n0", "n0"))
        while len(rollcall.lost) < 2:
            rollcall.serve(0.01)
        assert rollcall.long_lost(60) == ""
        assert " on n0 is gone, and Slurm hasn't said why" in rollcall.long_lost(0)


def test_a_hello_is_known_by_its_token():
    """And of the types that it must have."""
    me = hellos("n0")[0]
    assert read_hello(json.dumps(asdict(me) | {"token": TOKEN}).encode(), TOKEN) == me
    assert read_hello(json.dumps(asdict(me) | {"token": 1}).encode(), TOKEN) is None


def test_a_rank_ends_when_its_launcher_is_gone():
    """By the kernel, whatever the rank is doing: here it waits for something that never comes."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        end_with(theirs)
        threading.Event().wait(60)
        os._exit(0)
    theirs.close()
    ours.close()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) in (-15, 143)


def test_the_meeting_is_for_the_owner_alone(tmp_path):
    """The token lies in a file that others can't read."""
    meeting = Meeting("n0:4711", TOKEN, "eth0")
    write_meeting(tmp_path, meeting)
    assert read_meeting(tmp_path) == meeting
    assert [path.stat().st_mode & 0o077 for path in tmp_path.iterdir()] == [0]


INTERFACES = {"eth0": {"addresses": ["fd00::1/64", "10.0.0.1/24"]}, "ib0": {"addresses": ["fe80::1/64"]}}


@pytest.mark.parametrize(
    ("interface", "resolved", "gives"),
    [
        ("eth0", [], "10.0.0.1"),
        ("", ["127.0.1.1", "10.0.0.2"], "10.0.0.2"),
        ("ib0", [], "cluster.bootstrap: ib0: has no IP address on n0"),
        ("eth1", [], "cluster.bootstrap: eth1: no such interface on n0, which has eth0, ib0"),
        ("", ["127.0.1.1"], "its own name resolves to 127.0.1.1, itself.*set cluster.bootstrap"),
        ("", [], "its own name doesn't resolve"),
    ],
)
def test_ranks_meet_at_an_address_that_others_can_reach(monkeypatch, interface, resolved, gives):
    """An interface's, or the host name's; what leads others to themselves is one line."""
    monkeypatch.setattr("fabricbench.launch.addresses.addresses_of", lambda host: resolved)
    if gives[0] == "1":
        assert meeting_address(interface, INTERFACES, "n0", True) == gives
        return
    with pytest.raises(LaunchError, match=gives):
        meeting_address(interface, INTERFACES, "n0", True)


def test_one_node_may_meet_at_its_loopback(monkeypatch):
    """Nobody else has to come."""
    monkeypatch.setattr("fabricbench.launch.addresses.addresses_of", lambda host: ["127.0.1.1"])
    assert meeting_address("", INTERFACES, "n0", False) == "127.0.0.1"
