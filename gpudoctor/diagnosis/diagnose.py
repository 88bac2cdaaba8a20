"""Facts in, diagnosis out: complete -> judge -> annotate, each a function from value to value."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpudoctor.core.diagnosis import Diagnosis, Finding, Note
from gpudoctor.core.fact import Known
from gpudoctor.core.frozen import replace
from gpudoctor.core.language import and_list, say
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.history.changes_since import with_changes
from gpudoctor.diagnosis.judge import judge
from gpudoctor.diagnosis.knowledge import LOOKUPS, complete, table_reach
from gpudoctor.diagnosis.knowledge.table_reach import BeyondTables
from gpudoctor.diagnosis.rulebook import Rulebook
from gpudoctor.diagnosis.rulebook.expressions import facts_weighed

# ---- What to bear in mind of a diagnosis ----
# Where it goes beyond the tables, and where these are old: never a verdict.

_ARE_NEWER = "Tables of {months}; your {facts} are newer: judged by rule, not by record."
_IS_NEWER = "Tables of {months}; your {facts} is newer: judged by rule, not by record."
_NOT_READ = "Not all of this text was read, and what is missing is not judged: {which}."
_OLD = "The table {names} is of {month}, and good for {time}: what came out since then is judged by rule."
_OLD_TABLES = "The tables {names} are of {month}, and good for {time}: what came out since then is judged by rule."


def with_notes(diagnosis: Diagnosis, rulebook: Rulebook, today: str) -> Diagnosis:
    """The diagnosis with notes added on facts newer than the tables, old tables, clashes of files and unread text.

    Findings that rest on newer facts get these in `by_rule`. `today` is the day as 2026-11-21.
    """
    new = table_reach.facts_beyond_tables(diagnosis.snapshot)
    old = table_reach.expired_tables(diagnosis.snapshot, today)
    notes = []
    if new:
        by_rule = _newer_facts_by_rule(diagnosis, rulebook, {item.fact for item in new})
        findings = tuple(
            _with_by_rule(finding, new, by_rule.get(finding.id, frozenset())) for finding in diagnosis.findings
        )
        diagnosis = replace(diagnosis, findings=findings)
        notes.append(Note(tuple(dict.fromkeys(item.fact for item in new)), _newer_text(new), tuple(by_rule)))
    if old:
        notes.append(Note((), _old_text(old)))
    if clashes := diagnosis.snapshot.known("report.clashes"):
        notes.append(Note(("report.clashes",), _clashes_text(clashes)))
    if trouble := diagnosis.snapshot.known("report.trouble"):
        notes.append(Note(("report.trouble",), say(_NOT_READ, which="; ".join(_value_texts(trouble)))))
    return replace(diagnosis, notes=(*diagnosis.notes, *notes)) if notes else diagnosis


def _newer_facts_by_rule(diagnosis: Diagnosis, rulebook: Rulebook, new: set[str]) -> dict[str, frozenset[str]]:
    """By rule id, those of the facts `new` that the rule looks up in tables or orders against a version.

    Only rules that were found or passed and have such facts.
    """
    answered = {finding.id for finding in diagnosis.findings} | set(diagnosis.passed)
    weighed = {
        rule.id: facts_weighed(rule, LOOKUPS) & new
        for rule in rulebook.rules_for(diagnosis.snapshot)
        if rule.id in answered
    }
    return {rule_id: facts for rule_id, facts in weighed.items() if facts}


def _with_by_rule(finding: Finding, new: Sequence[BeyondTables], weighed: frozenset[str]) -> Finding:
    """The finding with `by_rule` set to those newer facts that are `weighed` and in its evidence, if any."""
    proof = {(item.fact, item.index) for item in finding.evidence}
    facts = dict.fromkeys(item.fact for item in new if item.fact in weighed and (item.fact, item.row) in proof)
    return replace(finding, by_rule=tuple(facts)) if facts else finding


def _newer_text(new: Sequence[BeyondTables]) -> str:
    """One sentence on facts newer than the tables: ``Tables of 2026-11; your torch 2.17.0 is newer: judged by ...``"""
    texts = list(dict.fromkeys(item.says for item in new))
    months = sorted({table_reach.date_checked(item.table)[:7] for item in new})
    newer = _ARE_NEWER if len(texts) > 1 else _IS_NEWER
    return say(newer, months=and_list(months), facts=and_list(texts))


def _old_text(names: Sequence[str]) -> str:
    """What to bear in mind of tables that are too old to be complete, in two sentences, with the oldest's month."""
    month = min(table_reach.date_checked(name) for name in names)[:7]
    old = say(_OLD_TABLES if len(names) > 1 else _OLD, names=and_list(names), month=month, time=table_reach.GOOD_FOR)
    return say(" ").join((old, say("A newer gpudoctor brings newer tables.")))


def _clashes_text(clashes: Known) -> str:
    """Sentence on values that differ between files read together."""
    which = ". ".join(_value_texts(clashes))
    return say("The files do not agree, and the later one was believed. {which}.", which=which)


def _value_texts(fact: Known) -> list[str]:
    """The fact's value as text, in a list; of a list each item as text."""
    return [str(item) for item in (fact.value if isinstance(fact.value, tuple) else (fact.value,))]


def diagnosis_of(snapshot: Snapshot, book: Rulebook, today: str = "") -> Diagnosis:
    """The diagnosis of the snapshot: implied facts added, rules judged, notes and logged package changes attached.

    Fixes that need the solver are named, not worked out; no kept run of this machine is read. `today` (2026-11-21,
    default now) dates the tables.
    """
    day = today or time.strftime("%Y-%m-%d", time.gmtime())
    return with_changes(with_notes(judge(complete(snapshot), book), book, day))
