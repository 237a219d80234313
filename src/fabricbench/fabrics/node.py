"""What one node has: its interfaces, adapters, GPUs and clock, and which of them a fabric means here.

`probe` asks this node and changes nothing; `resolve` finds a fabric's rails in what was found. Names of
interfaces come from the kernel: in a container /sys may show the interfaces of another namespace, so it is
believed only where interface number and hardware address agree with the kernel's.
"""

import ipaddress
import os
import platform
import re
import resource
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from fabricbench import provenance
from fabricbench.errors import LaunchError
from fabricbench.fabrics import ethtool

NodeFacts = dict[str, Any]
"""What `probe` gives: plain data that passes through JSON unchanged."""

RDMA_KINDS = ("roce", "infiniband", "omnipath", "slingshot", "efa")
"""Kinds of fabric whose bytes go through an adapter, past the kernel's network interface."""

_CONTAINER_BRIDGE = re.compile(r"(docker|virbr|lxcbr|lxdbr|podman|cni|flannel|nerdctl)\d*|br-[0-9a-f]{12}")
_KIND_OF_DRIVER = {"veth": "veth", "bridge": "bridge", "bonding": "bond", "802.1Q VLAN Support": "vlan"}


@dataclass(frozen=True)
class Rails:
    """What a fabric is on one node. `addresses` are the interfaces' own, in their order."""

    interfaces: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


def probe(sys: Path = Path("/sys"), proc: Path = Path("/proc"), *, ask_names: bool = True) -> NodeFacts:
    """The facts of this node. `ask_names=False` leaves out what might wait for a name server."""
    host = socket.gethostname()
    interfaces, shown = _interfaces(sys, proc)
    adapters = _adapters(sys, {name: interfaces[name] for name in shown})
    for name, adapter in adapters.items():
        for interface in adapter["interfaces"]:
            interfaces[interface]["adapter"] = name
    for facts in interfaces.values():
        _inherit_from_lower(facts, interfaces)
    hidden = _hidden_config()
    return {
        "host": host,
        "resolves_to": _resolved(host) if ask_names else [],
        "kernel": platform.release(),
        "cpu": provenance.cpu_model(),
        "cores": sorted(os.sched_getaffinity(0)),
        "numa": _numa(sys),
        "interfaces": interfaces,
        "adapters": adapters,
        "gpus": _gpus(sys, proc),
        "nvidia_driver": _nvidia_driver(proc),
        "clocksource": _read(sys / "devices/system/clocksource/clocksource0/current_clocksource"),
        "governor": _governor(sys),
        "load": os.getloadavg()[0],
        "memlock_bytes": _limit(resource.RLIMIT_MEMLOCK),
        "shm_bytes": _size_of("/dev/shm"),
        "hidden_config": list(hidden),
        "hidden_variables": hidden,
    }


def resolve(fabric: Mapping[str, Any], facts: NodeFacts) -> Rails:
    """The interfaces, adapters and addresses that `fabric` means on this node.

    Raises LaunchError with one line that names the fabric's key, what was asked for and what the node has.
    """
    search = _Search(fabric, facts)
    return search.rdma() if fabric["kind"] in RDMA_KINDS else search.tcp()


def look_alikes(name: str, interfaces: Iterable[str]) -> list[str]:
    """Interfaces that a library which takes names for prefixes would confuse with `name`."""
    return sorted(
        other for other in interfaces if other != name and (other.startswith(name) or name.startswith(other))
    )


def is_container_bridge(name: str) -> bool:
    """Whether an interface is one that Docker, libvirt and the like make, with one address everywhere."""
    return bool(_CONTAINER_BRIDGE.fullmatch(name))


def usable_addresses(interface: Mapping[str, Any]) -> list[str]:
    """Addresses without their prefix that a peer can use, IPv4 first; link-local ones are left out."""
    found = [ipaddress.ip_interface(text).ip for text in interface["addresses"]]
    return [str(ip) for ip in sorted(found, key=_version) if not ip.is_link_local]


def is_active(state: str | None) -> bool:
    """Whether an adapter's port, as its state is written in /sys ("4: ACTIVE"), can carry data."""
    return state == "ACTIVE"


class _Search:
    """One fabric looked for on one node."""

    def __init__(self, fabric: Mapping[str, Any], facts: NodeFacts) -> None:
        self._fabric = fabric
        self._facts = facts
        self._interfaces: Mapping[str, Any] = facts["interfaces"]
        self._adapters: Mapping[str, Any] = facts["adapters"]
        self._count: int = fabric.get("ports_per_node") or 1

    def tcp(self) -> Rails:
        """The interfaces that carry the bytes themselves; each must have an address."""
        fabric = self._fabric
        if fabric["interface"]:
            key, found = "interface", self._named()
        elif fabric.get("subnet"):
            key, found = "subnet", self._in_subnet()
        else:
            key, found = "adapter", self._of_adapters(self._named_adapters())
        self._exactly(key, found)
        addresses = []
        for name in found:
            addresses.append(self._address(name) or "")
            if not addresses[-1]:
                raise self._error(
                    key,
                    f"{name} on {{host}} has no address but link-local ones; give it one, or name another",
                )
        return Rails(tuple(found), self._adapters_of(found), tuple(addresses))

    def rdma(self) -> Rails:
        """The adapters that carry the bytes, and the interfaces that belong to them, if there are any."""
        fabric = self._fabric
        beside = fabric["kind"] == "efa"  # its adapter has no interface: the named one is another device's
        if fabric["interface"]:
            key, named = "interface", self._named()
        else:
            key, named = "subnet", self._in_subnet() if fabric.get("subnet") else []
        if fabric["adapter"]:
            key, adapters = "adapter", self._named_adapters()
        elif beside:
            key, adapters = "adapter", [name for name in self._adapters if self._is_of_kind(name)]
        else:
            adapters = list(self._adapters_of(named))
            if not adapters and named:
                have = ", ".join(self._adapters) or "none"
                raise self._error(
                    key,
                    f"{named[0]} on {{host}} belongs to no RDMA adapter (it has: {have}); name the adapter",
                )
        self._exactly(key, adapters)
        interfaces = named or self._of_adapters(adapters)
        interfaces = [name for name in interfaces if beside or self._address(name)]
        addresses = (self._address(name) for name in interfaces)
        return Rails(tuple(interfaces), tuple(adapters), tuple(address for address in addresses if address))

    def _named(self) -> list[str]:
        found = [name for name in self._fabric["interface"] if name in self._interfaces]
        if not found:
            asked = list(self._fabric["interface"])
            alike = sorted({other for name in asked for other in look_alikes(name, self._interfaces)})
            hint = f" ({', '.join(alike)} alike in name only)" if alike else ""
            have = ", ".join(self._interfaces)
            raise self._error(
                "interface", f"{' or '.join(asked)} doesn't exist on {{host}}, which has: {have}{hint}"
            )
        return found

    def _in_subnet(self) -> list[str]:
        network = ipaddress.ip_network(self._fabric["subnet"], strict=False)
        found = [
            name
            for name in self._interfaces
            if not is_container_bridge(name) and any(ip in network for ip in self._usable(name))
        ]
        if not found:
            have = ", ".join(
                f"{name} {'/'.join(map(str, self._usable(name)))}"
                for name in self._interfaces
                if self._usable(name)
            )
            raise self._error(
                "subnet", f"no interface of {{host}} has an address in {network}; it has: {have}"
            )
        return found

    def _named_adapters(self) -> list[str]:
        asked = self._fabric["adapter"]
        found = [name for name in asked if name in self._adapters]
        if not found:
            have = ", ".join(self._adapters) or "none"
            raise self._error(
                "adapter", f"{' or '.join(asked) or 'one'} doesn't exist on {{host}}; its adapters: {have}"
            )
        return found

    def _exactly(self, key: str, found: list[str]) -> None:
        """Raise unless there are as many rails as the fabric says."""
        if len(found) != self._count:
            names = ", ".join(found) or "none"
            mend = "set ports_per_node, or name fewer" if len(found) > self._count else "name what it has"
            raise self._error(
                key, f"ports_per_node is {self._count}, {{host}} has {len(found)} of them: {names}; {mend}"
            )

    def _of_adapters(self, adapters: Iterable[str]) -> list[str]:
        """Each adapter's interface: the port's own, or the VLAN or bond above that has the address."""
        found = []
        for adapter in adapters:
            own = [name for name in self._adapters[adapter]["interfaces"] if self._at_port(name)]
            above = [
                name
                for name, interface in self._interfaces.items()
                if interface["adapter"] == adapter
                and name not in own
                and interface["kind"] in ("vlan", "bond")
            ]
            best = next((name for name in own + above if self._address(name)), next(iter(own), None))
            if best is not None:
                found.append(best)
        return list(dict.fromkeys(found))

    def _at_port(self, name: str) -> bool:
        port = self._interfaces.get(name, {}).get("port")
        return name in self._interfaces and port in (None, self._fabric.get("port", 1))

    def _adapters_of(self, interfaces: Iterable[str]) -> tuple[str, ...]:
        found = (self._interfaces[name]["adapter"] for name in interfaces)
        return tuple(dict.fromkeys(adapter for adapter in found if adapter))

    def _is_of_kind(self, adapter: str) -> bool:
        return str(self._adapters[adapter]["driver"]).startswith(self._fabric["kind"])

    def _usable(self, name: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
        return [ipaddress.ip_address(text) for text in usable_addresses(self._interfaces[name])]

    def _address(self, name: str) -> str | None:
        """The interface's address in the fabric's subnet, else its first."""
        usable = self._usable(name)
        if subnet := self._fabric.get("subnet"):
            network = ipaddress.ip_network(subnet, strict=False)
            usable = [ip for ip in usable if ip in network]
        return str(usable[0]) if usable else None

    def _error(self, key: str, text: str) -> LaunchError:
        return LaunchError(f"fabrics.{self._fabric['name']}.{key}: {text.format(host=self._facts['host'])}")


def _interfaces(sys: Path, proc: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Every interface of this network namespace; and the names of those that /sys really shows."""
    addresses = psutil.net_if_addrs()
    lower_by_proc = _vlans(proc) | _bonds(proc)
    found, shown = {}, []
    for name, stats in psutil.net_if_stats().items():
        own = addresses.get(name, [])
        folder = _own_folder(sys, name, [each.address for each in own if each.family == socket.AF_PACKET])
        shown += [name] if folder else []
        flags = stats.flags.split(",")
        driver = (_link(folder / "device/driver") if folder else None) or ethtool.driver(name)
        port = _integer(folder / "dev_port") if folder and (folder / "device").exists() else None
        found[name] = {
            "up": "up" in flags,
            "carrier": "running" in flags,
            "mtu": stats.mtu,
            "speed_bit_s": stats.speed * 1e6 if stats.speed > 0 else None,
            "addresses": [
                text for each in own if (text := _with_prefix(each.family, each.address, each.netmask))
            ],
            "driver": driver,
            "kind": "loopback" if "loopback" in flags else _kind(folder, name, driver, lower_by_proc),
            "lower": _lower(folder) or lower_by_proc.get(name, []),
            "numa": _numa_node(folder / "device/numa_node") if folder else None,
            "adapter": None,
            "port": None if port is None else port + 1,
        }
    for facts in found.values():  # what lies below may be outside this namespace
        facts["lower"] = [name for name in facts["lower"] if name in found]
    return found, shown


def _own_folder(sys: Path, name: str, hardware: list[str]) -> Path | None:
    """Where /sys shows this very interface; None if it shows one of the same name in another namespace."""
    folder = sys / "class/net" / name
    try:
        if _integer(folder / "ifindex") != socket.if_nametoindex(name):
            return None
    except OSError:
        return None
    shown = _read(folder / "address") or ""
    same = not shown or not hardware or shown.lower().startswith(hardware[0].lower()[:17])
    return folder if same else None


def _with_prefix(family: int, address: str, netmask: str | None) -> str | None:
    """'10.77.0.1/24'; None for what is no internet address."""
    if family not in (socket.AF_INET, socket.AF_INET6):
        return None
    ip = ipaddress.ip_address(address.partition("%")[0])
    if not netmask:
        return f"{ip}/{ip.max_prefixlen}"
    bits = int(ipaddress.ip_address(netmask.partition("/")[0]))
    return f"{ip}/{bits.bit_count()}"


def _kind(folder: Path | None, name: str, driver: str | None, lower: Mapping[str, list[str]]) -> str | None:
    if folder:
        for line in (_read(folder / "uevent") or "").splitlines():
            if line.startswith("DEVTYPE=") and (kind := line.partition("=")[2]) in ("vlan", "bond", "bridge"):
                return kind
    return _KIND_OF_DRIVER.get(driver or "") or ("vlan" if name in lower else None)


def _lower(folder: Path | None) -> list[str]:
    if folder is None:
        return []
    return sorted(name.removeprefix("lower_") for name in _names(folder) if name.startswith("lower_"))


def _vlans(proc: Path) -> dict[str, list[str]]:
    """VLAN interface → the interface that it lies on."""
    rows = [line.split("|") for line in (_read(proc / "net/vlan/config") or "").splitlines()]
    return {row[0].strip(): [row[2].strip()] for row in rows if len(row) == 3}


def _bonds(proc: Path) -> dict[str, list[str]]:
    """Bond → the interfaces that it joins."""
    found = {}
    for name in _names(proc / "net/bonding"):
        lines = (_read(proc / "net/bonding" / name) or "").splitlines()
        found[name] = [
            line.partition(":")[2].strip() for line in lines if line.startswith("Slave Interface:")
        ]
    return found


def _inherit_from_lower(facts: dict[str, Any], interfaces: Mapping[str, dict[str, Any]]) -> None:
    """A VLAN or bond has the adapter and the NUMA node of what lies below it."""
    seen: set[str] = set()
    below = list(facts["lower"])
    while below:
        name = below.pop(0)
        if name in seen or facts["kind"] == "bridge":
            continue
        seen.add(name)
        lower = interfaces[name]
        facts["adapter"] = facts["adapter"] or lower["adapter"]
        facts["numa"] = lower["numa"] if facts["numa"] is None else facts["numa"]
        below += lower["lower"]


def _adapters(sys: Path, interfaces: Mapping[str, Any]) -> dict[str, Any]:
    """RDMA adapters: all that verbs knows (InfiniBand, RoCE, Omni-Path, EFA), and Slingshot's."""
    found = {}
    for name in _names(sys / "class/infiniband"):
        folder = sys / "class/infiniband" / name
        ports = {port: _port(folder / "ports" / port) for port in _names(folder / "ports") if port.isdigit()}
        found[name] = _adapter(folder, interfaces) | {"ports": ports}
    for name in _names(sys / "class/cxi"):
        adapter = _adapter(sys / "class/cxi" / name, interfaces)
        own = interfaces[adapter["interfaces"][0]] if adapter["interfaces"] else None
        port = {
            "state": None if own is None else "ACTIVE" if own["up"] and own["carrier"] else "DOWN",
            "link_layer": "Slingshot",
            "rate_bit_s": own and own["speed_bit_s"],
        }
        found[name] = adapter | {"ports": {"1": port}}
    return found


def _adapter(folder: Path, interfaces: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "driver": _link(folder / "device/driver"),
        "numa": _numa_node(folder / "device/numa_node"),
        "interfaces": [name for name in _names(folder / "device/net") if name in interfaces],
    }


def _port(folder: Path) -> dict[str, Any]:
    """A port as /sys has it: state "4: ACTIVE", rate "100 Gb/sec (4X EDR)"."""
    state = _read(folder / "state")
    rate = re.match(r"([\d.]+) Gb/sec", _read(folder / "rate") or "")
    return {
        "state": state.partition(":")[2].strip() or state if state else None,
        "link_layer": _read(folder / "link_layer"),
        "rate_bit_s": float(rate[1]) * 1e9 if rate else None,
    }


def _gpus(sys: Path, proc: Path) -> list[dict[str, Any]]:
    """NVIDIA GPUs as their kernel driver lists them; whether one is throttled only nvidia-smi knows."""
    found: list[dict[str, Any]] = []
    for pci in _names(proc / "driver/nvidia/gpus"):
        lines = (_read(proc / "driver/nvidia/gpus" / pci / "information") or "").splitlines()
        values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        found.append(
            {
                "name": values.get("Model", "unknown"),
                "pci": pci.lower(),
                "numa": _numa_node(sys / "bus/pci/devices" / pci.lower() / "numa_node"),
                "driver": _nvidia_driver(proc),
            }
        )
    return found


def _nvidia_driver(proc: Path) -> str | None:
    version = re.search(
        r"NVRM version:.*?\s(\d{3,}\.\d+(?:\.\d+)*)\s", _read(proc / "driver/nvidia/version") or ""
    )
    return version[1] if version else None


def _numa(sys: Path) -> dict[str, list[int]]:
    """NUMA node → its cores."""
    nodes = sys / "devices/system/node"
    return {
        name.removeprefix("node"): _cores(_read(nodes / name / "cpulist") or "")
        for name in _names(nodes)
        if re.fullmatch(r"node\d+", name)
    }


def _cores(text: str) -> list[int]:
    """'0-2,8' → [0, 1, 2, 8]."""
    cores: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return cores


def _governor(sys: Path) -> str | None:
    """How this process's cores choose their clock; several words where they differ, None if unknown."""
    cpus = sys / "devices/system/cpu"
    found = {_read(cpus / f"cpu{core}/cpufreq/scaling_governor") for core in os.sched_getaffinity(0)}
    return ", ".join(sorted(word for word in found if word)) or None


def _resolved(host: str) -> list[str]:
    """The addresses that this host's own name stands for."""
    try:
        answers = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
    except OSError:
        return []
    # glibc's resolver gives an address of IPv4 in IPv6 form as well, where /etc/hosts has both
    return list(dict.fromkeys(str(answer[4][0]).removeprefix("::ffff:") for answer in answers))


def _hidden_config() -> dict[str, list[str]]:
    """Files outside the job that change what the libraries do, with the names that they set."""
    paths = [*provenance.HIDDEN_CONFIG]
    if named := os.environ.get("NCCL_CONF_FILE"):
        paths.append(named)
    found = {}
    for path in paths:
        if (text := _read(Path(path).expanduser())) is not None:
            names = re.findall(r"^\s*(\w+)\s*=", text, re.MULTILINE)
            found[path] = list(dict.fromkeys(names))
    return found


def _limit(which: int) -> int | None:
    soft, _ = resource.getrlimit(which)
    return None if soft == resource.RLIM_INFINITY else soft


def _size_of(path: str) -> int | None:
    try:
        return (about := os.statvfs(path)).f_blocks * about.f_frsize
    except OSError:
        return None


def _version(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
    return ip.version


def _numa_node(path: Path) -> int | None:
    """A device's NUMA node; the kernel writes -1 where there is none."""
    number = _integer(path)
    return None if number is None or number < 0 else number


def _integer(path: Path) -> int | None:
    try:
        return int(_read(path) or "")
    except ValueError:
        return None


def _read(path: Path) -> str | None:
    """A file's text without surrounding blanks; None where it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _link(path: Path) -> str | None:
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return None


def _names(folder: Path) -> list[str]:
    """What a folder holds, numbers in names counted (mlx5_2 before mlx5_10)."""
    try:
        return sorted(os.listdir(folder), key=_natural)
    except OSError:
        return []


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]
