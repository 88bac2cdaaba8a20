"""What host names resolve to: by /etc/hosts at level quick, by the machine's resolver in a child from standard on."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address

from gpudoctor.model.fact import Absent, Fact, Known, Unread
from gpudoctor.probes._child import script
from gpudoctor.probes._reading import text
from gpudoctor.target import Target
from gpudoctor.target.protocol import answers, printable

_HOSTS = "/etc/hosts"


def resolved(target: Target, names: Sequence[str], seconds: float) -> Mapping[str, Fact]:
    """The addresses of each name, as a list; absent where it has none. Waits at most `seconds`."""
    literal: dict[str, Fact] = {name: Known((name,), "an address") for name in names if _is_address(name)}
    asked = [name for name in dict.fromkeys(names) if name not in literal]
    if target.level == "quick":
        return {**literal, **{name: _by_file(target, name) for name in asked}}
    return {**literal, **(_by_child(target, asked, seconds) if asked else {})}


def _is_address(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _by_file(target: Target, name: str) -> Fact:
    """/etc/hosts comes first by default; what it does not hold, others may."""
    content = text(target, _HOSTS)
    if isinstance(content, Unread):
        return content
    found = tuple(dict.fromkeys(_lines(content, name))) if isinstance(content, str) else ()
    if found:
        return Known(found, _HOSTS)
    return Unread(f"the name is not in {_HOSTS}; the resolver is asked from level standard on")


def _lines(content: str, name: str) -> Iterator[str]:
    for line in content.splitlines():
        address, *own = line.partition("#")[0].split() or [""]
        if name.lower() in (alias.lower() for alias in own) and _is_address(address):
            yield address


def _by_child(target: Target, names: Sequence[str], seconds: float) -> dict[str, Fact]:
    argv = [target.python or sys.executable, "-I", "-S", *script("ask_names.py"), *names]
    try:
        answer = target.run(argv, timeout=seconds)
    except OSError as error:
        return dict.fromkeys(names, Unread(f"the resolver could not be asked: {error.strerror or error}"))
    said = {entry["name"]: entry for entry in answers(answer.out) if "name" in entry}
    late = Unread(f"the resolver did not answer ({answer.how})")
    return {name: _fact(said[name]) if name in said else late for name in names}


def _fact(entry: Mapping[str, object]) -> Fact:
    found = entry.get("is")
    if isinstance(found, list) and found:
        return Known(tuple(map(str, found)), "getaddrinfo")
    return Absent(f"the name does not resolve: {printable(entry.get('text', ''))}")
