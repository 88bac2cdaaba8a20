"""Which interface NCCL and Gloo would take on a target, by its files and the rules of `links.choice`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gpudoctor.links import choice
from gpudoctor.links.choice import Choice
from gpudoctor.links.interfaces import Interface as Seen
from gpudoctor.links.names import Resolved
from gpudoctor.model import version
from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.probes._net.addresses import Addresses, is_loopback
from gpudoctor.probes._net.interfaces import Interface
from gpudoctor.probes._net.names import resolved
from gpudoctor.probes._net.settings import settings_of
from gpudoctor.probes._python.dists import Environment, environment
from gpudoctor.target import Target

_RESOLVING = 3.0
"""Seconds for the host of NCCL_COMM_ID."""


class _UnknownError(Exception):
    """What a name resolves to cannot be told."""


def nccl(target: Target, found: Sequence[Interface], held: Addresses) -> Choice | Absent | Unread:
    """What `ncclGetUniqueId` would announce, by the settings in force and the release of NCCL's wheel."""

    def ask(name: str) -> Resolved:
        return _resolved(name, resolved(target, [name], _RESOLVING)[name])

    values = settings_of(target).values
    return _made(lambda: choice.nccl(tuple(_seen(found, held)), values, _release(target), ask))


def gloo(
    target: Target, found: Sequence[Interface], held: Addresses, host: str, told: Fact
) -> Choice | Absent | Unread:
    """What torch's Gloo would bind to; `told` is what the target's own name, `host`, resolves to."""
    return _made(lambda: choice.gloo(tuple(_seen(found, held)), target.environ, lambda: _resolved(host, told)))


def facts(
    user: str, chosen: Choice | Absent | Unread, found: Sequence[Interface], source: str
) -> Iterator[tuple[str, Fact]]:
    """``net.nccl_interface``, ``net.nccl_address``, ``net.nccl_why`` and ``net.nccl_inner`` for the user ``nccl``."""
    if isinstance(chosen, (Absent, Unread)):
        yield from ((f"net.{user}_{part}", chosen) for part in ("interface", "address", "why", "inner"))
        return
    yield f"net.{user}_interface", Known(chosen.interface, source)
    yield f"net.{user}_address", Known(chosen.address, source)
    yield f"net.{user}_why", Known(chosen.because, source)
    yield f"net.{user}_inner", Known(_misleading(chosen, found), source)


def _misleading(chosen: Choice, found: Sequence[Interface]) -> bool:
    """Whether other machines cannot reach it: loopback, or a bridge to this machine's own containers and guests.

    The end of a veth pair may be a container's own way out, and is none of these.
    """
    bridges = {one.name for one in found if one.inner and one.kind in ("bridge", "loopback")}
    return is_loopback(chosen.address) or chosen.interface in bridges


def _made(choose: Callable[[], Choice]) -> Choice | Absent | Unread:
    try:
        chosen = choose()
    except _UnknownError as unknown:
        return Unread(str(unknown))
    return chosen or Absent(chosen.because)


def _seen(found: Sequence[Interface], held: Addresses) -> Iterator[Seen]:
    """One whose state cannot be read is taken to run."""
    for one in found:
        yield Seen(one.name, one.up is not False, held.by_interface.get(one.name, ()))


def _resolved(name: str, told: Fact) -> Resolved:
    if isinstance(told, Unread):
        raise _UnknownError(told.why)
    if isinstance(told, Absent):
        return Resolved(name, why=told.why)
    return Resolved(name, tuple(map(str, told.value)) if isinstance(told.value, tuple) else ())


def _release(target: Target) -> tuple[int, ...]:
    """By NCCL's wheel in the target's environment; without one a present release is assumed."""
    installed = environment(target)
    wheels = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
    wheel = installed.first(*wheels) if isinstance(installed, Environment) else None
    parsed = version.parse(wheel.version) if wheel else None
    return parsed.release if parsed else choice.CAREFUL
