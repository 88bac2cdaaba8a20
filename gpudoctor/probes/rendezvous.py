"""Where the ranks of a job would meet: this machine's own name, MASTER_ADDR and MASTER_PORT, and Gloo's interface."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpudoctor.core.catalog import fact
from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread, text_of, texts_of
from gpudoctor.core.pattern import pattern
from gpudoctor.probes._interfaces import Addresses, addresses_of, interfaces, is_loopback
from gpudoctor.probes._net_choice import choice_facts, choice_of_gloo, resolve_names
from gpudoctor.probes._reading import as_unread, line, path_exists, resolve_path, text
from gpudoctor.target import Target
from gpudoctor.target.protocol import patience

ONLY = "linux"
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
    """Yields ``net`` facts about where ranks would meet, from files, variables and (not at level quick) resolver."""
    yield "net.job_nodes", _job_nodes(target.environ)
    yield from _port_facts(target)
    yield "net.firewall", firewall(target)
    own = line(target, "/proc/sys/kernel/hostname")
    host = text_of(own)
    master = target.environ.get("MASTER_ADDR", "")
    names = resolve_names(target, [name for name in (host, master) if name], TIMEOUT)
    host_resolution = names[host] if host else Unread(f"the host's name is not known: {getattr(own, 'why', '')}")
    found = interfaces(target)
    listed_interfaces = found if isinstance(found, list) else []
    addresses = addresses_of(target, listed_interfaces) if isinstance(found, list) else as_unread(found)
    yield from _host_facts(host_resolution, addresses)
    chosen = (
        addresses
        if isinstance(addresses, Unread)
        else choice_of_gloo(target, listed_interfaces, addresses, host, host_resolution)
    )
    yield from choice_facts("gloo", chosen, listed_interfaces, "the interfaces and names, by the rules of torch's Gloo")
    yield from _master_facts(master, names.get(master), addresses)


def _job_nodes(environ: Mapping[str, str]) -> Fact:
    """Number of machines in the job: SLURM_NNODES, else the number of all ranks divided by that on this machine
    (torchrun, mpirun), rounded down, at least 1.

    Absent if no such variables are set.
    """
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


def _port_facts(target: Target) -> Iterator[tuple[str, Fact]]:
    """Yields net.port_low and port_high (ephemeral ports), net.port (MASTER_PORT) and port_taken (its listener).

    The last two are absent if MASTER_PORT is not set or no port number.
    """
    content = text(target, _RANGE, 64)
    bounds = re.fullmatch(r"(\d+)\s+(\d+)", content) if isinstance(content, str) else None
    for at, name in enumerate(("net.port_low", "net.port_high"), 1):
        missing = Unread(f"{_RANGE} cannot be read") if isinstance(content, str) else as_unread(content)
        yield name, Known(int(bounds[at]), _RANGE) if bounds else missing
    port = target.environ.get("MASTER_PORT", "").strip()
    if not re.fullmatch(r"\d{1,5}", port) or not 0 < int(port) < 1 << 16:
        why = Absent(f"MASTER_PORT={port} is no port" if port else "MASTER_PORT is not set")
        yield "net.port", why
        yield "net.port_taken", why
        return
    yield "net.port", Known(int(port), "MASTER_PORT")
    yield "net.port_taken", _listener(target, int(port))


def _address_list(resolution: Fact) -> tuple[str, ...] | Absent | Unread:
    """The resolved addresses; `Absent` or `Unread` if the fact is."""
    return resolution if isinstance(resolution, (Absent, Unread)) else texts_of(resolution)


def _host_facts(resolution: Fact, addresses: Addresses | Unread) -> Iterator[tuple[str, Fact]]:
    """Yields net.host_addresses, host_loopback (whether the first is) and host_foreign (those no interface here has).

    `resolution`: the addresses of this machine's own name; if absent or unread, all are.
    """
    yield "net.host_addresses", resolution
    own = _address_list(resolution)
    if not isinstance(own, tuple):
        yield "net.host_loopback", own
        yield "net.host_foreign", own
        return
    yield "net.host_loopback", Known(is_loopback(own[0]), "net.host_addresses")
    foreign = tuple(one for one in own if addresses.holder(one) is None) if isinstance(addresses, Addresses) else ()
    yield "net.host_foreign", addresses if isinstance(addresses, Unread) else Known(foreign, "/proc/net")


def _master_facts(master: str, resolution: Fact | None, addresses: Addresses | Unread) -> Iterator[tuple[str, Fact]]:
    """Yields net.master_addresses, master_here, master_loopback and master_error for MASTER_ADDR.

    All absent if it is not set (`resolution` is None), all unread if `resolution` is. If it does not resolve, the error
    is known and the rest absent.
    """
    if resolution is None:
        why = Absent("MASTER_ADDR is not set")
        yield from ((f"net.master_{part}", why) for part in ("addresses", "here", "loopback", "error"))
        return
    yield "net.master_addresses", resolution
    own = _address_list(resolution)
    if not isinstance(own, tuple):
        yield "net.master_here", own
        yield "net.master_loopback", own
        yield "net.master_error", Known(f"{master}: {own.why}", "getaddrinfo") if isinstance(own, Absent) else own
        return
    source = f"MASTER_ADDR={master}"
    here = any(addresses.holder(one) for one in own) if isinstance(addresses, Addresses) else False
    yield "net.master_here", addresses if isinstance(addresses, Unread) else Known(here, source)
    yield "net.master_loopback", Known(all(map(is_loopback, own)), source)
    yield "net.master_error", Absent("it resolves")


# ---- Who listens on a TCP port of this machine ----

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN = "0A"
_MOST_TABLE_BYTES = 1 << 23
"""Bytes of a table, 150 for each socket."""

_MOST_ANCESTORS = 64

_JOBS = ("SLURM_JOB_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
"""Variables that only the processes of one job have with one value."""

_ELASTIC = "TORCHELASTIC_RUN_ID"
"""torchrun's: often the same for all its jobs, whose processes have one parent."""


def listening_process(target: Target, port: int) -> str:
    """The process that listens on the TCP port here, ``python (pid 4711)``; empty if none, or if it cannot be told."""
    tables = (text(target, path, _MOST_TABLE_BYTES) for path in _TABLES)
    sockets = (found for table in tables if isinstance(table, str) for found in _listening_sockets(table, port))
    owner = next((pid for inode, _ in sockets if (pid := _socket_owner(target, inode))), "")
    return f"{_process_name(target, owner)} (pid {owner})" if owner else ""


def _listener(target: Target, port: int) -> Fact:
    """Who listens on the TCP port: ``python (pid 4711)``, or the user if the process is another's.

    Absent if nobody does. A process that started us, or of the same job, counts as absent: the job's own store is no
    obstacle. Unread if /proc/net/tcp cannot be read.
    """
    tables = [text(target, path, _MOST_TABLE_BYTES) for path in _TABLES]
    if not isinstance(tables[0], str):
        return Unread(tables[0].why, reason=tables[0].reason)
    sockets = [found for table in tables if isinstance(table, str) for found in _listening_sockets(table, port)]
    if not sockets:
        return Absent(f"nobody listens on port {port}")
    owner = next((pid for inode, _ in sockets if (pid := _socket_owner(target, inode))), "")
    if not owner:
        return Known(f"a process of user {sockets[0][1]}", _TABLES[0])
    if owner in (above := _ancestors(target)) or _same_job(target, owner, above):
        return Absent(f"a process of this job listens on port {port}")
    return Known(f"{_process_name(target, owner)} (pid {owner})", f"{_TABLES[0]}, /proc/{owner}/fd")


def _listening_sockets(table: str, port: int) -> Iterator[tuple[str, str]]:
    """Yields (inode, user id), as text, of each socket in `table` (/proc/net/tcp) that listens on the port.

    Its lines read ``0: 00000000:733C 00000000:0000 0A ... uid timeout inode``.
    """
    for fields in map(str.split, table.splitlines()[1:]):
        if len(fields) > 9 and fields[3] == _LISTEN and fields[1].rpartition(":")[2] == f"{port:04X}":
            yield fields[9], fields[7]


def _socket_owner(target: Target, inode: str) -> str:
    """Pid of the process that has this socket open; empty if none that we may look into has."""
    for pid in target.listing("/proc"):
        if not pid.isdigit():
            continue
        try:
            handles = target.listing(f"/proc/{pid}/fd")
        except OSError:
            continue
        if any(resolve_path(target, f"/proc/{pid}/fd/{handle}").endswith(f"socket:[{inode}]") for handle in handles):
            return pid
    return ""


def _ancestors(target: Target) -> set[str]:
    """Pids, as text, of this process and its ancestors, at most 64."""
    found: set[str] = set()
    pid = "self"
    while pid not in ("", "0") and len(found) < _MOST_ANCESTORS:
        own, pid = _pid_and_parent(target, pid)
        found.add(own)
    return found - {""}


def _pid_and_parent(target: Target, pid: str) -> tuple[str, str]:
    """The process's own pid and its parent's, as text, for a pid or ``self``; both empty if it cannot be read.

    In /proc's ``4711 (name) S 4242 ...`` state and parent follow the last parenthesis.
    """
    stat = text(target, f"/proc/{pid}/stat", 4096)
    if not isinstance(stat, str):
        return "", ""
    rest = stat.rpartition(")")[2].split()
    return stat.partition(" ")[0], rest[1] if len(rest) > 1 else ""


def _same_job(target: Target, pid: str, above: set[str]) -> bool:
    """True if the process belongs to our job: its launcher's variables are ours.

    torchrun's run id counts only if its parent is one of our ancestors (pids `above`), as it often is the same for all.
    """
    found = text(target, f"/proc/{pid}/environ", 1 << 20)
    if not isinstance(found, str):
        return False
    theirs = dict(entry.partition("=")[::2] for entry in found.split("\0"))
    ours = target.environ
    if any(ours.get(name) and ours[name] == theirs.get(name) for name in _JOBS):
        return True
    elastic = _ELASTIC in ours and ours[_ELASTIC] == theirs.get(_ELASTIC)
    return elastic and _pid_and_parent(target, pid)[1] in above - {"1"}


def _process_name(target: Target, pid: str) -> str:
    """The process's name; ``a process`` if it cannot be read."""
    found = text(target, f"/proc/{pid}/comm", 64)
    return found if isinstance(found, str) and found else "a process"


# ---- Whether this machine's own firewall turns connections away ----
# What its files say, and its rules, which are root's: without them it can be seen to be on, never to be off.

_UFW = "/etc/ufw/ufw.conf"
_FIREWALLD = ("/run/firewalld.pid", "/run/firewalld/firewalld.pid")
_CHAIN = pattern(r"^\s*chain (?P<name>\S+) \{\n(?P<body>.*?)^\s*\}", re.M | re.S)
_REFUSES = pattern(
    r"hook input [^\n]*policy drop"
    r"|^(?![^\n]*(?:ct state invalid |saddr [^!/\n][^/\n]*$))\s*(?:[^\n#]* )?(?:drop|reject)\b",
    re.M,
)
"""A policy, or a rule; not one for broken packets, or for addresses that it names, as fail2ban bans them."""

_NFT_SECONDS = 2.0
"""Seconds for nft, which answers in milliseconds."""


def firewall(target: Target) -> Fact:
    """What blocks connections to this machine: ufw, firewalld, or the first nftables chain that does.

    Absent if nothing does. Unread at level quick, without nft, or if the rules may not be read, unless ufw's or
    firewalld's files show it is on.
    """
    for name, path in _enabled_services(target):
        return Known(name, path)
    nft = target.which("nft") if target.level != "quick" else None
    if nft is None:
        return Unread("the rules of the packet filter are asked from level standard on, by nft")
    try:
        answer = target.run([nft, "list", "ruleset"], timeout=_NFT_SECONDS)
    except OSError as error:
        return Unread(f"nft: {error.strerror or error}")
    if not answer.ok:
        return Unread("the rules of the packet filter are root's to read")
    inputs = (chain for chain in _CHAIN.finditer(answer.out) if "hook input" in chain["body"])
    chains = [chain["name"] for chain in inputs if _REFUSES.search(chain["body"])]
    if chains:
        return Known(f"nftables, chain {chains[0]}", "nft list ruleset")
    legacy = text(target, "/proc/net/ip_tables_names", 4096)  # the tables in use; empty where there are none
    if legacy and not isinstance(legacy, Absent):
        return Unread("the rules of iptables-legacy are not read")
    return Absent("no nftables chain turns incoming connections away")


def _enabled_services(target: Target) -> Iterator[tuple[str, str]]:
    """Yields (name, path) of ufw or firewalld, if its files show that it is on."""
    ufw = text(target, _UFW, 4096)
    if isinstance(ufw, str) and re.search(r"^ENABLED=yes", ufw, re.M | re.I):
        yield "ufw", _UFW
    for path in _FIREWALLD:
        if path_exists(target, path) is True:
            yield "firewalld", path
