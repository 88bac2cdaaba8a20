"""One rule judged once: on the machine, or on one row of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpudoctor.expression import NOT_KNOWN, Evaluator, Facts, Touched, fill
from gpudoctor.judge.cures import all_hold, offered
from gpudoctor.judge.signs import Match, Text
from gpudoctor.model.diagnosis import Evidence, Finding, Unjudged
from gpudoctor.model.fact import Fact, Json, Known
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
        if proof is False and not self.matches:
            return None
        weighed, self.facts.touched = self.facts.touched, {}
        if any(self._holds((condition,)) is True for condition in self.rule.unless):
            return None
        self.facts.touched = weighed
        if proof is True:
            return self._finding(self.rule.confidence, self.rule.finding, self._lines(self.matches))
        contradicted = proof is False and not self.rule.several
        proven: Touched = dict(self.facts.touched) if contradicted else {}  # what contradicts a sign is shown too
        confidence, heard = self._hear(contradicted, touched=proven)
        if confidence:
            self.facts.touched = proven
            speaker = next((match for match in heard if match.sign.finding), heard[0])
            return self._finding(
                confidence, speaker.sign.finding or self.rule.title, self._lines(heard), speaker.groups
            )
        if proof is False:
            return None
        return Unjudged(self.rule.id, str(proof) if isinstance(proof, CannotJudge) else self.text.silence)

    def _holds(self, conditions: Sequence[str]) -> bool | CannotJudge:
        return all_hold(conditions, self.evaluator)

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
        self, confidence: Confidence, template: str, lines: list[Evidence], groups: Mapping[str, str] | None = None
    ) -> Finding:
        rule = self.rule
        title = fill(template, self.evaluator, groups)
        if NOT_KNOWN in title:  # a sign was heard, and what its sentence would name is not there to be named
            title = rule.title
        why = fill(rule.why, self.evaluator, groups)
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
            evidence=(*lines, *facts),
            subject=self._subject(),
            explains=rule.explains,
            fixes=tuple(fix for _, fix in offered(rule.fixes, self.facts, self.evaluator, groups)),
            references=rule.sources,
            confirm=self._confirm(),
            about=self._about(),
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

    def _about(self) -> frozenset[str]:
        """The devices that the page's ``about`` lists; of a row itself and the GPU behind it, or the hosts it names."""
        subject = self._subject()
        if subject:
            row = self._row()
            hosts = row.get("hosts")
            if self.rule.scope == "cluster" and isinstance(hosts, Known) and isinstance(hosts.value, tuple):
                return frozenset(map(str, hosts.value))
            places = (row.get("address"), row.get("gpu"))
            return frozenset(str(at.value) for at in places if isinstance(at, Known) and ":" in str(at.value))
        said = fill(self.rule.about, self.evaluator)
        return frozenset(part for part in said.split(", ") if ":" in part) if NOT_KNOWN not in said else frozenset()

    def _subject(self) -> Mapping[str, Json] | None:
        if not self.facts.each:
            return None
        row = self._row()
        subject: dict[str, Json] = {self.facts.each: self.facts.index}
        for column in ("uuid", "name", "address"):
            state = row.get(column)
            if isinstance(state, Known):
                subject[column] = str(state.value)
        return subject

    def _row(self) -> Mapping[str, Fact]:
        rows = self.facts.snapshot.rows(self.facts.each)
        assert isinstance(rows, tuple)
        return rows[self.facts.index]
