"""Whether this machine's own firewall turns connections away: what its files say, and its rules where they may be read.

The rules themselves are root's. Without them a firewall can be seen to be on, never to be off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._reading import text, there
from gpudoctor.target import Target

_UFW = "/etc/ufw/ufw.conf"
_FIREWALLD = ("/run/firewalld.pid", "/run/firewalld/firewalld.pid")
_CHAIN = pattern(r"^\s*chain (?P<name>\S+) \{\n(?P<body>.*?)^\s*\}", re.M | re.S)
_REFUSES = pattern(r"hook input [^\n]*policy drop|^\s*(?:[^\n#]* )?(?:drop|reject)\b", re.M)

TIMEOUT = 2.0
"""Seconds for nft, which answers in milliseconds."""


def firewall(target: Target) -> Fact:
    """Who turns connections to this machine away: ufw, firewalld, or the chain that does; absent where nobody does."""
    for name, path in _switched_on(target):
        return Known(name, path)
    nft = target.which("nft") if target.level != "quick" else None
    if nft is None:
        return Unread("the rules of the packet filter are asked from level standard on, by nft")
    try:
        answer = target.run([nft, "list", "ruleset"], timeout=TIMEOUT)
    except OSError as error:
        return Unread(f"nft: {error.strerror or error}")
    if not answer.ok:
        return Unread("the rules of the packet filter are root's to read")
    chains = [chain["name"] for chain in _CHAIN.finditer(answer.out) if _turns_away(chain["body"])]
    if chains:
        return Known(f"nftables, chain {chains[0]}", "nft list ruleset")
    legacy = there(target, "/proc/net/ip_tables_names")
    if legacy is not False:
        return Unread("the rules of iptables-legacy are not read")
    return Absent("no nftables chain turns incoming connections away")


def _switched_on(target: Target) -> Iterator[tuple[str, str]]:
    ufw = text(target, _UFW, 4096)
    if isinstance(ufw, str) and re.search(r"^ENABLED=yes", ufw, re.M | re.I):
        yield "ufw", _UFW
    for path in _FIREWALLD:
        if there(target, path) is True:
            yield "firewalld", path


def _turns_away(body: str) -> bool:
    """A chain on the way in that drops by default, or that has a rule of its own that drops or rejects."""
    return "hook input" in body and _REFUSES.search(body) is not None
