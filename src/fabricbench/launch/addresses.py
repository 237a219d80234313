"""The address at which a node's processes are met by those of others."""

import ipaddress
import socket
from collections.abc import Mapping
from typing import Any

from fabricbench.errors import LaunchError
from fabricbench.fabrics.node import usable_addresses


def meeting_address(interface: str, interfaces: Mapping[str, Any], host: str, several_nodes: bool) -> str:
    """This node's address for meeting: of `interface`, or else what its host name resolves to.

    Raises LaunchError where there is none, or where others would be led to themselves.
    """
    if interface:
        if interface not in interfaces:
            raise LaunchError(
                f"cluster.bootstrap: {interface}: no such interface on {host}, which has "
                f"{', '.join(interfaces)}; name one that all nodes have"
            )
        if not (own := usable_addresses(interfaces[interface])):
            raise LaunchError(f"cluster.bootstrap: {interface}: has no IP address on {host}; name another")
        return own[0]
    found = addresses_of(host)
    if outside := [address for address in found if not ipaddress.ip_address(address).is_loopback]:
        return outside[0]
    if several_nodes:
        says = f"resolves to {found[0]}, itself" if found else "doesn't resolve"
        raise LaunchError(
            f"on {host} its own name {says}: other nodes can't meet there; set cluster.bootstrap to an "
            f"interface that all nodes have, one of {', '.join(interfaces)}"
        )
    return "127.0.0.1"


def addresses_of(host: str) -> list[str]:
    """What a name resolves to, IPv4 first, without link-local addresses."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return []
    usable = [address for address in found if not ipaddress.ip_address(address).is_link_local]
    return sorted(usable, key=lambda address: (":" in address, address))


def join(host: str, port: int) -> str:
    """host:port, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split(address: str) -> tuple[str, int]:
    """The inverse of `join`."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
