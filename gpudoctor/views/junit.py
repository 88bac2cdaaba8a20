"""The report as JUnit XML, as Jenkins and GitLab read it: a suite for each layer or host, a case for each rule.

A case is known by its suite and its name alone, so that a pipeline sees the same case pass today that failed yesterday;
what differs from day to day stands in its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from gpudoctor.language import say
from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.fleet import Fleet, Host, Result
from gpudoctor.model.rule import LAYERS
from gpudoctor.views import _report as report
from gpudoctor.views import text
from gpudoctor.views._terminal import Style, one_line, safe

_NO_CHARACTER = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no place for, not even as a reference."""
_ATTACHMENT = re.compile(r"\[(?=\[ATTACHMENT\|)", re.IGNORECASE)
"""GitLab links the file that such a mark names."""
_LONGEST_MESSAGE = 500

Standing = Literal["passed", "failure", "error", "skipped"]


@dataclass(frozen=True, slots=True)
class Case:
    """One rule's answer. `message` is a line; `words` are all there is to say, and of one that passed may be empty."""

    name: str
    standing: Standing = "passed"
    message: str = ""
    words: str = ""
    kind: str = ""


def render(diagnosis: Diagnosis, strict: bool = False) -> str:
    """The whole document in ASCII, ending without a newline; `strict`: warnings are failures, too."""
    root = ElementTree.Element("testsuites", name="gpudoctor")
    totals = {"tests": 0, "failures": 0, "errors": 0}
    for name, cases in _suites(diagnosis, strict).items():
        suite = _suite(diagnosis, name, cases)
        root.append(suite)
        for count in totals:
            totals[count] += int(suite.get(count, 0))
    root.attrib.update({count: str(number) for count, number in totals.items()})
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="us-ascii").decode()}'


def _suites(diagnosis: Diagnosis, strict: bool) -> Mapping[str, list[Case]]:
    """Cases by suite: the verdict, the rules by their layers from the ground up, then hosts."""
    suites = {"gpudoctor": [_verdict(diagnosis, strict)]}
    topics = sorted(_rules(diagnosis, strict), key=lambda case: (_height(case.name), case.name))
    for case in topics:
        suites.setdefault(f"gpudoctor.{case.name.partition('.')[0]}", []).append(case)
    if diagnosis.fleet and diagnosis.snapshot.target.kind == "fleet":
        suites |= {f"host.{host.name}": list(_of_host(diagnosis.fleet, host, strict)) for host in diagnosis.fleet.hosts}
    return suites


def _height(name: str) -> tuple[int, str]:
    topic = name.partition(".")[0]
    return LAYERS.index(topic) if topic in LAYERS else len(LAYERS), topic


def _verdict(diagnosis: Diagnosis, strict: bool) -> Case:
    """What to do first; and where nothing could be said, an error: that all is skipped must not look like health."""
    said = [report.verdict(diagnosis), report.about(diagnosis), report.counts(diagnosis)]
    if causes := report.causes(diagnosis):
        said += ["", say("To act on, in this order:")]
        said += [f"{at}. {one_line(act)}  [{one.id}]" for at, (one, act) in enumerate(report.acts(causes), 1)]
    said += ["", *(one_line(note.text) for note in diagnosis.notes)] if diagnosis.notes else []
    bad = strict and any(finding.severity == "warning" for finding in diagnosis.findings)
    standing: Standing = "failure" if diagnosis.verdict == "broken" or bad else "passed"
    if diagnosis.verdict == "unknown" and not bad:
        standing = "error"
        said += ["", *(f"{one_line(reason.why)}: {', '.join(reason.rules)}" for reason in report.reasons(diagnosis))]
    return Case("verdict", standing, said[0], "\n".join(said), diagnosis.verdict)


def _rules(diagnosis: Diagnosis, strict: bool) -> Iterator[Case]:
    """A case for each rule, however many GPUs it was found on."""
    found: dict[str, list[Finding]] = {}
    for finding in diagnosis.findings:
        found.setdefault(finding.id, []).append(finding)
    under = {name: finding.id for finding in reversed(diagnosis.findings) for name in finding.explains}
    for name, findings in found.items():
        yield _found(name, findings, under.get(name, ""), strict)
    for item in diagnosis.unjudged:
        yield Case(item.id, "skipped", item.because, one_line(item.because))
    yield from map(Case, diagnosis.passed)


def _found(name: str, findings: list[Finding], under: str, strict: bool) -> Case:
    severities = {finding.severity for finding in findings}
    worst = next(severity for severity in ("error", "warning", "info") if severity in severities)
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    words = "\n\n".join(text.findings(findings, Style()))
    if under:
        words = "\n\n".join([say("Explained by {id}: see to that first.", id=under), words])
    fails = worst == "error" or (strict and worst == "warning")
    return Case(name, "failure" if fails else "passed", findings[0].title + more, words, worst)


def _of_host(fleet: Fleet, host: Host, strict: bool) -> Iterator[Case]:
    if not host.answered:
        yield Case("answer", "error", host.because, one_line(host.because), "silence")
        return
    yield Case("answer")
    for check in fleet.checks:
        yield _checked(check.id, fleet.result(host.name, check.id), strict)


def _checked(name: str, result: Result, strict: bool) -> Case:
    words = one_line(result.words) or result.outcome
    if result.finding:
        words = f"{words}\n\n[{result.finding}]  more: gpudoctor explain {result.finding}"
    if result.outcome == "unjudged":
        return Case(name, "skipped", result.words or "not judged", one_line(result.words) or "not judged")
    if result.outcome == "error" or (strict and result.outcome == "warning"):
        return Case(name, "failure", result.words or result.outcome, words, result.outcome)
    return Case(name, words="" if result.outcome == "ok" else words, kind=result.outcome)


def _suite(diagnosis: Diagnosis, name: str, cases: Iterable[Case]) -> ElementTree.Element:
    whole = [_case(name, case) for case in cases]
    standings = [element[0].tag if len(element) else "" for element in whole]
    target = diagnosis.snapshot.target
    suite = ElementTree.Element("testsuite", name=_clean(name), tests=str(len(whole)))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(standings.count(tag)))
    suite.set("hostname", _clean(name.removeprefix("host.") if name.startswith("host.") else target.name))
    suite.extend(whole)
    return suite


def _case(suite: str, case: Case) -> ElementTree.Element:
    element = ElementTree.Element("testcase", classname=_clean(suite), name=_clean(case.name))
    if case.standing == "passed":
        if case.words:
            ElementTree.SubElement(element, "system-out").text = _clean(case.words)
        return element
    message = _clean(one_line(case.message))[:_LONGEST_MESSAGE]
    outcome = ElementTree.SubElement(element, case.standing, message=message)
    if case.kind:
        outcome.set("type", case.kind)
    outcome.text = _clean(case.words)
    return element


def _clean(words: str) -> str:
    """Foreign text as XML may hold it, and as GitLab takes it for text; tags and quotes the writer escapes."""
    return _ATTACHMENT.sub("[ ", _NO_CHARACTER.sub("\ufffd", safe(words)))
