"""Emulated nodes and links: namespaces and shaped veth pairs, without root, gone with the process.

A node is a network, host-name, IPC and mount namespace, held by file descriptors of the process that
made it. Every fabric is a bridge in the maker's own network namespace (the hub) with one veth pair to
each node; each end is shaped by a token bucket, so that a link has its rate in both directions:

    node n0 ── eth0 (tbf) ═══ (tbf) hub bridge (tbf) ═══ eth0 (tbf) ── node n1

A management network (`mgt0`, not shaped) serves the ranks' meeting, so that the fabric under test
carries the data plane alone. All namespaces die with the last process inside; nothing has a name
outside, so that two cells never meet.
"""

import contextlib
import ctypes
import errno
import os
import select
import signal
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricbench.errors import LaunchError

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
NODE_NAMESPACES = {"net": CLONE_NEWNET, "uts": CLONE_NEWUTS, "ipc": CLONE_NEWIPC, "mnt": CLONE_NEWNS}
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG = 1

MANAGEMENT = "mgt0"
# What tbf was measured to do (docs/emulation.md): half of it lost 6 to 15 % of the rate on four busy nodes at
# 400 Mbit/s, to late timers and to the CPU time of small packets; twice as much lets 256 KB through at 110 %.
BURST_S = 0.3e-3
QUEUE_S = 20e-3
FRAME_BYTES = 1514
MAX_LINK_BIT_S = 400_000_000
"""The highest rate that was measured to be kept (docs/emulation.md)."""
TRUSTWORTHY_FROM_BYTES = 256 * 1024

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Link:
    """One fabric as every node sees it. Rates in bit/s (None: not shaped), times in seconds, loss a share."""

    interface: str
    rate_bit_s: int | None = None
    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0

    @property
    def burst_bytes(self) -> int:
        """The token bucket's depth: BURST_S of the rate, and room for one frame at least."""
        return max(FRAME_BYTES + 64, round((self.rate_bit_s or 0) * BURST_S / 8))

    @property
    def segments(self) -> int:
        """Segments that a packet may hold until it is sent: half the bucket.

        The other half makes up for late timers. Fewer would cost CPU time per byte, of which all
        emulated nodes share one machine's.
        """
        return max(1, self.burst_bytes // (2 * FRAME_BYTES))


@dataclass(frozen=True)
class Node:
    """A node's name, its address on the management network, and open descriptors of its namespaces."""

    name: str
    management_address: str
    namespaces: dict[str, int]

    def enter(self) -> None:
        """Move the calling (single-threaded) process into this node, its working directory kept."""
        here = os.getcwd()
        for kind, descriptor in self.namespaces.items():
            enter_namespace(descriptor, NODE_NAMESPACES[kind], f"enter the {kind} namespace of {self.name}")
        with contextlib.suppress(OSError):  # a mount namespace begins at its root, and hides /dev/shm
            os.chdir(here)


def unshare(flags: int, what: str) -> None:
    """Namespaces of the kinds in `flags` for the calling process. Raises OSError that says `what`."""
    check(_libc.unshare(flags), what)


def enter_namespace(descriptor: int, flag: int, what: str) -> None:
    """Move the calling process (kind PID: its next children) into a namespace. Raises OSError."""
    check(_libc.setns(descriptor, flag), what)


def check(result: int, what: str) -> None:
    """Raise OSError with errno and `what` unless a call into the C library returned 0."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"can't {what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str | None, flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OSError."""
    encoded = [text.encode() if text is not None else None for text in (source, target, kind)]
    check(_libc.mount(*encoded, ctypes.c_ulong(flags), data.encode() or None), f"mount {kind} on {target}")


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to kill this process, by signal `number`, when its parent ends, however it ends.

    To be called after any change of namespaces: a change of credentials withdraws it.
    """
    _libc.prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def fork_init() -> int:
    """Fork the pid 1 of a new PID namespace, which dies with its parent; returns as os.fork does.

    From within, the parent's number is always 0: a pipe tells whether it ended before the call above.
    """
    alive, held_by_parent = os.pipe()
    init = os.fork()
    if init:
        os.close(alive)
        return init
    os.close(held_by_parent)
    die_with_parent(os.getppid())
    if select.select([alive], [], [], 0)[0]:
        os._exit(1)
    os.close(alive)
    return 0


def become_private() -> None:
    """Give the calling process user, network, mount, UTS, IPC and PID namespaces of its own.

    The PID namespace holds the *next* child, its pid 1: when that ends, the kernel kills all within.
    Raises LaunchError with the mend where the kernel doesn't allow it.
    """
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID
    if _libc.unshare(CLONE_NEWUSER | flags) == 0:
        with _explained():
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
            mount("none", "/", None, MS_REC | MS_PRIVATE)
    elif uid != 0 or _libc.unshare(flags) != 0:
        raise LaunchError(why_not_allowed(ctypes.get_errno(), made=False))
    else:  # root in a container that forbids user namespaces but holds the capability itself
        mount("none", "/", None, MS_REC | MS_PRIVATE)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LaunchError(why_not_allowed(error.errno or 0, made=True)) from None


def why_not_allowed(number: int, made: bool) -> str:
    """One line: what forbids namespaces here, and how to allow them.

    `made`: the kernel made the user namespace and then let nothing be done in it, as AppArmor has it.
    """
    if made and _reads("kernel/apparmor_restrict_unprivileged_userns", "1"):
        mend = "allow them: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    elif _reads("kernel/unprivileged_userns_clone", "0"):
        mend = "allow them: sudo sysctl kernel.unprivileged_userns_clone=1"
    elif _reads("user/max_user_namespaces", "0") or number == errno.ENOSPC:
        mend = "allow them: sudo sysctl user.max_user_namespaces=10000"
    else:
        mend = "start a container with --security-opt seccomp=unconfined --cap-add SYS_ADMIN, or --privileged"
    return (
        f"emulated fabrics need user namespaces, which this kernel refuses ({os.strerror(number)}): "
        f"{mend}; or set cluster.kind: host in the config"
    )


def _reads(setting: str, text: str) -> bool:
    try:
        return (Path("/proc/sys") / setting).read_text().strip() == text
    except OSError:
        return False


def why_unavailable() -> str | None:
    """Try it, with two nodes and a shaped link: None where it works, otherwise the line that says why not."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        reason = ""
        try:
            become_private()
            build(2, [Link("eth0", MAX_LINK_BIT_S)])
        except LaunchError as error:
            reason = str(error)
        except Exception as error:
            reason = (
                f"emulated fabrics need veth, bridge and tbf, which this kernel lacks or refuses ({error}); "
                "set cluster.kind: host in the config"
            )
        os.write(write, reason.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        reason = pipe.read()
    os.waitpid(child, 0)
    return reason or None


def mount_own_proc() -> None:
    """A /proc of the new PID namespace; where a container forbids it the old one still serves."""
    with contextlib.suppress(OSError):
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)


def build(count: int, links: Sequence[Link]) -> tuple[list[Node], dict[str, Any]]:
    """Make `count` nodes with one interface for each link, and say how the links are shaped.

    Called in the hub's namespaces (after `become_private`). Returns the nodes and, for the record, the
    shaping of the first link: the fabric under test.
    """
    from pyroute2 import IPRoute  # slow to import, and of no use to a parsing Snakefile

    links = [*links, Link(MANAGEMENT)]
    hub_namespaces = _open_namespaces()
    _no_ipv6()
    with IPRoute() as hub:
        _up(hub, "lo")
        netem = _has_netem(hub)
        for number, _ in enumerate(links):
            hub.link("add", ifname=f"br{number}", kind="bridge")
            _up(hub, f"br{number}")
        nodes = []
        for k in range(count):
            nodes.append(_make_node(k, count, links, hub_namespaces["net"], netem))
            Node("hub", "", hub_namespaces).enter()
            for number, link in enumerate(links):
                port = f"p{number}n{k}"
                hub.link("set", index=_index(hub, port), master=_index(hub, f"br{number}"))
                _up(hub, port)
                _shape(hub, port, link, netem=False)
    for descriptor in hub_namespaces.values():
        os.close(descriptor)
    return nodes, describe(links[0], netem)


def _make_node(k: int, count: int, links: Sequence[Link], hub_network: int, netem: bool) -> Node:
    from pyroute2 import IPRoute

    name = f"n{k}"
    unshare(sum(NODE_NAMESPACES.values()), f"make the namespaces of {name}")
    socket.sethostname(name)
    mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV)
    _name_nodes(count)
    with contextlib.suppress(OSError):  # UCX and hwloc look for interfaces in /sys; some containers forbid it
        mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV)
    _no_ipv6()
    with IPRoute() as node:
        _up(node, "lo")
        for number, link in enumerate(links):
            peer = {"ifname": f"p{number}n{k}", "net_ns_fd": hub_network}
            node.link("add", ifname=link.interface, kind="veth", peer=peer)
            own = address(number if link.interface != MANAGEMENT else None, k)
            node.addr("add", index=_index(node, link.interface), address=own, prefixlen=24)
            _up(node, link.interface)
            _shape(node, link.interface, link, netem)
    return Node(name, address(None, k), _open_namespaces())


def _name_nodes(count: int) -> None:
    """Let node names resolve to management addresses, as a cluster's do; not to a loopback address."""
    hosts = Path("/dev/shm/hosts")
    names = {address(None, k): f"n{k}" for k in range(count)}
    lines = ["127.0.0.1 localhost"]
    lines += [f"{prefix}{address} {name}" for address, name in names.items() for prefix in ("", "::ffff:")]
    hosts.write_text("\n".join(lines) + "\n")
    with contextlib.suppress(OSError):  # a system without /etc/hosts does without the names
        mount(str(hosts), "/etc/hosts", None, MS_BIND)


def _no_ipv6() -> None:
    """Keep router and address detection out of the counters of interfaces made from now on."""
    with contextlib.suppress(OSError):
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")


def address(number: int | None, k: int) -> str:
    """Node k's address on link `number` of `build`, or on the management network."""
    return f"10.{76 if number is None else 77 + number}.0.{k + 1}"


def _open_namespaces() -> dict[str, int]:
    return {kind: os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in NODE_NAMESPACES}


def _index(ip: Any, interface: str) -> int:
    return int(ip.link_lookup(ifname=interface)[0])


def _up(ip: Any, interface: str) -> None:
    ip.link("set", index=_index(ip, interface), state="up")


def _has_netem(ip: Any) -> bool:
    """Whether this kernel can delay packets: asked of the kernel, never assumed."""
    try:
        ip.tc("add", "netem", _index(ip, "lo"), 0x10000, delay=1)
    except Exception:
        return False
    ip.tc("del", "netem", _index(ip, "lo"), 0x10000)
    return True


def _shape(ip: Any, interface: str, link: Link, netem: bool) -> None:
    """Shape one end of a link; delay, jitter and loss go on the node's end only, once per direction."""
    if link.rate_bit_s is None:
        return
    index = _index(ip, interface)
    ip.link("set", index=index, gso_max_segs=link.segments)
    parent = 0xFFFFFFFF
    if netem and (link.delay_s or link.jitter_s or link.loss):
        in_flight = round(link.rate_bit_s / 8 / FRAME_BYTES * (link.delay_s + link.jitter_s + QUEUE_S)) + 1000
        delay, jitter = round(link.delay_s * 1e6), round(link.jitter_s * 1e6)
        loss = 100 * link.loss
        ip.tc("add", "netem", index, 0x10000, delay=delay, jitter=jitter, loss=loss, limit=in_flight)
        parent = 0x10001
    rate, burst = f"{link.rate_bit_s}bit", link.burst_bytes
    limit = round(link.rate_bit_s / 8 * QUEUE_S) + burst
    ip.tc("add", "tbf", index, 0x20000, parent=parent, rate=rate, burst=burst, limit=limit)


def describe(link: Link, netem: bool) -> dict[str, Any]:
    """How the fabric under test is emulated, for the record and the page."""
    asked = f"{link.delay_s * 1e6:g} µs, jitter {link.jitter_s * 1e6:g} µs, loss {link.loss:g}"
    if not (link.delay_s or link.jitter_s or link.loss):
        delay = "not emulated: none asked for"
    elif netem:
        delay = f"emulated by netem: {asked}"
    else:
        delay = f"not emulated: this kernel has no netem (asked for: {asked})"
    return {
        "shaping": "tbf",
        "link_bit_s": link.rate_bit_s,
        "burst_bytes": link.burst_bytes,
        "queue_s": QUEUE_S,
        "gso_max_segs": link.segments,
        "delay": delay,
        "trustworthy_from_bytes": TRUSTWORTHY_FROM_BYTES,
        "validated": (link.rate_bit_s or 0) <= MAX_LINK_BIT_S,
    }
