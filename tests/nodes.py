"""Facts of nodes by hand, and real nodes made of namespaces, for tests of what looks at nodes."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fabricbench.fabrics import emulation
from fabricbench.fabrics.visit import in_child, on_node


def a_fabric(**changes: Any) -> dict[str, Any]:
    """Ethernet on eth0 at 25 Gbit/s, unless `changes` say otherwise."""
    fabric = {
        "name": "ethernet",
        "kind": "ethernet-tcp",
        "interface": ["eth0"],
        "subnet": None,
        "adapter": [],
    }
    fabric |= {"port": 1, "provider": None, "ports_per_node": 1, "rate_bit_s": 25_000_000_000}
    fabric |= {"link_bit_s": 25_000_000_000, "delay_s": 0.0, "jitter_s": 0.0, "loss": 0.0}
    return fabric | changes


def an_interface(*addresses: str, **changes: Any) -> dict[str, Any]:
    """An interface of 25 Gbit/s that is up."""
    facts = {"up": True, "carrier": True, "mtu": 1500, "speed_bit_s": 25e9, "addresses": list(addresses)}
    facts |= {"driver": "mlx5_core", "kind": None, "lower": [], "numa": None, "adapter": None, "port": None}
    return facts | changes


def an_adapter(*interfaces: str, **changes: Any) -> dict[str, Any]:
    """An InfiniBand adapter of 100 Gbit/s with one active port."""
    port = {"state": "ACTIVE", "link_layer": "InfiniBand", "rate_bit_s": 1e11}
    adapter = {"driver": "mlx5_core", "numa": None, "interfaces": list(interfaces), "ports": {"1": port}}
    port |= {key: changes.pop(key) for key in tuple(changes) if key in port}
    return adapter | changes


def some_facts(host: str = "n0", number: int = 1, **changes: Any) -> dict[str, Any]:
    """A node on which nothing is wrong: eth0 with 10.77.0.<number>, and loopback."""
    facts: dict[str, Any] = {
        "host": host,
        "resolves_to": [f"10.76.0.{number}"],
        "kernel": "6.1.0",
        "cpu": "a processor",
        "cores": [0, 1, 2, 3],
        "numa": {"0": [0, 1, 2, 3]},
        "interfaces": {
            "lo": an_interface("127.0.0.1/8", kind="loopback", driver=None, speed_bit_s=None, mtu=65536),
            "eth0": an_interface(f"10.77.0.{number}/24"),
        },
        "adapters": {},
        "gpus": [],
        "nvidia_driver": None,
        "clocksource": "tsc",
        "governor": "performance",
        "load": 0.1,
        "memlock_bytes": None,
        "shm_bytes": 8 << 30,
        "hidden_config": [],
        "hidden_variables": {},
    }
    return facts | changes


def in_cluster(
    work: Callable[[Sequence[emulation.Node]], Any], count: int = 2, names: Sequence[str] = ("eth0",)
):
    """What `work` returns in the hub of an emulated cluster, given its nodes; gone afterwards."""

    def hub() -> Any:
        emulation.mount_own_proc()
        nodes, _ = emulation.build(count, [emulation.Link(name) for name in names])
        return work(nodes)

    def private() -> Any:
        emulation.become_private()
        return in_child(hub)

    return in_child(private)


def on(node: emulation.Node, work: Callable[..., Any], *arguments: Any) -> Any:
    """What `work` returns on a node."""
    return on_node(node.enter, lambda: work(*arguments))


def add_veth(name: str, address: str | None = None) -> None:
    """On a node: a further interface, up, with an address."""
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        ip.link("add", ifname=name, kind="veth", peer={"ifname": f"x{abs(hash(name)) % 10**6}"})
        index = ip.link_lookup(ifname=name)[0]
        ip.link("set", index=index, state="up")
        if address:
            ip.addr(
                "add", index=index, address=address.partition("/")[0], prefixlen=int(address.split("/")[1])
            )


def add_bridge(name: str, address: str) -> None:
    """On a node: a bridge as Docker makes one."""
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        ip.link("add", ifname=name, kind="bridge")
        index = ip.link_lookup(ifname=name)[0]
        ip.link("set", index=index, state="up")
        ip.addr("add", index=index, address=address.partition("/")[0], prefixlen=int(address.split("/")[1]))


def set_mtu(name: str, mtu: int) -> None:
    """On a node: the MTU of an interface."""
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        ip.link("set", index=ip.link_lookup(ifname=name)[0], mtu=mtu)


def take_down(name: str) -> None:
    """On a node: an interface is no longer up."""
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        ip.link("set", index=ip.link_lookup(ifname=name)[0], state="down")


def rename(name: str, new: str) -> None:
    """On a node: another name for an interface."""
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        index = ip.link_lookup(ifname=name)[0]
        ip.link("set", index=index, state="down")
        ip.link("set", index=index, ifname=new)
        ip.link("set", index=index, state="up")


def only_ipv6(name: str, address: str) -> None:
    """On a node: an IPv6 address on an interface instead of all others."""
    from pyroute2 import IPRoute

    Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("0")
    with IPRoute() as ip:
        index = ip.link_lookup(ifname=name)[0]
        ip.flush_addr(index=index)
        ip.addr("add", index=index, address=address.partition("/")[0], prefixlen=64, flags=2)  # no detection
    with suppress(OSError):
        Path(f"/proc/sys/net/ipv6/conf/{name}/accept_ra").write_text("0")
