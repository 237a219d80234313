"""Would a measurement on these nodes be what its config says? Pure checks on what was asked of the nodes.

Every check takes facts and gives findings. A finding that isn't `ok` has one mend.
"""

import ipaddress
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fabricbench.errors import LaunchError
from fabricbench.fabrics.node import (
    RDMA_KINDS,
    NodeFacts,
    Rails,
    is_active,
    is_container_bridge,
    look_alikes,
    resolve,
    usable_addresses,
)
from fabricbench.fabrics.reach import reach

LEVELS = ("problem", "warning", "note", "ok")

# What an MPI library says of itself. Cray's and Intel's say "MPICH" as well, so the order counts.
_MPI = (
    ("cray-mpich", r"CRAY MPICH"),
    ("intel-mpi", r"Intel\(R\) MPI"),
    ("openmpi4", r"Open MPI v4\."),
    ("openmpi5", r"Open MPI v5\."),
    ("mpich", r"MPICH"),
)
_STEADY_CLOCKS = ("tsc", "arch_sys_counter", "timebase")
# The kernel's speed of these is a constant or another machine's business.
_UNRATED_DRIVERS = ("veth", "virtio_net", "tun", "dummy", "bridge", "ifb")
_MEMLOCK_BYTES = 64 << 20
_SHM_BYTES = 512 << 20
_RATE_TOLERANCE = 0.01
_UCX_ALIASES = ("all", "sm", "shm", "self", "cuda", "rocm", "mm", "ib")


@dataclass(frozen=True)
class Finding:
    """What one check says of one or several nodes."""

    check: str
    nodes: tuple[str, ...]
    level: str
    """ok, note, warning or problem."""
    text: str
    mend: str | None = None
    """What to do; None only when all is well."""


@dataclass(frozen=True)
class Node:
    """What was asked of one node."""

    facts: NodeFacts
    software: Mapping[str, Any] | None = None
    """What `fabrics.visit.software` found; None where it wasn't asked."""
    reach: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Rail ("ethernet", "ethernet rail 1") → peer → fields of `Reach`."""


Nodes = Mapping[str, Node]
"""By name, in the order of the cluster."""


@dataclass(frozen=True)
class Use:
    """A fabric and a backend that cells bring together, with the variables that they set."""

    fabric: str
    backend: Mapping[str, Any]
    environment: Mapping[str, str]
    device: str


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a campaign's cells want of the nodes."""

    cluster: str
    nodes: int = 1
    fabrics: tuple[Mapping[str, Any], ...] = ()
    uses: tuple[Use, ...] = ()
    ranks_per_node: int = 1
    threads_per_rank: int = 1
    binding: Mapping[str, Any] = field(default_factory=dict)
    delay: bool = False
    """Whether a link's delay, jitter or loss is to be emulated."""

    @property
    def engines(self) -> set[str]:
        """The engines that cells run on."""
        return {use.backend["engine"] for use in self.uses}


def wanted(cluster: str, cells: Iterable[Any]) -> Wanted:
    """What cells of a grid want together; of ranks and threads, the most on one node."""
    fabrics: dict[str, Mapping[str, Any]] = {}
    uses: dict[str, Use] = {}
    nodes, most = 1, (1, 1)
    binding: Mapping[str, Any] = {}
    for cell in cells:
        fabrics[cell.fabric["name"]] = cell.fabric
        use = Use(cell.fabric["name"], cell.backend, cell.environment, cell.device)
        uses.setdefault(repr(use), use)
        nodes = max(nodes, cell.nodes)
        ranks = cell.gpus if cluster == "emulated" else cell.ranks_per_node
        most = max(most, (ranks, cell.threads_per_rank), key=_product)
        binding = cell.binding
    return Wanted(
        cluster=cluster,
        nodes=nodes,
        fabrics=tuple(fabrics.values()),
        uses=tuple(uses.values()),
        ranks_per_node=most[0],
        threads_per_rank=most[1],
        binding=binding,
        delay=any(fabric["delay_s"] or fabric["jitter_s"] or fabric["loss"] for fabric in fabrics.values()),
    )


def examine(want: Wanted, nodes: Nodes) -> list[Finding]:
    """All checks of nodes; the worst first, equal findings of several nodes as one."""
    found: list[Finding] = []
    for fabric in want.fabrics:
        found += check_fabric(fabric, want, nodes)
    found += check_machines(want, nodes)
    found += check_software(want, nodes)
    return in_order(found)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Equal findings of several nodes as one; problems first, else in the order of the checks."""
    same: dict[Finding, list[str]] = defaultdict(list)
    for finding in findings:
        same[replace(finding, nodes=())].extend(finding.nodes)
    merged = [replace(finding, nodes=tuple(dict.fromkeys(nodes))) for finding, nodes in same.items()]
    return sorted(merged, key=_badness)


def rails_of(fabric: Mapping[str, Any], nodes: Nodes) -> tuple[dict[str, Rails], list[Finding]]:
    """Each node's rails of a fabric, and a problem for each node that lacks them."""
    rails: dict[str, Rails] = {}
    problems = []
    for name, node in nodes.items():
        try:
            rails[name] = resolve(fabric, node.facts)
        except LaunchError as error:
            problems.append(
                Finding(_on("interface", fabric), (name,), "problem", str(error), _mend_of_names(fabric))
            )
    return rails, problems


def preflight(
    fabric: Mapping[str, Any], facts: NodeFacts, peers: Mapping[str, Sequence[str]] | None = None
) -> list[Finding]:
    """The problems that would spoil a cell on this node, looked for before its ranks meet.

    `peers`: the other nodes' addresses on the fabric, in the order of their rails; they are tried.
    """
    node = Node(facts)
    nodes = {facts["host"]: node}
    rails, problems = rails_of(fabric, nodes)
    if problems:
        return problems
    own = rails[facts["host"]]
    found = [*_links_up(fabric, nodes, rails), *_ports_active(fabric, nodes, rails)]
    if peers and not any(finding.level == "problem" for finding in found):
        tried: dict[str, dict[str, Mapping[str, Any]]] = {}
        for index, (interface, address) in enumerate(zip(own.interfaces, own.addresses, strict=False)):
            names = {addresses[index]: peer for peer, addresses in peers.items() if index < len(addresses)}
            mtu = facts["interfaces"][interface]["mtu"]
            answers = reach(interface, address, list(names), mtu)
            tried[rail_name(fabric, index)] = {names[peer]: vars(answer) for peer, answer in answers.items()}
        found += _reached(fabric, {facts["host"]: Node(facts, reach=tried)}, rails)
    return [finding for finding in found if finding.level == "problem"]


def rail_name(fabric: Mapping[str, Any], index: int) -> str:
    """A rail's name in reports: the fabric's own for the first."""
    return f"{fabric['name']} rail {index}" if index else str(fabric["name"])


def check_fabric(fabric: Mapping[str, Any], want: Wanted, nodes: Nodes) -> Iterator[Finding]:
    """Everything about one fabric on all nodes."""
    rails, problems = rails_of(fabric, nodes)
    yield from problems
    if not rails:
        return
    yield _which(fabric, rails)
    yield from _links_up(fabric, nodes, rails)
    yield from _ports_active(fabric, nodes, rails)
    yield from _rates(fabric, nodes, rails)
    yield from _mtus(fabric, nodes, rails)
    yield from _look_alikes(fabric, nodes, rails)
    yield from _twice(fabric, rails)
    yield from _only_ipv6(fabric, want, rails)
    yield from _reached(fabric, nodes, rails)
    yield from _near(fabric, want, nodes, rails)
    yield from _memory_lock(fabric, nodes, rails)


def check_machines(want: Wanted, nodes: Nodes) -> Iterator[Finding]:
    """What of the nodes themselves would spoil a measurement, whatever the fabric."""
    for name, node in nodes.items():
        yield _host_name(name, node.facts, want)
        yield _clock(name, node.facts)
        yield from _governor(name, node.facts)
        yield _load(name, node.facts)
        yield from _shared_memory(name, node.facts)
        yield from _gpus(name, node, want)
    yield from check_hidden(nodes)
    yield from _cores(want, nodes)
    yield from _container_bridges(nodes)


def check_software(want: Wanted, nodes: Nodes) -> Iterator[Finding]:
    """Whether the libraries that the cells need are there, and are the right ones."""
    for name, node in nodes.items():
        if node.software is not None:
            yield from _mpi(name, node.software, want)
            yield from _torch(name, node.software, want)
            yield from _providers(name, node.software, want)
            yield from _transports(name, node.software, want)


def check_hidden(nodes: Nodes) -> Iterator[Finding]:
    """Files outside the job that change what the libraries do."""
    for name, node in nodes.items():
        yield from _hidden(name, node.facts)


def check_emulation(want: Wanted | None, unavailable: str | None, netem: bool | None) -> Iterator[Finding]:
    """Whether this machine can emulate fabrics; a problem only for a config that wants it."""
    here = ("this machine",)
    emulated = want is not None and want.cluster == "emulated"
    if unavailable:
        why, _, mend = unavailable.partition(": ")
        level = "problem" if emulated else "note"
        yield Finding("emulation", here, level, why, mend or "set cluster.kind: host in the config")
        return
    yield Finding("emulation", here, "ok", "nodes and shaped links can be made")
    if netem:
        yield Finding("netem", here, "ok", "delay, jitter and loss can be emulated")
    elif netem is False:
        asked = want is not None and want.delay
        text = "this kernel has no netem: delay, jitter and loss are not emulated"
        mend = "sudo modprobe sch_netem, or leave delay, jitter and loss out of the config"
        yield Finding("netem", here, "warning" if asked else "note", text, mend)


def check_answers(expected: Sequence[str], nodes: Nodes, words: Mapping[str, str]) -> Iterator[Finding]:
    """A problem for every node of an allocation that didn't answer; `words`: what was heard instead."""
    for name in expected:
        if name not in nodes:
            said = f": {words[name]}" if words.get(name) else ""
            text = f"{name} didn't answer{said}"
            mend = f"srun --nodelist={name} hostname must work; leave the node out with --exclude={name}"
            yield Finding("node answers", (name,), "problem", text, mend)


def _which(fabric: Mapping[str, Any], rails: Mapping[str, Rails]) -> Finding:
    """Which interface and adapter each node uses, nodes of one answer together."""
    by_answer: dict[str, list[str]] = defaultdict(list)
    for name, rail in rails.items():
        adapters = " and ".join(", ".join(part) for part in (rail.adapters, rail.interfaces) if part)
        by_answer[adapters].append(name)
    if len(by_answer) == 1:
        text = next(iter(by_answer))
    else:
        text = "; ".join(f"{answer} on {', '.join(names)}" for answer, names in by_answer.items())
    return Finding(_on("interface", fabric), tuple(rails), "ok", text)


def _links_up(fabric: Mapping[str, Any], nodes: Nodes, rails: Mapping[str, Rails]) -> Iterator[Finding]:
    check = _on("link", fabric)
    for node, name, interface in _each_interface(nodes, rails):
        if not interface["up"]:
            yield Finding(check, (node,), "problem", f"{name} is down", f"sudo ip link set {name} up")
        elif not interface["carrier"]:
            mend = f"check the cable and the switch's port, then `ip link show {name}`"
            yield Finding(check, (node,), "problem", f"{name} is up but has no carrier", mend)
        else:
            yield Finding(check, (node,), "ok", f"{name} is up")


def _ports_active(fabric: Mapping[str, Any], nodes: Nodes, rails: Mapping[str, Rails]) -> Iterator[Finding]:
    check = _on("adapter port", fabric)
    for node, adapter, number, port in _each_port(fabric, nodes, rails):
        if port is None:
            have = ", ".join(nodes[node].facts["adapters"][adapter]["ports"]) or "none"
            text = f"{adapter} has no port {number}; its ports: {have}"
            yield Finding(check, (node,), "problem", text, f"set fabrics.{fabric['name']}.port")
        elif not is_active(port["state"]):
            text = f"{adapter}:{number} is {port['state'] or 'in an unknown state'}, not ACTIVE"
            yield Finding(check, (node,), "problem", text, _mend_of_port(port["state"], port["link_layer"]))
        elif wrong := _wrong_layer(fabric["kind"], port["link_layer"]):
            text = f"{adapter}:{number} runs {port['link_layer']}, so the fabric is not {fabric['kind']}"
            yield Finding(check, (node,), "problem", text, f"set fabrics.{fabric['name']}.kind: {wrong}")
        else:
            yield Finding(check, (node,), "ok", f"{adapter}:{number} is ACTIVE")


def _mend_of_port(state: str | None, link_layer: str | None) -> str:
    if state == "INIT" and link_layer == "InfiniBand":
        return "start a subnet manager (opensm, or the switch's), then look again with ibstat"
    return "check the cable and the switch's port, then look again with ibstat or rdma link"


def _wrong_layer(kind: str, link_layer: str | None) -> str | None:
    """The kind that a port's link layer shows it to be, where the fabric says the other."""
    layers = {"InfiniBand": "infiniband", "Ethernet": "roce"}
    real = layers.get(link_layer or "")
    return real if real and kind in layers.values() and real != kind else None


def _rates(fabric: Mapping[str, Any], nodes: Nodes, rails: Mapping[str, Rails]) -> Iterator[Finding]:
    declared = fabric.get("rate_bit_s")
    if declared is None or fabric["kind"] == "emulated":
        return
    for node, what, negotiated in _each_rate(fabric, nodes, rails):
        yield _rate(_on("rate", fabric), fabric["name"], node, what, negotiated, declared)


def _rate(
    check: str, fabric: str, node: str, what: str, negotiated: float | None, declared: float
) -> Finding:
    said = f"fabrics.{fabric}.rate says {_gbit(declared)}"
    if negotiated is None:
        text = f"the kernel doesn't know the rate of {what}; {said}"
        return Finding(check, (node,), "note", text, "ask the link's hardware or its owner, and correct rate")
    text = f"{what} negotiated {_gbit(negotiated)}"
    if negotiated < declared * (1 - _RATE_TOLERANCE):
        mend = "check cable, transceiver and switch port, or correct rate"
        return Finding(check, (node,), "problem", f"{text}, {said}", mend)
    if negotiated > declared * (1 + _RATE_TOLERANCE):
        mend = f"set fabrics.{fabric}.rate: {_gbit(negotiated)}"
        return Finding(check, (node,), "warning", f"{text}, {said}: shares of it will be too high", mend)
    return Finding(check, (node,), "ok", text)


def _mtus(fabric: Mapping[str, Any], nodes: Nodes, rails: Mapping[str, Rails]) -> Iterator[Finding]:
    by_mtu: dict[int, list[str]] = defaultdict(list)
    for node, _, interface in _each_interface(nodes, rails):
        by_mtu[interface["mtu"]].append(node)
    if len(by_mtu) == 1:
        yield Finding(_on("MTU", fabric), tuple(rails), "ok", str(next(iter(by_mtu))))
    elif by_mtu:
        each = (f"{mtu} on {', '.join(dict.fromkeys(names))}" for mtu, names in by_mtu.items())
        text = f"differs: {'; '.join(each)}"
        mend = "give the interfaces one MTU that the switches carry: sudo ip link set NAME mtu SIZE"
        yield Finding(_on("MTU", fabric), tuple(rails), "warning", text, mend)


def _look_alikes(fabric: Mapping[str, Any], nodes: Nodes, rails: Mapping[str, Rails]) -> Iterator[Finding]:
    for node, name, _ in _each_interface(nodes, rails):
        if alike := look_alikes(name, nodes[node].facts["interfaces"]):
            text = f"{', '.join(alike)} and {name} begin alike; {name} alone is selected, exactly"
            mend = f"nothing to do for cells; by hand write NCCL_SOCKET_IFNAME=={name}, with two ="
            yield Finding(_on("look-alikes", fabric), (node,), "note", text, mend)


def _twice(fabric: Mapping[str, Any], rails: Mapping[str, Rails]) -> Iterator[Finding]:
    owners: dict[str, list[str]] = defaultdict(list)
    for node, rail in rails.items():
        for address in rail.addresses:
            owners[address].append(node)
    for address, names in owners.items():
        if len(names) > 1 and not ipaddress.ip_address(address).is_loopback:
            text = f"{address} is on several nodes: {', '.join(names)}"
            mend = "give each node an address of its own, or select another interface"
            yield Finding(_on("address", fabric), tuple(names), "problem", text, mend)


def _only_ipv6(fabric: Mapping[str, Any], want: Wanted, rails: Mapping[str, Rails]) -> Iterator[Finding]:
    names = [node for node, rail in rails.items() if any(":" in address for address in rail.addresses)]
    if not names:
        return
    nccl = [use for use in want.uses if use.fabric == fabric["name"] and use.backend["engine"] == "nccl"]
    told = all(use.environment.get("NCCL_SOCKET_FAMILY") == "AF_INET6" for use in nccl)
    text = "the fabric has IPv6 addresses only"
    if nccl and not told:
        mend = f"add to fabrics.{fabric['name']}: environment: {{NCCL_SOCKET_FAMILY: AF_INET6}}"
        yield Finding(_on("IPv6", fabric), tuple(names), "warning", f"{text}; NCCL isn't told so", mend)
    else:
        mend = "nothing to do for cells; by hand write host:port as [address]:port"
        yield Finding(_on("IPv6", fabric), tuple(names), "note", text, mend)


def _reached(fabric: Mapping[str, Any], nodes: Nodes, rails: Mapping[str, Rails]) -> Iterator[Finding]:
    """Who reaches whom over the fabric; one finding for each pair that doesn't."""
    check, tried = _on("reach", fabric), 0
    good: list[str] = []
    for node, rail in rails.items():
        bad = False
        for index, interface in enumerate(rail.interfaces):
            for peer, answer in nodes[node].reach.get(rail_name(fabric, index), {}).items():
                tried += 1
                finding = _one_way(check, node, interface, peer, answer)
                bad = bad or finding is not None
                if finding:
                    yield finding
        good += [] if bad else [node]
    if tried and good:
        yield Finding(check, tuple(good), "ok", "all other nodes answer, packets of full size included")
    if not tried and len(rails) > 1:
        text = "not tried: " + (
            "no addresses" if not any(r.addresses for r in rails.values()) else "no probe ran"
        )
        mend = "give its interfaces addresses, or try by hand: ib_write_bw or fi_pingpong between two nodes"
        yield Finding(check, tuple(rails), "note", text, mend)


def _one_way(check: str, node: str, interface: str, peer: str, answer: Mapping[str, Any]) -> Finding | None:
    way = f"{node} to {peer} over {interface}"
    if not answer["reached"]:
        mend = f"ping -I {interface} {peer}'s address; look at routes, VLAN and firewall"
        return Finding(check, (node,), "problem", f"{way}: {answer['because']}", mend)
    if answer["full_size"] is None:
        mend = "let ICMP port-unreachable through the nodes' firewalls, for this check"
        return Finding(check, (node,), "note", f"{way}: answers, but not to UDP: packet size not tried", mend)
    if not answer["full_size"]:
        passed, stopped = answer["passed_bytes"], answer["stopped_bytes"]
        text = f"{way}: packets of {passed} bytes arrive, stopped at {stopped}: larger messages would hang"
        mend = f"set the MTU of {interface} to what the whole way carries, as {passed}"
        return Finding(check, (node,), "problem", text, mend)
    return None


def _near(
    fabric: Mapping[str, Any], want: Wanted, nodes: Nodes, rails: Mapping[str, Rails]
) -> Iterator[Finding]:
    """Whether ranks may run near the fabric's devices; of interest where a node has several NUMA nodes."""
    for node, rail in rails.items():
        facts = nodes[node].facts
        devices = [(name, facts["adapters"][name]["numa"]) for name in rail.adapters] or [
            (name, facts["interfaces"][name]["numa"]) for name in rail.interfaces
        ]
        if len(facts["numa"]) < 2:
            continue
        for device, numa in devices:
            if numa is None:
                continue
            check = _on("locality", fabric)
            near = set(facts["numa"].get(str(numa), [])) & set(facts["cores"])
            gpus = [gpu["pci"] for gpu in facts["gpus"] if gpu["numa"] == numa]
            if not near:
                text = f"{device} is at NUMA node {numa}, none of whose cores this job may use"
                yield Finding(check, (node,), "warning", text, "ask for whole nodes: --exclusive")
            elif want.binding.get("near") == "none" or want.binding.get("cpu") == "none":
                text = f"{device} is at NUMA node {numa}, and ranks aren't bound near it"
                yield Finding(check, (node,), "note", text, "set cluster.binding: auto")
            elif facts["gpus"] and not gpus and _uses_cuda(want):
                text = f"{device} is at NUMA node {numa}, no GPU is: bytes cross the sockets"
                mend = "select the adapter next to the GPUs, which `nvidia-smi topo -m` shows"
                yield Finding(check, (node,), "note", text, mend)
            else:
                text = f"{device} is at NUMA node {numa}, where this job has {len(near)} cores"
                yield Finding(check, (node,), "ok", text)


def _memory_lock(fabric: Mapping[str, Any], nodes: Nodes, rails: Mapping[str, Rails]) -> Iterator[Finding]:
    if fabric["kind"] not in RDMA_KINDS:
        return
    for node in rails:
        limit = nodes[node].facts["memlock_bytes"]
        check = _on("locked memory", fabric)
        mend = "memlock unlimited in /etc/security/limits.conf, and LimitMEMLOCK=infinity for slurmd"
        if limit is None:
            yield Finding(check, (node,), "ok", "unlimited")
        else:
            level = "problem" if limit < _MEMLOCK_BYTES else "warning"
            text = f"ulimit -l is {limit // 1024} KB; RDMA needs its buffers locked"
            yield Finding(check, (node,), level, text, mend)


def _host_name(name: str, facts: NodeFacts, want: Wanted) -> Finding:
    addresses = facts["resolves_to"]
    loopback = [
        address for address in addresses if ipaddress.ip_address(address.partition("%")[0]).is_loopback
    ]
    level = "warning" if want.nodes > 1 else "note"
    mend = f"give {facts['host']} its network address in /etc/hosts or DNS"
    if not addresses:
        return Finding("host name", (name,), level, f"{facts['host']} resolves to no address", mend)
    if len(loopback) == len(addresses):
        text = f"{facts['host']} resolves to loopback, {', '.join(addresses)}: other nodes would be told that"
        return Finding("host name", (name,), level, text, mend)
    return Finding("host name", (name,), "ok", "resolves to the node's own network address")


def _clock(name: str, facts: NodeFacts) -> Finding:
    source = facts["clocksource"]
    if source is None or source in _STEADY_CLOCKS:
        return Finding("clock", (name,), "ok", source or "its source is not shown")
    mend = "find in `dmesg | grep -i tsc` why tsc was given up; boot with tsc=reliable where that is right"
    return Finding(
        "clock", (name,), "warning", f"clock source {source}: slow to read, and it may drift", mend
    )


def _governor(name: str, facts: NodeFacts) -> Iterator[Finding]:
    governor = facts["governor"]
    if governor is None:
        return
    if governor == "performance":
        yield Finding("CPU governor", (name,), "ok", governor)
    else:
        text = f"{governor}: cores slow down while ranks wait"
        yield Finding("CPU governor", (name,), "warning", text, "sudo cpupower frequency-set -g performance")


def _load(name: str, facts: NodeFacts) -> Finding:
    load, cores = facts["load"], len(facts["cores"])
    if load > max(0.75, 0.1 * cores):
        text = f"load {load:.1f} on {cores} cores: something else runs here"
        return Finding("other work", (name,), "warning", text, "stop it, or ask for nodes of your own")
    return Finding("other work", (name,), "ok", f"none (load {load:.1f})")


def _hidden(name: str, facts: NodeFacts) -> Iterator[Finding]:
    if not facts["hidden_config"]:
        yield Finding("hidden config", (name,), "ok", "none")
    for path in facts["hidden_config"]:
        names = facts.get("hidden_variables", {}).get(path, [])
        sets = f"sets {', '.join(names)}" if names else "sets nothing"
        text = f"{path} {sets}, for every cell"
        mend = f"move {path} away, or set the same variables in the config"
        yield Finding("hidden config", (name,), "warning" if names else "note", text, mend)


def _shared_memory(name: str, facts: NodeFacts) -> Iterator[Finding]:
    size = facts["shm_bytes"]
    if size is not None and size < _SHM_BYTES:
        text = f"/dev/shm has {size >> 20} MB; ranks of one node talk through it"
        mend = "start the container with --shm-size=8g, or sudo mount -o remount,size=8G /dev/shm"
        yield Finding("shared memory", (name,), "warning", text, mend)
    elif size is not None:
        yield Finding("shared memory", (name,), "ok", f"/dev/shm has {size / 2**30:.1f} GB")


def _gpus(name: str, node: Node, want: Wanted) -> Iterator[Finding]:
    facts = node.facts
    if facts["nvidia_driver"] and facts["gpus"]:
        text = f"driver {facts['nvidia_driver']}, {len(facts['gpus'])} GPUs"
        yield Finding("GPUs", (name,), "ok", text)
    elif _uses_cuda(want):
        text = "no NVIDIA driver here, and the config's device is cuda"
        mend = "ask for GPUs (--gpus-per-node), or load the driver: sudo modprobe nvidia"
        yield Finding("GPUs", (name,), "problem", text, mend)
    throttled = (node.software or {}).get("throttled", {})
    for pci, reasons in throttled.items():
        text = f"GPU {pci} is throttled: {', '.join(reasons)}"
        mend = "cool it or raise its power limit; see nvidia-smi -q -d PERFORMANCE,POWER"
        yield Finding("GPU clock", (name,), "warning", text, mend)


def _cores(want: Wanted, nodes: Nodes) -> Iterator[Finding]:
    """Whether every rank and thread can have a core. All emulated nodes are one machine."""
    if not want.uses:
        return
    needed = want.ranks_per_node * want.threads_per_rank
    where = "machine" if want.cluster == "emulated" else "node"
    for name, node in nodes.items():
        cores = len(node.facts["cores"])
        text = (
            f"{want.ranks_per_node} ranks × {want.threads_per_rank} threads on {cores} cores of one {where}"
        )
        if needed <= cores:
            yield Finding("cores", (name,), "ok", text)
            continue
        mend = "lower gpus, ranks_per_node or threads_per_rank"
        if want.binding.get("cpu") in (None, "auto", "none"):
            level = "note" if want.cluster == "emulated" else "warning"
            yield Finding("cores", (name,), level, f"{text}: they share cores", mend)
        else:
            mend = "set cluster.binding: auto, or lower gpus, ranks_per_node or threads_per_rank"
            yield Finding(
                "cores", (name,), "problem", f"{text}, and cluster.binding insists on its own", mend
            )


def _container_bridges(nodes: Nodes) -> Iterator[Finding]:
    owners: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, node in nodes.items():
        for interface, facts in node.facts["interfaces"].items():
            if is_container_bridge(interface):
                for address in usable_addresses(facts):
                    owners[interface, address].append(name)
    for (interface, address), names in owners.items():
        same = f"has {address} on each of these nodes" if len(names) > 1 else f"has {address}"
        text = f"{interface} {same}; it is excluded, being no network between nodes"
        mend = f"nothing to do for cells; by hand exclude it, as btl_tcp_if_exclude lo,{interface}"
        yield Finding("bridges", tuple(names), "note", text, mend)


def _mpi(name: str, software: Mapping[str, Any], want: Wanted) -> Iterator[Finding]:
    mpi = software["mpi"]
    used = "mpi" in want.engines
    if mpi.get("error"):
        text = f"mpi4py loads no MPI library: {mpi['error']}"
        level = "problem" if used else "note"
        mend = "load the cluster's MPI module, or pip install mpich"
        yield Finding("MPI library", (name,), level, text, mend)
        return
    loaded = which_mpi(mpi["version"])
    first = " ".join(mpi["version"].split("\n")[0].split())
    libraries = {use.backend.get("library") or "mpich" for use in want.uses if use.backend["engine"] == "mpi"}
    wrong = sorted(libraries - {loaded})
    if wrong:
        backends = sorted(
            {
                use.backend["name"]
                for use in want.uses
                if use.backend["engine"] == "mpi" and (use.backend.get("library") or "mpich") in wrong
            }
        )
        text = f"mpi4py loads {first}; backend {', '.join(backends)} says {', '.join(wrong)}"
        if loaded and len(libraries) == 1:
            mend = f"set backends.{backends[0]}.library: {loaded}"
        else:
            mend = f"load the module of {wrong[0]}, with an mpi4py that was built for it"
        yield Finding("MPI library", (name,), "problem", text, mend)
    else:
        yield Finding("MPI library", (name,), "ok", f"mpi4py loads {first}")


def which_mpi(version: str) -> str | None:
    """The config's word for an MPI library, from what it says of itself; None if it is another."""
    return next((word for word, pattern in _MPI if re.search(pattern, version)), None)


def _torch(name: str, software: Mapping[str, Any], want: Wanted) -> Iterator[Finding]:
    torch = software["torch"]
    needed = want.engines & {"nccl", "gloo"}
    if torch.get("error"):
        level = "problem" if needed else "note"
        text = f"torch can't be imported: {torch['error']}"
        yield Finding("torch", (name,), level, text, "set the project up again: make setup")
        return
    lacking = sorted(engine for engine in needed if not torch[engine])
    if lacking:
        text = f"torch {torch['version']} has no {' and no '.join(lacking)}"
        mend = "install torch's full build: make setup, without TORCH_INDEX"
        yield Finding("torch", (name,), "problem", text, mend)
    else:
        has = [engine for engine in ("gloo", "nccl") if torch[engine]]
        yield Finding("torch", (name,), "ok", f"torch {torch['version']} has {', '.join(has)}")


def _providers(name: str, software: Mapping[str, Any], want: Wanted) -> Iterator[Finding]:
    """Whether libfabric has each provider that the cells name."""
    own = ("mpich", "intel-mpi")  # these bring a libfabric of their own, which fi_info needn't know
    needed: dict[str, bool] = {}
    for use in want.uses:
        value = use.environment.get("FI_PROVIDER") or ""
        sure = use.backend["engine"] != "mpi" or (use.backend.get("library") or "mpich") not in own
        for word in [] if value.startswith("^") else filter(None, re.split(r"[;,+]", value)):
            needed[word] = needed.get(word, False) or sure
    found = software["providers"]
    if found is not None:
        found = list(dict.fromkeys(word for each in found for word in each.split(";")))
    yield from _found_by(name, "libfabric", "fi_info", "provider", needed, found)


def _transports(name: str, software: Mapping[str, Any], want: Wanted) -> Iterator[Finding]:
    """Whether UCX has each transport that the cells name."""
    values = [use.environment.get("UCX_TLS") or "" for use in want.uses]
    words = {word for value in values if not value.startswith("^") for word in value.split(",") if word}
    needed = {word: True for word in words if not word.startswith(_UCX_ALIASES)}
    yield from _found_by(name, "UCX", "ucx_info", "transport", needed, software["transports"])


def _found_by(
    name: str, library: str, tool: str, what: str, needed: Mapping[str, bool], found: Sequence[str] | None
) -> Iterator[Finding]:
    """What a library's own tool finds of what is needed; True in `needed`: the tool's word is final."""
    if not needed:
        return
    asked = ", ".join(sorted(needed))
    lacking = sorted(word for word in needed if not any(each.startswith(word) for each in found or ()))
    if found is None:
        text = f"{tool} isn't on PATH: whether {library} has {what} {asked} shows when a cell runs"
        yield Finding(library, (name,), "note", text, f"put {tool} of the {library} in use on PATH")
    elif lacking:
        text = f"{tool} finds no {what} {', '.join(lacking)}; it has: {', '.join(found) or 'none'}"
        mend = f"load the {library} that the cluster provides, or name another {what}"
        level = "problem" if any(needed[word] for word in lacking) else "warning"
        yield Finding(library, (name,), level, text, mend)
    else:
        yield Finding(library, (name,), "ok", f"{what} {asked} found by {tool}")


def _each_interface(nodes: Nodes, rails: Mapping[str, Rails]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for node, rail in rails.items():
        for name in rail.interfaces:
            yield node, name, nodes[node].facts["interfaces"][name]


def _each_port(
    fabric: Mapping[str, Any], nodes: Nodes, rails: Mapping[str, Rails]
) -> Iterator[tuple[str, str, str, Mapping[str, Any] | None]]:
    """(node, adapter, port's number, the port or None) where the bytes go through adapters."""
    if fabric["kind"] not in RDMA_KINDS:
        return
    number = str(fabric.get("port") or 1)
    for node, rail in rails.items():
        for adapter in rail.adapters:
            yield node, adapter, number, nodes[node].facts["adapters"][adapter]["ports"].get(number)


def _each_rate(
    fabric: Mapping[str, Any], nodes: Nodes, rails: Mapping[str, Rails]
) -> Iterator[tuple[str, str, float | None]]:
    """(node, interface or port, negotiated rate) of what carries the bytes, where a rate means something."""
    if fabric["kind"] in RDMA_KINDS:
        for node, adapter, number, port in _each_port(fabric, nodes, rails):
            if port is not None and is_active(port["state"]):
                yield node, f"{adapter}:{number}", port["rate_bit_s"]
        return
    for node, name, interface in _each_interface(nodes, rails):
        if (
            interface["kind"] != "loopback"
            and interface["driver"] not in _UNRATED_DRIVERS
            and interface["up"]
        ):
            yield node, name, interface["speed_bit_s"]


def _mend_of_names(fabric: Mapping[str, Any]) -> str:
    name = fabric["name"]
    if fabric["interface"]:
        return f"write every node's name into fabrics.{name}.interface, as [eth0, eno1]; or give a subnet"
    if fabric.get("subnet"):
        return f"correct fabrics.{name}.subnet to the network that `ip address` shows on the nodes"
    return f"write every node's name into fabrics.{name}.adapter, as [mlx5_0, mlx5_2]"


def _uses_cuda(want: Wanted) -> bool:
    return any(use.device == "cuda" for use in want.uses)


def _on(check: str, fabric: Mapping[str, Any]) -> str:
    return f"{check} {fabric['name']}"


def _gbit(rate: float) -> str:
    return f"{rate / 1e9:g} Gbit/s"


def _product(pair: tuple[int, int]) -> int:
    return pair[0] * pair[1]


def _badness(finding: Finding) -> int:
    return LEVELS.index(finding.level)
