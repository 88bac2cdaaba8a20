"""Which interface and address NCCL and Gloo take on a machine, by the rules of their sources.

NCCL 2.30.7 (github.com/NVIDIA/nccl, June 2026): ``bootstrapNetInit`` in src/bootstrap.cc, ``ncclFindInterfaces`` in
src/misc/socket.cc and ``ncclOsFindInterfaces`` in src/os/linux.cc.
Gloo (github.com/pytorch/pytorch): ``createDefaultDevice`` in torch/csrc/distributed/c10d/ProcessGroupGloo.cpp.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence

from gpudoctor.links.interfaces import Interface, carrying
from gpudoctor.links.names import Resolved, resolve
from gpudoctor.model.frozen import frozen

CAREFUL = (2, 28)
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
    """The interface and the address that is taken, and why; both are empty where there is none."""

    interface: str
    address: str
    because: str
    also: tuple[str, ...] = ()
    """Further interfaces over which it sends data."""

    def __bool__(self) -> bool:
        return bool(self.address)


def own_name() -> Resolved:
    """What this machine's own name resolves to."""
    return resolve(socket.gethostname())


def nccl(
    among: Sequence[Interface],
    environ: Mapping[str, str],
    release: tuple[int, ...] = CAREFUL,
    ask: Callable[[str], Resolved] = resolve,
) -> Choice:
    """For NCCL's bootstrap: the first address of the first interface that fits, or one towards NCCL_COMM_ID.

    Its socket transport takes the same, unless both NCCL_COMM_ID and others are named. `environ` holds the settings of
    nccl.conf as well. `ask` is asked for the host of NCCL_COMM_ID.
    """
    if comm_id := environ.get("NCCL_COMM_ID"):
        return _towards(among, comm_id, ask) or Choice("", "", f"NCCL_COMM_ID={comm_id} is in no interface's network")
    careful = release >= CAREFUL
    usable = _usable([one for one in among if one.running or not careful], environ.get("NCCL_SOCKET_FAMILY", ""))
    wanted = environ.get("NCCL_SOCKET_IFNAME", "")
    if len(wanted) > 1:
        named = f"NCCL_SOCKET_IFNAME={wanted}"
        return _first(usable, wanted, named) or Choice("", "", f"{named} names no interface that is up with an address")
    picks = (_first(usable, pattern, because) for pattern, because in (_GUESSES if careful else _EARLIER).items())
    return next(filter(None, picks), Choice("", "", "no interface is up with an address"))


def gloo(among: Sequence[Interface], environ: Mapping[str, str], ask: Callable[[], Resolved] = own_name) -> Choice:
    """For Gloo as torch sets it up; `ask` is asked what the machine's own name resolves to where it matters."""
    wanted, *more = environ.get("GLOO_SOCKET_IFNAME", "").split(",")
    if wanted:
        named = f"GLOO_SOCKET_IFNAME={wanted}"
        addresses = [one.text for interface in among if interface.name == wanted for one in interface.addresses]
        why = named if addresses else f"{named} names no interface with an address"
        return Choice(wanted, addresses[0], why, tuple(more)) if addresses else Choice("", "", why)
    own = ask()
    for address in own.addresses:
        interface = carrying(address, among) or _loopback(among, address)
        if interface:
            return Choice(interface.name, address, f"the host name {own.name} resolves to it")
    why = f"the host name {own.name} resolves to no address of this machine ({own.why or ', '.join(own.addresses)})"
    return Choice("lo", "127.0.0.1", why)


def selected(wanted: str, there: Sequence[str]) -> list[str]:
    """Those names that NCCL takes: `wanted` lists prefixes, ``=`` whole names, ``^`` those that it leaves out.

    An empty list stands for all: ``^=`` leaves out every one.
    """
    listed = wanted.removeprefix("^")
    parts = tuple(one.partition(":")[0] for one in listed.removeprefix("=").split(",") if one)
    inverted, exact = wanted.startswith("^"), listed.startswith("=")
    return [
        name for name in there if (not parts or (name in parts if exact else name.startswith(parts))) is not inverted
    ]


def _usable(among: Sequence[Interface], family: str) -> dict[str, str]:
    """Name and first address of those that NCCL considers, in the order in which it meets them."""
    usable: dict[str, str] = {}
    for version in (4, 6) if family not in _FAMILIES else (_FAMILIES[family],):
        for interface in among:
            for one in interface.addresses:
                if one.version == version and not (version == 6 and one.loopback):
                    usable.setdefault(interface.name, one.text)
    return usable


def _first(usable: Mapping[str, str], pattern: str, because: str) -> Choice | None:
    names = selected(pattern, list(usable))
    return Choice(names[0], usable[names[0]], because, tuple(names[1:])) if names else None


def _towards(among: Sequence[Interface], comm_id: str, ask: Callable[[str], Resolved]) -> Choice | None:
    """The interface whose network holds the address of NCCL_COMM_ID (``10.0.0.1:29500``, ``[fd00::1]:29500``)."""
    host = comm_id.rpartition(":")[0].strip("[]")
    target = ask(host).addresses if host else ()
    for interface in among:
        for own in interface.addresses:
            if target and own.nets(target[0]):
                return Choice(interface.name, own.text, f"NCCL_COMM_ID={comm_id} is in its network")
    return None


def _loopback(among: Sequence[Interface], address: str) -> Interface | None:
    """All of 127.0.0.0/8 can be bound, though lo has one address of it."""
    return next((one for one in among for own in one.addresses if own.loopback and own.nets(address)), None)
