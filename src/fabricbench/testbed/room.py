"""The machine room: `python -m fabricbench.testbed.room FOLDER`, a process tree that is the cluster.

    keeper ── pid 1 of the room (login node: munged, slurmctld, control socket)
                ├── pid 1 of n0 (slurmd and the jobs)
                └── pid 1 of n1 …

The room has PID, network, mount, host-name and IPC namespaces of its own, and each node again below it.
Nothing has a name outside, so the end of the room's pid 1 ends every process, mount and interface. The keeper
ends it when its own standard input ends (its maker is gone, however it ended) or at SIGTERM, and clears the
folder.
"""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from fabricbench.errors import FabricbenchError, LaunchError
from fabricbench.fabrics import emulation
from fabricbench.fabrics.emulation import Node
from fabricbench.testbed import mounts
from fabricbench.testbed.conf import MUNGE_SOCKET
from fabricbench.testbed.enter import environment
from fabricbench.testbed.spec import CONTROL, HUB, HUB_ADDRESS, SHARED, SPEC, Spec

ROOM_NAMESPACES = (
    emulation.CLONE_NEWNET | emulation.CLONE_NEWNS | emulation.CLONE_NEWUTS | emulation.CLONE_NEWIPC
)


# --- the keeper -------------------------------------------------------------------------------------------


def keep(folder: Path, detached: bool, remove: bool) -> int:
    """Make the room, wait for the order to end it (or its own end), and leave nothing."""
    spec = Spec.from_json((folder / SPEC).read_text())
    cgroup = _make_cgroup() if spec.memory_limits else None
    emulation.unshare(emulation.CLONE_NEWPID, "make a PID namespace")
    init = emulation.fork_init()
    if init == 0:
        _be_room(folder, spec, cgroup)
    _write(folder / "room.pid", init)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)  # the room alone says how the start went
    with suppress(_Ended):
        signal.signal(signal.SIGTERM, _raise_ended)
        room = os.pidfd_open(init)
        select.select([room] if detached else [room, 0], [], [])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(ProcessLookupError):
        os.kill(init, signal.SIGKILL)
    os.waitpid(init, 0)
    if cgroup is not None:
        for path, _, _ in os.walk(cgroup, topdown=False):
            os.rmdir(path)
    if remove:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        for name in ("room.pid", "keeper.pid", CONTROL):
            (folder / name).unlink(missing_ok=True)
    return 0


class _Ended(Exception):
    """SIGTERM came."""


def _raise_ended(number: int, frame: FrameType | None) -> None:
    raise _Ended


def _make_cgroup() -> Path:
    """A group for this cluster alone, so that those of two clusters don't meet."""
    cgroup = mounts.CGROUPS / f"fabricbench-{os.getpid()}"
    cgroup.mkdir()
    with suppress(OSError):
        (cgroup / "memory.use_hierarchy").write_text("1")
    return cgroup


def _write(path: Path, number: int) -> None:
    """As a whole: others may read at any time."""
    new = path.with_suffix(".new")
    new.write_text(f"{number}\n")
    new.replace(path)


# --- the room's pid 1 -------------------------------------------------------------------------------------


def _be_room(folder: Path, spec: Spec, cgroup: Path | None) -> NoReturn:
    """Make the cluster, say on standard output how that went, then do what the control socket asks."""
    try:
        room = _make(folder, spec, cgroup)
        answer: dict[str, Any] = {}
    except Exception as error:
        answer = _told(error)
    said = os.dup(1)
    log = os.open(folder / "log" / "room.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number, opened in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
        os.dup2(opened, number)
    os.write(said, json.dumps(answer).encode())
    os.close(said)
    if answer:
        os._exit(1)
    room.serve()


def _told(error: Exception) -> dict[str, Any]:
    """The answer to what failed: one line."""
    if not isinstance(error, FabricbenchError | OSError):
        traceback.print_exc()
    return {
        "error": str(error) if isinstance(error, FabricbenchError) else f"{type(error).__name__}: {error}"
    }


def _make(folder: Path, spec: Spec, cgroup: Path | None) -> "Room":
    shared = [Path(path) for path in json.loads((folder / SHARED).read_text())]
    emulation.unshare(ROOM_NAMESPACES, "make the namespaces of the cluster")
    socket.sethostname(HUB)
    mounts.mount_hub(folder, shared, cgroup)
    nodes, _ = emulation.build(spec.nodes, spec.links)
    _address_hub(bridge=f"br{len(spec.links)}")
    _write(folder / "run" / f"{HUB}.pid", os.getpid())
    munge = {
        "key-file": folder / "munge.key",
        "socket": MUNGE_SOCKET,
        "pid-file": "/run/munge/munged.pid",
        "seed-file": "/run/munge/seed",
        "log-file": folder / "log" / "munged.log",
    }
    # --force: a munged of root is meant here.
    _start(["munged", "--force", *(f"--{name}={value}" for name, value in munge.items())])
    _start(["slurmctld"])
    room = Room(folder, spec, nodes, shared)
    for node in nodes:
        room.boot(node.name)
    _let_kernel_reap()
    return room


def _let_kernel_reap() -> None:
    """As pid 1, be no parent of zombies, whoever lost its parent; from here on no child can be waited for."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _address_hub(bridge: str) -> None:
    """The login node on the management network, and on no other."""
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        index = ip.link_lookup(ifname=bridge)[0]
        ip.addr("add", index=index, address=HUB_ADDRESS, prefixlen=24)
    for kind in ("ip", "ip6", "arp"):  # no firewall between the nodes
        with suppress(OSError):
            Path(f"/proc/sys/net/bridge/bridge-nf-call-{kind}tables").write_text("0")


def _start(command: Sequence[str]) -> None:
    """Start what becomes a daemon by itself. Raises LaunchError with its own words."""
    names = {name: value for name, value in environment(dict(os.environ), {}).items() if name != "PYTHONPATH"}
    path = shutil.which(command[0], path=names["PATH"]) or command[0]
    done = subprocess.run(
        [path, *command[1:]],
        env=names,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
    )
    if done.returncode:
        words = " ".join(done.stdout.split())
        raise LaunchError(f"{command[0]} didn't start: {words or f'exit status {done.returncode}'}")


class Room:
    """The nodes, and what can be done to them."""

    def __init__(self, folder: Path, spec: Spec, nodes: Sequence[Node], shared: Sequence[Path]) -> None:
        """`nodes`: as `emulation.build` made them; their namespaces outlive each power cut."""
        self.folder, self.spec, self.shared = folder, spec, shared
        self.nodes = {node.name: node for node in nodes}
        self.running: dict[str, tuple[int, int]] = {}
        """Name → the number of the node's pid 1, as the room counts, and a descriptor of it."""
        self.pulled: set[tuple[str, str]] = set()
        """Cables that are out: (node, interface)."""
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def boot(self, name: str) -> None:
        """Power on: links up, then a pid 1 with empty /tmp and /dev/shm, and slurmd."""
        node = self._node(name)
        if name in self.running:
            raise LaunchError(f"{name} is up; crash it first")
        self._set_links(node, self._interfaces(), up=True)
        self.pulled = {(other, interface) for other, interface in self.pulled if other != name}
        read, write = os.pipe()
        emulation.unshare(emulation.CLONE_NEWPID, f"make the PID namespace of {name}")
        pid = os.fork()
        if pid == 0:
            os.close(read)
            self._be_node(node, write)
        # Children of now on are the room's again.
        emulation.enter_namespace(self._own_pids, emulation.CLONE_NEWPID, "return to the room")
        os.close(write)
        with os.fdopen(read) as pipe:
            failed = pipe.read()
        if failed:
            raise LaunchError(f"{name} didn't boot: {failed}")
        self.running[name] = pid, os.pidfd_open(pid)
        _write(self.folder / "run" / f"{name}.pid", pid)

    def _be_node(self, node: Node, told: int) -> NoReturn:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            node.enter()
            emulation.unshare(emulation.CLONE_NEWNS | emulation.CLONE_NEWIPC, f"boot {node.name}")
            mounts.mount_node(self.spec, self.folder, self.shared)
            os.chdir("/")
            _start(["slurmd"])
            _let_kernel_reap()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
            os.closerange(3, 4096)
            while True:
                signal.pause()
        except Exception as error:
            os.write(told, _told(error)["error"].encode())
        os._exit(1)

    def crash(self, name: str) -> None:
        """Power cut: the links first, so that no word of the end leaves the node, then every process."""
        node = self._node(name)
        if name not in self.running:
            raise LaunchError(f"{name} is down already; boot it first")
        pid, descriptor = self.running.pop(name)
        (self.folder / "run" / f"{name}.pid").unlink(missing_ok=True)
        self._set_links(node, self._interfaces(), up=False)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        select.select([descriptor], [], [])
        os.close(descriptor)

    def link(self, name: str, interface: str, up: bool) -> None:
        """Pull or plug a cable."""
        known = self._interfaces()
        if interface not in known:
            raise LaunchError(f"{name} has no interface {interface}; it has {', '.join(known)}")
        self._set_links(self._node(name), [interface], up)
        if up:
            self.pulled.discard((name, interface))
        else:
            self.pulled.add((name, interface))

    def mend(self) -> None:
        """Plug every cable that is out, and switch on every node that is down."""
        for name, interface in sorted(self.pulled):
            self.link(name, interface, up=True)
        for name in self.nodes:
            if name not in self.running:
                self.boot(name)

    def _interfaces(self) -> list[str]:
        return [*(link.interface for link in self.spec.links), emulation.MANAGEMENT]

    def _node(self, name: str) -> Node:
        if name not in self.nodes:
            raise LaunchError(f"the cluster has no node {name}; it has {', '.join(self.nodes)}")
        return self.nodes[name]

    def _set_links(self, node: Node, interfaces: Sequence[str], up: bool) -> None:
        def there() -> None:
            from pyroute2 import IPRoute

            with IPRoute() as ip:
                for name in interfaces:
                    ip.link("set", index=ip.link_lookup(ifname=name)[0], state="up" if up else "down")

        _on(node, there)

    def serve(self) -> NoReturn:
        """Answer the control socket, one request (a line of JSON) after the other, for ever."""
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(self.folder / CONTROL))
            server.listen()
            while True:
                connection, _ = server.accept()
                with connection, suppress(OSError), connection.makefile("rw") as stream:
                    stream.write(json.dumps(self._answer(stream.readline())))

    def _answer(self, request: str) -> dict[str, Any]:
        actions: dict[str, Callable[..., None]] = {
            "boot": self.boot,
            "crash": self.crash,
            "link": self.link,
            "mend": self.mend,
        }
        try:
            wanted = json.loads(request)
            actions[wanted.pop("do")](**wanted)
        except Exception as error:
            return _told(error)
        return {}


def _on(node: Node, work: Callable[[], None]) -> None:
    """Do something in a node's namespaces, in a child, so that this process keeps its own."""
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            node.enter()
            work()
        except Exception as error:
            os.write(write, _told(error)["error"].encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        failed = pipe.read()
    if failed:
        raise LaunchError(f"{node.name}: {failed}")


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), detached="--detached" in sys.argv, remove="--remove" in sys.argv))
