"""The addresses of this machine's interfaces, from /proc/net alone.

IPv6 addresses are listed with their interface (`if_inet6`). Of IPv4 the kernel lists its own addresses in the routing
trie, without one; the interface is that of the narrowest connected network around the address. An address alone in its
network (/32, as clouds and pods have) belongs to the only interface that is up and would otherwise have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address

from gpudoctor.links.interfaces import Address
from gpudoctor.model.fact import Absent, Unread
from gpudoctor.model.frozen import field, frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._reading import text
from gpudoctor.target import Target

_TRIE = "/proc/net/fib_trie"
_ROUTES = "/proc/net/route"
_SIX = "/proc/net/if_inet6"
_LOCAL = pattern(r"\|-- ([\d.]+)\n\s+/32 host LOCAL\b")
_LINK_SCOPE = "20"
_GATEWAY = 2
"""The flag of a route that leads through a gateway."""


@frozen
class Route:
    """One IPv4 route: over `interface` to `network`, by a gateway or straight (`connected`)."""

    interface: str
    network: IPv4Network
    connected: bool
    metric: int


@frozen
class Addresses:
    """Addresses by interface, IPv4 first, as getifaddrs gives them; `stray` are those of no known interface."""

    by_interface: Mapping[str, tuple[Address, ...]] = field(default_factory=dict)
    stray: tuple[str, ...] = ()
    default: str = ""
    """The interface of the IPv4 route to everywhere else; empty where there is none."""

    def holder(self, address: str) -> str | None:
        """The interface that has the address; None where none has. All of 127.0.0.0/8 is the loopback's."""
        if is_loopback(address):
            return "lo"
        return next((name for name, own in self.by_interface.items() if address in [one.text for one in own]), None)


def is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def addresses_of(target: Target, up: Sequence[str]) -> Addresses | Unread:
    """The addresses of all interfaces; `up` are the names of those that run, in the kernel's order."""
    trie, routes = (text(target, path) for path in (_TRIE, _ROUTES))
    if not isinstance(trie, str) or not isinstance(routes, str):
        why = next(one.why for one in (trie, routes) if isinstance(one, (Absent, Unread)))
        return Unread(f"addresses cannot be read: {why}")
    known = sorted(_routes(routes), key=lambda route: (-route.network.prefixlen, route.metric))
    found: dict[str, list[Address]] = {}
    stray: list[str] = []
    for own in dict.fromkeys(_LOCAL.findall(trie)):
        name, prefix = _interface(IPv4Address(own), known)
        found.setdefault(name, []).append(Address(own, prefix)) if name else stray.append(own)
    empty = [name for name in up if name not in found and name != "lo"]
    if stray and len(empty) == 1:
        found[empty[0]], stray = [Address(one, 32) for one in stray], []
    for name, six in _sixes(target):
        found.setdefault(name, []).append(six)
    default = next((route.interface for route in known if route.network.prefixlen == 0), "")
    return Addresses({name: tuple(own) for name, own in found.items()}, tuple(stray), default)


def _interface(address: IPv4Address, routes: Sequence[Route]) -> tuple[str, int]:
    """Its name, empty where none is known, and the prefix length of its network."""
    if address.is_loopback:
        return "lo", 8
    connected = (route for route in routes if route.connected and 0 < route.network.prefixlen < 32)
    return next(
        ((route.interface, route.network.prefixlen) for route in connected if address in route.network), ("", 32)
    )


def _routes(listed: str) -> Iterator[Route]:
    """Lines of /proc/net/route: interface, destination, gateway, flags, ..., metric, mask; numbers as the CPU has them.

    Every machine that runs CUDA is little-endian: ``000200C0`` is 192.0.2.0.
    """
    for line in listed.splitlines()[1:]:
        words = line.split()
        try:
            goal, mask = (int.from_bytes(bytes.fromhex(words[at]), "little") for at in (1, 7))
            network = IPv4Network((goal, mask.bit_count()), strict=False)
            yield Route(words[0], network, not int(words[3], 16) & _GATEWAY, int(words[6]))
        except (IndexError, ValueError):
            continue


def _sixes(target: Target) -> Iterator[tuple[str, Address]]:
    """``fd000000000000000000000000000002 03 40 00 80 eth0``: global ones before those of one link."""
    listed = text(target, _SIX)
    lines = (
        [words for line in listed.splitlines() if len(words := line.split()) == 6] if isinstance(listed, str) else []
    )
    for words in sorted(lines, key=lambda words: words[3] == _LINK_SCOPE):
        try:
            yield words[5], Address(str(IPv6Address(bytes.fromhex(words[0]))), int(words[2], 16))
        except ValueError:
            continue
