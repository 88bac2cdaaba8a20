"""Snapshot and rulebook in, diagnosis out: found, passed or unjudged for every rule, root causes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.expression import Evaluator, Facts
from gpudoctor.judge.judgement import Judgement, Outcome
from gpudoctor.judge.ranking import place, ranked
from gpudoctor.judge.signs import Text
from gpudoctor.knowledge import LOOKUPS
from gpudoctor.model.diagnosis import Diagnosis, Finding, Unjudged, Verdict
from gpudoctor.model.fact import Absent, Fact, Known, Row, Unread
from gpudoctor.model.frozen import replace
from gpudoctor.model.rule import Rule
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.rulebook import Rulebook
from gpudoctor.version import __version__


def judge(snapshot: Snapshot, rulebook: Rulebook) -> Diagnosis:
    """Every rule's answer, the findings folded under their causes and ordered."""
    text = Text(snapshot)
    evaluator = new_evaluator(snapshot)
    found: list[Finding] = []
    unjudged: list[Unjudged] = []
    passed: list[str] = []
    sound: list[Finding] = []
    for rule in rulebook.of(snapshot):
        outcomes = judge_rule(rule, snapshot, text, evaluator)
        findings = [outcome for outcome in outcomes if isinstance(outcome, Finding)]
        pending = [outcome for outcome in outcomes if isinstance(outcome, Unjudged)]
        if findings:
            (sound if rule.sound else found).extend(findings)
        elif pending:
            unjudged.append(pending[0])
        else:
            passed.append(rule.id)
    causes = ranked(found)
    verdict: Verdict = "sound"
    if any(finding.severity == "error" for finding in causes):
        verdict = "broken"
    elif not sound:
        verdict = "unknown"
    elif any(finding.severity == "warning" for finding in causes):
        verdict = "impaired"
    findings = causes if verdict == "broken" else sorted([*causes, *ranked(sound)], key=place)
    return Diagnosis(snapshot, verdict, tuple(findings), tuple(unjudged), tuple(passed), __version__)


def new_evaluator(snapshot: Snapshot) -> Evaluator:
    """What works out conditions: one for all rules, one after the other."""
    return Evaluator(Facts(snapshot), LOOKUPS)


def judge_rule(rule: Rule, snapshot: Snapshot, text: Text, evaluator: Evaluator | None = None) -> list[Outcome]:
    """The rule's answers: one, or one per row where it has `each`. `evaluator` is one to use again."""
    evaluator = evaluator or new_evaluator(snapshot)
    matches = text.heard(rule)
    if not rule.each:
        return [Judgement(rule, Facts(snapshot), matches, text, evaluator).outcome()]
    rows = snapshot.rows(rule.each)
    outcomes: list[Outcome] = []
    if isinstance(rows, Unread):
        outcomes.append(Unjudged(rule.id, f"{rule.each}: {rows.why}"))
    elif isinstance(rows, tuple):
        outcomes = list(_by_row(rule, snapshot, rows, text, evaluator))
    if matches and not any(isinstance(outcome, Finding) for outcome in outcomes):
        whole = replace(rule, when=(), each="")
        outcomes = [Judgement(whole, Facts(snapshot), matches, text, evaluator).outcome()]
    return outcomes


def _by_row(rule: Rule, snapshot: Snapshot, rows: Sequence[Row], text: Text, evaluator: Evaluator) -> Iterator[Outcome]:
    """The answer for each row. One that is alike in all that was asked of the last gets the same, unless that is a
    finding, which names its row: of eight GPUs mostly one is judged.
    """
    alike: dict[str, Fact | None] = {}
    last: Outcome = None
    for index, row in enumerate(rows):
        if alike and not isinstance(last, Finding) and all(row.get(name) == fact for name, fact in alike.items()):
            yield last
            continue
        facts = Facts(snapshot, rule.each, index)
        last = Judgement(rule, facts, [], text, evaluator).outcome()
        alike = {name: row.get(name) for name in facts.asked}
        yield last


def evidence_alone(finding: Finding, target: Snapshot) -> Snapshot:
    """A snapshot that holds only what the finding rests on: judged again, it must give the same finding."""
    facts: dict[str, Fact] = {}
    groups: dict[str, list[dict[str, Fact]]] = {}
    absent: dict[str, Absent] = {}
    for item in finding.evidence:
        group, _, column = item.fact.rpartition(".")
        if item.index is not None:
            rows = groups.setdefault(group, [])
            rows.extend({} for _ in range(item.index + 1 - len(rows)))
            rows[item.index][column] = item.state
        elif not group and isinstance(item.state, Known) and isinstance(item.state.value, int):
            rows = groups.setdefault(item.fact, [])
            rows.extend({} for _ in range(item.state.value - len(rows)))
        elif not group and isinstance(item.state, Absent):
            absent[item.fact] = item.state
        else:
            facts[item.fact] = item.state
    return Snapshot(target.target, facts, {**absent, **{name: tuple(rows) for name, rows in groups.items()}})
