"""From what came back of a host, or stands in a file, to summaries: banners skipped, what is cut off named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpudoctor.cluster.fleet.summary import Summary, summary_of, unanswered_summary
from gpudoctor.core.diagnosis import Diagnosis, Finding, finding_from_json, from_json
from gpudoctor.core.errors import DoctorError, DocumentError
from gpudoctor.core.language import ENGLISH, and_list, current, say
from gpudoctor.core.rule import CONFIDENCES, SEVERITIES
from gpudoctor.core.secrets import without_secrets
from gpudoctor.core.snapshot import SCHEMA
from gpudoctor.core.texts import map_texts
from gpudoctor.diagnosis.expect import held_to

if TYPE_CHECKING:
    from gpudoctor.diagnosis.expect import Profile
    from gpudoctor.diagnosis.rulebook import Rulebook

_NUMBER = re.compile(r"(\d+)")
_MOST_NAMES, _LONGEST_NODE_SET = 6, 48
"""Names that a sentence lists, and characters of a word that stands for many."""
_LAST = re.compile(r"(.*?)(\d+)(\D*)\Z")


def order(name: str) -> list[tuple[int, int, str]]:
    """Sort key for host names: numbers compare by value and before letters; of 1 and 01 the shorter is first."""
    return [
        (0, int(part), f"{len(part):03}") if part.isdecimal() else (1, 0, part) for part in _NUMBER.split(name) if part
    ]


def ordered(names: Iterable[str]) -> list[str]:
    """Distinct names, sorted by `order` (``node9`` before ``node10``)."""
    return sorted(set(names), key=order)


def node_set(names: Iterable[str]) -> str:
    """Names as one node set in the notation of Slurm and ClusterShell, sorted: ``login,node[01-08,11]``."""
    return ",".join(_folded_groups(ordered(names)))


def names_phrase(names: Iterable[str]) -> str:
    """Names for a sentence: ``n1, n7 and n9``; more than six as a node set if it is short, else six and ``N more``."""
    several = ordered(names)
    if len(several) <= _MOST_NAMES:
        return and_list(several or [""])
    word = ",".join(_folded_groups(several))
    if len(word) <= _LONGEST_NODE_SET:
        return word
    more = say(" and {count} more", count=len(several) - _MOST_NAMES)
    return ", ".join(several[:_MOST_NAMES]) + more


def _folded_groups(names: Sequence[str]) -> Iterator[str]:
    """Node-set words: names that differ only in their last number are merged; order of first appearance."""
    alike: dict[tuple[str, str, int], list[str]] = {}
    for name in names:
        match = _LAST.match(name)
        digits = match[2] if match else ""
        padded = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        key = (match[1], match[3], padded) if match else (name, "", -1)
        if match and not padded and (match[1], match[3], len(digits)) in alike:
            key = (match[1], match[3], len(digits))  # 10 after 09
        alike.setdefault(key, []).append(digits)
    for (head, tail, width), digits in alike.items():
        numbers = ",".join(_ranges(digits))
        yield head if width < 0 else f"{head}{f'[{numbers}]' if len(digits) > 1 else numbers}{tail}"


def _ranges(digits: Sequence[str]) -> Iterator[str]:
    """Ranges of consecutive sorted numbers (at least one), ``01-03`` or ``9-11``; a single number stands alone."""
    begin = last = digits[0]
    for number in (*digits[1:], ""):
        if number and int(number) == int(last) + 1 and (len(number) == len(last) or not last.startswith("0")):
            last = number
            continue
        yield begin if begin == last else f"{begin}-{last}"
        begin = last = number


Judge = Callable[[str, str], Diagnosis]
"""The diagnosis of a saved snapshot or record, by its text and a name for messages; raises `DoctorError`."""
_OBJECT = re.compile(r"^\ufeff?(?=\{\s*\")", re.MULTILINE)
_NAME = re.compile(r'"target":\s*\{[^{}]*"name":\s*"([^"\\]+)"')
_HEAD_CHARACTERS = 4096
"""Characters within which a document names its machine."""
_LONGEST_QUOTE = 160
"""Characters of what came instead of a document that are told."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The raw text from one host or file; `because` is set where the command failed (``timed out after 60 s``).
    `host` is the name used to ask it, ``""`` for a file. `name` (of the file) is the fallback for documents without a
    host.
    """

    text: str
    host: str = ""
    name: str = ""
    because: str = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """A JSON document that does not parse: the error, and the host it names (``""`` if none)."""

    because: str
    host: str


@dataclass(frozen=True, slots=True)
class Example:
    """One host's finding kept as the example of its id; `place` orders examples, the lowest is the best."""

    place: tuple[object, ...]
    host: str
    finding: Finding


class ReplyReader:
    """Turns replies into summaries. Saved facts are diagnosed by `judge`; without it they are rejected.
    `examples` holds, by finding id, the most severe and most certain full finding, of the first host by name.
    """

    def __init__(self, book: Rulebook, profile: Profile | None = None, judge: Judge | None = None) -> None:
        """A reader without examples yet; `judge` and `profile` are optional."""
        self._book = book
        self._layers = {rule.id: rule.layer for rule in book.rules}
        self._judge = judge
        self._profile = profile
        self.examples: dict[str, Example] = {}

    def summaries(self, reply: Reply) -> Iterator[Summary]:
        """One summary per document in the reply; a document that cannot be used, and a reply without any, gives one
        without an answer and with the reason. Secrets are masked, and examples of findings kept.
        """
        for summary in self._unmasked_summaries(reply):
            yield map_texts(summary, _masked)

    def _unmasked_summaries(self, reply: Reply) -> Iterator[Summary]:
        """As `summaries`, with secrets still in it: one summary per document in the reply, or one that states why there
        is none.
        """
        found = False
        for raw in documents(reply.text):
            found = True
            who = reply.host or _target_name(raw) or reply.name
            try:
                document = self._as_diagnosis(raw, who)
                summary = summary_of(document, self._layers, reply.host)
                self._keep_examples(summary, document, who if document is raw else "")
                yield summary
            except DoctorError as error:
                words = f"{error}; {reply.because}" if reply.because else str(error)
                yield unanswered_summary(who, words)
        if not found:
            yield unanswered_summary(reply.host or reply.name, reply.because or _why_no_document(reply.text))

    def _keep_examples(self, summary: Summary, document: Mapping[str, Any], written: str) -> None:
        """Keep each finding as its id's example if it is more severe or certain than that so far, or as much so and of
        a host that is earlier by `order`; a malformed one raises `DocumentError`. `written` names the document if it
        was judged elsewhere, maybe in another language.
        """
        own: list[Finding] | None = None
        for listed, raw in zip(summary.findings, document["findings"], strict=True):
            place = (SEVERITIES.index(listed.severity), CONFIDENCES.index(listed.confidence), order(summary.host))
            best = self.examples.get(listed.id)
            if listed.severity == "info" or (best is not None and place >= best.place):
                continue
            try:
                finding = finding_from_json(raw)
            except (KeyError, TypeError, AttributeError) as error:
                words = f"not a whole diagnosis document: {type(error).__name__} {error}"
                raise DocumentError(words) from error
            if own is None:
                own = self._findings_in_own_language(document, written)
            same = next((one for one in own if (one.id, one.subject) == (finding.id, finding.subject)), finding)
            finding = replace(finding, title=same.title, why=same.why, fixes=same.fixes)
            self.examples[listed.id] = Example(place, summary.host, map_texts(finding, _masked))

    def _findings_in_own_language(self, document: Mapping[str, Any], written: str) -> list[Finding]:
        """What today's rules find in the facts of a document; empty where its own words are English, as ours are."""
        if current() == ENGLISH or not written or self._judge is None:
            return []
        try:
            return list(self._judge(json.dumps(document), written).findings)
        except DoctorError:  # facts of another version: its own words stay
            return []

    def _as_diagnosis(self, raw: Mapping[str, Any] | Broken, name: str) -> Mapping[str, Any]:
        """Diagnosis document as JSON, held to the profile if there is one; of a saved snapshot or record, what `judge`
        makes of it. Raises `DocumentError` for broken JSON, another major version, a fleet's document, or facts without
        a `judge`.
        """
        if isinstance(raw, Broken):
            raise DocumentError(raw.because)
        schema = str(raw.get("schema", ""))
        if schema != SCHEMA and re.fullmatch(r"gpudoctor/\d+", schema):
            raise DocumentError(
                say(
                    "schema {schema} is not {ours}: a gpudoctor of another major version wrote it",
                    schema=schema,
                    ours=SCHEMA,
                )
            )
        if schema == SCHEMA and "findings" in raw:
            target = raw.get("target")
            if isinstance(target, Mapping) and target.get("kind") == "fleet":
                raise DocumentError(say("this is the document of a whole fleet; gpudoctor read shows it"))
            return raw if self._profile is None else held_to(from_json(raw), self._profile, self._book).to_json()
        if self._judge is None:
            raise DocumentError(say("facts that nobody has judged; gpudoctor fleet judges them"))
        return self._judge(json.dumps(raw), name).to_json()


def documents(text: str) -> Iterator[Mapping[str, Any] | Broken]:
    """JSON objects with the key ``schema`` in a text, each beginning a line; Broken if one does not parse. Other text
    is skipped.
    """
    decoder = json.JSONDecoder()
    begin = _OBJECT.search(text)
    while begin:
        at = begin.end()
        head = text[at : at + _HEAD_CHARACTERS]
        try:
            raw, at = decoder.raw_decode(text, at)
            if "schema" in raw:
                yield raw
        except (ValueError, RecursionError) as error:
            if head.lstrip("{ \t\r\n").startswith('"schema"'):  # else a banner that looks like one
                named = _NAME.search(head)
                yield Broken(_parse_error(error, text), named[1] if named else "")
            at += 1
        begin = _OBJECT.search(text, at)


def _masked(text: str, _: str) -> str:
    """The text with secrets masked; the second argument is not used."""
    return without_secrets(text)


def _parse_error(error: Exception, text: str) -> str:
    """Why JSON did not parse: cut off at the end of the text, nested too deeply, or broken."""
    if isinstance(error, json.JSONDecodeError):
        line = text.find("\n", error.pos)
        whole = error.msg.startswith("Unterminated") or not text[error.pos : line if line >= 0 else None].strip()
        return say("the document is cut off") if whole else say("broken JSON: {why}", why=error.msg)
    return say("broken JSON: {why}", why=say("nested without end") if isinstance(error, RecursionError) else error)


def _target_name(raw: Mapping[str, Any] | Broken) -> str:
    """Host that the document is about, from ``target.name``; ``""`` if it names none."""
    if isinstance(raw, Broken):
        return raw.host
    target = raw.get("target")
    name = target.get("name") if isinstance(target, Mapping) else ""
    return name if isinstance(name, str) else ""


def _why_no_document(text: str) -> str:
    """Message for a reply without a document: quotes its last non-empty line, or says that it is empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    quote = lines[-1][:_LONGEST_QUOTE] if lines else ""
    return say("no gpudoctor document, but: {quote}" if lines else "nothing came back", quote=quote)
