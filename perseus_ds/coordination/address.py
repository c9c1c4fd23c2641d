"""The address that a rank's bus listens at: where its route to the other nodes begins.

A host's name may resolve to a loopback address (Debian's default is 127.0.1.1), which other nodes cannot reach.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Sequence

__all__ = ["address_towards", "seen_from_outside", "towards_the_job"]

_ANY_PORT = 9


def address_towards(host: str) -> str:
    """Return this node's address on the route to ``host``; empty if there is none. Nothing is sent.

    Args:
        host: Name or address.
    """
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(where)
            return probe.getsockname()[0]
    except OSError:
        return ""


def towards_the_job() -> str:
    """Return this node's address on the route to MASTER_ADDR.

    Empty where gloo shall choose: nothing is known of the master, or GLOO_SOCKET_IFNAME names an interface.
    """
    master = os.environ.get("MASTER_ADDR")
    return address_towards(master) if master and not os.environ.get("GLOO_SOCKET_IFNAME") else ""


def seen_from_outside(addresses: Sequence[str]) -> str:
    """Return the first address that other nodes can reach; empty if all ranks are on one node.

    Args:
        addresses: ``towards_the_job()`` of every rank.
    """
    known = (address for address in addresses if address)
    return next((address for address in known if not ipaddress.ip_address(address).is_loopback), "")
