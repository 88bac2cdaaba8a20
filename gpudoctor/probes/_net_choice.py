"""Which interface NCCL and Gloo would take on a target: the rules of `gpudoctor.target.network`, fed from its files.

What they are told by settings, and what host names resolve to, is asked here too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpudoctor.core import versions
from gpudoctor.core.fact import Absent, Fact, Known, Unread
from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import pattern
from gpudoctor.probes._dists import Environment, environment
from gpudoctor.probes._interfaces import Addresses, Interface, is_loopback
from gpudoctor.probes._reading import text
from gpudoctor.probes._site import once_per_target
from gpudoctor.probes.children import script
from gpudoctor.target import Target, network
from gpudoctor.target.network import Choice, Resolved
from gpudoctor.target.network import Interface as Candidate
from gpudoctor.target.protocol import answers, printable

_RESOLVE_SECONDS = 3.0
"""Seconds for the host of NCCL_COMM_ID."""


class _UnresolvedError(Exception):
    """What a host name resolves to is not known."""


def choice_of_nccl(target: Target, interfaces: Sequence[Interface], addresses: Addresses) -> Choice | Absent | Unread:
    """The interface and address that NCCL would announce, by the settings in force and the installed NCCL version.

    Absent if it would find none, unread if it is not known whether a host name that it needs resolves.
    """

    def ask(name: str) -> Resolved:
        """The addresses of a host name, as NCCL's rules ask for them; raises `_UnresolvedError`."""
        return _as_resolved(name, resolve_names(target, [name], _RESOLVE_SECONDS)[name])

    values = settings_of(target).values
    return _choose(
        lambda: network.nccl_choice(tuple(_as_candidates(interfaces, addresses)), values, _nccl_release(target), ask)
    )


def choice_of_gloo(
    target: Target, interfaces: Sequence[Interface], addresses: Addresses, host: str, addresses_fact: Fact
) -> Choice | Absent | Unread:
    """The interface and address that torch's Gloo would bind to, by the variables of the session.

    `addresses_fact`: what this machine's name `host` resolves to. Absent if Gloo would find none, unread if
    `addresses_fact` is unread and Gloo needs it.
    """
    return _choose(
        lambda: network.gloo_choice(
            tuple(_as_candidates(interfaces, addresses)), target.environ, lambda: _as_resolved(host, addresses_fact)
        )
    )


def choice_facts(
    user: str, chosen: Choice | Absent | Unread, interfaces: Sequence[Interface], source: str
) -> Iterator[tuple[str, Fact]]:
    """Yields net.<user>_interface, _address, _why and _inner (no other machine can reach it).

    `user`: ``nccl`` or ``gloo``. All are absent or unread as the choice is.
    """
    if isinstance(chosen, (Absent, Unread)):
        yield from ((f"net.{user}_{part}", chosen) for part in ("interface", "address", "why", "inner"))
        return
    yield f"net.{user}_interface", Known(chosen.interface, source)
    yield f"net.{user}_address", Known(chosen.address, source)
    yield f"net.{user}_why", Known(chosen.because, source)
    bridges = {
        interface.name for interface in interfaces if interface.inner and interface.kind in ("bridge", "loopback")
    }
    yield f"net.{user}_inner", Known(is_loopback(chosen.address) or chosen.interface in bridges, source)


def _choose(choose: Callable[[], Choice]) -> Choice | Absent | Unread:
    """The result of `choose`; absent, with its reason, if it is empty; unread if `choose` raises `_UnresolvedError`."""
    try:
        chosen = choose()
    except _UnresolvedError as unknown:
        return Unread(str(unknown))
    return chosen or Absent(chosen.because)


def _as_candidates(interfaces: Sequence[Interface], addresses: Addresses) -> Iterator[Candidate]:
    """Yields the interfaces as NCCL's and Gloo's rules take them; one whose state cannot be read counts as up."""
    for interface in interfaces:
        yield Candidate(interface.name, interface.up is not False, addresses.by_interface.get(interface.name, ()))


def _as_resolved(name: str, addresses_fact: Fact) -> Resolved:
    """The fact's addresses as a `Resolved`, none if it is absent; if it is unread, raises `_UnresolvedError`."""
    if isinstance(addresses_fact, Unread):
        raise _UnresolvedError(addresses_fact.why)
    if isinstance(addresses_fact, Absent):
        return Resolved(name, why=addresses_fact.why)
    return Resolved(name, tuple(map(str, addresses_fact.value)) if isinstance(addresses_fact.value, tuple) else ())


def _nccl_release(target: Target) -> tuple[int, ...]:
    """NCCL's version as numbers, by its wheel in the target's environment; a current one if there is no wheel."""
    installed = environment(target)
    wheels = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
    wheel = installed.first(*wheels) if isinstance(installed, Environment) else None
    parsed = versions.parse(wheel.version) if wheel else None
    return parsed.release if parsed else network.NCCL_SKIPS_NO_CARRIER


# ---- What host names resolve to ----
# By /etc/hosts at level quick, by the machine's resolver in a child from standard on.

_HOSTS = "/etc/hosts"


def resolve_names(target: Target, names: Sequence[str], seconds: float) -> Mapping[str, Fact]:
    """Addresses of each name, as facts that are lists; a name that is an address is its own.

    At level quick by /etc/hosts, else by the resolver. Absent if the name has none; unread if not in /etc/hosts, or if
    the resolver does not answer within `seconds`.
    """
    literal: dict[str, Fact] = {name: Known((name,), "an address") for name in names if network.is_address(name)}
    unresolved = [name for name in dict.fromkeys(names) if name not in literal]
    if target.level == "quick":
        return {**literal, **{name: _resolve_by_hosts_file(target, name) for name in unresolved}}
    return {**literal, **(_resolve_by_child(target, unresolved, seconds) if unresolved else {})}


def _resolve_by_hosts_file(target: Target, name: str) -> Fact:
    """Addresses of the name in /etc/hosts; unread if it is not there, as the resolver may know it."""
    content = text(target, _HOSTS)
    if isinstance(content, Unread):
        return content
    found = tuple(dict.fromkeys(_hosts_addresses(content, name))) if isinstance(content, str) else ()
    if found:
        return Known(found, _HOSTS)
    return Unread(f"the name is not in {_HOSTS}; the resolver is asked from level standard on")


def _hosts_addresses(content: str, name: str) -> Iterator[str]:
    """Yields the addresses that the text of /etc/hosts gives the name."""
    for line in content.splitlines():
        address, *aliases = line.partition("#")[0].split() or [""]
        if name.lower() in (alias.lower() for alias in aliases) and network.is_address(address):
            yield address


def _resolve_by_child(target: Target, names: Sequence[str], seconds: float) -> dict[str, Fact]:
    """Addresses of each name by the machine's resolver, in a child; absent if none, unread after `seconds`."""
    argv = [target.python or sys.executable, "-I", "-S", *script("ask_names.py"), *names]
    try:
        answer = target.run(argv, timeout=seconds)
    except OSError as error:
        return dict.fromkeys(names, Unread(f"the resolver could not be asked: {error.strerror or error}"))
    entries = {entry["name"]: entry for entry in answers(answer.out) if "name" in entry}
    late = Unread(f"the resolver did not answer ({answer.how})", reason=answer.reason)
    return {name: _resolution(entries[name]) if name in entries else late for name in names}


def _resolution(entry: Mapping[str, object]) -> Fact:
    """One answer of the child that resolves names: the addresses, or absent if the name does not resolve."""
    found = entry.get("is")
    if isinstance(found, list) and found:
        return Known(tuple(map(str, found)), "getaddrinfo")
    return Absent(f"the name does not resolve: {printable(entry.get('text', ''))}")


# ---- Settings that steer NCCL, Gloo and what is below them, and where each comes from ----
# NCCL reads the environment, then ``~/.nccl.conf`` (in its place the file that NCCL_CONF_FILE names, since 2.23), then
# /etc/nccl.conf; what is set already stays (src/misc/param.cc, read 2026-11).

_FAMILIES = pattern(r"(?:NCCL|TORCH_NCCL|GLOO|TORCH_GLOO|UCX|FI|OFI_NCCL)_\w+|TORCH_DISTRIBUTED_DEBUG")

_LONGEST_VALUE = 1023
"""Characters of a value that NCCL keeps."""


@frozen
class Setting:
    """One variable in force. `origin` is ``environment`` or the path of the file that sets it."""

    name: str
    value: str
    origin: str


@frozen
class Settings:
    """The variables in force, by name; `unreadable`: reasons for files that could not be read, else empty."""

    by_name: Mapping[str, Setting]
    unreadable: str

    def __getitem__(self, name: str) -> str | None:
        """The variable's value; None if it is not set."""
        found = self.by_name.get(name)
        return found.value if found else None

    @property
    def values(self) -> Mapping[str, str]:
        """Value by name of the settings in force."""
        return {name: setting.value for name, setting in self.by_name.items()}


def settings_of(target: Target) -> Settings:
    """The NCCL, Gloo, UCX and libfabric variables in force in the session; read once per target."""
    return once_per_target(target, "nccl settings", lambda: _read_settings(target))


def _read_settings(target: Target) -> Settings:
    """The variables of NCCL, Gloo, UCX and libfabric from the environment, then from NCCL's configuration files.

    The first setting of a name counts.
    """
    environ = target.environ
    found = {name: Setting(name, value, "environment") for name, value in environ.items() if _FAMILIES.fullmatch(name)}
    unreadable: list[str] = []
    for path in _setting_files(environ):
        content = text(target, path)
        if isinstance(content, Unread):
            unreadable.append(content.why)
        for setting in _assignments(content, path) if not isinstance(content, (Absent, Unread)) else ():
            if setting.name not in environ:
                found.setdefault(setting.name, setting)
    return Settings(found, "; ".join(unreadable))


def _setting_files(environ: Mapping[str, str]) -> Iterator[str]:
    """Yields the paths of the configuration files that NCCL would read, in order."""
    named, home = environ.get("NCCL_CONF_FILE"), environ.get("HOME")
    if named:
        yield named
    elif home:
        yield f"{home.rstrip('/')}/.nccl.conf"
    yield "/etc/nccl.conf"


def _assignments(content: str, path: str) -> Iterator[Setting]:
    """Yields the settings in NCCL's format: ``NAME=value``, no quotes, spaces kept, ``#`` only at a line's start."""
    for line in content.splitlines():
        name, sign, value = line.partition("=")
        if sign and not line.startswith("#") and re.fullmatch(r"\w+", name):
            yield Setting(name, value[:_LONGEST_VALUE], path)
