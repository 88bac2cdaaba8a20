"""One act of sharing: what passes through the same `Sharing` has the same words for the same things."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from gpudoctor.hiding import places
from gpudoctor.hiding.addresses import Addresses
from gpudoctor.hiding.files import Files
from gpudoctor.hiding.ledger import Ledger, is_ours
from gpudoctor.hiding.numbers import Numbers
from gpudoctor.hiding.public import ACCOUNTS, SUFFIXES, is_file, is_public_host, vocabulary
from gpudoctor.hiding.spelling import decoded
from gpudoctor.hiding.walk import mapped, texts
from gpudoctor.model.secrets import HIDDEN, plain, without_long, without_secrets

T = TypeVar("T")

_HOSTS = re.compile(
    r"(?:\w+\.)?(?:hostname|hosts?|nodename|master|clock_host|silent)"
    r"|(?:machine|hosts)\.name|silence\.first|suspects?\.names|(?:link|flow)\.(?:source|target)"
    r"|barrier\.(?:sources|targets)"
    r"|pairwise\.(?:names|wrong|words\.?)|fleet\.results\.|host\.because"
)
"""What facts and fields are the names of hosts, alone or in a list."""
_USERS = re.compile(r"(?:\w+\.)?(?:user|username|owner|login)")
_SWITCHES = re.compile(r"(?:machine|hosts)\.switch")
_SERIALS = re.compile(r"(?:\w+\.)?serial(?:_number)?")
_IDS = re.compile(r"(?:\w+\.)?(?:\w*uuid|\w*guid|machine_id|boot_id|fabric_cluster)")
_VERSIONS = re.compile(r"(?:\w+\.)?\w*(?:version|release|wants|pins?|git|commit)\w*")
_COMMANDS = re.compile(r"gpu_process\.name|stuck\.name|oom\.process|(?:\w+\.)?(?:command|cmdline|command_line|args)")
_VERSION = re.compile(r"\d+(?:\.\d+){3}|[0-9a-f]{7,40}")
_ARGUMENTS = re.compile(r"(?<=\S) {1,64}(?=[^(]).*", re.DOTALL)
_NAMED = re.compile(r"^(?:env|setting)\.|token|secret|pass|key|auth|cred|user|host", re.IGNORECASE)
"""Names that tell what their value is: it is looked at as ``NAME=value``."""
_NAME = re.compile(r"[\w.]+")
_LONGEST = 120
"""Characters of the longest name of a fact that says what it is about."""
_ENDS = ".-_:"


class Sharing:
    """Learns what is personal in what it is given, then replaces it; `told` says how much that was."""

    def __init__(self, here: bool = True) -> None:
        """`here`: names of this machine and of who runs it are hidden, too, wherever they stand."""
        self._ledger = Ledger()
        self._names = Names(self._ledger)
        self._numbers = Numbers(self._ledger)
        self._addresses = Addresses(self._ledger)
        self._files = Files(self._ledger)
        self._spans: dict[str, tuple[places.Span, ...]] = {}
        self._done: dict[tuple[str, str], str] = {}
        if here:
            self._learn_here()

    def __call__(self, thing: T) -> T:
        """The same as another person may see it."""
        found = list(dict.fromkeys(texts(thing)))
        self._learn(found)
        self._files.learn(thing)
        return mapped(thing, self.text)

    @property
    def told(self) -> str:
        """``hidden: 1 host name, 2 users, 8 UUIDs``."""
        return f"hidden: {self._ledger.told() or 'nothing, for nothing personal was found'}"

    def text(self, text: str, key: str = "") -> str:
        """A text about that fact or field without what is personal in it."""
        place = text, key if len(key) <= _LONGEST else ""
        if place not in self._done:
            self._done[place] = self._hidden(*place)
        return self._done[place]

    def _learn_here(self) -> None:
        with suppress(KeyError, OSError):
            self._names.learn("user", getpass.getuser())
        with suppress(RuntimeError, OSError):
            self._names.learn("user", Path.home().name)
        with suppress(OSError):
            self._names.learn("host", socket.gethostname())

    def _learn(self, found: Iterable[tuple[str, str]]) -> None:
        """Hosts and users that a fact names first, in their order; then those that stand where a name must."""
        pairs = [(plain(text), key) for text, key in found]
        for text, _ in pairs:
            self._ledger.reserve(text)
        for text, key in pairs:
            if len(key) <= _LONGEST and (kind := _kind(text, key)):
                self._names.learn(kind, text)
        for text, key in pairs:
            for reading in {text, decoded(text)}:
                self._learn_places(reading if not key.startswith("env.") else f"{key[4:]}={reading}")

    def _learn_places(self, text: str) -> None:
        self._addresses.learn(text)
        self._numbers.learn(text)
        if "[" in text:
            for host in lists(text):
                self._names.learn("host", host)
        for span in self._places(text):
            name = text[span.start : span.end].rstrip(_ENDS)
            if span.kind == "cloud" or (not span.sure and is_word(name)):
                continue
            if span.kind != "host" or learnable(name):
                self._names.learn(span.kind, name)

    def _places(self, text: str) -> tuple[places.Span, ...]:
        """Those of the text in their order, the longest first."""
        if text not in self._spans:
            self._spans[text] = tuple(sorted(places.spans(text), key=lambda span: (span.start, -span.end)))
        return self._spans[text]

    def _hidden(self, text: str, key: str) -> str:
        text = self._files.hide(plain(text))
        if not text or text.isspace():
            return text
        if kind := _kind(text, key):
            return self._names.word(kind, text)
        if _SERIALS.fullmatch(key) and len(text) < 64:
            return self._numbers.serial(text)
        if _IDS.fullmatch(key):
            return self._everywhere(self._numbers.whole(text))
        if _VERSIONS.fullmatch(key) and _VERSION.fullmatch(text):
            return text
        if _COMMANDS.fullmatch(key):
            text = _ARGUMENTS.sub(" (arguments hidden)", text)
        name = key.removeprefix("env.")
        if _NAMED.search(key) and _NAME.fullmatch(name):
            text = self._everywhere(f"{name}={text}").partition("=")[2]
        return self._everywhere(text)

    def _everywhere(self, text: str) -> str:
        """As it is written, and as it would be read where something is written in escapes."""
        hidden = self._once(text)
        if "%" in hidden or "\\" in hidden:
            read = decoded(hidden)
            again = self._once(read)
            return hidden if again == read else again
        return hidden

    def _once(self, text: str) -> str:
        text = without_secrets(text, self._secret)
        text = without_long(self._numbers.hide(text), self._secret)
        text = self._addresses.hide(text)
        return self._names.hide(self._placed(text))

    def _secret(self, value: str) -> str:
        if value.rstrip("@") != HIDDEN:
            self._ledger.word("secret", value, lambda _: HIDDEN)
        return HIDDEN

    def _placed(self, text: str) -> str:
        """With every name replaced that stands where a name must, also those that are words elsewhere."""
        if not self._places(text):
            return text
        out, at = [], 0
        for span in self._places(text):
            name = text[span.start : span.end].rstrip(_ENDS)
            if span.start < at or (not span.sure and is_word(name)):
                continue
            if span.kind == "host" and not learnable(name):
                continue
            out += [text[at : span.start], self._names.word(span.kind, name)]
            at = span.start + len(name)
        return "".join([*out, text[at:]])


def _kind(text: str, key: str) -> str:
    """What a text is the name of, by the fact or field that it is the value of."""
    if _HOSTS.fullmatch(key):
        return "host" if learnable(text) else ""
    if _USERS.fullmatch(key) and re.fullmatch(r"[\w.-]{1,64}", text):
        return "user"
    return "switch" if _SWITCHES.fullmatch(key) else ""


# ---- Names of hosts and users ----
# Which are somebody's, and the same text with each of them replaced wherever it stands.

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


# ---- Many hosts in one word, as Slurm and ClusterShell write them ----
# ``node[01-08,12]``, ``login1,gpu[3-4].site``.

_MOST = 4096
"""Hosts that one word is taken apart into; of more, its first ones."""
SET = re.compile(r"(?<![\w.-])([A-Za-z][\w.-]{0,60})\[(\d{1,6}(?:[-,]\d{1,6}){0,400})\]((?:[.-]?[\w-]{1,60}){0,4})")
_LIST = re.compile(
    r"(?:nodelist|node_list|nodename|nodes|hosts|hostlist|--?w|--hosts|--exclude)[=\s:]{1,3}['\"]?"
    r"([A-Za-z][\w.,\[\]-]{1,4000})",
    re.IGNORECASE,
)
_OURS = re.compile(r"(\D*)(\d+)(\D.*)?")


def lists(text: str) -> Iterator[str]:
    """The hosts of every list that stands where hosts must."""
    for match in _LIST.finditer(text):
        for part in re.split(r",(?![^\[]*\])", match[1].rstrip(",.")):
            found = SET.fullmatch(part)
            if found:
                yield from expanded(found)


def expanded(found: re.Match[str]) -> list[str]:
    """``node[01-03]``: node01, node02, node03."""
    head, numbers, tail = found.groups()
    names: list[str] = []
    for part in numbers.split(","):
        first, _, last = part.partition("-")
        end = min(int(last or first), int(first) + _MOST)
        names += [f"{head}{number:0{len(first)}d}{tail}" for number in range(int(first), end + 1)]
    return names[:_MOST]


def folded(words: Iterable[str]) -> str:
    """``host[1-3]`` for host1, host2 and host3."""
    alike: dict[tuple[str, str], list[int]] = {}
    for word in dict.fromkeys(words):
        match = _OURS.fullmatch(word)
        head, number, tail = match.groups(default="") if match else (word, "", "")
        alike.setdefault((head, tail), []).extend([int(number)] if number else [])
    return ",".join(_one(head, sorted(numbers), tail) for (head, tail), numbers in alike.items())


def _one(head: str, numbers: Sequence[int], tail: str) -> str:
    if len(numbers) < 2:
        return f"{head}{numbers[0] if numbers else ''}{tail}"
    begun: list[list[int]] = []
    for number in numbers:
        if begun and number == begun[-1][1] + 1:
            begun[-1][1] = number
        else:
            begun.append([number, number])
    ranges = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in begun)
    return f"{head}[{ranges}]{tail}"
