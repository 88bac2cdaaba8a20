"""Where the ranks of a job would meet: this machine's own name, MASTER_ADDR and MASTER_PORT, and Gloo's interface."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpudoctor.model.catalog import fact
from gpudoctor.model.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.probes._net import choice
from gpudoctor.probes._net.addresses import Addresses, addresses_of, is_loopback
from gpudoctor.probes._net.firewall import firewall
from gpudoctor.probes._net.interfaces import interfaces
from gpudoctor.probes._net.names import resolved
from gpudoctor.probes._net.ports import listener
from gpudoctor.probes._reading import line, text
from gpudoctor.target import Target
from gpudoctor.target.protocol import patience

FACTS = (
    fact("net.job_nodes", "int", "machines of the job that this session belongs to, by its launcher's variables"),
    fact("net.host_addresses", "list", "what this machine's own name resolves to here; absent where to nothing"),
    fact("net.host_loopback", "bool", "whether its first address is a loopback one, 127.0.1.1"),
    fact("net.host_foreign", "list", "those of its addresses that no interface of this machine has"),
    fact("net.gloo_interface", "text", "interface that torch's Gloo would bind to"),
    fact("net.gloo_address", "text", "address that Gloo would announce to the other ranks"),
    fact("net.gloo_why", "text", "why Gloo would take this one"),
    fact("net.gloo_inner", "bool", "whether no other machine can reach it"),
    fact("net.master_addresses", "list", "what MASTER_ADDR resolves to here; absent where it is not set or unknown"),
    fact("net.master_here", "bool", "whether MASTER_ADDR is this machine; absent where it is not set"),
    fact("net.master_loopback", "bool", "whether MASTER_ADDR is a loopback address; absent where it is not set"),
    fact("net.master_error", "text", "why MASTER_ADDR does not resolve; absent where it does or is not set"),
    fact("net.port", "int", "MASTER_PORT; absent where it is not set"),
    fact(
        "net.port_taken", "text", "who listens on MASTER_PORT here, such as python (pid 4711); absent where nobody does"
    ),
    fact("net.firewall", "text", "who turns connections to this machine away: ufw, firewalld, a chain of nftables"),
    fact("net.port_low", "int", "first of the ports that the kernel gives to outgoing connections"),
    fact("net.port_high", "int", "last of them"),
)

TIMEOUT = patience("GPUDOCTOR_RESOLVER_TIMEOUT", 5.0)
"""Seconds for the resolver: it waits 5 s for each name server by default."""
DEADLINE = TIMEOUT + 1.5

_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def probe(target: Target) -> Iterator[tuple[str, Fact | Rows]]:
    """From files and variables; at level standard the machine's resolver is asked as well."""
    yield "net.job_nodes", _nodes(target.environ)
    yield from _ports(target)
    yield "net.firewall", firewall(target)
    own = line(target, "/proc/sys/kernel/hostname")
    host = str(own.value) if isinstance(own, Known) else ""
    master = target.environ.get("MASTER_ADDR", "")
    names = resolved(target, [name for name in (host, master) if name], TIMEOUT)
    told = names[host] if host else Unread(f"the host's name is not known: {getattr(own, 'why', '')}")
    found = interfaces(target)
    held = (
        addresses_of(target, [one.name for one in found if one.up is not False])
        if isinstance(found, list)
        else Unread(found.why)
    )
    yield from _host(told, held)
    seen = found if isinstance(found, list) else []
    chosen = held if isinstance(held, Unread) else choice.gloo(target, seen, held, host, told)
    yield from choice.facts("gloo", chosen, seen, "the interfaces and names, by the rules of torch's Gloo")
    yield from _master(master, names.get(master), held)


def _nodes(environ: Mapping[str, str]) -> Fact:
    """Slurm says it; torchrun and mpirun say how many processes there are, and how many of them here."""
    pairs = (
        ("SLURM_NNODES", ""),
        ("WORLD_SIZE", "LOCAL_WORLD_SIZE"),
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    )
    for whole, here in pairs:
        count, own = environ.get(whole, ""), environ.get(here, "1" if not here else "")
        if re.fullmatch(r"\d{1,9}", count) and re.fullmatch(r"[1-9]\d{0,8}", own):
            return Known(max(1, int(count) // int(own)), f"{whole} / {here}" if here else whole)
    return Absent("no launcher's variables say so")


def _ports(target: Target) -> Iterator[tuple[str, Fact]]:
    content = text(target, _RANGE, 64)
    bounds = re.fullmatch(r"(\d+)\s+(\d+)", content) if isinstance(content, str) else None
    for at, name in enumerate(("net.port_low", "net.port_high"), 1):
        missing = Unread(f"{_RANGE} cannot be read") if isinstance(content, str) else Unread(content.why)
        yield name, Known(int(bounds[at]), _RANGE) if bounds else missing
    port = target.environ.get("MASTER_PORT", "").strip()
    if not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 1 << 16:
        why = Absent(f"MASTER_PORT={port} is no port" if port else "MASTER_PORT is not set")
        yield "net.port", why
        yield "net.port_taken", why
        return
    yield "net.port", Known(int(port), "MASTER_PORT")
    yield "net.port_taken", listener(target, int(port))


def _listed(resolved_: Fact) -> tuple[str, ...] | Absent | Unread:
    if not isinstance(resolved_, Known):
        return resolved_
    return tuple(map(str, resolved_.value)) if isinstance(resolved_.value, tuple) else ()


def _host(resolved_: Fact, held: Addresses | Unread) -> Iterator[tuple[str, Fact]]:
    yield "net.host_addresses", resolved_
    own = _listed(resolved_)
    if not isinstance(own, tuple):
        yield "net.host_loopback", own
        yield "net.host_foreign", own
        return
    yield "net.host_loopback", Known(is_loopback(own[0]), "net.host_addresses")
    foreign = tuple(one for one in own if held.holder(one) is None) if isinstance(held, Addresses) else ()
    yield "net.host_foreign", held if isinstance(held, Unread) else Known(foreign, "/proc/net")


def _master(master: str, resolved_: Fact | None, held: Addresses | Unread) -> Iterator[tuple[str, Fact]]:
    if resolved_ is None:
        why = Absent("MASTER_ADDR is not set")
        yield from ((f"net.master_{part}", why) for part in ("addresses", "here", "loopback", "error"))
        return
    yield "net.master_addresses", resolved_
    own = _listed(resolved_)
    if not isinstance(own, tuple):
        yield "net.master_here", own
        yield "net.master_loopback", own
        yield "net.master_error", Known(f"{master}: {own.why}", "getaddrinfo") if isinstance(own, Absent) else own
        return
    source = f"MASTER_ADDR={master}"
    here = any(held.holder(one) for one in own) if isinstance(held, Addresses) else False
    yield "net.master_here", held if isinstance(held, Unread) else Known(here, source)
    yield "net.master_loopback", Known(all(map(is_loopback, own)), source)
    yield "net.master_error", Absent("it resolves")
