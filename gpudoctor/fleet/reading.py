"""From what came back of a host, or stands in a file, to summaries: banners skipped, what is cut off named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpudoctor.fleet.names import order
from gpudoctor.fleet.summary import Summary, silent, summarized
from gpudoctor.hiding.walk import mapped
from gpudoctor.model.diagnosis import Finding, finding_from_json, from_json
from gpudoctor.model.errors import DoctorError, DocumentError
from gpudoctor.model.rule import CONFIDENCES, SEVERITIES
from gpudoctor.model.secrets import without_secrets
from gpudoctor.model.snapshot import SCHEMA

if TYPE_CHECKING:
    from gpudoctor.expect import Profile
    from gpudoctor.rulebook import Rulebook

_OBJECT = re.compile(r"^\ufeff?(?=\{\s*\")", re.MULTILINE)
_NAME = re.compile(r'"target":\s*\{[^{}]*"name":\s*"([^"\\]+)"')
_NEAR_THE_TOP = 4096
"""Characters within which a document names its machine."""
_MOST_WORDS = 160
"""Characters of what came instead of a document that are told."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: its text, and how it ended where that was not well (``timed out after 60 s``).

    `host` is the name by which it was asked. Of a file it is empty: its documents say whom they are about, and `name`,
    the file's, stands for a host where they do not.
    """

    text: str
    host: str = ""
    name: str = ""
    because: str = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """An object of JSON that does not come to its end, or not rightly: why, and whom it says it is about."""

    because: str
    host: str


@dataclass(frozen=True, slots=True)
class Example:
    """A finding as one host tells it, and what makes it a better example than another."""

    place: tuple[object, ...]
    host: str
    finding: Finding


class Reader:
    """Reads replies by a rulebook: by its layers, and by its rules what nobody has judged yet.

    `examples` keeps of each finding, by its id, the whole of one: the surest, of the host that comes first.
    """

    def __init__(self, book: Rulebook, profile: Profile | None = None) -> None:
        self._book = book
        self._profile = profile
        self.examples: dict[str, Example] = {}

    @cached_property
    def _layers(self) -> Mapping[str, str]:
        return {rule.id: rule.layer for rule in self._book.rules}

    def summaries(self, reply: Reply) -> Iterator[Summary]:
        """One for each document in it; where there is none, one that says why. No text of another host has a secret."""
        for summary in self._summaries(reply):
            yield mapped(summary, _screened)

    def _summaries(self, reply: Reply) -> Iterator[Summary]:
        found = False
        for raw in documents(reply.text):
            found = True
            who = reply.host or _named(raw) or reply.name
            try:
                document = self._judged(raw, who)
                summary = summarized(document, self._layers, reply.host)
                self._keep(summary, document["findings"])
                yield summary
            except DoctorError as error:
                words = f"{error}; {reply.because}" if reply.because else str(error)
                yield silent(who, words)
        if not found:
            yield silent(reply.host or reply.name, reply.because or _instead(reply.text))

    def _keep(self, summary: Summary, findings: Sequence[Mapping[str, Any]]) -> None:
        for told, raw in zip(summary.findings, findings, strict=True):
            place = (SEVERITIES.index(told.severity), CONFIDENCES.index(told.confidence), order(summary.host))
            best = self.examples.get(told.id)
            if best is None or place < best.place:
                try:
                    self.examples[told.id] = Example(place, summary.host, mapped(finding_from_json(raw), _screened))
                except (KeyError, TypeError, AttributeError) as error:
                    words = f"not a whole diagnosis document: {type(error).__name__} {error}"
                    raise DocumentError(words) from error

    def _judged(self, raw: Mapping[str, Any] | Broken, who: str) -> Mapping[str, Any]:
        """The document as it is, if it is a diagnosis; a saved snapshot or a record is judged first."""
        if isinstance(raw, Broken):
            raise DocumentError(raw.because)
        schema = str(raw.get("schema", ""))
        if schema != SCHEMA and re.fullmatch(r"gpudoctor/\d+", schema):
            raise DocumentError(f"schema {schema} is not {SCHEMA}: a gpudoctor of another major version wrote it")
        if schema == SCHEMA and "findings" in raw:
            target = raw.get("target")
            if isinstance(target, Mapping) and target.get("kind") == "fleet":
                raise DocumentError("this is the document of a whole fleet; gpudoctor read shows it")
            return self._held(raw)
        from gpudoctor import doctor

        snapshot = doctor.snapshot_of(json.dumps(raw), who)
        return doctor.diagnose(snapshot, self._book, profile=self._profile).to_json()

    def _held(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the host said of itself, held to the profile where there is one."""
        if self._profile is None:
            return raw
        from gpudoctor.expect import held_to

        return held_to(from_json(raw), self._profile, self._book).to_json()


def documents(text: str) -> Iterator[Mapping[str, Any] | Broken]:
    """Every object of JSON with a schema that begins a line; what stands before, between and behind is left out."""
    decoder = json.JSONDecoder()
    begin = _OBJECT.search(text)
    while begin:
        at = begin.end()
        head = text[at : at + _NEAR_THE_TOP]
        try:
            raw, at = decoder.raw_decode(text, at)
            if "schema" in raw:
                yield raw
        except (ValueError, RecursionError) as error:
            if head.lstrip("{ \t\r\n").startswith('"schema"'):  # else a banner that looks like one
                yield Broken(_trouble(error, text), _told_name(head))
            at += 1
        begin = _OBJECT.search(text, at)


def _screened(text: str, _: str) -> str:
    return without_secrets(text)


def _trouble(error: Exception, text: str) -> str:
    """In words: a document whose parser stopped at the end of the text is cut off, another is broken."""
    if isinstance(error, json.JSONDecodeError):
        line = text.find("\n", error.pos)
        whole = error.msg.startswith("Unterminated") or not text[error.pos : line if line >= 0 else None].strip()
        return "the document is cut off" if whole else f"broken JSON: {error.msg}"
    return "broken JSON: nested without end" if isinstance(error, RecursionError) else f"broken JSON: {error}"


def _named(raw: Mapping[str, Any] | Broken) -> str:
    """Whom the document says it is about; empty where it does not."""
    if isinstance(raw, Broken):
        return raw.host
    target = raw.get("target")
    name = target.get("name") if isinstance(target, Mapping) else ""
    return name if isinstance(name, str) else ""


def _told_name(head: str) -> str:
    found = _NAME.search(head)
    return found[1] if found else ""


def _instead(text: str) -> str:
    """What stands there instead of a document, its last line in quotes."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"no gpudoctor document, but: {lines[-1][:_MOST_WORDS]}" if lines else "nothing came back"
