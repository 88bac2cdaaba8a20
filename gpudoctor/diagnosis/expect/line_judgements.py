"""A line of a profile judged on a snapshot: one fact of the machine or of every row, or conditions; and in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpudoctor.core.diagnosis import Evidence, Finding, Unjudged, is_fact_name
from gpudoctor.core.fact import Absent, Fact, Known, Reason, Row, Rows, Unread, listed, text_of, value_of
from gpudoctor.core.language import and_list, say
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.compare import KEYS, group_as_fact
from gpudoctor.diagnosis.expect.profile import ConditionLine, FactLine, Profile, finding_id, why_not_measured
from gpudoctor.diagnosis.expression import Evaluator, Facts, evaluate, fill, show
from gpudoctor.diagnosis.judge.cures import all_hold
from gpudoctor.diagnosis.judge.subjects import subject_of_row

# ---- How an unmet line is said ----


Place = tuple[int | None, Fact]
"""A fact and the row that it stands in; none of the machine."""
_PLURAL = {
    "gpu": "GPUs",
    "nvlink": "NVLinks",
    "rdma": "ports",
    "mig": "MIG devices",
    "measured": "measurements",
    "interface": "interfaces",
}
_MOST_NAMED = 8
_LONGEST_VALUE = 120


def fact_text(state: Fact, unit: str = "") -> str:
    """A fact for a sentence: value with unit (at most 120 characters), ``none (why)`` or ``not known (why)``."""
    if isinstance(state, Known):
        text = " ".join(filter(None, (show(state.value) or "empty", unit)))
        return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
    return f"none ({state.why})" if isinstance(state, Absent) else f"not known ({state.why})"


def unmet_sentence(line: FactLine, unmet: Sequence[Place], rows: Sequence[Row], profile: str, count_met: int) -> str:
    """``gpu.ecc is no on GPU 3, expected yes (hgx-h100)``: each unmet value once, with the rows that have it.

    `count_met` is the number of rows that meet the line; `unmet` empty means that there are no rows at all. Where the
    expected value is probably misspelt, a hint follows.
    """
    values = _rows_by_value(line, unmet, rows)
    words = {
        "what": line.kernel or line.fact,
        "where": say(" where {condition}", condition=line.where) if line.where else "",
        "wanted": line.wanted.says,
        "profile": profile,
    }
    if line.at_least:
        others = "".join(say("; ") + value for value in values)
        few = "{what} is {wanted} on {held} {things}{where}, expected on {least} at least ({profile}){others}"
        things = _group_noun(line.group, count_met)
        return say(few, **words, held=count_met, things=things, least=line.at_least, others=others)
    if not unmet:
        none = "{what}: there are no {things}{where} here, expected {wanted} ({profile})"
        return say(none, **words, things=_group_noun(line.group))
    unlike = "{what} is {found}{where}, expected {wanted} ({profile})"
    return say(unlike, **words, found=say("; ").join(values)) + _spelling_hint(line.wanted.says, unmet)


def _spelling_hint(wanted: str, unmet: Sequence[Place]) -> str:
    """End of the sentence on unmet texts: how a version's branch, or a part of a text, is written; else empty."""
    values = [value_of(state) for _, state in unmet]
    texts = [value.casefold() for value in values if isinstance(value, str)]
    if len(texts) < len(unmet):
        return ""
    if wanted.replace(".", "").isdigit():
        branch = all(text.startswith(f"{wanted}.") for text in texts)
        return say('; its whole branch is written "{branch}.*"', branch=wanted) if branch else ""
    if all(wanted.casefold() in text for text in texts):
        return say("; a part of it is {form}", form=f'{{ matches = "{wanted}" }}')
    return ""


def _rows_by_value(line: FactLine, unmet: Sequence[Place], rows: Sequence[Row]) -> list[str]:
    """``VALUE on GPU 3 and GPU 5`` for each different value, at most eight and a count of the rest."""
    rows_of_value: dict[str, list[int]] = {}
    for index, state in unmet:
        rows_of_value.setdefault(fact_text(state, line.unit), []).extend([] if index is None else [index])
    parts = [
        say(
            "{value} on {rows}",
            value=value,
            rows=rows_in_words(line.group, [(index, rows[index]) for index in where], len(rows)),
        )
        if where
        else value
        for value, where in rows_of_value.items()
    ]
    return (
        parts
        if len(parts) <= _MOST_NAMED
        else [*parts[:_MOST_NAMED], say("and {count} other values", count=len(parts) - _MOST_NAMED)]
    )


def rows_in_words(group: str, rows: Sequence[tuple[int, Row]], total: int) -> str:
    """Names of these rows joined, at most eight and a count of the rest: ``GPU 3 and GPU 5``.

    ``all 8 GPUs`` where they are as many as `total`, all rows of the group.
    """
    if len(rows) == total > 1:
        return say("all {count} {things}", count=total, things=_group_noun(group))
    names = list(dict.fromkeys(_row_name(group, index, row) for index, row in rows))
    if len(names) > _MOST_NAMED:
        names = [*names[:_MOST_NAMED], say("{count} more", count=len(names) - _MOST_NAMED)]
    return and_list(names)


def _group_noun(group: str, count: int = 2) -> str:
    """What rows of the group are called, singular for a count of 1: ``GPU``, ``GPUs``; ``rows of GROUP``, whatever the
    count, for a group without such a name.
    """
    several = _PLURAL.get(group, f"rows of {group}")
    return several.removesuffix("s") if count == 1 and group in _PLURAL else several


def _row_name(group: str, index: int, row: Row) -> str:
    """What one row is called: ``GPU 3``, ``link 2 of GPU 0``, ``mlx5_0 port 1``; else its key columns or its index."""

    def value(column: str) -> str:
        """The row's column as text, at most 60 characters."""
        return text_of(row.get(column))[:60]

    if group == "gpu":
        return f"GPU {value('index') or index}"
    if group == "nvlink" and value("gpu"):
        return f"link {value('link')} of GPU {value('gpu')}"
    if group == "measured":
        return f"GPU {value('gpu')}" if value("gpu") else "all GPUs together"
    if group == "rdma" and value("device"):
        return f"{value('device')} port {value('port')}"
    key = " ".join(filter(None, map(value, KEYS.get(group, ()))))
    return key or f"{group} {index}"


# ---- A line, and what comes of it ----

L = TypeVar("L", bound="FactLine | ConditionLine")
LAYER = "expect"
_MOST_EVIDENCE = 64


@dataclass(frozen=True, slots=True)
class UnjudgedLine:
    """A line that could not be judged; `asked` is false where the check's level does not measure it."""

    unjudged: Unjudged
    asked: bool = True


Outcome = Finding | UnjudgedLine | None
"""None: it holds."""


class Judgement(Generic[L]):
    """Base of what judges one profile line on a snapshot; `evaluator` is shared between lines, one after the other."""

    def __init__(self, line: L, profile: Profile, snapshot: Snapshot, evaluator: Evaluator) -> None:
        self.line = line
        self.profile = profile
        self.snapshot = snapshot
        self.evaluator = evaluator

    def open(self, fact: str, why: str, reason: Reason = Reason.UNSPECIFIED) -> UnjudgedLine:
        """The line as unjudged because of that fact, for the reason given.

        Where only a higher level measures the line, that level takes the place of the reason and `asked` is false; but
        not for pasted text.
        """
        level = why_not_measured(self.line.level, self.snapshot.target.level)
        unasked = bool(level) and not self.snapshot.pasted
        if unasked:
            why, reason = level, Reason.needs(self.line.level)
        named = fact if is_fact_name(fact) else ""
        return UnjudgedLine(Unjudged(finding_id(self.line.name), f"{fact}: {why}", reason, named), not unasked)

    def finding(self, title: str, why: str, evidence: Sequence[Evidence], group: str, rows: Sequence[int]) -> Finding:
        """The finding that the line is not met, in these rows of the group or (no rows) on the machine.

        It has severity and fixes of the line, and at most 64 items of evidence.
        """
        annotations = self.line.annotations
        return Finding(
            id=finding_id(self.line.name),
            layer=LAYER,
            severity=annotations.severity,
            role="cause",
            confidence="certain",
            title=title,
            why=why,
            evidence=tuple(evidence[:_MOST_EVIDENCE]),
            subjects=tuple(subject_of_row(self.snapshot, group, row) for row in rows),
            fixes=annotations.fixes,
            references=(f"profile {self.profile.name}: {annotations.origin}", *self.profile.sources),
        )


class FactJudgement(Judgement[FactLine]):
    """Judges a line by one fact: of the machine, or in every row that counts."""

    def outcome(self) -> Outcome:
        """The finding if a fact fails the line (with `at_least`: if too few can meet it), unjudged if unread ones could
        decide, else None.
        """
        line = self.line
        if not line.group:
            return self._outcome_of_facts([(None, self.snapshot.get(line.fact))])
        rows = self.snapshot.rows(line.group)
        if isinstance(rows, Unread):
            return self.open(line.group, rows.why, rows.reason)
        if line.level != "quick" and why_not_measured(line.level, self.snapshot.target.level) and not rows:
            return self.open(line.group, "")
        return self._outcome_of_facts(list(self._counting_facts(rows)))

    def _counting_facts(self, rows: Rows) -> Iterator[Place]:
        """(row index, fact) of each row that the line is about: of its kernel, or for which `where` holds.

        A row of which that cannot be judged comes with an Unread fact.
        """
        column = self.line.fact.rpartition(".")[2]
        for index, row in enumerate(listed(rows)):
            try:
                if self._is_counted(index, row):
                    yield index, row.get(column) or self.snapshot.get(self.line.fact)
            except CannotJudge as unread:
                yield index, Unread(str(unread), reason=unread.reason)

    def _is_counted(self, index: int, row: Row) -> bool:
        """Whether the row is of the line's kernel or meets its `where`, true for a line with neither; raises
        `CannotJudge` where `where` cannot be judged.
        """
        if self.line.kernel:
            return value_of(row.get("kernel")) == self.line.kernel
        if not self.line.where:
            return True
        self.evaluator.names = Facts(self.snapshot, self.line.group, index)
        return bool(evaluate(self.line.where, self.evaluator))

    def _outcome_of_facts(self, places: Sequence[Place]) -> Outcome:
        """The outcome over these facts: with `at_least` so many must hold, otherwise all of them. Unjudged where unread
        facts could decide.

        Without any facts, a line of a measured kernel is unjudged; one that absence meets holds, unless it has
        `at_least`; any other is unmet.
        """
        held, unmet, unread = self._by_outcome(places)
        line, fact = self.line, self.line.kernel or self.line.fact
        if line.at_least and len(held) >= line.at_least:
            return None
        if line.at_least and len(held) + len(unread) < line.at_least:
            return self._unmet([*unmet, *unread], len(held))
        if not line.at_least and unmet:
            return self._unmet(unmet, len(held))
        if unread:
            return self.open(fact, "; ".join({state.why: None for _, state in unread if isinstance(state, Unread)}))
        if line.kernel and not places:
            return self.open(fact, "no measurement of it")
        return None if places or line.wanted.absent else self._unmet((), 0)

    def _by_outcome(self, places: Sequence[Place]) -> tuple[list[Place], list[Place], list[Place]]:
        """The facts that are as expected, those that are not, and those that are unread or cannot be compared."""
        held: list[Place] = []
        unmet: list[Place] = []
        unread: list[Place] = []
        wanted = self.line.wanted
        for index, state in places:
            if isinstance(state, Unread):
                unread.append((index, state))
            elif (holds := wanted.holds(state.value) if isinstance(state, Known) else wanted.absent) is None:
                unread.append((index, Unread(f"{fact_text(state)} cannot be compared with {wanted.says}")))
            else:
                (held if holds else unmet).append((index, state))
        return held, unmet, unread

    def _unmet(self, unmet: Sequence[Place], held: int) -> Finding:
        """The finding for these unmet facts; `held` is the number of facts that are as expected."""
        line = self.line
        rows = [index for index, _ in unmet if index is not None]
        evidence = [Evidence(line.fact, state, index) for index, state in unmet if not isinstance(state, Unread)]
        if not evidence:
            evidence = [Evidence(line.group, group_as_fact(self.snapshot.rows(line.group)))]
        title = unmet_sentence(line, unmet, listed(self.snapshot.rows(line.group)), self.profile.name, held)
        return self.finding(title, _reason_for(line), evidence, line.group, rows)


def _reason_for(line: FactLine) -> str:
    """The profile's own reason for the line, else what the fact means; may be empty."""
    if line.annotations.why or line.kernel:
        return line.annotations.why
    spec = catalog().find(line.fact)
    return f"{line.fact}: {spec.about}." if spec else ""


class ConditionJudgement(Judgement[ConditionLine]):
    """Judges a line by its conditions, all of which must hold."""

    def outcome(self) -> Outcome:
        """The finding, the unjudged line, or None where the conditions hold on the machine or in every row of `each`.

        No rows at all are a finding, too.
        """
        line = self.line
        if not line.each:
            return self._machine_outcome()
        rows = self.snapshot.rows(line.each)
        if isinstance(rows, Unread):
            return self.open(line.each, rows.why, rows.reason)
        if isinstance(rows, Absent) or not rows:
            evidence = [Evidence(line.each, group_as_fact(rows))]
            none = "There is no {group} here, and {line} is about each ({profile})"
            title = say(none, group=line.each, line=line.name, profile=self.profile.name)
            return self.finding(title, line.annotations.why, evidence, line.each, ())
        return self._rows_outcome(rows)

    def _machine_outcome(self) -> Outcome:
        """The outcome on the machine as a whole: a finding where a condition is false, else unjudged if one is open."""
        facts = Facts(self.snapshot)
        self.evaluator.names = facts
        holds = all_hold(self.line.when, self.evaluator)
        if isinstance(holds, CannotJudge):
            return self.open(holds.what, holds.why, holds.reason)
        if holds:
            return None
        return self.finding(self._title("", facts), self.line.annotations.why, _evidence(facts), "", ())

    def _rows_outcome(self, rows: Sequence[Row]) -> Outcome:
        """The outcome over all rows: one finding for those that fail, else unjudged where one is open, else None."""
        unmet: list[tuple[int, Facts]] = []
        pending: CannotJudge | None = None
        for index in range(len(rows)):
            facts = Facts(self.snapshot, self.line.each, index)
            self.evaluator.names = facts
            holds = all_hold(self.line.when, self.evaluator)
            if isinstance(holds, CannotJudge):
                pending = pending or holds
            elif not holds:
                unmet.append((index, facts))
        if unmet:
            names = rows_in_words(self.line.each, [(index, rows[index]) for index, _ in unmet], len(rows))
            self.evaluator.names = unmet[0][1]
            evidence = [item for _, facts in unmet for item in _evidence(facts)]
            where = [index for index, _ in unmet]
            return self.finding(
                self._title(names, unmet[0][1]), self.line.annotations.why, evidence, self.line.each, where
            )
        return self.open(pending.what, pending.why, pending.reason) if pending else None

    def _title(self, names: str, facts: Facts) -> str:
        """The line's own sentence filled, else up to four facts that were read and the conditions expected.

        Begins with `names`, those of the failing rows, where given, and ends with the profile's name.
        """
        if self.line.says:
            parts = [fill(self.line.says, self.evaluator)]
        else:
            states = ((name, fact_text(state)) for (name, _), state in facts.touched.items() if "." in name)
            seen = [say("{name} is {value}", name=name, value=value) for name, value in states]
            wanted = say("expected {conditions}", conditions=" and ".join(self.line.when))
            parts = [*dict.fromkeys(seen[:4]), wanted]
        sentence = say("{sentence} ({profile})", sentence=say(", ").join(parts), profile=self.profile.name)
        return say("{rows}: {sentence}", rows=names, sentence=sentence) if names else sentence


def _evidence(facts: Facts) -> list[Evidence]:
    """The facts that were read through `facts`, each as evidence."""
    return [Evidence(name, state, index) for (name, index), state in facts.touched.items()]
