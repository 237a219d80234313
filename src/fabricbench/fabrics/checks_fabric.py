"""Whether a fabric is on every node, as the config describes it, and carries packets between them."""

import ipaddress
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from fabricbench.errors import LaunchError
from fabricbench.fabrics.findings import Finding, Nodes, Wanted
from fabricbench.fabrics.node import RDMA_KINDS, Rails, is_active, look_alikes, resolve

# The kernel's speed of these is a constant or another machine's business.
_UNRATED_DRIVERS = ("veth", "virtio_net", "vmxnet3", "tun", "dummy", "bridge", "ifb")
_MEMLOCK_BYTES = 64 << 20
_RATE_TOLERANCE = 0.01


def check_fabric(fabric: Mapping[str, Any], want: Wanted, nodes: Nodes) -> Iterator[Finding]:
    """Everything about one fabric on all nodes."""
    rails, problems = rails_of(fabric, nodes)
    yield from problems
    if not rails:
        return
    yield _which(fabric, rails)
    yield from check_ends(fabric, want, nodes, rails)
    yield from _mtus(fabric, nodes, rails)
    yield from _look_alikes(fabric, nodes, rails)
    yield from _twice(fabric, rails)
    yield from _only_ipv6(fabric, rails)
    yield from check_reach(fabric, nodes, rails)


def check_ends(
    fabric: Mapping[str, Any], want: Wanted, nodes: Nodes, rails: Mapping[str, Rails]
) -> Iterator[Finding]:
    """What each node can tell of its own end, without the others."""
    yield from _links_up(fabric, nodes, rails)
    yield from _ports_active(fabric, nodes, rails)
    yield from _rates(fabric, nodes, rails)
    yield from _near(fabric, want, nodes, rails)
    yield from _memory_lock(fabric, nodes, rails)


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


def rail_name(fabric: Mapping[str, Any], index: int) -> str:
    """A rail's name in reports: the fabric's own for the first."""
    return f"{fabric['name']} rail {index}" if index else str(fabric["name"])


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


def _only_ipv6(fabric: Mapping[str, Any], rails: Mapping[str, Rails]) -> Iterator[Finding]:
    names = [node for node, rail in rails.items() if any(":" in address for address in rail.addresses)]
    if names:
        text = "the fabric has IPv6 addresses only"
        mend = "nothing to do for cells; by hand set NCCL_SOCKET_FAMILY=AF_INET6, and write [address]:port"
        yield Finding(_on("IPv6", fabric), tuple(names), "note", text, mend)


def check_reach(fabric: Mapping[str, Any], nodes: Nodes, rails: Mapping[str, Rails]) -> Iterator[Finding]:
    """Who reaches whom over the fabric; one finding for each pair that doesn't."""
    check = _on("reach", fabric)
    good: list[str] = []
    untried: list[str] = []
    for node, rail in rails.items():
        tried, bad = 0, False
        for index, interface in enumerate(rail.interfaces):
            for peer, answer in nodes[node].reach.get(rail_name(fabric, index), {}).items():
                tried += 1
                finding = _one_way(check, node, interface, peer, answer)
                bad = bad or finding is not None
                if finding:
                    yield finding
        if not tried:
            untried.append(node)
        elif not bad:
            good.append(node)
    if good:
        yield Finding(check, tuple(good), "ok", "all other nodes answer, packets of full size included")
    if untried and len(rails) > 1:
        text = "not tried: " + (
            "no addresses" if not any(rails[node].addresses for node in untried) else "no probe ran"
        )
        mend = "give its interfaces addresses, or try by hand: ib_write_bw or fi_pingpong between two nodes"
        yield Finding(check, tuple(untried), "note", text, mend)


def _one_way(check: str, node: str, interface: str, peer: str, answer: Mapping[str, Any]) -> Finding | None:
    way = f"{node} to {peer} over {interface}"
    if not answer["reached"]:
        mend = f"ping -I {interface} {peer}'s address; look at routes, VLAN and firewall"
        return Finding(check, (node,), "problem", f"{way}: {answer['because']}", mend)
    if answer["full_size"] is None:
        mend = "let ICMP port-unreachable through firewalls, and raise sysctl net.ipv4.icmp_msgs_per_sec"
        text = f"{way}: answers, but not each time to UDP: packet size not known"
        return Finding(check, (node,), "note", text, mend)
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
                text = f"{device} is at NUMA node {numa}, none of whose cores may be used here"
                yield Finding(
                    check, (node,), "warning", text, "ask for whole nodes: --exclusive, and --cpu-bind=none"
                )
            elif want.binding.get("near") == "none" or want.binding.get("cpu") == "none":
                text = f"{device} is at NUMA node {numa}, and ranks aren't bound near it"
                yield Finding(check, (node,), "note", text, "set cluster.binding: auto")
            elif facts["gpus"] and not gpus and want.uses_cuda:
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


def _on(check: str, fabric: Mapping[str, Any]) -> str:
    return f"{check} {fabric['name']}"


def _gbit(rate: float) -> str:
    return f"{rate / 1e9:g} Gbit/s"
