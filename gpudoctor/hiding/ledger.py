"""Which word stands for which name: the same thing has the same word everywhere, and two things never share one."""

from __future__ import annotations

import re
from collections.abc import Callable

NAMES: dict[str, tuple[str, str]] = {
    "host": ("host name", "host names"),
    "user": ("user", "users"),
    "domain": ("domain", "domains"),
    "switch": ("switch", "switches"),
    "file": ("file name", "file names"),
    "cloud": ("cloud account or instance", "cloud accounts and instances"),
    "uuid": ("UUID", "UUIDs"),
    "serial": ("serial number", "serial numbers"),
    "guid": ("GUID", "GUIDs"),
    "mac": ("hardware address", "hardware addresses"),
    "address": ("network address", "network addresses"),
    "hex": ("long number", "long numbers"),
    "secret": ("secret", "secrets"),
    "command": ("command line", "command lines"),
}
"""Kinds of what is hidden, one and several of them, in the order in which they are told."""

_OURS = re.compile(r"\b(?:host|user|domain|switch|file|cloud)\d{1,6}\b")
"""No hyphen in them: where nothing but words tells what a text is about, ``user`` alone would be one of them."""


def is_ours(word: str) -> bool:
    """Whether it is a word that stands for a name already, so that what was shared once is shared again as it is."""
    return bool(_OURS.fullmatch(word))


class Ledger:
    """The words given so far, and how many things of each kind they stand for."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._next: dict[str, int] = {}
        self._taken: set[str] = set()

    def reserve(self, text: str) -> None:
        """Never give a word that stands in the text already."""
        self._taken.update(_OURS.findall(text))

    def word(self, kind: str, thing: str, made: Callable[[int], str] | None = None, series: str = "") -> str:
        """The word for that thing; `made` gives the nth, by default ``host1``, counted within its `series`."""
        found = self._given.get((kind, thing))
        if found is None:
            found = self._fresh(thing, kind, series or kind, made)
            self._given[kind, thing] = found
        return found

    def _fresh(self, thing: str, kind: str, series: str, made: Callable[[int], str] | None) -> str:
        while True:
            number = self._next.get(series, 0) + 1
            self._next[series] = number
            word = made(number) if made else f"{kind}{number}"
            if word not in self._taken and word != thing:
                return word

    def told(self) -> str:
        """``2 users, 8 UUIDs``: how many things of each kind were hidden; empty where nothing was."""
        counts: dict[str, int] = {}
        for kind, _ in self._given:
            counts[kind] = counts.get(kind, 0) + 1
        parts = [(counts[kind], *NAMES[kind]) for kind in NAMES if kind in counts]
        return ", ".join(f"{count} {one if count == 1 else several}" for count, one, several in parts)
