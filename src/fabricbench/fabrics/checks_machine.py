"""What of the nodes themselves would spoil a measurement: names, clocks, cores, memory, GPUs, files."""

import ipaddress
from collections import defaultdict
from collections.abc import Iterator, Sequence

from fabricbench.cores import cores_per_rank, engine_threads
from fabricbench.fabrics.findings import Finding, Node, Nodes, Wanted
from fabricbench.fabrics.node import NodeFacts, is_container_bridge, usable_addresses

_STEADY_CLOCKS = ("tsc", "arch_sys_counter", "timebase")
_SHM_BYTES = 512 << 20


def check_machines(want: Wanted, nodes: Nodes) -> Iterator[Finding]:
    """What of the nodes themselves would spoil a measurement, whatever the fabric."""
    for name, node in nodes.items():
        yield _host_name(name, node.facts, want)
        yield from check_clocks(name, node.facts)
        yield _load(name, node.facts)
        yield from _shared_memory(name, node.facts)
        yield from _gpus(name, node, want)
    yield from check_hidden(nodes)
    yield from _cores(want, nodes)
    yield from _container_bridges(nodes)


def check_clocks(name: str, facts: NodeFacts) -> Iterator[Finding]:
    """Whether time is read well, and the cores keep their own clock."""
    yield _clock(name, facts)
    yield from _governor(name, facts)


def check_hidden(nodes: Nodes) -> Iterator[Finding]:
    """Files outside the job that change what the libraries do."""
    for name, node in nodes.items():
        yield from _hidden(name, node.facts)


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
    elif want.uses_cuda:
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
    named = want.binding.get("cpu")
    if named is not None and not isinstance(named, str):
        for name, node in nodes.items():
            yield _named_cores(name, node.facts["cores"], named, want)
        return
    needed = want.ranks_per_node * cores_per_rank(
        want.threads_per_rank, want.busiest_engine, want.busiest_kind
    )
    each = f"{want.threads_per_rank} threads"
    if own := engine_threads(want.busiest_engine, want.busiest_kind):
        each = f"({each} + {own} of {want.busiest_engine})"
    where = "machine" if want.cluster == "emulated" else "node"
    for name, node in nodes.items():
        cores = len(node.facts["cores"])
        text = f"{want.ranks_per_node} ranks × {each} on {cores} cores of one {where}"
        if needed <= cores:
            yield Finding("cores", (name,), "ok", text)
        elif named in (None, "auto", "none"):
            level = "note" if want.cluster == "emulated" else "warning"
            mend = "lower gpus, ranks_per_node or threads_per_rank"
            yield Finding("cores", (name,), level, f"{text}: they share cores", mend)
        else:
            mend = "set cluster.binding: auto, or lower gpus, ranks_per_node or threads_per_rank"
            text = f"{text}, and cluster.binding insists on its own"
            yield Finding("cores", (name,), "problem", text, mend)


def _named_cores(name: str, cores: Sequence[int], named: Sequence[Sequence[int]], want: Wanted) -> Finding:
    """Whether the cores that the config names for each local rank are there, and are enough."""
    used = named[: want.local_ranks]
    if len(named) < want.local_ranks:
        text = f"cluster.binding.cpu lists cores of {len(named)} local ranks, a node has {want.local_ranks}"
        return Finding(
            "cores", (name,), "problem", text, "list the cores of every local rank, or set it to auto"
        )
    if missing := sorted({core for own in used for core in own} - set(cores)):
        text = f"cluster.binding.cpu names cores {missing}, which this job doesn't have; it has {list(cores)}"
        mend = "name cores that every node has, or ask for whole nodes: --exclusive"
        return Finding("cores", (name,), "problem", text, mend)
    needed = cores_per_rank(want.threads_per_rank, want.busiest_engine, want.busiest_kind)
    if short := [rank for rank, own in enumerate(used) if len(set(own)) < needed]:
        text = f"cluster.binding.cpu gives local ranks {short} fewer cores than their {needed} threads"
        mend = f"name {needed} cores for each, one of them for the engine's own thread where it has one"
        return Finding("cores", (name,), "warning", text, mend)
    return Finding(
        "cores", (name,), "ok", f"those that cluster.binding.cpu names for {len(used)} local ranks"
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
