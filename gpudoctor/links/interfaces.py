"""The network interfaces of this machine and their addresses, as a program that runs here sees them."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from gpudoctor.links import _netlink
from gpudoctor.model.frozen import frozen

_IFF_RUNNING = 0x40


@frozen
class Address:
    """An address as the socket calls take it (``fe80::1%eth0``), with its network's prefix length."""

    text: str
    prefix: int

    @property
    def version(self) -> int:
        """4 or 6."""
        return ipaddress.ip_address(self.text).version

    @property
    def loopback(self) -> bool:
        """Whether it reaches this machine alone."""
        return ipaddress.ip_address(self.text).is_loopback

    def nets(self, other: str) -> bool:
        """Whether another address is in its network."""
        plain = self.text.partition("%")[0]
        network = ipaddress.ip_network(f"{plain}/{self.prefix}", strict=False)
        return ipaddress.ip_address(other.partition("%")[0]) in network


@frozen
class Interface:
    """`running`: it is switched on, and has a carrier where it can tell."""

    name: str
    running: bool
    addresses: tuple[Address, ...]
    """IPv4 before IPv6, otherwise in the kernel's order."""


def interfaces() -> tuple[Interface, ...] | None:
    """All of them in the kernel's order; None where this system cannot be asked (not Linux, no netlink)."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    try:
        links, addresses = _netlink.links(), _netlink.addresses()
    except OSError:
        return None
    return tuple(
        Interface(
            link.name,
            bool(link.flags & _IFF_RUNNING),
            tuple(Address(_scoped(one, link.name), one.prefix) for one in addresses if one.index == link.index),
        )
        for link in links
    )


def carrying(address: str, among: Sequence[Interface]) -> Interface | None:
    """The interface that has an address."""
    return next((one for one in among if address in [own.text for own in one.addresses]), None)


def _scoped(address: _netlink.Address, name: str) -> str:
    local = address.family == socket.AF_INET6 and ipaddress.ip_address(address.text).is_link_local
    return f"{address.text}%{name}" if local else address.text
