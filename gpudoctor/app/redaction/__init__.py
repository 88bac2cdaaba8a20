"""What is personal, replaced in what another person is to see: the same name by the same word everywhere.

What was equal stays so, what differed differs, and a diagnosis stays true: `Redactor` takes any value of the model (a
diagnosis, a snapshot, a fleet, measurements, a plan, a difference, a stack), before any view has seen it. What a view
may show has passed `core.texts.map_texts`, which leaves out no text of it. What passes through the same `Redactor` has
the same words for the same things.

What is hidden stands in `name_patterns.NAMES`. What stays: versions, product names, PCI addresses, libraries and
packages, folders below a home, accounts of every system (root, ubuntu, runner), the addresses that every machine has,
and the sites that all the world uses.

Its limits. A name is found where a name must stand (`name_patterns`) or where a fact gives it; then it is hidden
wherever it stands, unless it is shorter than four letters or a word of our own pages: such a one is hidden only where
it must be a name. A public address that could be a version (8.9.2.26) is hidden only where something beside it says
what it is. Names are found through terminal colours, invisible and wide letters, ``%2F``, and the escapes of JSON; not
through letters of other scripts that look alike, base64, or a name cut in two. A secret is known by its shape or by
what it is given to; one that looks like a word, and stands alone, is not.
"""

from __future__ import annotations

import getpass
import re
import socket
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from gpudoctor.app.redaction.name_patterns import Ledger, Span, spans
from gpudoctor.app.redaction.names import Files, Names, hosts_in_lists, is_word, learnable
from gpudoctor.app.redaction.numbers import Addresses, Numbers
from gpudoctor.core.language import say
from gpudoctor.core.secrets import HIDDEN, visible_ascii, without_long, without_secrets
from gpudoctor.core.texts import map_texts, texts

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
_TELLING_NAME = re.compile(r"^(?:env|setting)\.|token|secret|pass|key|auth|cred|user|host", re.IGNORECASE)
"""Names that tell what their value is: it is looked at as ``NAME=value``."""
_NAME = re.compile(r"[\w.]+")
_LONGEST_KEY = 120
"""Characters of the longest name of a fact that says what it is about."""
_ENDS = ".-_:"


class Redactor:
    """Learns the personal data in values and replaces it consistently; `summary` counts what was replaced."""

    def __init__(self, this_machine: bool = True) -> None:
        """`this_machine`: hide the names of this machine and its user, too, wherever they stand."""
        self._ledger = Ledger()
        self._names = Names(self._ledger)
        self._numbers = Numbers(self._ledger)
        self._addresses = Addresses(self._ledger)
        self._files = Files(self._ledger)
        self._spans: dict[str, tuple[Span, ...]] = {}
        self._hidden_by_text: dict[tuple[str, str], str] = {}
        if this_machine:
            with suppress(KeyError, OSError):
                self._names.learn("user", getpass.getuser())
            with suppress(RuntimeError, OSError):
                self._names.learn("user", Path.home().name)
            with suppress(OSError):
                self._names.learn("host", socket.gethostname())

    def __call__(self, value: T) -> T:
        """The value with personal data replaced in every text of it."""
        found_texts = list(dict.fromkeys(texts(value)))
        pairs = [(visible_ascii(text), key) for text, key in found_texts]
        for text, _ in pairs:
            self._ledger.reserve(text)
        for text, key in pairs:
            if len(key) <= _LONGEST_KEY and (kind := _name_kind(text, key)):
                self._names.learn(kind, text)
        for text, key in pairs:
            for reading in {text, decoded(text)}:
                self._learn_places(reading if not key.startswith("env.") else f"{key[4:]}={reading}")
        self._files.learn(value)
        return map_texts(value, self.text)

    @property
    def summary(self) -> str:
        """Sentence that counts what was hidden so far, each thing once: ``hidden: 1 host name, 2 users, 8 UUIDs``;
        ``hidden: nothing, ...`` where nothing was.
        """
        return say("hidden: {what}", what=self._ledger.summary() or say("nothing, for nothing personal was found"))

    def text(self, text: str, key: str = "") -> str:
        """The text without personal data; `key` is the fact or field whose value it is."""
        place = text, key if len(key) <= _LONGEST_KEY else ""
        if place not in self._hidden_by_text:
            self._hidden_by_text[place] = self._hide(*place)
        return self._hidden_by_text[place]

    def _learn_places(self, text: str) -> None:
        """Learn the names, numbers and addresses of this text that stand where only such a thing can stand."""
        self._addresses.learn(text)
        self._numbers.learn(text)
        if "[" in text or "," in text:
            for host in hosts_in_lists(text):
                self._names.learn("host", host)
        for span in self._name_spans(text):
            name = text[span.start : span.end].rstrip(_ENDS)
            if span.kind == "cloud" or (not span.sure and is_word(name)):
                continue
            if span.kind != "host" or learnable(name):
                self._names.learn(span.kind, name)

    def _name_spans(self, text: str) -> tuple[Span, ...]:
        """Places in the text where a name must stand, in order, the longest first; cached."""
        if text not in self._spans:
            self._spans[text] = tuple(sorted(spans(text), key=lambda span: (span.start, -span.end)))
        return self._spans[text]

    def _hide(self, text: str, key: str) -> str:
        """The text without personal data, by its fact or field `key`: names, serial numbers, ids whole, else in part.

        Versions are kept; a command loses its arguments.
        """
        text = self._files.hide(visible_ascii(text))
        if not text or text.isspace():
            return text
        if kind := _name_kind(text, key):
            return self._names.word(kind, text)
        if _SERIALS.fullmatch(key) and len(text) < 64:
            return self._numbers.serial(text)
        if _IDS.fullmatch(key):
            return self._hide_also_decoded(self._numbers.whole(text))
        if _VERSIONS.fullmatch(key) and _VERSION.fullmatch(text):
            return text
        if _COMMANDS.fullmatch(key):
            text = _ARGUMENTS.sub(" (arguments hidden)", text)
        name = key.removeprefix("env.")
        if _TELLING_NAME.search(key) and _NAME.fullmatch(name):
            text = self._hide_also_decoded(f"{name}={text}").partition("=")[2]
        return self._hide_also_decoded(text)

    def _hide_also_decoded(self, text: str) -> str:
        """The text hidden as written; if more is found once escapes are decoded, the decoded text hidden."""
        hidden = self._hide_once(text)
        if "%" in hidden or "\\" in hidden:
            read = decoded(hidden)
            again = self._hide_once(read)
            return hidden if again == read else again
        return hidden

    def _hide_once(self, text: str) -> str:
        """The text with secrets, numbers, addresses and names replaced, as written."""
        text = without_secrets(text, self._hide_secret)
        text = without_long(self._numbers.hide(text), self._hide_secret)
        text = self._addresses.hide(text)
        return self._names.hide(self._replace_placed_names(text))

    def _hide_secret(self, value: str) -> str:
        """The placeholder of a secret, which is counted."""
        if value.rstrip("@") != HIDDEN:
            self._ledger.word("secret", value, lambda _: HIDDEN)
        return HIDDEN

    def _replace_placed_names(self, text: str) -> str:
        """The text with names replaced where a name must stand; a common word is replaced there, too, unless a word of
        prose may stand in that place.
        """
        if not self._name_spans(text):
            return text
        out, at = [], 0
        for span in self._name_spans(text):
            name = text[span.start : span.end].rstrip(_ENDS)
            if span.start < at or (not span.sure and is_word(name)):
                continue
            if span.kind == "host" and not learnable(name):
                continue
            out += [text[at : span.start], self._names.word(span.kind, name)]
            at = span.start + len(name)
        return "".join([*out, text[at:]])


def shared(value: T) -> T:
    """The value without names, addresses, device numbers and secrets; this machine's and its user's included."""
    return Redactor()(value)


def _name_kind(text: str, key: str) -> str:
    """``host``, ``user`` or ``switch`` if the fact or field holds such a name; else empty."""
    if _HOSTS.fullmatch(key):
        return "host" if learnable(text) else ""
    if _USERS.fullmatch(key) and re.fullmatch(r"[\w.-]{1,64}", text):
        return "user"
    return "switch" if _SWITCHES.fullmatch(key) else ""


# ---- Escapes ----
# Ways in which a name is written so that it reads the same and is not found: undone before it is looked for.

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([\"'/\\nrt]))")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}


def decoded(text: str) -> str:
    """The text with ``%2F`` and the backslash escapes of JSON and Python decoded."""
    if "%" in text:
        text = unquote(text, errors="replace")

    def character(match: re.Match[str]) -> str:
        """The character that an escape stands for."""
        number = match[1] or match[2]
        return chr(int(number, 16)) if number else _PLAIN.get(match[3], match[3])

    return _ESCAPE.sub(character, text) if "\\" in text else text
