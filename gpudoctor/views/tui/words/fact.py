"""A fact in words: its value, where and when it was read, its siblings, and what the rules that read it said."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from textual.content import Content

from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.fact import Fact, known, value_of
from gpudoctor.core.language import phrase, say
from gpudoctor.core.rule import Severity
from gpudoctor.views._terminal import one_line, safe
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.prose import Block, labelled, plain
from gpudoctor.views.tui.words.facts import Facts, Item, Listing, value_and_source
from gpudoctor.views.tui.work import FactInfo, Reading

_HANG = 9
_MOST = 4000
"""Characters of a value that are shown; a screen or two."""
_MOST_SIBLINGS = 4
_MOST_RULES = 12
LINE = "text.line"
_CONTEXT_LINES = 2
_WIDEST = 300
"""Characters of a line that is only shown for what is beside it."""


@dataclass(frozen=True, slots=True)
class Use:
    """A rule that reads the fact or rests on it: ``found``, ``not judged`` or ``passed``, and why."""

    rule: str
    state: str
    why: str = ""
    severity: Severity | None = None


def info_of(fact: str, infos: Mapping[str, FactInfo]) -> FactInfo:
    """What is declared of the fact, by its name, else by ``env.*`` for its group; an empty `FactInfo` if nothing is."""
    return infos.get(fact) or infos.get(f"{fact.rpartition('.')[0]}.*") or FactInfo()


def rule_uses(item: Item, diagnosis: Diagnosis, infos: Mapping[str, FactInfo]) -> list[Use]:
    """The result of every rule that reads the fact or rests on it: found first, then not judged, then passed."""
    findings_by_rule: dict[str, Finding] = {}
    for finding in item.findings:
        findings_by_rule.setdefault(finding.id, finding)
    resting = []
    for name, finding in findings_by_rule.items():
        where = "" if finding in diagnosis.findings else say("on the other machine: ")
        resting.append(Use(name, "found", f"{where}{finding.title}", finding.severity))
    group = item.fact.rpartition(".")[0] or item.fact
    waiting: list[Use] = []
    passed: list[Use] = []
    readers = set(info_of(item.fact, infos).rules)
    for unjudged in diagnosis.unjudged:
        if unjudged.fact in (item.fact, group) and not known(item.state):
            waiting.insert(0, Use(unjudged.id, "not judged", "for want of this"))
        elif unjudged.id in readers:
            waiting.append(Use(unjudged.id, "not judged", unjudged.because))
    for rule in sorted(readers - findings_by_rule.keys() - {use.rule for use in waiting}):
        other = next((finding for finding in diagnosis.findings if finding.id == rule), None)
        if other:
            resting.append(Use(rule, "found", "of something else", other.severity))
        elif rule in diagnosis.passed:
            passed.append(Use(rule, "passed"))
    return [*resting, *waiting, *passed]


def blocks(item: Item, listing: Listing, about: Iterable[Use], info: FactInfo, read: str) -> Iterator[Block]:
    """All that is known of a fact: value, meaning, source or reason, siblings, and rules (`about`).

    `read` says when it was read. Of two compared machines both values are shown.
    """
    yield from _value_blocks(item, info.unit)
    if info.about:
        yield labelled("means", plain(info.about, "dim"), _HANG)
    if item.compared:
        yield labelled("here", _state_text(item.state), _HANG)
        yield labelled("other", _state_text(item.other), _HANG)
    else:
        source = phrase(value_and_source(item.state)[1])
        if known(item.state):
            if source:
                yield labelled("read", plain(source) + plain(f" · {read}" if read else "", "dim"), _HANG)
        else:
            yield labelled("because", source, _HANG)
            if read:
                yield labelled("asked", plain(read, "dim"), _HANG)
        if item.fact == LINE:
            yield from _context_lines(item, listing)
        elif siblings := _siblings_text(item, listing):
            yield labelled("siblings", siblings, _HANG)
    yield from _use_blocks(list(about))


def clipboard_line(item: Item) -> str:
    """The fact with its whole value and source, to be copied: ``gpu.5.name = NVIDIA H100 (NVML)``.

    Of two machines both values; without a value ``(absent)`` or ``(not read)``. Control characters as escapes.
    """
    value, source = value_and_source(item.state)
    shown = value if known(item.state) else f"({value})"
    other = f" | {value_and_source(item.other)[0]}" if item.compared else ""
    return safe(f"{item.name} = {shown}{other}" + (f" ({source})" if source else ""))


def read_time(diagnosis: Diagnosis, reading: Reading, info: FactInfo) -> str:
    """When the machine was read (local time) and how long the fact's source took: ``21:14:07 · nvml took 0.31 s``.

    Only what is known: no time for another machine or a file; empty if neither.
    """
    words = []
    if diagnosis.snapshot.target.kind == "local":
        ago = time.monotonic() - reading.since - (reading.seconds if reading.over else 0)
        words.append(time.strftime("%H:%M:%S", time.localtime(time.time() - ago)))
    took = diagnosis.snapshot.timings_ms.get(f"probe.{info.source}")
    if took is not None:
        words.append(
            say("{source} took {took:.2f} s", source=info.source, took=took / 1000)
            if took >= 100
            else say("{source} took {took:.1f} ms", source=info.source, took=took)
        )
    return " · ".join(words)


def _value_blocks(item: Item, unit: str) -> Iterator[Block]:
    """Name and value with unit, cut after `_MOST` characters; only the name if two machines are compared."""
    if item.compared:
        yield Block(plain(item.name, "bold"))
        return
    value, _ = value_and_source(item.state)
    name = Content.assemble(plain(item.name, "bold"), " = " if known(item.state) else say(" is "))
    shown = plain(value[:_MOST], "" if known(item.state) else "bold")
    number = isinstance(value_of(item.state), (int, float))
    yield Block(Content.assemble(name, shown, plain(f" {unit}" if unit and number else "")))
    if len(value) > _MOST:
        more = say("{count:,} characters; these are the first {most:,} of them", count=len(value), most=_MOST)
        yield Block(Content.styled(f"… {more}", "bold $primary"))


def _state_text(state: Fact | None) -> Content:
    """Value (or state) and source (or reason) of a fact on one of two machines, cut after `_MOST` characters."""
    value, source = value_and_source(state)
    cut = say("… ({count:,} characters)", count=len(value)) if len(value) > _MOST else ""
    return Content.assemble(plain(value[:_MOST] + cut, "bold"), plain(f"  {phrase(source)}", "dim"))


def _context_lines(item: Item, listing: Listing) -> Iterator[Block]:
    """The lines before and after an item that is a line of a text; nothing for other items."""
    if item.index is None or not isinstance(listing, Facts):
        return
    for label, first in (("before", item.index - _CONTEXT_LINES), ("after", item.index + 1)):
        states = [listing.state(LINE, index) for index in range(max(first, 0), first + _CONTEXT_LINES)]
        lines = [one_line(value_and_source(state)[0][:_WIDEST]) for state in states if state]
        for place, text in enumerate(lines):
            yield labelled("" if place else label, plain(text, "dim"), _HANG)


def _siblings_text(item: Item, listing: Listing) -> str:
    """How many other rows have which values: ``1980 on 6, 1755 on 3 of 9 others``; empty without other rows."""
    others = list(listing.siblings(item))
    if not others:
        return ""
    counted = Counter(one_line(value_and_source(state)[0][:120]) for _, state in others)
    if len(counted) == len(others) > _MOST_SIBLINGS:
        return say("each of the {count} others has its own", count=len(others))
    mine = one_line(value_and_source(item.state)[0][:120])
    parts = [
        say(
            "{value} on {rows}",
            value=say("the same") if value == mine else value,
            rows=say("all") if count == len(others) > 1 else count,
        )
        for value, count in counted.most_common(_MOST_SIBLINGS)
    ]
    if (more := len(counted) - _MOST_SIBLINGS) > 0:
        parts.append(say("{more} other values", more=more))
    whole = "{values} of {count} others" if len(others) > 1 else "{values} other"
    if len(counted) == 1 and len(others) > 1:
        whole = "{values} {count} others"
    return say(whole, values=say(", ").join(parts), count=len(others))


def _use_blocks(rule_uses_: list[Use]) -> Iterator[Block]:
    """Rules that found something or were not judged, a line each, at most `_MOST_RULES`; rules that passed in one."""
    open_ = [use for use in rule_uses_ if use.state in ("found", "not judged")]
    rest = [use.rule for use in rule_uses_ if use not in open_]
    for place, use in enumerate(open_[:_MOST_RULES]):
        glyph, colour = marks.UNREAD, "bold $primary"
        if use.state == "found":
            glyph, _, colour = marks.SEVERITY[use.severity or "info"]
        text = Content.assemble((f"{glyph} ", colour), plain(use.rule, "bold"), f" → {say(use.state)}")
        why = plain(f"{say(': ')}{phrase(use.why)}" if use.why else "", "dim")
        key = Content.styled(say(" (enter opens it)") if not place else "", "dim")
        yield labelled("" if place else "used by", Content.assemble(text, key, why), _HANG)
    if (more := len(open_) - _MOST_RULES) > 0:
        yield labelled("", Content.styled(say("and {more} more", more=more), "dim"), _HANG)
    if rest:
        key = Content.styled("" if open_ else say(" (enter explains the first)"), "dim")
        passed = Content.assemble(
            (f"{marks.PASSED} ", "$success"), f"{say('passed')} ", plain(", ".join(rest), "dim"), key
        )
        yield labelled("" if open_ else "used by", passed, _HANG)


def uses_label(item: Item, infos: Mapping[str, FactInfo]) -> str:
    """Id of the finding that rests on the fact, else of the rule that reads it; ``3 findings``, ``2 rules`` if several.

    Empty if there is none.
    """
    names = tuple(dict.fromkeys(finding.id for finding in item.findings))
    what = "{count} findings" if names else "{count} rules"
    names = names or info_of(item.fact, infos).rules
    return "".join(names) if len(names) < 2 else say(what, count=len(names))
