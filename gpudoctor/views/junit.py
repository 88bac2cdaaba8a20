"""The report as JUnit XML, as Jenkins and GitLab read it: a suite for each layer or host, a case for each rule.

A case is known by its suite and its name alone, so that a pipeline sees the same case pass today that failed yesterday;
what differs from day to day stands in its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.fleet import Fleet, Host, Result
from gpudoctor.core.language import say
from gpudoctor.core.rule import LAYERS
from gpudoctor.views import _report as report
from gpudoctor.views import text
from gpudoctor.views._terminal import Style, one_line, safe

_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 forbids, even as a character reference."""
_ATTACHMENT = re.compile(r"\[(?=\[ATTACHMENT\|)", re.IGNORECASE)
"""Mark for which GitLab links the file that it names."""
_MOST_CHARACTERS = 500

Standing = Literal["passed", "failure", "error", "skipped"]


@dataclass(frozen=True, slots=True)
class Case:
    """One rule's result. `message` is one line; `words` is all its text, which may be empty if it passed."""

    name: str
    standing: Standing = "passed"
    message: str = ""
    words: str = ""
    kind: str = ""


def render(diagnosis: Diagnosis, strict: bool = False) -> str:
    """The report as an XML document in ASCII, ending without a newline; with `strict`, warnings are failures, too."""
    root = ElementTree.Element("testsuites", name="gpudoctor")
    totals = {"tests": 0, "failures": 0, "errors": 0}
    suites = {"gpudoctor": [_verdict_case(diagnosis, strict)]}
    rule_cases = sorted(_rule_cases(diagnosis, strict), key=lambda case: (_layer_order(case.name), case.name))
    for case in rule_cases:
        suites.setdefault(f"gpudoctor.{case.name.partition('.')[0]}", []).append(case)
    if diagnosis.fleet and diagnosis.snapshot.target.kind == "fleet":
        suites |= {
            f"host.{host.name}": list(_host_cases(diagnosis.fleet, host, strict)) for host in diagnosis.fleet.hosts
        }
    for name, cases in suites.items():
        suite = _suite_element(diagnosis, name, cases)
        root.append(suite)
        for key in totals:
            totals[key] += int(suite.get(key, 0))
    root.attrib.update({key: str(number) for key, number in totals.items()})
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="us-ascii").decode()}'


def _layer_order(name: str) -> tuple[int, str]:
    """Sort key of a rule id: position of its layer, the lowest first; unknown layers last, by name."""
    topic = name.partition(".")[0]
    return LAYERS.index(topic) if topic in LAYERS else len(LAYERS), topic


def _verdict_case(diagnosis: Diagnosis, strict: bool) -> Case:
    """The verdict as a case: failed if broken (`strict`: also with warnings), an error if unknown, else passed."""
    lines = [report.verdict(diagnosis), report.target_text(diagnosis), report.counts(diagnosis)]
    if causes := report.causes(diagnosis):
        lines += ["", say("To act on, in this order:")]
        lines += [
            f"{number}. {one_line(action)}  [{cause.id}]"
            for number, (cause, action) in enumerate(report.actions(causes), 1)
        ]
    lines += ["", *(one_line(note.text) for note in diagnosis.notes)] if diagnosis.notes else []
    fails = strict and any(finding.severity == "warning" for finding in diagnosis.findings)
    standing: Standing = "failure" if diagnosis.verdict == "broken" or fails else "passed"
    if diagnosis.verdict == "unknown" and not fails:
        standing = "error"
        lines += ["", *(f"{one_line(reason.why)}: {', '.join(reason.rules)}" for reason in report.reasons(diagnosis))]
    return Case("verdict", standing, lines[0], "\n".join(lines), diagnosis.verdict)


def _rule_cases(diagnosis: Diagnosis, strict: bool) -> Iterator[Case]:
    """A case per rule that was found, not judged (skipped) or passed; findings of one rule are one case."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in diagnosis.findings:
        by_rule.setdefault(finding.id, []).append(finding)
    explained_by = {name: finding.id for finding in reversed(diagnosis.findings) for name in finding.explains}
    for name, findings in by_rule.items():
        yield _finding_case(name, findings, explained_by.get(name, ""), strict)
    for item in diagnosis.unjudged:
        yield Case(item.id, "skipped", item.because, one_line(item.because))
    yield from map(Case, diagnosis.passed)


def _finding_case(name: str, findings: list[Finding], explained_by: str, strict: bool) -> Case:
    """The case of a rule that was found: an error fails, a warning only if `strict`, all else passes.

    `explained_by` is the id of the rule that explains it, or empty.
    """
    severities = {finding.severity for finding in findings}
    worst = next(severity for severity in ("error", "warning", "info") if severity in severities)
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    words = "\n\n".join(text.findings(findings, Style()))
    if explained_by:
        words = "\n\n".join([say("Explained by {id}: see to that first.", id=explained_by), words])
    fails = worst == "error" or (strict and worst == "warning")
    return Case(name, "failure" if fails else "passed", findings[0].title + more, words, worst)


def _host_cases(fleet: Fleet, host: Host, strict: bool) -> Iterator[Case]:
    """Cases of a fleet's host: that it answered, then its checks; a single error if it did not answer."""
    if not host.answered:
        yield Case("answer", "error", host.because, one_line(host.because), "silence")
        return
    yield Case("answer")
    for check in fleet.checks:
        yield _check_case(check.id, fleet.result(host.name, check.id), strict)


def _check_case(name: str, result: Result, strict: bool) -> Case:
    """The case of a check's result on one host: not judged is skipped, an error fails, a warning only if `strict`."""
    words = one_line(result.words) or result.outcome
    if result.finding:
        words = f"{words}\n\n[{result.finding}]  more: gpudoctor explain {result.finding}"
    if result.outcome == "unjudged":
        return Case(name, "skipped", result.words or "not judged", one_line(result.words) or "not judged")
    if result.outcome == "error" or (strict and result.outcome == "warning"):
        return Case(name, "failure", result.words or result.outcome, words, result.outcome)
    return Case(name, words="" if result.outcome == "ok" else words, kind=result.outcome)


def _suite_element(diagnosis: Diagnosis, name: str, cases: Iterable[Case]) -> ElementTree.Element:
    """The ``testsuite`` element of that name with its cases, counts and host name."""
    elements = [_case_element(name, case) for case in cases]
    outcomes = [element[0].tag if len(element) else "" for element in elements]
    target = diagnosis.snapshot.target
    suite = ElementTree.Element("testsuite", name=_clean(name), tests=str(len(elements)))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(outcomes.count(tag)))
    suite.set("hostname", _clean(name.removeprefix("host.") if name.startswith("host.") else target.name))
    suite.extend(elements)
    return suite


def _case_element(suite: str, case: Case) -> ElementTree.Element:
    """The ``testcase`` element of that suite: with outcome and message, or if it passed with its text, if any."""
    element = ElementTree.Element("testcase", classname=_clean(suite), name=_clean(case.name))
    if case.standing == "passed":
        if case.words:
            ElementTree.SubElement(element, "system-out").text = _clean(case.words)
        return element
    message = _clean(one_line(case.message))[:_MOST_CHARACTERS]
    outcome = ElementTree.SubElement(element, case.standing, message=message)
    if case.kind:
        outcome.set("type", case.kind)
    outcome.text = _clean(case.words)
    return element


def _clean(raw: str) -> str:
    """Foreign text without characters that XML forbids and marks that GitLab acts on; not escaped for XML."""
    return _ATTACHMENT.sub("[ ", _NOT_IN_XML.sub("\ufffd", safe(raw)))
