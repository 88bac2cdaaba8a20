"""A fact in words: its value, where and when it was read, its siblings, and what the rules that read it said."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from textual.content import Content

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.fact import Fact, Known
from gpudoctor.model.rule import Severity
from gpudoctor.views._terminal import one_line, safe
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.reading import Reading
from gpudoctor.views.tui.widgets.prose import Block, plain
from gpudoctor.views.tui.words.facts import Facts
from gpudoctor.views.tui.words.listing import Item, Listing, said
from gpudoctor.views.tui.work import Told

_HANG = 9
_MOST = 4000
"""Characters of a value that are shown; a screen or two."""
_MOST_SIBLINGS = 4
_MOST_RULES = 12
LINE = "text.line"
_AROUND = 2
_WIDEST = 300
"""Characters of a line that is only shown for what is beside it."""


@dataclass(frozen=True, slots=True)
class Use:
    """A rule that reads the fact, or rests on it: ``found``, ``not judged`` or ``passed``, and why."""

    rule: str
    state: str
    why: str = ""
    severity: Severity | None = None


def told_of(fact: str, told: Mapping[str, Told]) -> Told:
    """What is known of the fact by its name, through ``env.*`` where it stands for any name."""
    return told.get(fact) or told.get(f"{fact.rpartition('.')[0]}.*") or Told()


def uses(item: Item, diagnosis: Diagnosis, told: Mapping[str, Told]) -> list[Use]:
    """What became of every rule that reads it: what was found first, then what it keeps from being judged."""
    found = {finding.id: finding for finding in reversed(item.findings)}
    rests = []
    for name, finding in reversed(list(found.items())):
        where = "" if finding in diagnosis.findings else "on the other machine: "
        rests.append(Use(name, "found", f"{where}{finding.title}", finding.severity))
    group = item.fact.rpartition(".")[0] or item.fact
    waits: list[Use] = []
    passed: list[Use] = []
    readers = set(told_of(item.fact, told).rules)
    for unjudged in diagnosis.unjudged:
        named_fact = unjudged.because.partition(": ")[0]
        if named_fact in (item.fact, group) and not isinstance(item.state, Known):
            waits.insert(0, Use(unjudged.id, "not judged", "for want of this"))
        elif unjudged.id in readers:
            waits.append(Use(unjudged.id, "not judged", unjudged.because))
    for rule in sorted(readers - found.keys() - {use.rule for use in waits}):
        other = next((finding for finding in diagnosis.findings if finding.id == rule), None)
        if other:
            rests.append(Use(rule, "found", "of something else", other.severity))
        elif rule in diagnosis.passed:
            passed.append(Use(rule, "passed"))
    return [*rests, *waits, *passed]


def blocks(item: Item, listing: Listing, about: Iterable[Use], told: Told, read: str) -> Iterator[Block]:
    """All that is known of it. `read` says when, and how long its source took."""
    yield from _value(item, told.unit)
    if told.about:
        yield _labelled("means", plain(told.about, "dim"))
    if item.compared:
        yield _labelled("here", _state(item.state))
        yield _labelled("other", _state(item.other))
    else:
        yield from _read(item, read)
        if item.fact == LINE:
            yield from _around(item, listing)
        elif siblings := _siblings(item, listing):
            yield _labelled("siblings", plain(siblings))
    yield from _uses(list(about))


def line(item: Item) -> str:
    """``gpu.5.name = NVIDIA H100 (NVML)``, with all of the value."""
    value, source = said(item.state)
    shown = value if isinstance(item.state, Known) else f"({value})"
    other = f" | {said(item.other)[0]}" if item.compared else ""
    return safe(f"{item.name} = {shown}{other}" + (f" ({source})" if source else ""))


def moment(diagnosis: Diagnosis, reading: Reading, told: Told) -> str:
    """When it was read, as far as that is known, and how long its source took: ``21:14:07 · nvml took 0.31 s``."""
    words = []
    if diagnosis.snapshot.target.kind == "local":
        ago = time.monotonic() - reading.since - (reading.seconds if reading.over else 0)
        words.append(time.strftime("%H:%M:%S", time.localtime(time.time() - ago)))
    took = diagnosis.snapshot.timings_ms.get(f"probe.{told.source}")
    if took is not None:
        words.append(f"{told.source} took {took / 1000:.2f} s" if took >= 100 else f"{told.source} took {took:.1f} ms")
    return " · ".join(words)


def _value(item: Item, unit: str) -> Iterator[Block]:
    if item.compared:
        yield Block(plain(item.name, "bold"))
        return
    value, _ = said(item.state)
    name = Content.assemble(plain(item.name, "bold"), " = " if isinstance(item.state, Known) else " is ")
    shown = plain(value[:_MOST], "" if isinstance(item.state, Known) else "bold")
    number = isinstance(item.state, Known) and isinstance(item.state.value, (int, float))
    yield Block(Content.assemble(name, shown, plain(f" {unit}" if unit and number else "")))
    if len(value) > _MOST:
        more = f"{len(value):,} characters; these are the first {_MOST:,} of them"
        yield Block(Content.styled(f"… {more}", "bold $primary"))


def _state(state: Fact | None) -> Content:
    """One of two machines: value and source."""
    value, source = said(state)
    cut = f"… ({len(value):,} characters)" if len(value) > _MOST else ""
    return Content.assemble(plain(value[:_MOST] + cut, "bold"), plain(f"  {source}", "dim"))


def _read(item: Item, read: str) -> Iterator[Block]:
    _, source = said(item.state)
    if isinstance(item.state, Known):
        when = f" · {read}" if read and source else ""
        if source:
            yield _labelled("read", Content.assemble(plain(source), plain(when, "dim")))
    else:
        yield _labelled("because", plain(source))
        if read:
            yield _labelled("asked", plain(read, "dim"))


def _around(item: Item, listing: Listing) -> Iterator[Block]:
    """The lines before and after one of a text."""
    if item.index is None or not isinstance(listing, Facts):
        return
    for label, first in (("before", item.index - _AROUND), ("after", item.index + 1)):
        states = [listing.state(LINE, index) for index in range(max(first, 0), first + _AROUND)]
        lines = [one_line(said(state)[0][:_WIDEST]) for state in states if state]
        for place, text in enumerate(lines):
            yield _labelled("" if place else label, plain(text, "dim"))


def _siblings(item: Item, listing: Listing) -> str:
    """``1980 on 6, 1755 on 3 of 9 others``."""
    others = list(listing.siblings(item))
    if not others:
        return ""
    counted = Counter(one_line(said(state)[0][:120]) for _, state in others)
    if len(counted) == len(others) > _MOST_SIBLINGS:
        return f"each of the {len(others)} others has its own"
    mine = one_line(said(item.state)[0][:120])
    parts = [
        f"{'the same' if value == mine else value} on {'all' if count == len(others) > 1 else count}"
        for value, count in counted.most_common(_MOST_SIBLINGS)
    ]
    if (more := len(counted) - _MOST_SIBLINGS) > 0:
        parts.append(f"{more} other values")
    of = " " if len(counted) == 1 else " of "
    return ", ".join(parts) + (f"{of}{len(others)} others" if len(others) > 1 else " other")


def _uses(about: list[Use]) -> Iterator[Block]:
    """What was found and what was not judged, a line each; what passed, in one."""
    told = [use for use in about if use.state in ("found", "not judged")]
    rest = [use.rule for use in about if use not in told]
    for place, use in enumerate(told[:_MOST_RULES]):
        glyph, colour = marks.UNREAD, "bold $primary"
        if use.state == "found":
            glyph, _, colour = marks.SEVERITY[use.severity or "info"]
        text = Content.assemble((f"{glyph} ", colour), plain(use.rule, "bold"), f" → {use.state}")
        why = plain(f": {use.why}" if use.why else "", "dim")
        key = Content.styled(" (enter opens it)" if not place else "", "dim")
        yield _labelled("" if place else "used by", Content.assemble(text, key, why))
    if (more := len(told) - _MOST_RULES) > 0:
        yield _labelled("", Content.styled(f"and {more} more", "dim"))
    if rest:
        key = Content.styled("" if told else " (enter explains the first)", "dim")
        passed = Content.assemble((f"{marks.PASSED} ", "$success"), "passed ", plain(", ".join(rest), "dim"), key)
        yield _labelled("" if told else "used by", passed)


def _labelled(label: str, text: Content) -> Block:
    return Block(text, Content.styled(label, "bold"), _HANG)


def used(item: Item, told: Mapping[str, Told]) -> str:
    """The findings that rest on a fact, else the rules that read it: by name where it is one, else how many."""
    names = tuple(dict.fromkeys(finding.id for finding in item.findings))
    what = "findings" if names else "rules"
    names = names or told_of(item.fact, told).rules
    return "".join(names) if len(names) < 2 else f"{len(names)} {what}"
