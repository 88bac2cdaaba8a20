"""Names of hosts and users: which are somebody's, and the same text with each of them replaced wherever it stands."""

from __future__ import annotations

import re

from gpudoctor.hiding.ledger import Ledger, is_ours
from gpudoctor.hiding.nodesets import SET, expanded, folded
from gpudoctor.hiding.public import ACCOUNTS, SUFFIXES, is_file, is_public_host, vocabulary

_SHORTEST = 4
"""Characters of a user's name below which it is hidden only where a user must stand: ``al`` is part of anything."""
_MOST_PARTS = 9
"""Words joined by dots and hyphens of the longest name that is looked for as a whole."""
_RUN = re.compile(r"[^\W_]+(?:[-_.]+[^\W_]+)*")
_JOINT = re.compile(r"([-_.]+)")
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9](?:[\w-]{0,62})(?:\.[A-Za-z0-9][\w-]{0,62})*\.?\Z")
_NUMBER = re.compile(r"[\d.:x-]*\Z")


class Names:
    """Every name that was learnt, by what it is."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[str, str] = {}
        """Their kinds, by the names in small letters; those that are hidden wherever they stand."""
        self._first: set[str] = set()
        self._runs: dict[str, str] = {}
        self._phrases: dict[str, str] = {}

    def learn(self, kind: str, name: str) -> None:
        """Hide that name from now on, wherever it stands, if it tells of somebody and is no word of ours."""
        low = name.lower().rstrip(".")
        if low in self._known or is_nobodys(kind, low) or not _is_distinct(kind, low):
            return
        if re.search(r"\s", low):
            self._phrases[low] = kind
            return
        self._known[low] = kind
        if kind == "host" and "." in low:
            label, _, domain = low.partition(".")
            self.learn("host", label)
            self.learn("domain", domain)
        self._first.add(_JOINT.split(low)[0])
        self._runs.clear()

    def word(self, kind: str, name: str) -> str:
        """What stands for that name where such a name must stand; the name itself where it is nobody's."""
        low = name.lower().rstrip(".")
        if is_nobodys(kind, low):
            return name
        if kind == "host":
            return self._host(low)
        if kind == "domain":
            return self._domain(low)
        return self._ledger.word(kind, low)

    def _host(self, low: str) -> str:
        label, _, domain = low.partition(".")
        if domain and "." not in domain and domain not in SUFFIXES:
            return low if label == "example" else self._domain(low)
        word = label if label in ACCOUNTS or is_ours(label) else self._ledger.word("host", label)
        return f"{word}.{self._domain(domain)}" if domain else word

    def _domain(self, domain: str) -> str:
        """``domain1.example``; what every private network has stays."""
        if domain.endswith(".example") and is_ours(domain.removesuffix(".example")):
            return domain
        suffix = next((end for end in SUFFIXES if domain == end or domain.endswith(f".{end}")), "")
        if domain == suffix:
            return domain
        return f"{self._ledger.word('domain', domain)}.{suffix or 'example'}"

    def hide(self, text: str) -> str:
        """The text without any name that was learnt; numbers and letters beside it make it another one."""
        for phrase, kind in self._phrases.items():
            if phrase in text.lower():
                text = re.sub(re.escape(phrase), self.word(kind, phrase), text, flags=re.IGNORECASE)
        if "[" in text:
            text = SET.sub(self._set, text)
        return _RUN.sub(self._run, text) if self._known else text

    def _set(self, match: re.Match[str]) -> str:
        """Many hosts in one word, if one of them is known; else it may be a list's place: ``args[0]``."""
        names = expanded(match)
        if self._known.keys().isdisjoint(name.lower() for name in names):
            return match[0]
        return folded(self.word("host", name) for name in names)

    def _run(self, match: re.Match[str]) -> str:
        run = match[0]
        found = self._runs.get(run)
        if found is None:
            found = self._runs[run] = self._replaced(run)
        return found

    def _replaced(self, run: str) -> str:
        low = run.lower()
        parts = _JOINT.split(low)
        if len(low) != len(run) or self._first.isdisjoint(parts):
            return run
        out, place, at = [], 0, 0
        while place < len(parts):
            length = self._longest(parts, place)
            size = sum(map(len, parts[place : place + max(1, length)]))
            piece = run[at : at + size]
            out.append(self.word(self._known[piece.lower()], piece) if length else piece)
            place, at = place + max(1, length), at + size
        return "".join(out)

    def _longest(self, parts: list[str], place: int) -> int:
        """How many of the parts from there are one name; none where no name begins."""
        if parts[place] not in self._first:
            return 0
        most = min(len(parts), place + 2 * _MOST_PARTS)
        return next((end - place for end in range(most, place, -1) if "".join(parts[place:end]) in self._known), 0)


def is_nobodys(kind: str, low: str) -> bool:
    """Whether a name tells of nobody: an account of every system, a number, a site of all the world, a word of ours."""
    if kind == "cloud":
        return not low or is_ours(low)
    if not low or low in ACCOUNTS or _NUMBER.match(low) or is_ours(low):
        return True
    if kind == "domain":
        return low in SUFFIXES or is_public_host(low) or is_ours(low.removesuffix(".example"))
    return kind == "host" and (not _HOST.match(low) or is_public_host(low) or is_ours(low.partition(".")[0]))


def _is_distinct(kind: str, low: str) -> bool:
    """Whether it is nothing but that name wherever it stands."""
    if is_word(low) or is_file(low):
        return False
    if kind in {"host", "switch"}:
        return len(low) >= _SHORTEST or (len(low) > 1 and bool(re.search(r"\d", low)))
    return len(low) >= _SHORTEST


def is_word(name: str) -> bool:
    """Whether it is a word of our own pages, or several joined: ``memory``, ``nvidia-ctk``."""
    return all(part in vocabulary() for part in _JOINT.split(name.lower())[::2])


def learnable(name: str) -> bool:
    """Whether it can be a host's name at all: no file, and no variable."""
    return bool(_HOST.match(name)) and not is_file(name) and not ("_" in name and name.isupper())
