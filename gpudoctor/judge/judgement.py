"""One rule judged once: on the machine, or on one row of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpudoctor.expression import NOT_KNOWN, Evaluator, Facts, Touched, fill, selected
from gpudoctor.judge import subjects
from gpudoctor.judge.cures import all_hold, offered
from gpudoctor.judge.signs import Match, Text
from gpudoctor.model.budget import TooCostlyError, within
from gpudoctor.model.diagnosis import Evidence, Finding, Subject, Unjudged
from gpudoctor.model.rule import Confidence, Rule
from gpudoctor.model.values import CannotJudge

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
        weighed, self.facts.touched = self.facts.touched, {}
        if any(self._holds((condition,)) is True for condition in self.rule.unless):
            return None
        self.facts.touched = weighed
        if proof is True:
            return self._finding(self.rule.confidence, self.rule.finding, self.matches)
        contradicted = proof is False and not self.rule.several
        proven: Touched = dict(self.facts.touched) if contradicted else {}  # what contradicts a sign is shown too
        confidence, heard = self._hear(contradicted, touched=proven)
        if confidence:
            self.facts.touched = proven
            speaker = next((match for match in heard if match.sign.finding), heard[0])
            return self._finding(confidence, speaker.sign.finding or self.rule.title, heard, speaker.groups)
        if proof is False and self.rule.id not in self.text.given_up:
            return None
        return Unjudged(self.rule.id, str(proof) if isinstance(proof, CannotJudge) else self.text.why_silent(self.rule))

    def _holds(self, conditions: Sequence[str]) -> bool | CannotJudge:
        try:
            with within(self.text.budget):
                return all_hold(conditions, self.evaluator)
        except TooCostlyError as error:
            return CannotJudge("text", str(error))

    def _hear(self, contradicted: bool, touched: Touched) -> tuple[Confidence | None, list[Match]]:
        """How sure the signs make us, and which of them count."""
        heard: list[Match] = []
        supported = False
        for match in self.matches:
            self.facts.touched = {}
            holds = self._holds(match.sign.when)
            if holds is False:
                continue
            if holds is True:
                touched.update(self.facts.touched)
                supported = supported or bool(match.sign.when)
            heard.append(match)
        if any(match.sign.conclusive for match in heard):
            heard.sort(key=lambda match: not match.sign.conclusive)
            return ("likely" if contradicted else self.rule.confidence), heard
        if not heard or contradicted:
            return None, []
        agree = len({match.evidence for match in heard}) > 1
        return ("likely" if supported or agree else "possible"), heard

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
        if NOT_KNOWN in title:  # a sign was heard, and what its sentence would name is not there to be named
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
