"""The parts of a configuration that say what moves the bytes: fabrics, backends and binding.

Each function takes one part that satisfies the schema, with its defaults, and tells the mistakes that it
finds to `mistake(path, text)`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_interface, ip_network
from itertools import combinations
from typing import Any, TypeVar

from fabricbench.campaign import Backend, Cluster, Fabric
from fabricbench.config_schema import did_you_mean, shown
from fabricbench.fabrics.selection import LIBRARIES, PROVIDERS
from fabricbench.mpi_library import MPI_ENGINES, SRUN_MPI, is_mpi
from fabricbench.units import parse_delay, parse_rate, parse_share

T = TypeVar("T")
Mistake = Callable[[str, str], None]

_EMULATED_ONLY = ("effective", "delay", "jitter", "loss")
_RATES = ("rate", "effective")
_NOT_EMULATED = ("subnet", "adapter", "port", "provider")
_SLOWEST_LINK_BIT_S = 1000
_FASTEST_LINK_BIT_S = 10_000_000_000
"""More than emulated links carry: a real rate that was meant to be scaled."""

_ONLY_KIND = {"emulated": "emulated", "host": "ethernet-tcp"}
"""The kind of every fabric of a cluster that has but one."""
_RDMA = ("roce", "infiniband", "omnipath", "efa")
"""Kinds that need to know their adapter, by name or by its interface."""

_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}")
_ADAPTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_OPTIONS = {
    "gloo": (),
    **dict.fromkeys(MPI_ENGINES, ("library", "transport", "buffers", "launch", "gpudirect")),
    "nccl": ("gpudirect", "algorithm", "protocol", "channels"),
}
_ALL_OPTIONS = tuple(dict.fromkeys(option for options in _OPTIONS.values() for option in options))
_NCCL_NAMES = {
    "algorithm": ("Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"),
    "protocol": ("Simple", "LL", "LL128"),
}
_BIND_WORDS = ("auto", "core", "none")


def parse_fabric(
    name: str, value: Mapping[str, Any], given: Mapping[str, Any], cluster: Cluster, mistake: Mistake
) -> Fabric:
    """A fabric; `given` is what was written, without defaults."""
    path = f"fabrics.{name}"
    value = value if cluster.kind in _ONLY_KIND else _subnet_in_place(value)
    kind = _kind(path, value, cluster, mistake)
    mend = interface_mend if cluster.kind in _ONLY_KIND else _real_interface_mend
    interface = _names(f"{path}.interface", value["interface"], mend, mistake)
    adapter = _names(f"{path}.adapter", value["adapter"], _adapter_mend, mistake)
    _check_place(path, kind, value, given, cluster, mistake)
    rate = value["rate"]
    rate_bit_s = None if rate is None else quantity(parse_rate, f"{path}.rate", rate, 0, mistake)
    effective = _effective(f"{path}.effective", value, rate_bit_s, mistake)
    reached = rate_bit_s if effective is None else effective
    link = None if reached is None else round(reached / (cluster.scale.bytes * cluster.scale.time))
    told = ("rate", rate) if effective is None else ("effective", value["effective"])
    if cluster.kind == "emulated" and link is not None and link > _FASTEST_LINK_BIT_S:
        text = f"{shown(told[1])} is {link / 1e9:g} Gbit/s here, more than an emulated link carries"
        mistake(f"{path}.{told[0]}", f"{text}; set cluster.scale, as {{bytes: 128, time: 2}}")
    if cluster.kind == "emulated" and reached and link is not None and link < _SLOWEST_LINK_BIT_S:
        mistake(f"{path}.{told[0]}", f"{shown(told[1])} is {link} bit/s here; lower cluster.scale")
    return Fabric(
        name=name,
        kind=kind,
        interface=interface,
        subnet=_subnet(f"{path}.subnet", value["subnet"], mistake),
        adapter=adapter,
        port=value["port"],
        provider=value["provider"],
        ports_per_node=_ports(path, value, interface, adapter, cluster, mistake),
        rate_bit_s=rate_bit_s,
        effective_bit_s=effective,
        link_bit_s=link,
        delay_s=quantity(parse_delay, f"{path}.delay", value["delay"], 0.0, mistake),
        jitter_s=quantity(parse_delay, f"{path}.jitter", value["jitter"], 0.0, mistake),
        loss=quantity(parse_share, f"{path}.loss", value["loss"], 0.0, mistake),
        environment=environment(value["environment"]),
    )


def check_shared(fabrics: Mapping[str, Fabric], mistake: Mistake) -> None:
    """Fabrics that share a port must agree about the wire.

    Equal ones are an A/A control; they may differ in how the wire is used (TCP or RDMA, one port or several).
    """
    for first, second in combinations(fabrics.values(), 2):
        for key, what in _shared(first, second):
            for wire in ("rate", "effective", "delay", "jitter", "loss"):
                field = wire if wire == "loss" else f"{wire}_bit_s" if wire in _RATES else f"{wire}_s"
                if getattr(first, field) != getattr(second, field):
                    mistake(
                        f"fabrics.{second.name}.{key}",
                        f"{what!r} is also fabric {first.name!r} with another {wire}; give it another "
                        f"{key}, or the same {wire} (the same definition is an A/A control)",
                    )
                    break
            break


def parse_backend(name: str, value: Mapping[str, Any], cluster: Cluster, mistake: Mistake) -> Backend:
    """A backend, with those defaults of its engine that don't depend on the fabric."""
    path, engine = f"backends.{name}", value["engine"]
    options = {option: value[option] for option in _ALL_OPTIONS if value[option] is not None}
    for option in options:
        if option not in _OPTIONS[engine]:
            has = ", ".join(_OPTIONS[engine]) or "none"
            text = f"{shown(value[option])}: engine {engine} has no such option; it has: {has}"
            mistake(f"{path}.{option}", f"{text}; remove it")
    if is_mpi(engine):
        options = {"library": "mpich", "buffers": "host"} | options
        if cluster.by_slurm:
            options = {"launch": SRUN_MPI[options["library"]]} | options
        elif "launch" in options:
            text = f"{options['launch']!r}: only cluster.kind slurm and allocation start ranks so"
            mistake(f"{path}.launch", f"{text}; remove it")
        transports, transport = LIBRARIES[options["library"]], options.get("transport")
        if transport is not None and transport not in transports:
            text = f"{transport!r}: library {options['library']} sends by {' or '.join(transports)}"
            mistake(f"{path}.transport", f"{text}; write one of these, or leave it out")
        if options["buffers"] == "host" and "gpudirect" in options:
            text = f"{shown(options['gpudirect'])}: with buffers: host no GPU memory is sent"
            mistake(f"{path}.gpudirect", f"{text}; write buffers: device, or remove it")
    for option, known in _NCCL_NAMES.items():
        if option in options and engine == "nccl" and (wrong := _nccl_mistake(options[option], known)):
            mistake(f"{path}.{option}", f"{options[option]!r}{wrong}")
    return Backend(name=name, engine=engine, options=options, environment=environment(value["environment"]))


def parse_binding(
    value: str | Mapping[str, Any], cluster: str, gpus_per_node: int, mistake: Mistake
) -> dict[str, Any]:
    """cluster.binding as a mapping of cpu, memory and near."""
    path = "cluster.binding"
    if isinstance(value, str):
        other = "none" if value == "none" else "auto"
        binding = {"cpu": value, "memory": other, "near": other}
    else:
        binding, path = dict(value), f"{path}.cpu"
    if cluster == "emulated" and binding["near"] in ("nic", "gpu"):
        text = f"{binding['near']!r}: an emulated cluster has neither adapters nor GPUs to be near"
        mistake("cluster.binding.near", f"{text}; remove it")
    cpu = binding["cpu"]
    if isinstance(cpu, str):
        if cpu not in _BIND_WORDS:
            mistake(path, f"{cpu!r} is not known; {did_you_mean(cpu, _BIND_WORDS)}")
        return binding
    cores = [core for own in cpu for core in own]
    if doubled := sorted({core for core in cores if cores.count(core) > 1}):
        mistake(path, f"core {doubled[0]} stands twice; give each local rank cores of its own")
    if len(cpu) < gpus_per_node:
        text = f"cores for {len(cpu)} local ranks, and cluster.gpus_per_node is {gpus_per_node}"
        mistake(path, f"{text}; write one list for each")
    return binding


def quantity(parse: Callable[[Any], T], path: str, value: Any, fallback: T, mistake: Mistake) -> T:
    """A parsed quantity, or the fallback beside a mistake."""
    try:
        return parse(value)
    except ValueError as error:
        mistake(path, f"{shown(value)}: {error}")
        return fallback


def environment(values: Mapping[str, str | int | None]) -> dict[str, str | None]:
    """Variables as texts, sorted; None stays, and takes a variable out."""
    return {key: None if value is None else str(value) for key, value in sorted(values.items())}


def _subnet_in_place(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """`interface: 10.0.0.0/24` is a subnet."""
    interface = value["interface"]
    if isinstance(interface, str) and "/" in interface and _is_address(interface) and value["subnet"] is None:
        return {**value, "interface": None, "subnet": interface}
    return value


def _kind(path: str, value: Mapping[str, Any], cluster: Cluster, mistake: Mistake) -> str:
    kind, only = value["kind"], _ONLY_KIND.get(cluster.kind)
    if only is not None:
        if kind not in (None, only):
            mistake(
                f"{path}.kind", f"{kind!r}: every fabric of cluster.kind {cluster.kind} is {only}; remove it"
            )
        return only
    if kind is None:
        mistake(f"{path}.kind", f"missing; what the network is: {', '.join(PROVIDERS)}")
        return "ethernet-tcp"
    if kind == "emulated":
        mistake(f"{path}.kind", f"'emulated': cluster.kind {cluster.kind} has real networks; say which")
        return "ethernet-tcp"
    return str(kind)


def _check_place(
    path: str,
    kind: str,
    value: Mapping[str, Any],
    given: Mapping[str, Any],
    cluster: Cluster,
    mistake: Mistake,
) -> None:
    """Whether a fabric says where it is, as its kind of cluster can be told."""
    subnet, interface, adapter = value["subnet"], value["interface"], value["adapter"]
    if cluster.kind == "emulated":
        if value["rate"] is None:
            mistake(f"{path}.rate", "missing; an emulated link needs its rate, as 25 Gbit/s")
        if own := {"lo", "mgt0"}.intersection([interface] if isinstance(interface, str) else interface or ()):
            mistake(f"{path}.interface", f"{own.pop()!r} is every node's own; use another name, as eth0")
    elif cluster.kind == "host" and interface not in ("lo", ["lo"]) and (interface or not subnet):
        mistake(
            f"{path}.interface",
            f"{shown(interface)}: on kind host all ranks are on one machine, and the kernel carries "
            "their bytes over loopback whatever is named; write lo",
        )
    if cluster.kind in _ONLY_KIND:
        for key in _NOT_EMULATED:
            if value[key] is not None and (key in given or key == "subnet"):
                what = (
                    "makes its interfaces, so write their names" if cluster.kind == "emulated" else "has lo"
                )
                mistake(
                    f"{path}.{key}", f"{shown(value[key])}: cluster.kind {cluster.kind} {what}; remove it"
                )
        if cluster.kind == "emulated" and not interface and not subnet:
            mistake(f"{path}.interface", "missing; name the links to make, as eth0")
    elif not interface and not subnet and not adapter:
        mistake(path, "missing: where it is; write interface, subnet or adapter")
    elif kind in _RDMA and not interface and not adapter:
        text = f"{kind} needs its adapter, and a subnet doesn't name it; write adapter, or interface, too"
        mistake(f"{path}.subnet", f"{subnet!r}: {text}")
    if cluster.kind not in _ONLY_KIND and value["provider"] not in (None, *PROVIDERS.get(kind, ())):
        hint = did_you_mean(value["provider"], PROVIDERS.get(kind, ()))
        mistake(f"{path}.provider", f"{value['provider']!r} doesn't carry {kind}; {hint}")
    for key in _EMULATED_ONLY:
        if cluster.kind != "emulated" and key in given:
            mistake(f"{path}.{key}", "only emulated fabrics have it; remove it")


def _effective(path: str, value: Mapping[str, Any], rate_bit_s: int | None, mistake: Mistake) -> int | None:
    """What is reached of the line rate, at most all of it."""
    if (given := value["effective"]) is None:
        return None
    reached = quantity(parse_rate, path, given, 0, mistake)
    if rate_bit_s and reached > rate_bit_s:
        text = f"{shown(given)} is above the line rate of {shown(value['rate'])}"
        mistake(path, f"{text}; write what was reached of it, or leave it out")
    return reached


def _ports(
    path: str,
    value: Mapping[str, Any],
    interface: Sequence[str],
    adapter: Sequence[str],
    cluster: Cluster,
    mistake: Mistake,
) -> int:
    """Ports per node, which several names leave open: other names on other nodes, or ports used together."""
    ports, most = value["ports_per_node"], max(len(interface), len(adapter))
    if cluster.kind == "emulated":
        if ports not in (None, len(interface)) and interface:
            text = f"{ports}, and {len(interface)} interfaces are named; emulated nodes have all of them"
            mistake(f"{path}.ports_per_node", f"{text}, so remove it")
        return len(interface) or 1
    if ports is None and most > 1:
        mistake(
            f"{path}.ports_per_node",
            f"missing; {most} names are given: write 1 if each node has one of them, "
            f"{most} if every node has all and uses them together",
        )
    fewest = min((len(names) for names in (interface, adapter) if names), default=ports or 1)
    if ports is not None and ports > fewest:
        mistake(f"{path}.ports_per_node", f"{ports} is above the {fewest} names given; name each port")
    return ports or 1


def _names(
    path: str, value: str | Sequence[str] | None, mend: Callable[[str], str | None], mistake: Mistake
) -> tuple[str, ...]:
    """One name or a list of names, as a tuple."""
    names = [] if value is None else [value] if isinstance(value, str) else list(value)
    for index, name in enumerate(names):
        if text := mend(name):
            mistake(path if isinstance(value, str) else f"{path}.{index}", f"{name!r} {text}")
        if name in names[:index]:
            mistake(f"{path}.{index}", f"{name!r} stands twice; remove one")
    return tuple(names)


def interface_mend(value: str) -> str | None:
    """Why a text is no interface's name, with the mends for what other tools would take."""
    if value[:1] in ("^", "=", "!"):
        return "is a pattern of NCCL's; write the plain name (each library gets its own form of it)"
    if re.search(r"[,;\s]", value.strip()):
        names = [name for name in re.split(r"[,;\s]+", value) if name]
        return f"is more than one name; write a list: [{', '.join(names)}]"
    if _is_address(value) or re.fullmatch("[0-9.]+", value):
        if "/" in value:
            return "is a subnet; write the interface's name (subnet: 10.0.0.0/24 is for real clusters)"
        return "is an address; write the interface's name, or where that differs, subnet: 10.0.0.0/24"
    if len(value) > 15:
        return "is too long; Linux names interfaces with at most 15 characters"
    if not _INTERFACE.fullmatch(value):
        return "is not an interface's name; write it as `ip link` shows it, as eth0"
    return None


def _real_interface_mend(value: str) -> str | None:
    """The same on a cluster of several machines, where a subnet will do."""
    if "/" in value and _is_address(value):
        return f"is a subnet; write subnet: {value} instead"
    if value == "lo":
        return "is loopback, which reaches no other node; write the network's interface, as eth0"
    return interface_mend(value)


def _adapter_mend(value: str) -> str | None:
    """Why a text is no adapter's name."""
    if value[:1] in ("^", "="):
        return "is a pattern of NCCL's; write the plain name (each library gets its own form of it)"
    if re.search(r"[,;\s]", value.strip()):
        names = [name for name in re.split(r"[,;\s]+", value) if name]
        return f"is more than one name; write a list: [{', '.join(names)}]"
    if match := re.fullmatch(r"([A-Za-z0-9._-]+):(\d+)", value):
        return f"has a port; write adapter: {match[1]}, port: {match[2]}"
    if not _ADAPTER.fullmatch(value):
        return "is not an adapter's name; write it as `ls /sys/class/infiniband` shows it, as mlx5_0"
    return None


def _subnet(path: str, value: str | None, mistake: Mistake) -> str | None:
    """A network in its normal form."""
    if value is None:
        return None
    try:
        network = ip_network(value, strict=False)
    except ValueError:
        mistake(path, f"{value!r} is not a network; write address/prefix, as 10.0.0.0/24")
        return value
    if network.prefixlen == 0:
        mistake(path, f"{value!r} holds every address, so it chooses no interface; write it as 10.0.0.0/24")
    elif reason := next((what for one, what in _NO_SUBNETS if _overlap(network, one)), None):
        mistake(path, f"{value!r} {reason}; write the network's own, as 10.0.0.0/24")
    elif network.num_addresses == 1:
        mistake(path, f"{value!r} is one address, and every node needs its own; write it as 10.0.0.0/24")
    return str(network)


_LOOPBACK = "is loopback, which reaches no other node"
_LINK_LOCAL = "is link-local, which every interface may have"
_MULTICAST = "is multicast, which no interface has"
_NO_SUBNETS = [
    (ip_network(text), what)
    for text, what in (
        ("127.0.0.0/8", _LOOPBACK),
        ("::1/128", _LOOPBACK),
        ("169.254.0.0/16", _LINK_LOCAL),
        ("fe80::/10", _LINK_LOCAL),
        ("224.0.0.0/4", _MULTICAST),
        ("ff00::/8", _MULTICAST),
    )
]


def _overlap(one: IPv4Network | IPv6Network, other: IPv4Network | IPv6Network) -> bool:
    return one.version == other.version and one.overlaps(other)


def _nccl_mistake(value: str, known: Sequence[str]) -> str | None:
    """What is wrong with a list of NCCL's names, which a `^` in front turns into all others."""
    if not value.strip():
        return " is empty; write it as NCCL takes it, or remove it"
    for name in value.removeprefix("^").split(","):
        if name not in known:
            return f": {name!r} is not known to NCCL; {did_you_mean(name, known)}"
    return None


def _is_address(value: str) -> bool:
    try:
        ip_interface(value)
    except ValueError:
        return False
    return True


def _shared(first: Fabric, second: Fabric) -> Iterator[tuple[str, str]]:
    """(key, name) of every port that two fabrics share."""
    for key in ("interface", "adapter"):
        for name in getattr(first, key):
            if name in getattr(second, key) and (key == "interface" or first.port == second.port):
                yield key, name
    if first.subnet is not None and first.subnet == second.subnet:
        yield "subnet", first.subnet
