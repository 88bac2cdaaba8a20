"""A diagnosis held to a profile: what is unmet joins the findings, under its cause or behind all causes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpudoctor.expect.judgement import Open
from gpudoctor.expect.judging import judged
from gpudoctor.expect.profile import FactLine, Line, Profile, finding_id
from gpudoctor.expect.under import explains
from gpudoctor.judge.ranking import place
from gpudoctor.model.diagnosis import Diagnosis, Finding, Note, Verdict
from gpudoctor.rulebook import Rulebook


def held_to(diagnosis: Diagnosis, profile: Profile, book: Rulebook) -> Diagnosis:
    """The diagnosis with every line of the profile judged as well, and a note that counts those that hold.

    What an earlier profile said of it, as of a host that was held to one already, gives way to what this one says.
    A line that the level asked for does not measure leaves the verdict as it is; any other that cannot be told leaves
    no verdict, unless an error was found.
    """
    diagnosis = _alone(diagnosis)
    unmet: list[tuple[Line, Finding]] = []
    open_: list[Open] = []
    held: list[str] = []
    for line, outcome in judged(profile, diagnosis.snapshot):
        if isinstance(outcome, Finding):
            unmet.append((line, outcome))
        elif isinstance(outcome, Open):
            open_.append(outcome)
        else:
            held.append(finding_id(line.name))
    findings = _with(diagnosis.findings, unmet)
    verdict = _verdict(diagnosis.verdict, findings, any(item.asked for item in open_))
    if verdict == "broken":
        findings = [finding for finding in findings if not _sound(finding, book)]
    return replace(
        diagnosis,
        findings=tuple(findings),
        verdict=verdict,
        unjudged=(*diagnosis.unjudged, *(item.unjudged for item in open_)),
        passed=(*diagnosis.passed, *held),
        notes=(*diagnosis.notes, _note(profile, len(unmet), open_, held)),
    )


def _alone(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis without what any profile said."""
    prefix = finding_id("")
    if not any(one.startswith(prefix) for one in _ids(diagnosis)):
        return diagnosis
    findings = tuple(
        replace(finding, explains=tuple(child for child in finding.explains if not child.startswith(prefix)))
        for finding in diagnosis.findings
        if not finding.id.startswith(prefix)
    )
    errors = any(finding.severity == "error" for finding in findings)
    return replace(
        diagnosis,
        findings=findings,
        unjudged=tuple(item for item in diagnosis.unjudged if not item.id.startswith(prefix)),
        passed=tuple(one for one in diagnosis.passed if not one.startswith(prefix)),
        notes=tuple(note for note in diagnosis.notes if not any(rule.startswith(prefix) for rule in note.rules)),
        verdict=diagnosis.verdict if errors or diagnosis.verdict != "broken" else "unknown",
    )


def _ids(diagnosis: Diagnosis) -> Iterator[str]:
    yield from diagnosis.passed
    yield from (finding.id for finding in diagnosis.findings)
    yield from (item.id for item in diagnosis.unjudged)
    yield from (child for finding in diagnosis.findings for child in finding.explains)


def _with(findings: Sequence[Finding], unmet: Sequence[tuple[Line, Finding]]) -> list[Finding]:
    """The findings and, in their order, the unmet lines; what a cause explains is folded under it."""
    causes = list(findings)
    own: dict[str, Finding] = {}
    for line, finding in unmet:
        at = next((at for at, cause in enumerate(causes) if explains(cause, line, finding)), None)
        if at is None:
            own[finding.id] = finding
        else:
            cause = causes[at]
            severity = "error" if finding.severity == "error" else cause.severity
            causes[at] = replace(cause, explains=tuple(sorted({*cause.explains, finding.id})), severity=severity)
    order = {finding: number for number, finding in enumerate(own)}
    return sorted([*causes, *own.values()], key=lambda one: (*place(one)[:-1], order.get(one.id, -1), one.id))


def _verdict(before: Verdict, findings: Sequence[Finding], unread: bool) -> Verdict:
    severities = {finding.severity for finding in findings}
    if "error" in severities:
        return "broken"
    if before == "unknown" or unread:
        return "unknown"
    return "impaired" if "warning" in severities else before


def _sound(finding: Finding, book: Rulebook) -> bool:
    """Whether it says that all is well."""
    rule = book.find(finding.id)
    return rule is not None and rule.sound


def _note(profile: Profile, unmet: int, open_: Sequence[Open], held: Sequence[str]) -> Note:
    """``As expected by hgx-h100: 14 lines hold, 1 does not, 2 are not judged.``"""
    lines = list(profile.lines.values())
    facts = tuple(dict.fromkeys(line.fact for line in lines if isinstance(line, FactLine)))
    text = f"As expected by {profile.name}: {_many(len(held), 'line holds', 'lines hold')}"
    text += f", {_many(unmet, 'does not', 'do not')}" if unmet else ""
    text += f", {_many(len(open_), 'is not judged', 'are not judged')}" if open_ else ""
    later = sum(not item.asked for item in open_)
    text += f" ({later} for want of a higher level)" if later else ""
    return Note(facts, f"{text}.", tuple(finding_id(line.name) for line in lines))


def _many(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"
