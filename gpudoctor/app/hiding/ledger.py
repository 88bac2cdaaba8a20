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


def is_replacement(word: str) -> bool:
    """True if it is a word that a Ledger gives (``host1``), so that sharing twice changes nothing more."""
    return bool(_OURS.fullmatch(word))


class Ledger:
    """The replacement words given so far, and how many things of each kind they stand for."""

    def __init__(self) -> None:
        self._word_by_thing: dict[tuple[str, str], str] = {}
        self._last_number: dict[str, int] = {}
        self._reserved: set[str] = set()

    def reserve(self, text: str) -> None:
        """Never give a replacement word that the text contains already."""
        self._reserved.update(_OURS.findall(text))

    def word(self, kind: str, original: str, numbered: Callable[[int], str] | None = None, series: str = "") -> str:
        """The replacement of that original, the same each time; `numbered` makes the nth, by default ``host1``.

        Numbers count within `series`, by default the kind.
        """
        word = self._word_by_thing.get((kind, original))
        if word is None:
            word = self._new_word(original, kind, series or kind, numbered)
            self._word_by_thing[kind, original] = word
        return word

    def _new_word(self, original: str, kind: str, series: str, numbered: Callable[[int], str] | None) -> str:
        """The next word of the series that is neither reserved nor the original itself."""
        while True:
            number = self._last_number.get(series, 0) + 1
            self._last_number[series] = number
            word = numbered(number) if numbered else f"{kind}{number}"
            if word not in self._reserved and word != original:
                return word

    def summary(self) -> str:
        """Counts of hidden things by kind, ``2 users, 8 UUIDs``; empty if nothing was hidden."""
        counts: dict[str, int] = {}
        for kind, _ in self._word_by_thing:
            counts[kind] = counts.get(kind, 0) + 1
        parts = [(counts[kind], *NAMES[kind]) for kind in NAMES if kind in counts]
        return ", ".join(f"{count} {one if count == 1 else several}" for count, one, several in parts)
