"""Snapshot and rulebook in, diagnosis out: found, passed or unjudged for every rule, root causes first.

`signs` searches printed text for rules' signs, `subjects` says what a finding is about (GPU, port, rank, ...), `cures`
chooses and fills in a page's fixes, `folding` orders the findings and folds consequences under their causes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from gpudoctor.core.about import __version__
from gpudoctor.core.diagnosis import Diagnosis, Evidence, Finding, Subject, Unjudged, is_fact_name, verdict_of
from gpudoctor.core.fact import Absent, Fact, Reason, Row, Unread, listed, value_of
from gpudoctor.core.frozen import replace
from gpudoctor.core.pattern import TOO_COSTLY, TooCostlyError, within
from gpudoctor.core.rule import SEVERITIES, Confidence, Proof, Rule, Sign
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.expression import NOT_KNOWN, Evaluator, Facts, Touched, fill, searches_text, selected
from gpudoctor.diagnosis.judge import subjects
from gpudoctor.diagnosis.judge.cures import all_hold, applicable_fixes
from gpudoctor.diagnosis.judge.folding import rank_findings, sort_key
from gpudoctor.diagnosis.judge.signs import Match, Text
from gpudoctor.diagnosis.knowledge import LOOKUPS
from gpudoctor.diagnosis.rulebook import Rulebook
from gpudoctor.diagnosis.rulebook.compiled import word_index

_JOB_TOPICS = frozenset({"run", "run_gpu", "run_process", "job", "rank", "rank_group", "memory_fault", "canary"})
"""What ``gpudoctor run``, ``job``, ``soak`` and the canary of ``preflight`` tell of: only a job that runs shows it."""


def judge(snapshot: Snapshot, rulebook: Rulebook) -> Diagnosis:
    """The diagnosis by all rules for this snapshot: findings folded under their causes and in order, unjudged, passed.

    Left out are rules unjudged only because no job was watched, and findings of `sound` rules if the verdict is broken.
    """
    text = Text(snapshot, rulebook.word_index(snapshot) if listed(snapshot.rows("text")) else {})
    evaluator = new_evaluator(snapshot)
    found: list[Finding] = []
    unjudged: list[Unjudged] = []
    passed: list[str] = []
    sound: list[Finding] = []
    unwatched = _JOB_TOPICS - snapshot.topics()
    for rule in rulebook.rules_for(snapshot):
        outcomes = judge_rule(rule, snapshot, text, evaluator)
        findings = [outcome for outcome in outcomes if isinstance(outcome, Finding)]
        pending = [outcome for outcome in outcomes if isinstance(outcome, Unjudged)]
        if findings:
            (sound if rule.sound else found).extend(findings)
        elif pending:
            if pending[0].fact.partition(".")[0] not in unwatched:  # else nobody has asked for it
                unjudged.append(pending[0])
        else:
            passed.append(rule.id)
    causes = rank_findings(found)
    verdict = verdict_of(causes, known=bool(sound))
    findings = causes if verdict == "broken" else sorted([*causes, *rank_findings(sound)], key=sort_key)
    return Diagnosis(snapshot, verdict, tuple(findings), tuple(unjudged), tuple(passed), __version__)


def new_evaluator(snapshot: Snapshot) -> Evaluator:
    """An evaluator of conditions on the snapshot; it may serve all rules, one after the other."""
    return Evaluator(Facts(snapshot), LOOKUPS)


def judge_rule(
    rule: Rule, snapshot: Snapshot, text: Text | None = None, evaluator: Evaluator | None = None
) -> list[Outcome]:
    """The rule's outcomes, each a `Finding`, an `Unjudged` or None where it passed: one, or one per row with `each`.

    With `each`, one `Unjudged` where the rows are unread, none where there are no rows. Where no row is a finding,
    signs in the text and proofs with `once` are judged for the whole; that outcome replaces those of the rows if it is
    a finding or there is no such proof. `text` and `evaluator` are of that snapshot, where several rules are judged.
    """
    text = text or Text(snapshot, word_index(rule.signs))
    evaluator = evaluator or new_evaluator(snapshot)
    matches = text.matches(rule)
    if not rule.each:
        return [Judgement(rule, Facts(snapshot), matches, text, evaluator).outcome()]
    rows = snapshot.rows(rule.each)
    once = tuple(proof for proof in rule.proofs if proof.once)
    outcomes: list[Outcome] = []
    if isinstance(rows, Unread):
        outcomes.append(Unjudged(rule.id, f"{rule.each}: {rows.why}", rows.reason, rule.each))
    elif isinstance(rows, tuple):
        of_row = replace(rule, proofs=tuple(proof for proof in rule.proofs if not proof.once)) if once else rule
        outcomes = list(_outcome_per_row(of_row, snapshot, rows, text, evaluator))
    if (matches or once) and not any(isinstance(outcome, Finding) for outcome in outcomes):
        whole = replace(rule, when=(), proofs=once, each="")
        outcome = Judgement(whole, Facts(snapshot), matches, text, evaluator).outcome()
        if isinstance(outcome, Finding) or not once:
            return [outcome]
    return outcomes


def _outcome_per_row(
    rule: Rule, snapshot: Snapshot, rows: Sequence[Row], text: Text, evaluator: Evaluator
) -> Iterator[Outcome]:
    """The rule's outcome on each row, in order.

    Once judged, an unjudged or passed outcome is reused for following rows that equal that row in all columns it read.
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
    """A snapshot of only the finding's evidence: judged again, it must give the same finding."""
    facts: dict[str, Fact] = {}
    groups: dict[str, list[dict[str, Fact]]] = {}
    absent: dict[str, Absent] = {}
    for item in finding.evidence:
        group, _, column = item.fact.rpartition(".")
        if item.index is not None:
            rows = groups.setdefault(group, [])
            rows.extend({} for _ in range(item.index + 1 - len(rows)))
            rows[item.index][column] = item.state
        elif not group and isinstance(count := value_of(item.state), int):
            rows = groups.setdefault(item.fact, [])
            rows.extend({} for _ in range(count - len(rows)))
        elif not group and isinstance(item.state, Absent):
            absent[item.fact] = item.state
        else:
            facts[item.fact] = item.state
    return Snapshot(target.target, facts, {**absent, **{name: tuple(rows) for name, rows in groups.items()}})


# ---- One rule judged once ----
# On the machine, or on one row of a group.

Outcome = Finding | Unjudged | None


class Judgement:
    """One rule judged once, on the machine or on one row; `evaluator` is shared between judgements."""

    def __init__(self, rule: Rule, facts: Facts, matches: Sequence[Match], text: Text, evaluator: Evaluator) -> None:
        self.rule = rule
        self.facts = facts
        self.matches = matches
        self.text = text
        self.evaluator = evaluator
        evaluator.names = facts

    def outcome(self) -> Outcome:
        """The finding, unjudged, or None where the rule passes: by conditions and proofs, else by matched signs.

        None as well where a condition of ``unless`` holds.
        """
        if not self.matches and (open_ := self._unread()):
            return open_
        proof, way = self._proven()
        if proof is False and not self.matches and self.rule.id not in self.text.given_up:
            return None
        touched, self.facts.touched = self.facts.touched, {}
        if any(self._holds((condition,)) is True for condition in self.rule.unless):
            return None
        self.facts.touched = touched
        if proof is True:
            template = (way and way.finding) or self.rule.finding
            how_sure = (way and way.confidence) or self.rule.confidence
            signs = [match.sign for match in self.matches if match.sign.conclusive]
            return self._finding(how_sure, template, self.matches, [way, *signs])
        contradicted = proof is False and not self.rule.several
        proven: Touched = dict(self.facts.touched) if contradicted else {}  # what contradicts a sign is shown too
        confidence, counting = self._weigh_signs(contradicted, touched=proven)
        if confidence:
            self.facts.touched = proven
            titled = next((match for match in counting if match.sign.finding), counting[0])
            template = titled.sign.finding or self.rule.title
            signs = [titled.sign, *(match.sign for match in counting)]
            return self._finding(confidence, template, counting, signs, titled.groups)
        if proof is False and self.rule.id not in self.text.given_up:
            return None
        if isinstance(proof, CannotJudge):
            return _unjudged(self.rule, proof)
        return self.text.unjudged(self.rule)

    def _unread(self) -> Unjudged | None:
        """The rule as unjudged, if all facts that its conditions need are unread; else None."""
        rule = self.rule
        conditions = (*rule.when, *(condition for proof in rule.proofs for condition in proof.when), *rule.unless)
        why = self.evaluator.unread(conditions) if rule.when or rule.proofs else None
        return _unjudged(rule, why) if why else None

    def _proven(self) -> tuple[bool | CannotJudge | None, Proof | None]:
        """(whether the conditions and one of the proofs hold, the first proof that does or None).

        The former is None where the page has neither, and a `CannotJudge`, as a value, where it is open. Only the facts
        of that proof are kept as evidence, beside those of the conditions.
        """
        if not self.rule.when and not self.rule.proofs:
            return None, None
        shared = self._holds(self.rule.when) if self.rule.when else True
        if shared is False or not self.rule.proofs:
            return shared, None
        pending: CannotJudge | None = None
        touched: Touched = dict(self.facts.touched)
        for proof in self.rule.proofs:
            before, self.facts.touched = self.facts.touched, {}
            holds = self._holds(proof.when)
            if holds is True:
                self.facts.touched = {**touched, **self.facts.touched}
                return shared, proof
            self.facts.touched = {**before, **self.facts.touched}
            pending = pending or (holds if isinstance(holds, CannotJudge) else None)
        if pending is None:
            return False, None
        return (pending if shared is True else shared), None

    def _holds(self, conditions: tuple[str, ...]) -> bool | CannotJudge:
        """Whether all conditions hold; `CannotJudge`, as a value, where that is open or exceeds the text's budget."""
        if why := self.evaluator.unread(conditions):
            return why
        if not searches_text(conditions):
            return all_hold(conditions, self.evaluator)
        for _ in range(2):  # once more, for a pause of the machine counts as time used, too
            with suppress(TooCostlyError), within(self.text.budget):
                return all_hold(conditions, self.evaluator)
        return CannotJudge("text", TOO_COSTLY, Reason.GIVEN_UP)

    def _weigh_signs(self, contradicted: bool, touched: Touched) -> tuple[Confidence | None, list[Match]]:
        """The confidence that the matched signs give (None: none), and the matches that count, those that prove first.

        A conclusive sign gives the rule's own confidence (``likely`` if `contradicted`: its condition is false); others
        give ``likely`` where a condition of theirs holds or two lines agree, else ``possible``, and nothing if
        contradicted. `touched` gets the facts that signs rest on.
        """
        counting: list[Match] = []
        proving: list[Match] = []
        supported = False
        for match in self.matches:
            self.facts.touched = {}
            holds = self._holds(match.sign.when)
            if holds is False:
                continue
            touched.update(self.facts.touched)  # where some of its conditions are open, the others count
            supported = supported or (holds is True and bool(match.sign.when))
            counting.append(match)
            if match.sign.conclusive and (holds is True or self._holds(match.sign.asserted) is True):
                proving.append(match)
        if proving:
            counting.sort(key=lambda match: match not in proving)
            return ("likely" if contradicted else self.rule.confidence), counting
        if not counting or contradicted:
            return None, []
        agree = len({match.evidence for match in counting}) > 1
        return ("likely" if supported or agree else "possible"), counting

    def _lines(self, matches: Sequence[Match]) -> list[Evidence]:
        """The text lines of the matches as evidence, each once, in the order of the text."""
        lines = {item.index: item for match in matches for item in match.evidence}
        return [lines[index] for index in sorted(lines, key=lambda index: -1 if index is None else index)]

    def _finding(
        self,
        confidence: Confidence,
        template: str,
        matches: Sequence[Match],
        ways: Sequence[Proof | Sign | None],
        groups: Mapping[str, str] | None = None,
    ) -> Finding:
        """The finding with that title template, as severe as the gravest of its `ways` (None: as the page says).

        The first of `ways` gave the template; where it names cures, those of all ways are offered, else, and where none
        of them applies, the page's. An error that is only possible becomes a warning. `groups` are what the sign's
        pattern captured.
        """
        rule = self.rule
        title = fill(template, self.evaluator, groups)
        if NOT_KNOWN in title:  # a sign matched, but a value that its sentence names is not known
            title = rule.title
        elif groups is None:
            title += self._details("finding")
        why = fill(rule.why, self.evaluator, groups) + self._details("why")
        about = self._subjects([match.groups for match in matches])
        facts = [Evidence(name, state, index) for (name, index), state in self.facts.touched.items()]
        severity = min(((way and way.severity) or rule.severity for way in ways), key=SEVERITIES.index)
        severity = "warning" if severity == "error" and confidence == "possible" else severity
        named = {title for way in ways if way for title in way.fixes} if ways[0] and ways[0].fixes else ()
        offers = applicable_fixes([fix for fix in rule.fixes if fix.title in named], self.facts, self.evaluator, groups)
        offers = offers or applicable_fixes(rule.fixes, self.facts, self.evaluator, groups)
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
            fixes=tuple(fix for _, fix in offers),
            references=rule.sources,
            confirm=self._confirm(),
            prevalence=rule.prevalence,
            pages=rule.pages,
        )

    def _details(self, of: str) -> str:
        """The rule's details whose conditions hold and whose values are known, filled in and joined, to append to `of`.

        `of` is ``finding`` (the sentence) or ``why``; empty where there are none.
        """
        added = ""
        for detail in self.rule.details:
            if detail.of != of:
                continue
            before, self.facts.touched = self.facts.touched, {}
            words = fill(detail.says, self.evaluator, None) if self._holds(detail.when) is True else NOT_KNOWN
            touched = {} if NOT_KNOWN in words else self.facts.touched
            self.facts.touched = {**before, **touched}
            added += "" if NOT_KNOWN in words else words
        return added

    def _confirm(self) -> str:
        """How to confirm the finding, may be empty: the page's text for Windows there, else its text, verbatim.

        On a cluster its holes are filled in, and it is empty where one is not known.
        """
        if self.rule.confirm_windows and self.facts.snapshot.text("host.platform") == "windows":
            return self.rule.confirm_windows
        if self.rule.scope == "machine":
            return self.rule.confirm
        confirm = fill(self.rule.confirm, self.evaluator, None)
        return "" if NOT_KNOWN in confirm else confirm

    def _subjects(self, captures: Sequence[Mapping[str, str]]) -> tuple[Subject, ...]:
        """What the finding is about: the judged row; else the page's `subjects`, as known; else what signs captured."""
        snapshot = self.facts.snapshot
        if self.facts.each:
            return (subjects.subject_of_row(snapshot, self.facts.each, self.facts.index),)
        listed = [value for text in self.rule.subjects for value in selected(text, self.evaluator)]
        return subjects.subjects_of_values(snapshot, listed) or subjects.subjects_of_captures(snapshot, captures)


def _unjudged(rule: Rule, why: CannotJudge) -> Unjudged:
    """The rule unjudged for that reason, with the name of the fact to blame, empty where it is none."""
    return Unjudged(rule.id, str(why), why.reason, why.what if is_fact_name(why.what) else "")
