"""``rules list``, ``rules test``, ``rules new``: the rulebook and a site's own pages."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gpudoctor.app import output
from gpudoctor.app.commands.bundled import translated
from gpudoctor.app.output import BROKEN, SOUND
from gpudoctor.core import shipped
from gpudoctor.core.diagnosis import Finding, Unjudged
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Absent, Fact, Known, Reason, Rows, Unread, value_from_json
from gpudoctor.core.language import ENGLISH, say, speaking
from gpudoctor.core.rule import LAYERS, Case, Rule, SetupCase
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import page_cache, rulebook
from gpudoctor.diagnosis.judge import evidence_alone, judge_rule, new_evaluator
from gpudoctor.diagnosis.judge.cures import setup_options
from gpudoctor.diagnosis.knowledge import complete
from gpudoctor.diagnosis.rulebook.check import BLANK, is_id
from gpudoctor.diagnosis.rulebook.compiled import setup_cases
from gpudoctor.diagnosis.rulebook.compiling import stale
from gpudoctor.diagnosis.rulebook.page import SETUP, Spot
from gpudoctor.readers import read_text
from gpudoctor.views import explain

_NO_PAGE = "{names}: no rule page is there; pages are DIR/<layer>/<id>.toml"


def rules_list(options: argparse.Namespace) -> int:
    """``gpudoctor rules list``: print every rule; exit code 0. Raises `UsageError` for a folder without pages."""
    book = rulebook.load(options.rules)
    for place in options.rules:
        if place.is_dir() and next(place.rglob("*.toml"), None) is None:
            raise UsageError(say(_NO_PAGE, names=place))
    print(explain.rule_list([*book.rules, *book.cluster]))
    return SOUND


def rules_test(options: argparse.Namespace) -> int:
    """``gpudoctor rules test``: run the cases of rule pages and print the report; 1 if any fails, else 0."""
    failures = run(options.places)
    print(failures.report)
    return BROKEN if failures.count else SOUND


def rules_new(options: argparse.Namespace) -> int:
    """``gpudoctor rules new``: write a new rule page to fill in, and print what to do next; exit code 0."""
    path = place(options.id, options.layer, options.folder, rulebook.load().rules)
    output.put_new(page(options.id), path)
    print(next_steps(path, options.folder))
    return SOUND


# ---- A new page to fill in ----


def page(rule_id: str) -> str:
    """The text of a new page for that id, with blanks to fill in, in the language in use."""
    return translated(shipped.text("app/commands/new_page.toml")).replace("@ID@", rule_id)


def place(rule_id: str, layer: str | None, folder: Path, rules: Sequence[Rule]) -> Path:
    """The path of a new page under `folder`; raises `UsageError` for a bad or taken id, or an unclear layer.

    `rules` are the shipped ones: they tell a topic's layer and which ids are taken.
    """
    if not is_id(rule_id):
        raise UsageError(
            say(
                "{id} is no name for a rule: <topic>.<what-is>, in lower case, as in site.no-quota",
                id=repr(rule_id),
            )
        )
    known = {rule.id: say("gpudoctor explain {id} shows it", id=rule.id) for rule in rules}
    pages = folder.rglob("*.toml") if folder.is_dir() else ()
    taken = known.get(rule_id) or next((str(path) for path in pages if path.stem == rule_id), None)
    if taken:
        raise UsageError(say("there is a rule {id} already: {taken}", id=rule_id, taken=taken))
    return folder / (layer or _layer(rule_id, rules)) / f"{rule_id}.toml"


def _layer(rule_id: str, rules: Sequence[Rule]) -> str:
    """The layer of the id's topic; raises `UsageError` where it is not clear."""
    topic = rule_id.partition(".")[0]
    layers = {rule.layer for rule in rules if rule.id.partition(".")[0] == topic} or {topic} & set(LAYERS)
    if len(layers) != 1:
        raise UsageError(
            say(
                "which layer does {id} belong to? Say --layer, one of {names}",
                id=rule_id,
                names=", ".join(LAYERS),
            )
        )
    return layers.pop()


def next_steps(path: Path, folder: Path) -> str:
    """Text with the commands to run after the page is filled in; `folder` is what ``--rules`` takes."""
    ours = folder.resolve() == page_cache.home().resolve()
    test = ["gpudoctor", "rules", "test"] + ([] if ours else [str(folder)])
    check = ["gpudoctor", "check"] + ([] if ours else ["--rules", str(folder)])
    intro = say("{path} is written. Fill in its blanks, which begin {blank}, then type:", path=path, blank=repr(BLANK))
    return "\n".join([intro, *(f"  $ {shlex.join(words)}" for words in (test, check))])


# ---- The cases that pages carry: each is judged by its own rule, and must say what the page says ----


@dataclass(frozen=True, slots=True)
class Failures:
    """The report of `gpudoctor rules test`, and the number of failed cases."""

    report: str
    count: int


def run(places: Sequence[Path] = ()) -> Failures:
    """Run every case on those pages (none: all that ship), judged in English, as pages are, whatever the language in
    use; and list stale translations, which are no failures.

    `places` are folders and files. Raises `RuleError` on a broken page or translation, `UsageError` where there is no
    page.
    """
    home = page_cache.home().resolve()
    book = rulebook.load([place for place in places if not place.resolve().is_relative_to(home)], ENGLISH)
    rules = {(rule.scope, rule.id): rule for rule in (*book.rules, *book.cluster)}
    named = {path.resolve() for place in places for path in (place, *place.rglob("*.toml"))}
    own = page_cache.home().resolve() / SETUP
    cures = [case for case in setup_cases() if not places or own / f"{case.page}.toml" in named]
    cases = [case for place in places or [home] for case in rulebook.cases(place) if (case.scope, case.rule) in rules]
    wrong = [(case, problem) for case in cases if (problem := failure(case, rules[case.scope, case.rule]))]
    lines = [f"{_case_location(case, cases)}: {problem}" for case, problem in wrong]
    refused = [(case, problem) for case in cures if (problem := setup_failure(case))]
    lines += [f"setup {case.page}: {say('case {name}', name=repr(case.name))}: {problem}" for case, problem in refused]
    pages_tested = len({(case.scope, case.rule) for case in cases} | {("setup", case.page) for case in cures})
    for place in places or [home]:
        lines += stale(place)
    if not cases and not cures:
        raise UsageError(say(_NO_PAGE, names=" ".join(map(str, places))))
    failed = len(wrong) + len(refused)
    passed = len(cases) + len(cures) - failed
    result = "{passed} cases passed, {failed} failed, on {pages} pages"
    if pages_tested == 1:
        result = "{passed} cases passed, {failed} failed, on {pages} page"
    lines.append(say(result, passed=passed, failed=failed, pages=pages_tested))
    return Failures("\n".join(lines), failed)


def _case_location(case: Case, cases: Sequence[Case]) -> str:
    """Page, line and name of a case, for messages."""
    position = [other for other in cases if other.origin == case.origin].index(case)
    return str(Spot(case.origin).entry("case", position).called(say("case {name}", name=repr(case.name))))


def setup_failure(case: SetupCase) -> str | None:
    """What a setup page's case gets wrong, None where it holds.

    It tests the title of the first fix, its first command, and that the commands of `has` follow in order.
    """
    with speaking(ENGLISH):
        snapshot = _snapshot(case.name, case.facts)
        fixes = [fix for _, fix in setup_options(case.page, snapshot, new_evaluator(snapshot))]
    title = fixes[0].title if fixes else ""
    if title != case.offers:
        return say("should offer {expected}, offers {offered}", expected=_quoted(case.offers), offered=_quoted(title))
    commands = [step.argv for step in fixes[0].steps if step.argv] if fixes else []
    first = commands[0] if commands else ()
    if case.argv and first != case.argv:
        wrong = "should begin with {expected}, begins with {first}"
        return say(wrong, expected=repr(shlex.join(case.argv)), first=repr(shlex.join(first)))
    rest = iter(commands)
    missing = next((command for command in case.has if command not in rest), None)
    if missing is None:
        return None
    runs = "; ".join(map(shlex.join, commands))
    return say("should run {expected}, runs {commands}", expected=repr(shlex.join(missing)), commands=repr(runs))


def _quoted(text: str) -> str:
    """The text in quotes; the word for nothing where it is empty."""
    return repr(text) if text else say("nothing")


def failure(case: Case, rule: Rule) -> str | None:
    """What is wrong with a rule page's case, None where it holds; a finding's evidence is checked, too.

    That the rule matched no message counts as unjudged only in a case that expects unjudged, else as passing.
    """
    with speaking(ENGLISH):
        snapshot = snapshot_of(case)
        outcomes = judge_rule(rule, snapshot)
    findings = [outcome for outcome in outcomes if isinstance(outcome, Finding)]
    pending = [outcome for outcome in outcomes if isinstance(outcome, Unjudged)]
    texts = [finding.title for finding in findings] or [item.because for item in pending] or [say("passed")]
    reported = repr(texts[0])
    if case.finds is not None:
        if case.finds not in [finding.title for finding in findings]:
            return say("should find {expected}, said {reported}", expected=repr(case.finds), reported=reported)
        return _evidence_problem(findings, rule, snapshot)
    pending = [item for item in pending if case.unjudged is not None or item.reason is not Reason.NO_MESSAGE]
    if case.passes and (findings or pending):
        unjudged = repr(say("not judged: {because}", because=pending[0].because)) if pending else ""
        return say("should pass, said {reported}", reported=reported if findings else unjudged)
    if case.unjudged is not None and (findings or not any(case.unjudged in item.because for item in pending)):
        return say("should be unjudged because of {fact}, said {reported}", fact=case.unjudged, reported=reported)
    return None


def _evidence_problem(findings: list[Finding], rule: Rule, snapshot: Snapshot) -> str | None:
    """What is wrong with the findings' evidence; None if it exists and alone gives the same title and confidence."""
    for finding in findings:
        if not finding.evidence:
            return say("the finding has no evidence")
        with speaking(ENGLISH):
            outcomes = judge_rule(rule, evidence_alone(finding, snapshot))
        again = [item for item in outcomes if isinstance(item, Finding)]
        if finding.title not in [item.title for item in again]:
            wrong = "its evidence alone does not give {expected} but {given}"
            return say(wrong, expected=repr(finding.title), given=_quoted(again[0].title if again else ""))
        if finding.confidence not in [item.confidence for item in again]:
            wrong = "its evidence alone gives confidence {given}, not {expected}"
            return say(wrong, given=again[0].confidence, expected=finding.confidence)
    return None


def snapshot_of(case: Case) -> Snapshot:
    """The snapshot that the case's report or facts describe, with derived facts added."""
    if case.report:
        read = read_text(case.report, case.name)
        facts, groups = _facts(case.facts)
        return complete(Snapshot(read.target, {**read.facts, **facts}, {**read.groups, **groups}))
    return _snapshot(case.name, case.facts, "fleet" if case.scope == "cluster" else "local")


def _snapshot(name: str, raw: Mapping[str, object], kind: str = "local") -> Snapshot:
    """A snapshot of the case's facts as written in TOML, with derived facts added."""
    facts, groups = _facts(raw)
    return complete(Snapshot(Target(kind, name), facts, groups))


def _facts(raw: Mapping[str, object]) -> tuple[dict[str, Fact], dict[str, Rows]]:
    """The case's TOML table as facts (names with a dot) and groups of rows (lists, or text as one row a line)."""
    facts: dict[str, Fact] = {}
    groups: dict[str, Rows] = {}
    for name, entry in raw.items():
        if "." in name:
            facts[name] = _fact(entry)
        elif isinstance(entry, list):
            groups[name] = tuple({column: _fact(value) for column, value in item.items()} for item in entry)
        elif isinstance(entry, str):
            groups[name] = tuple({"line": Known(line, "case")} for line in entry.splitlines())
        else:
            groups[name] = cast(Rows, _fact(entry))
    return facts, groups


def _fact(entry: object) -> Fact:
    """A TOML value as a fact: ``{absent = why}``, ``{unread = why}``, anything else is known."""
    if isinstance(entry, Mapping):
        if "absent" in entry:
            return Absent(str(entry["absent"]))
        if "unread" in entry:
            return Unread(str(entry["unread"]))
    return Known(value_from_json(entry), "case")
