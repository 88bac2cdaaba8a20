"""Snapshot and rulebook in, diagnosis out: found, passed or unjudged for every rule, root causes first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.expression import NOT_KNOWN, Evaluator, Facts, Touched, fill, selected
from gpudoctor.judge import subjects
from gpudoctor.judge.cures import all_hold, offered
from gpudoctor.judge.ranking import place, ranked
from gpudoctor.judge.signs import Match, Text
from gpudoctor.knowledge import LOOKUPS
from gpudoctor.model.budget import TooCostlyError, within
from gpudoctor.model.diagnosis import Diagnosis, Evidence, Finding, Subject, Unjudged, Verdict
from gpudoctor.model.fact import Absent, Fact, Known, Row, Unread
from gpudoctor.model.frozen import replace
from gpudoctor.model.rule import Confidence, Rule
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.values import CannotJudge
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


# ---- One rule judged once ----
# On the machine, or on one row of a group.

Outcome = Finding | Unjudged | None


class Judgement:
    """One rule judged once: on the machine, or on one row. `evaluator` is lent for as long."""

    def __init__(self, rule: Rule, facts: Facts, matches: Sequence[Match], text: Text, evaluator: Evaluator) -> None:
        self.rule = rule
        self.facts = facts
        self.matches = matches
        self.text = text
        self.evaluator = evaluator
        evaluator.names = facts

    def outcome(self) -> Outcome:
        proof = self._holds(self.rule.when) if self.rule.when else None
        if proof is False and not self.matches and self.rule.id not in self.text.given_up:
            return None
        touched, self.facts.touched = self.facts.touched, {}
        if any(self._holds((condition,)) is True for condition in self.rule.unless):
            return None
        self.facts.touched = touched
        if proof is True:
            return self._finding(self.rule.confidence, self.rule.finding, self.matches)
        contradicted = proof is False and not self.rule.several
        proven: Touched = dict(self.facts.touched) if contradicted else {}  # what contradicts a sign is shown too
        confidence, counting = self._weigh_signs(contradicted, touched=proven)
        if confidence:
            self.facts.touched = proven
            titled = next((match for match in counting if match.sign.finding), counting[0])
            return self._finding(confidence, titled.sign.finding or self.rule.title, counting, titled.groups)
        if proof is False and self.rule.id not in self.text.given_up:
            return None
        return Unjudged(self.rule.id, str(proof) if isinstance(proof, CannotJudge) else self.text.why_silent(self.rule))

    def _holds(self, conditions: Sequence[str]) -> bool | CannotJudge:
        try:
            with within(self.text.budget):
                return all_hold(conditions, self.evaluator)
        except TooCostlyError as error:
            return CannotJudge("text", str(error))

    def _weigh_signs(self, contradicted: bool, touched: Touched) -> tuple[Confidence | None, list[Match]]:
        """The confidence that the matched signs give, None for none, and those that count towards it."""
        counting: list[Match] = []
        supported = False
        for match in self.matches:
            self.facts.touched = {}
            holds = self._holds(match.sign.when)
            if holds is False:
                continue
            if holds is True:
                touched.update(self.facts.touched)
                supported = supported or bool(match.sign.when)
            counting.append(match)
        if any(match.sign.conclusive for match in counting):
            counting.sort(key=lambda match: not match.sign.conclusive)
            return ("likely" if contradicted else self.rule.confidence), counting
        if not counting or contradicted:
            return None, []
        agree = len({match.evidence for match in counting}) > 1
        return ("likely" if supported or agree else "possible"), counting

    def _lines(self, matches: Sequence[Match]) -> list[Evidence]:
        lines = {item.index: item for match in matches for item in match.evidence}
        return [lines[index] for index in sorted(lines, key=lambda index: -1 if index is None else index)]

    def _finding(
        self,
        confidence: Confidence,
        template: str,
        matches: Sequence[Match],
        groups: Mapping[str, str] | None = None,
    ) -> Finding:
        rule = self.rule
        title = fill(template, self.evaluator, groups)
        if NOT_KNOWN in title:  # a sign matched, but a value that its sentence names is not known
            title = rule.title
        why = fill(rule.why, self.evaluator, groups)
        about = self._subjects([match.groups for match in matches])
        facts = [Evidence(name, state, index) for (name, index), state in self.facts.touched.items()]
        severity = "warning" if rule.severity == "error" and confidence == "possible" else rule.severity
        return Finding(
            id=rule.id,
            layer=rule.layer,
            severity=severity,
            role=rule.role,
            confidence=confidence,
            title=title,
            why=why,
            evidence=(*self._lines(matches), *facts),
            subjects=about,
            explains=rule.explains,
            fixes=tuple(fix for _, fix in offered(rule.fixes, self.facts, self.evaluator, groups)),
            references=rule.sources,
            confirm=self._confirm(),
            prevalence=rule.prevalence,
            pages=rule.pages,
        )

    def _confirm(self) -> str:
        """Of many machines it says on which; of one it is for that machine, and its braces are the shell's."""
        if self.rule.scope == "machine":
            return self.rule.confirm
        confirm = self._full(self.rule.confirm, None)
        return "" if NOT_KNOWN in confirm else confirm

    def _full(self, template: str, groups: Mapping[str, str] | None) -> str:
        return fill(template, self.evaluator, groups)

    def _subjects(self, captures: Sequence[Mapping[str, str]]) -> tuple[Subject, ...]:
        """The row that is judged; else what the page lists as far as it is known, and what its signs name."""
        snapshot = self.facts.snapshot
        if self.facts.each:
            return (subjects.of_row(snapshot, self.facts.each, self.facts.index),)
        listed = [value for text in self.rule.subjects for value in selected(text, self.evaluator)]
        return subjects.of_values(snapshot, listed) or subjects.of_captures(snapshot, captures)
