"""Emulated nodes, made for real."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fabricbench.errors import LaunchError
from fabricbench.fabrics import emulation
from fabricbench.fabrics.emulation import Link, describe, why_not_allowed

CLUSTER = """
import json, os, socket, sys
from fabricbench.fabrics import emulation
emulation.become_private()
if init := emulation.fork_init():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(init, 0)[1]))
emulation.mount_own_proc()
nodes, shaping = emulation.build(3, [emulation.Link("eth0", 100_000_000), emulation.Link("opa0")])

def on(node, work):
    read, write = os.pipe()
    if os.fork() == 0:
        nodes[node].enter()
        os.write(write, json.dumps(work()).encode())
        os._exit(0)
    os.close(write)
    os.wait()
    return json.loads(os.read(read, 65536))
"""


def in_cluster(program: str) -> object:
    """Run a program on three emulated nodes in a process of its own; its last line is JSON."""
    done = subprocess.run([sys.executable, "-c", CLUSTER + program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.emulated
def test_nodes_have_names_and_one_interface_per_fabric(namespaces):
    """Each node has its own host name, loopback, both fabrics and the management network, and no more."""
    program = """
def look():
    return [socket.gethostname(), *(name for _, name in socket.if_nameindex())]
print(json.dumps([on(k, look) for k in range(3)]))
"""
    seen = in_cluster(program)
    assert [node[0] for node in seen] == ["n0", "n1", "n2"]
    assert all(sorted(node[1:]) == ["eth0", "lo", "mgt0", "opa0"] for node in seen)


@pytest.mark.emulated
def test_node_names_resolve_to_the_management_network(namespaces):
    """A host name is no loopback address: peers could not reach it."""
    program = """
print(json.dumps(on(0, lambda: [socket.gethostbyname(name) for name in ("n0", "n2")])))
"""
    assert in_cluster(program) == ["10.76.0.1", "10.76.0.3"]


@pytest.mark.emulated
def test_nodes_share_no_memory(namespaces):
    """A file in one node's /dev/shm isn't in another's, nor on the machine."""
    program = """
on(0, lambda: open("/dev/shm/secret", "w").write("x"))
print(json.dumps([on(k, lambda: os.path.exists("/dev/shm/secret")) for k in range(3)]))
"""
    assert in_cluster(program) == [True, False, False]
    assert not os.path.exists("/dev/shm/secret")


@pytest.mark.emulated
def test_both_ends_of_a_link_are_shaped(namespaces):
    """A token bucket stands on the node's end and on the hub's, with short packets; not elsewhere."""
    program = """
from pyroute2 import IPRoute

def shaped():
    with IPRoute() as ip:
        names = {link["index"]: link.get_attr("IFLA_IFNAME") for link in ip.get_links()}
        return sorted(names[q["index"]] for q in ip.get_qdiscs() if q.get_attr("TCA_KIND") == "tbf")

def segments():
    with IPRoute() as ip:
        return ip.get_links(ip.link_lookup(ifname="eth0")[0])[0].get_attr("IFLA_GSO_MAX_SEGS")

print(json.dumps([on(1, shaped), shaped(), on(1, segments)]))
"""
    on_node, on_hub, segments = in_cluster(program)
    assert on_node == ["eth0"]
    assert on_hub == ["p0n0", "p0n1", "p0n2"]
    assert segments == 1


@pytest.mark.emulated
def test_two_clusters_at_once_do_not_meet(namespaces):
    """The same address in two clusters are two places: a port that listens in one is closed in the other."""
    listening = """
def listen():
    server = socket.create_server(("10.77.0.1", 5000))
    print("ready", flush=True)
    sys.stdin.readline()
on(0, listen)
"""
    asking = """
def ask():
    with socket.socket() as client:
        return client.connect_ex(("10.77.0.1", 5000))
print(json.dumps(on(1, ask)))
"""
    command = [sys.executable, "-c", CLUSTER + listening]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "ready\n"
        refused = in_cluster(asking)
        first.communicate("done\n")
    assert refused != 0


@pytest.mark.emulated
def test_nothing_is_left_on_the_machine(namespaces):
    """Neither an interface nor a mount of the cluster is to be seen outside, during or after."""

    def machine():
        return sorted(name for _, name in socket.if_nameindex()), Path("/proc/self/mounts").read_text()

    before = machine()
    in_cluster("print(1)")
    assert machine() == before


def test_the_burst_holds_a_frame_and_follows_the_rate():
    """0.3 ms of the rate, but never less than one frame, or nothing would pass."""
    assert Link("eth0", 400_000_000).burst_bytes == 15_000
    assert Link("eth0", 1_000_000).burst_bytes > 1514


@pytest.mark.parametrize(("rate", "segments"), [(50_000_000, 1), (400_000_000, 4), (1_600_000_000, 19)])
def test_packets_hold_at_most_half_the_bucket(rate, segments):
    """So that the other half makes up for a timer that was late."""
    link = Link("eth0", rate)
    assert link.segments == segments
    assert segments == 1 or segments * 1514 <= link.burst_bytes / 2


@pytest.mark.parametrize(
    ("link", "netem", "words"),
    [
        (Link("eth0", 10**8), False, "none asked for"),
        (
            Link("eth0", 10**8, delay_s=5e-6, loss=0.01),
            False,
            "not emulated: this kernel has no netem (asked for: 5 µs, jitter 0 µs, loss 0.01)",
        ),
        (Link("eth0", 10**8, delay_s=5e-6), True, "emulated by netem: 5 µs"),
    ],
)
def test_the_record_says_whether_delay_is_emulated(link, netem, words):
    """A delay that was asked for and that the kernel can't make is said not to be emulated."""
    assert words in describe(link, netem)["delay"]


@pytest.mark.parametrize(
    ("setting", "value", "made", "mend"),
    [
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            True,
            "apparmor_restrict_unprivileged_userns=0",
        ),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", False, "seccomp=unconfined"),
        ("kernel/unprivileged_userns_clone", "0", False, "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", False, "user.max_user_namespaces=10000"),
        (None, None, False, "seccomp=unconfined"),
    ],
)
def test_where_namespaces_are_forbidden_the_line_says_how_to_allow_them(
    monkeypatch, setting, value, made, mend
):
    """Ubuntu's AppArmor switch, Debian's, a limit of none, or a container's seccomp: each has its mend."""
    monkeypatch.setattr(emulation, "_reads", lambda asked, text: (asked, text) == (setting, value))
    line = why_not_allowed(1, made)
    assert mend in line
    assert "cluster.kind: host" in line
    assert "\n" not in line


def test_a_kernel_without_the_parts_is_told_apart(monkeypatch):
    """Where namespaces are allowed and links can't be made, the line names what is lacking."""

    def lacking(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(emulation, "build", lacking)
    monkeypatch.setattr(emulation, "become_private", lambda: None)
    assert "veth, bridge and tbf" in emulation.why_unavailable()


def test_a_refused_kernel_is_an_error_with_a_mend(monkeypatch):
    """When unshare is refused to an ordinary user, the error is that line."""
    monkeypatch.setattr(emulation, "_libc", type("Refusing", (), {"unshare": staticmethod(lambda flags: -1)}))
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(LaunchError, match="emulated fabrics need user namespaces"):
        emulation.become_private()
