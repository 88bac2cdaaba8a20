"""What to bear in mind of a diagnosis: where it goes beyond the tables, and where these are old. Never a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpudoctor.knowledge import LOOKUPS, promise
from gpudoctor.knowledge.promise import Newer
from gpudoctor.language import say
from gpudoctor.model.diagnosis import Diagnosis, Finding, Note
from gpudoctor.model.fact import Known
from gpudoctor.model.frozen import replace
from gpudoctor.rulebook import Rulebook

_ARE_NEWER = "Tables of {months}; your {facts} are newer: judged by rule, not by record."
_IS_NEWER = "Tables of {months}; your {facts} is newer: judged by rule, not by record."
_NOT_READ = "Not all of this text was read, and what is missing is not judged: {which}."
_OLD = "The table {names} is of {month}, and good for {time}: what came out since then is judged by rule."
_OLD_TABLES = "The tables {names} are of {month}, and good for {time}: what came out since then is judged by rule."


def noted(diagnosis: Diagnosis, rulebook: Rulebook, today: str) -> Diagnosis:
    """The diagnosis with its notes, and with what was judged by rule rather than by record marked.

    `today` is the day it is read, as 2026-11-21: it tells how old the tables are.
    """
    new = promise.newer(diagnosis.snapshot)
    old = promise.expired(diagnosis.snapshot, today)
    notes = []
    if new:
        by_rule = _by_rule(diagnosis, rulebook, {item.fact for item in new})
        findings = tuple(_marked(finding, new, by_rule.get(finding.id, frozenset())) for finding in diagnosis.findings)
        diagnosis = replace(diagnosis, findings=findings)
        notes.append(Note(tuple(dict.fromkeys(item.fact for item in new)), _newer_says(new), tuple(by_rule)))
    if old:
        notes.append(Note((), _old_says(old)))
    if isinstance(clashes := diagnosis.snapshot.get("report.clashes"), Known):
        notes.append(Note(("report.clashes",), _clashes_say(clashes)))
    if isinstance(trouble := diagnosis.snapshot.get("report.trouble"), Known):
        notes.append(Note(("report.trouble",), say(_NOT_READ, which="; ".join(_values(trouble)))))
    return replace(diagnosis, notes=(*diagnosis.notes, *notes)) if notes else diagnosis


def _by_rule(diagnosis: Diagnosis, rulebook: Rulebook, new: set[str]) -> dict[str, frozenset[str]]:
    """The rules that were judged and weigh something newer than the tables, with what they weigh."""
    from gpudoctor.rulebook.reading import facts_weighed

    judged = {finding.id for finding in diagnosis.findings} | set(diagnosis.passed)
    weighed = {
        rule.id: facts_weighed(rule, LOOKUPS) & new for rule in rulebook.of(diagnosis.snapshot) if rule.id in judged
    }
    return {rule_id: facts for rule_id, facts in weighed.items() if facts}


def _marked(finding: Finding, new: Sequence[Newer], weighed: frozenset[str]) -> Finding:
    """The finding with those newer facts that its proof rests on."""
    proof = {(item.fact, item.index) for item in finding.evidence}
    facts = dict.fromkeys(item.fact for item in new if item.fact in weighed and (item.fact, item.row) in proof)
    return replace(finding, by_rule=tuple(facts)) if facts else finding


def _newer_says(new: Sequence[Newer]) -> str:
    """One sentence for all: ``Tables of 2026-11; your torch 2.17.0 is newer: judged by rule, not by record.``"""
    said = list(dict.fromkeys(item.says for item in new if item.says))
    months = sorted({promise.checked(item.table)[:7] for item in new})
    newer = _ARE_NEWER if len(said) > 1 else _IS_NEWER
    return say(newer, months=_listed(months), facts=_listed(said))


def _old_says(names: Sequence[str]) -> str:
    """One sentence for all tables, with the month of the oldest."""
    month = min(promise.checked(name) for name in names)[:7]
    old = say(_OLD_TABLES if len(names) > 1 else _OLD, names=_listed(names), month=month, time=promise.GOOD_FOR)
    return say(" ").join((old, say("A newer gpudoctor brings newer tables.")))


def _clashes_say(clashes: Known) -> str:
    """What files that were read together tell differently."""
    which = ". ".join(_values(clashes))
    return say("The files do not agree, and the later one was believed. {which}.", which=which)


def _values(fact: Known) -> list[str]:
    return [str(item) for item in (fact.value if isinstance(fact.value, tuple) else (fact.value,))]


def _listed(items: Iterable[str]) -> str:
    *most, last = items
    return say(" and ").join((", ".join(most), last)) if most else last
