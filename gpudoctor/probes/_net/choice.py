"""Which interface NCCL and Gloo would take, worked out as their own code does it; nothing is sent or loaded.

NCCL: src/misc/socket.cc, `ncclFindInterfaces`, and src/os/linux.cc, `ncclOsFindInterfaces` (2.27.5 to 2.30.7, read
2026-11). Since 2.28 it passes over interfaces that do not run, and takes libvirt's bridges last.
Gloo in torch: torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, `createDefaultDevice` (v2.13, read 2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpudoctor.model.fact import Absent, Unread
from gpudoctor.probes._net.addresses import Addresses, is_loopback
from gpudoctor.probes._net.interfaces import Interface

_GUESSES = (
    ("ib", "its name begins with ib, which NCCL tries first"),
    ("^docker,lo,virbr", "the first that runs, but for docker, lo and virbr"),
    ("docker", "there is no other than docker's"),
    ("lo", "there is no other than the loopback"),
    ("virbr", "there is no other than libvirt's bridge"),
)
_EARLIER = (
    _GUESSES[0],
    ("^docker,lo", "the first with an address, but for docker and lo: NCCL before 2.28 does not ask whether it runs"),
    *_GUESSES[2:4],
)


@dataclass(frozen=True, slots=True)
class Choice:
    """An interface with the address that its ranks tell each other, and why this one."""

    interface: str
    address: str
    why: str


def nccl(
    found: Sequence[Interface], held: Addresses, environ: Mapping[str, str], before_2_28: bool = False
) -> Choice | Absent:
    """What `ncclGetUniqueId` would announce. `environ` holds the settings of nccl.conf as well."""
    asked = environ.get("NCCL_SOCKET_IFNAME", "")
    family = {"AF_INET": 4, "AF_INET6": 6}.get(environ.get("NCCL_SOCKET_FAMILY", ""), 0)
    listed = [one.name for one in found if before_2_28 or one.up is not False]
    usable = {name: own for name in listed if (own := _usable(held, name, family))}
    if len(asked) > 1:
        name = next(iter(selected(asked, list(usable))), None)
        if name is None:
            return Absent(f"NCCL_SOCKET_IFNAME={asked} selects no interface that NCCL could use")
        return Choice(name, usable[name], f"NCCL_SOCKET_IFNAME={asked}")
    for pattern, why in _EARLIER if before_2_28 else _GUESSES:
        for name in selected(pattern, list(usable)):
            return Choice(name, usable[name], why)
    return Absent("no interface runs and has an address")


def _usable(held: Addresses, name: str, family: int) -> str:
    """The first address of the interface that NCCL would take: IPv4 before IPv6, no IPv6 loopback."""
    for one in held.by_interface.get(name, ()):
        version = 6 if ":" in one else 4
        if one != "::1" and family in (0, version):
            return one
    return ""


def gloo(
    held: Addresses, environ: Mapping[str, str], resolved: Sequence[str] | Absent | Unread
) -> Choice | Absent | Unread:
    """What torch's Gloo would bind to: the interface named, else the first of the host name's addresses that it can.

    `resolved` are these addresses.
    """
    asked = environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    if asked:
        own = held.by_interface.get(asked, ())
        if own:
            return Choice(asked, own[0], f"GLOO_SOCKET_IFNAME={environ['GLOO_SOCKET_IFNAME']}")
        return Absent(f"GLOO_SOCKET_IFNAME={asked} names no interface with an address")
    if isinstance(resolved, Unread):
        return resolved
    for address in () if isinstance(resolved, Absent) else resolved:
        if name := held.holder(address):
            return Choice(name, address, "this host's name resolves to it")
    listed = "nothing" if isinstance(resolved, Absent) else ", ".join(resolved)
    return Choice(
        "lo", "127.0.0.1", f"this host's name resolves to {listed}, which no interface here has: the fallback"
    )


def misleading(choice: Choice, found: Sequence[Interface]) -> bool:
    """Whether other machines cannot reach it: loopback, or a bridge to this machine's own containers and guests.

    The end of a veth pair may be a container's own way out, and is none of these.
    """
    bridges = {one.name for one in found if one.inner and one.kind in ("bridge", "loopback")}
    return is_loopback(choice.address) or choice.interface in bridges


def selected(wanted: str, there: Sequence[str]) -> list[str]:
    """The names of `there` that NCCL takes for `wanted`: a list of prefixes, ``=`` exact names, ``^`` all but these."""
    invert = wanted.startswith("^")
    exact = wanted[invert:].startswith("=")
    parts = [part.partition(":")[0] for part in wanted[invert + exact :].split(",") if part]
    if not parts:
        return list(there)
    return [
        name for name in there if any(name == part if exact else name.startswith(part) for part in parts) is not invert
    ]
