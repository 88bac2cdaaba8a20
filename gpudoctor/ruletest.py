"""Run the cases that rule pages carry: each is judged by its own rule, and must say what the page says it says."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gpudoctor import pages, rulebook
from gpudoctor.judge import evidence_alone, judge_rule, new_evaluator
from gpudoctor.judge.cures import set_up
from gpudoctor.judge.signs import SILENCE, Text
from gpudoctor.knowledge import complete
from gpudoctor.model.diagnosis import Finding, Unjudged
from gpudoctor.model.errors import UsageError
from gpudoctor.model.fact import Absent, Fact, Known, Row, Rows, Unread, value_from_json
from gpudoctor.model.rule import Case, Rule
from gpudoctor.model.setup_page import SetupCase
from gpudoctor.model.snapshot import Snapshot, Target
from gpudoctor.readers import read_text
from gpudoctor.rulebook.files import SETUP
from gpudoctor.rulebook.setups import setup_cases
from gpudoctor.rulebook.spot import Spot
from gpudoctor.rulebook.translation import stale


@dataclass(frozen=True, slots=True)
class Failures:
    """What `gpudoctor rules test` prints, and how many cases failed."""

    report: str
    count: int


def run(places: Sequence[Path] = ()) -> Failures:
    """Every case on those pages, or on all of ours, and which translations are stale, which is no failure.

    `places` are folders and files. Raises `RuleError` on a broken page or translation, `UsageError` where there is
    none.
    """
    home = pages.home().resolve()
    if gone := [place for place in places if not place.exists()]:
        raise UsageError(f"{gone[0]}: no such rule page, or folder of rule pages")
    book = rulebook.load([place for place in places if not place.resolve().is_relative_to(home)])
    rules = {(rule.scope, rule.id): rule for rule in (*book.rules, *book.cluster)}
    cures = _setup_cases(places)
    cases = [case for place in places or [home] for case in rulebook.cases(place) if (case.scope, case.rule) in rules]
    wrong = [(case, problem) for case in cases if (problem := failure(case, rules[case.scope, case.rule]))]
    lines = [f"{_where(case, cases)}: {problem}" for case, problem in wrong]
    refused = [(case, problem) for case in cures if (problem := setup_failure(case))]
    lines += [f"setup {case.page}: case {case.name!r}: {problem}" for case, problem in refused]
    pages_tested = len({(case.scope, case.rule) for case in cases} | {("setup", case.page) for case in cures})
    for place in places or [home]:
        lines += stale(place)
    if not cases and not cures:
        raise UsageError(f"{' '.join(map(str, places))}: no rule page is there; pages are DIR/<layer>/<id>.toml")
    failed = len(wrong) + len(refused)
    lines.append(f"{len(cases) + len(cures) - failed} cases passed, {failed} failed, on {pages_tested} pages")
    return Failures("\n".join(lines), failed)


def _setup_cases(places: Sequence[Path]) -> list[SetupCase]:
    """Those of our own setup pages that are among the places."""
    named = {path.resolve() for place in places for path in (place, *place.rglob("*.toml"))}
    own = pages.home().resolve() / SETUP
    return [case for case in setup_cases() if not places or own / f"{case.page}.toml" in named]


def _where(case: Case, cases: Sequence[Case]) -> str:
    """The page, the line and the name of a case."""
    number = [other for other in cases if other.origin == case.origin].index(case)
    return str(Spot(case.origin).entry("case", number).called(f"case {case.name!r}"))


def setup_failure(case: SetupCase) -> str | None:
    """What is wrong with a setup page's case: the first fix offered, its first command, or those that follow."""
    snapshot = _snapshot(case.name, case.facts)
    fixes = [fix for _, fix in set_up(case.page, snapshot, new_evaluator(snapshot))]
    said = fixes[0].title if fixes else ""
    if said != case.offers:
        return f"should offer {case.offers or 'nothing'!r}, offers {said or 'nothing'!r}"
    commands = [step.argv for step in fixes[0].steps if step.argv] if fixes else []
    first = commands[0] if commands else ()
    if case.argv and first != case.argv:
        return f"should begin with {shlex.join(case.argv)!r}, begins with {shlex.join(first)!r}"
    rest = iter(commands)
    missing = next((command for command in case.has if command not in rest), None)
    return f"should run {shlex.join(missing)!r}, runs {'; '.join(map(shlex.join, commands))!r}" if missing else None


def failure(case: Case, rule: Rule) -> str | None:
    """What is wrong with the case, None where it holds. Not to hear any sign counts as passing: it is the near miss."""
    snapshot = snapshot_of(case)
    outcomes = judge_rule(rule, snapshot, Text(snapshot))
    findings = [outcome for outcome in outcomes if isinstance(outcome, Finding)]
    pending = [outcome for outcome in outcomes if isinstance(outcome, Unjudged)]
    if case.finds is not None:
        if case.finds not in [finding.title for finding in findings]:
            said = [finding.title for finding in findings] or [item.because for item in pending] or ["passed"]
            return f"should find {case.finds!r}, said {said[0]!r}"
        return _unproven(findings, rule, snapshot)
    pending = [item for item in pending if case.unjudged is not None or item.because != SILENCE]
    if case.passes and (findings or pending):
        said = [finding.title for finding in findings] or [f"not judged: {item.because}" for item in pending]
        return f"should pass, said {said[0]!r}"
    if case.unjudged is not None and (findings or not any(case.unjudged in item.because for item in pending)):
        said = [finding.title for finding in findings] or [item.because for item in pending] or ["passed"]
        return f"should be unjudged because of {case.unjudged}, said {said[0]!r}"
    return None


def _unproven(findings: list[Finding], rule: Rule, snapshot: Snapshot) -> str | None:
    """A finding must have evidence, and follow from that evidence alone."""
    for finding in findings:
        if not finding.evidence:
            return "the finding has no evidence"
        alone = evidence_alone(finding, snapshot)
        again = [item for item in judge_rule(rule, alone, Text(alone)) if isinstance(item, Finding)]
        if finding.title not in [item.title for item in again]:
            return f"its evidence alone does not give {finding.title!r} but {again[0].title if again else 'nothing'!r}"
        if finding.confidence not in [item.confidence for item in again]:
            return f"its evidence alone gives confidence {again[0].confidence}, not {finding.confidence}"
    return None


def snapshot_of(case: Case) -> Snapshot:
    """The snapshot that the case's report or facts stand for, completed by the tables like any other."""
    if case.report:
        read = read_text(case.report, case.name)
        facts, groups = _facts(case.facts)
        return complete(Snapshot(read.target, {**read.facts, **facts}, {**read.groups, **groups}))
    return _snapshot(case.name, case.facts, "fleet" if case.scope == "cluster" else "local")


def _snapshot(name: str, raw: Mapping[str, object], kind: str = "local") -> Snapshot:
    facts, groups = _facts(raw)
    return complete(Snapshot(Target(kind, name), facts, groups))


def _facts(raw: Mapping[str, object]) -> tuple[dict[str, Fact], dict[str, Rows]]:
    facts: dict[str, Fact] = {}
    groups: dict[str, Rows] = {}
    for name, entry in raw.items():
        if "." in name:
            facts[name] = _fact(entry)
        elif isinstance(entry, list):
            groups[name] = tuple(_row(item) for item in entry)
        elif isinstance(entry, str):
            groups[name] = tuple({"line": Known(line, "case")} for line in entry.splitlines())
        else:
            groups[name] = cast(Rows, _fact(entry))
    return facts, groups


def _row(entry: Mapping[str, object]) -> Row:
    return {column: _fact(value) for column, value in entry.items()}


def _fact(entry: object) -> Fact:
    if isinstance(entry, Mapping):
        if "absent" in entry:
            return Absent(str(entry["absent"]))
        if "unread" in entry:
            return Unread(str(entry["unread"]))
    return Known(value_from_json(entry), "case")
