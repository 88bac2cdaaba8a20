"""One act of sharing: what passes through the same `Sharing` has the same words for the same things."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from gpudoctor.hiding import nodesets, places
from gpudoctor.hiding.addresses import Addresses
from gpudoctor.hiding.files import Files
from gpudoctor.hiding.ledger import Ledger
from gpudoctor.hiding.names import Names, is_word, learnable
from gpudoctor.hiding.numbers import Numbers
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
            for host in nodesets.lists(text):
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
