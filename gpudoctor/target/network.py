"""This machine's network as a program that runs here meets it: interfaces, host names, and what NCCL and Gloo take.

NCCL 2.30.7 (github.com/NVIDIA/nccl, June 2026): ``bootstrapNetInit`` in src/bootstrap.cc, ``ncclFindInterfaces`` in
src/misc/socket.cc and ``ncclOsFindInterfaces`` in src/os/linux.cc.
Gloo (github.com/pytorch/pytorch): ``createDefaultDevice`` in torch/csrc/distributed/c10d/ProcessGroupGloo.cpp.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpudoctor.core.frozen import frozen

# ---- Interfaces and their addresses ----


@frozen
class Address:
    """An IP address as the socket calls take it (``fe80::1%eth0``), with its network's prefix length in bits."""

    text: str
    prefix: int

    @property
    def version(self) -> int:
        """The IP version: 4 or 6."""
        return ipaddress.ip_address(self.text).version

    @property
    def loopback(self) -> bool:
        """Whether it is a loopback address."""
        return ipaddress.ip_address(self.text).is_loopback

    def in_same_network(self, other: str) -> bool:
        """Whether another address lies in this address's network; False for one of the other IP version."""
        plain = self.text.partition("%")[0]
        network = ipaddress.ip_network(f"{plain}/{self.prefix}", strict=False)
        return ipaddress.ip_address(other.partition("%")[0]) in network


@frozen
class Interface:
    """A network interface. `running`: it is up, and has a carrier where that is known."""

    name: str
    running: bool
    addresses: tuple[Address, ...]
    """IPv4 before IPv6, otherwise in the kernel's order."""


def list_interfaces() -> tuple[Interface, ...] | None:
    """All interfaces in the kernel's order; None where the system cannot be asked (not Linux, no netlink)."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    try:
        links, addresses = _links(), _addresses()
    except OSError:
        return None
    listed = []
    for index, name, running in links:
        addresses_here = tuple(
            Address(_with_scope(text, name), prefix) for owner_index, text, prefix in addresses if owner_index == index
        )
        listed.append(Interface(name, running, addresses_here))
    return tuple(listed)


def interface_with_address(address: str, among: Sequence[Interface]) -> Interface | None:
    """The first of these interfaces that has exactly that address; None where none has."""
    return next(
        (interface for interface in among if address in [assigned.text for assigned in interface.addresses]), None
    )


def _with_scope(text: str, interface: str) -> str:
    """The address, followed by ``%`` and the interface's name if it is IPv6 link-local, as the socket calls need it."""
    address = ipaddress.ip_address(text)
    return f"{text}%{interface}" if address.version == 6 and address.is_link_local else text


# ---- What a host name leads to, within a time that the resolver may not exceed ----


@frozen
class Resolved:
    """The addresses of a host name, in the resolver's order; where there is none, `why` is the resolver's error."""

    name: str
    addresses: tuple[str, ...] = ()
    why: str = ""

    @property
    def loopback(self) -> bool:
        """Whether the first address, the one most programs use, is a loopback address."""
        return bool(self.addresses) and ipaddress.ip_address(self.addresses[0]).is_loopback


def resolve(name: str, seconds: float = 3.0) -> Resolved:
    """The addresses of a host name by this machine's resolver (files, DNS, whatever nsswitch.conf says).

    The resolver has no time limit of its own (/etc/resolv.conf allows 5 s for each of three servers, twice), so it is
    asked in a thread that is left behind after `seconds`. Errors are in the result's `why`.
    """
    if is_address(name):
        return Resolved(name, (name,))
    answer: list[Resolved] = []
    asking = threading.Thread(target=lambda: answer.append(_ask_resolver(name)), name=f"resolve {name}", daemon=True)
    asking.start()
    asking.join(seconds)
    return answer[0] if answer else Resolved(name, why=f"the resolver did not answer within {seconds:g} s")


def is_address(name: str) -> bool:
    """Whether the text is an IP address already, with or without a scope: ``fe80::1%eth0``."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _ask_resolver(name: str) -> Resolved:
    """The addresses that getaddrinfo gives, each once; none, with the error's text in `why`, where it fails."""
    try:
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError:
        return Resolved(name, why="it is no host name")
    except OSError as error:
        return Resolved(name, why=error.strerror or str(error))
    return Resolved(name, tuple(dict.fromkeys(str(address[0]) for *_, address in entries)))


# ---- The interface and address that NCCL and Gloo take ----

NCCL_SKIPS_NO_CARRIER = (2, 28)
"""The first release that takes no interface without a carrier, and libvirt's bridges only where nothing else is."""

_GUESSES = {
    "ib": "its name begins with ib",
    "^docker,lo,virbr": "the first that is up and is not docker, lo or virbr",
    "docker": "only docker, lo or virbr are up",
    "lo": "only lo or virbr are up",
    "virbr": "only virbr is up",
}
_EARLIER = {
    "ib": "its name begins with ib",
    "^docker,lo": "the first that is not docker or lo",
    "docker": "there is only docker or lo",
    "lo": "there is only lo",
}
_FAMILIES = {"AF_INET": 4, "AF_INET6": 6}


@frozen
class Choice:
    """The interface and the address chosen, and the reason; both are empty, and it is false, where there is none."""

    interface: str
    address: str
    because: str
    also: tuple[str, ...] = ()
    """Further interfaces over which it sends data."""

    def __bool__(self) -> bool:
        return bool(self.address)


def resolve_own_name() -> Resolved:
    """The addresses of this machine's own host name, by its resolver; an error is in the result's `why`."""
    return resolve(socket.gethostname())


def nccl_choice(
    among: Sequence[Interface],
    environ: Mapping[str, str],
    release: tuple[int, ...] = NCCL_SKIPS_NO_CARRIER,
    resolve_host: Callable[[str], Resolved] = resolve,
) -> Choice:
    """What NCCL's bootstrap uses: the first address of the first interface that fits, or one towards NCCL_COMM_ID.

    Its socket transport uses the same, unless NCCL_COMM_ID is set and NCCL_SOCKET_IFNAME names other interfaces.
    `environ` holds the settings of nccl.conf as well; `release` is NCCL's version; `resolve_host` resolves the host of
    NCCL_COMM_ID.
    """
    if comm_id := environ.get("NCCL_COMM_ID"):
        return _interface_towards(among, comm_id, resolve_host) or Choice(
            "", "", f"NCCL_COMM_ID={comm_id} is in no interface's network"
        )
    careful = release >= NCCL_SKIPS_NO_CARRIER
    usable = _first_addresses(
        [interface for interface in among if interface.running or not careful], environ.get("NCCL_SOCKET_FAMILY", "")
    )
    pattern_setting = environ.get("NCCL_SOCKET_IFNAME", "")
    if len(pattern_setting) > 1:
        setting = f"NCCL_SOCKET_IFNAME={pattern_setting}"
        return _first_match(usable, pattern_setting, setting) or Choice(
            "", "", f"{setting} names no interface that is up with an address"
        )
    choices = (
        _first_match(usable, pattern, because) for pattern, because in (_GUESSES if careful else _EARLIER).items()
    )
    return next(filter(None, choices), Choice("", "", "no interface is up with an address"))


def gloo_choice(
    among: Sequence[Interface], environ: Mapping[str, str], resolve_own: Callable[[], Resolved] = resolve_own_name
) -> Choice:
    """What Gloo as torch sets it up uses: GLOO_SOCKET_IFNAME, else the address of this host's name, else lo.

    An empty choice, which is false, where that variable names no interface with an address. `resolve_own` gives the
    addresses of this machine's own name; called only where needed.
    """
    first, *others = environ.get("GLOO_SOCKET_IFNAME", "").split(",")
    if first:
        setting = f"GLOO_SOCKET_IFNAME={first}"
        addresses = [
            address_of.text for interface in among if interface.name == first for address_of in interface.addresses
        ]
        why = setting if addresses else f"{setting} names no interface with an address"
        return Choice(first, addresses[0], why, tuple(others)) if addresses else Choice("", "", why)
    own_host = resolve_own()
    for address in own_host.addresses:
        interface = interface_with_address(address, among) or _loopback_interface(among, address)
        if interface:
            return Choice(interface.name, address, f"the host name {own_host.name} resolves to it")
    reason = own_host.why or ", ".join(own_host.addresses)
    why = f"the host name {own_host.name} resolves to no address of this machine ({reason})"
    return Choice("lo", "127.0.0.1", why)


def selected_names(setting: str, names: Sequence[str]) -> list[str]:
    """The names that an NCCL list selects: prefixes; after ``=`` whole names; after ``^`` all but those.

    An empty list stands for all: ``^=`` leaves out every one.
    """
    listed = setting.removeprefix("^")
    parts = tuple(part.partition(":")[0] for part in listed.removeprefix("=").split(",") if part)
    inverted, exact = setting.startswith("^"), listed.startswith("=")
    return [
        name for name in names if (not parts or (name in parts if exact else name.startswith(parts))) is not inverted
    ]


def _first_addresses(among: Sequence[Interface], family: str) -> dict[str, str]:
    """The first address of each interface that NCCL considers, by name, in NCCL's order: IPv4 before IPv6.

    `family` is NCCL_SOCKET_FAMILY: AF_INET and AF_INET6 leave out the other; IPv6 loopback addresses do not count.
    """
    usable: dict[str, str] = {}
    for version in (4, 6) if family not in _FAMILIES else (_FAMILIES[family],):
        for interface in among:
            for address in interface.addresses:
                if address.version == version and not (version == 6 and address.loopback):
                    usable.setdefault(interface.name, address.text)
    return usable


def _first_match(usable: Mapping[str, str], pattern: str, because: str) -> Choice | None:
    """The first interface whose name the NCCL list `pattern` selects, the others in `also`; None if it selects none."""
    names = selected_names(pattern, list(usable))
    return Choice(names[0], usable[names[0]], because, tuple(names[1:])) if names else None


def _interface_towards(
    among: Sequence[Interface], comm_id: str, resolve_host: Callable[[str], Resolved]
) -> Choice | None:
    """The interface whose network holds the host of NCCL_COMM_ID (``10.0.0.1:29500``, ``[fd00::1]:29500``, a name).

    None if none does or the name is not resolved.
    """
    host = comm_id.rpartition(":")[0].strip("[]")
    target = resolve_host(host).addresses if host else ()
    for interface in among:
        for address in interface.addresses:
            if target and address.in_same_network(target[0]):
                return Choice(interface.name, address.text, f"NCCL_COMM_ID={comm_id} is in its network")
    return None


def _loopback_interface(among: Sequence[Interface], address: str) -> Interface | None:
    """The loopback interface whose network holds that address, as all of 127.0.0.0/8 can be bound; None for others."""
    return next(
        (
            interface
            for interface in among
            for candidate in interface.addresses
            if candidate.loopback and candidate.in_same_network(address)
        ),
        None,
    )


# ---- The kernel's own lists of links and addresses: rtnetlink(7), as getifaddrs(3) asks it, and in the same order ----

_GETLINK, _GETADDR, _DONE, _ERROR = 18, 22, 3, 2
_DUMP = 0x301
"""NLM_F_REQUEST | NLM_F_DUMP"""

_IFNAME = 3
_IFF_RUNNING = 0x40
_ADDRESS, _LOCAL = 1, 2


def _links() -> list[tuple[int, str, bool]]:
    """(index, name, whether it is running) of every interface, in the kernel's order. Raises `OSError`."""
    links = []
    for head, attributes in _dump(_GETLINK, 16):  # struct ifinfomsg
        index, flags = struct.unpack_from("=xxxxiI", head)
        name = attributes.get(_IFNAME, b"").rstrip(b"\0").decode("utf-8", "replace")
        links.append((index, name, bool(flags & _IFF_RUNNING)))
    return links


def _addresses() -> list[tuple[int, str, int]]:
    """(interface index, address, prefix length) of every address, in the kernel's order. Raises `OSError`."""
    addresses = []
    for head, attributes in _dump(_GETADDR, 8):  # struct ifaddrmsg
        family, prefix, _, _, index = struct.unpack_from("=BBBBI", head)
        raw = attributes.get(_LOCAL) or attributes.get(_ADDRESS)  # of a point-to-point link, _ADDRESS is the peer's
        if raw and family in (socket.AF_INET, socket.AF_INET6):
            addresses.append((index, socket.inet_ntop(family, raw), prefix))
    return addresses


def _dump(kind: int, header_size: int) -> Iterator[tuple[bytes, dict[int, bytes]]]:
    """Header bytes and attributes by number of each rtnetlink answer to a dump request. Raises `OSError`.

    `kind` is the request (_GETLINK, _GETADDR), `header_size` the bytes of the fixed header.
    """
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, "rtnetlink is Linux's")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:  # NETLINK_ROUTE
        link.settimeout(2.0)
        link.bind((0, 0))
        link.send(struct.pack("=IHHII", 16 + 16, kind, _DUMP, 1, 0) + bytes(16))
        while True:
            for answer, body in _messages(link.recv(1 << 17)):
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    raise OSError(-struct.unpack_from("=i", body)[0], "the kernel does not list its interfaces")
                yield body[:header_size], _attributes(body[header_size:])


def _messages(datagram: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and body of each netlink message in a datagram, in order."""
    while len(datagram) >= 16:
        size, kind = struct.unpack_from("=IH", datagram)
        yield kind, datagram[16:size]
        datagram = datagram[max(16, (size + 3) & ~3) :]


def _attributes(raw: bytes) -> dict[int, bytes]:
    """The netlink attributes in the bytes behind a message's header: contents by number."""
    attributes: dict[int, bytes] = {}
    while len(raw) >= 4:
        size, kind = struct.unpack_from("=HH", raw)
        attributes[kind & 0x3FFF] = raw[4:size]
        raw = raw[max(4, (size + 3) & ~3) :]
    return attributes
