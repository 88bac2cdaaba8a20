"""The report for an issue tracker: a headline, each finding with its evidence as a table, commands in fenced blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpudoctor.model.diagnosis import Diagnosis, Evidence, Finding
from gpudoctor.model.fact import Absent, Known
from gpudoctor.model.rule import Fix
from gpudoctor.views import _report as report
from gpudoctor.views._terminal import command, marks, one_line, safe, value

_WORDS = {"error": "Error", "warning": "Warning", "info": "Info"}
_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~&!$^]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_ITEM = re.compile(r"^(\d*)([-+=.)])(?=\s|$)")
_REFERENCE = re.compile(r"@|#(?=\d)")
_JOINER = "\u2060"
"""Has no width; behind ``@`` or ``#`` it keeps a tracker from calling a person or linking an issue."""
_MOST_EVIDENCE = 20


def render(diagnosis: Diagnosis) -> str:
    """The whole report, ending without a newline."""
    blocks = [f"## gpudoctor: {_text(report.verdict(diagnosis))}", _text(report.about(diagnosis))]
    for finding, others in report.together(diagnosis.findings):
        blocks += _finding(finding, others)
    if len(causes := report.causes(diagnosis)) > 1:
        blocks.append("### To act on, in this order")
        blocks.append("\n".join(f"{at}. {_text(report.act(one))} {code(one.id)}" for at, one in enumerate(causes, 1)))
    if diagnosis.unjudged:
        blocks += _unjudged(diagnosis)
    blocks += [f"> {_text(note.text)}" for note in diagnosis.notes]
    blocks.append(f"{_text(report.counts(diagnosis))} (gpudoctor {one_line(diagnosis.tool_version)})")
    return "\n\n".join(blocks)


def _finding(finding: Finding, others: Sequence[Finding]) -> Iterator[str]:
    guess = "possibly: " if finding.confidence == "possible" else ""
    yield f"### {_WORDS[finding.severity]}: {guess}{_text(finding.title)}"
    alike, unlike = report.elsewhere(finding, others)
    if unlike:
        yield "\n".join(f"- also: {_text(other.title)}" for other in unlike)
    if alike:
        yield f"The same of {_text(', '.join(alike))}."
    if finding.why:
        yield _text(finding.why)
    if finding.evidence:
        yield f"How it is known ({finding.confidence}):"
        yield "\n".join(_table(finding.evidence))
    if finding.by_rule:
        yield f"Judged by rule, not by record: newer than the tables: {', '.join(map(code, finding.by_rule))}."
    if finding.confidence != "certain" and finding.confirm:
        yield f"To be sure: {_text(finding.confirm)}"
    if finding.explains:
        yield f"This explains: {', '.join(map(code, finding.explains))}."
    if not finding.nearness:  # what only words point to is to be made sure of first
        for fix in finding.fixes:
            yield from _fix(fix)
    yield f"{code(finding.id)}, more: {code(f'gpudoctor explain {finding.id}')}"


def _table(evidence: Sequence[Evidence]) -> Iterator[str]:
    yield "| fact | value | read from |"
    yield "|---|---|---|"
    for item in evidence[:_MOST_EVIDENCE]:
        name = code(report.fact_name(item))
        if isinstance(item.state, Known):
            yield f"| {name} | {_cell(value(item.state) or 'none')} | {_text(item.state.source)} |"
        elif isinstance(item.state, Absent):
            yield f"| {name} | none | {_text(item.state.why)} |"
    if (more := len(evidence) - _MOST_EVIDENCE) > 0:
        yield f"| and {more} more | | |"


def _fix(fix: Fix) -> Iterator[str]:
    yield f"**What to do: {_text(fix.title)}**"
    for number, step in enumerate(fix.steps, 1):
        note = f"{step.text} {marks(step.needs, step.touches)}".strip()
        if note:
            yield f"{f'Step {number}: ' if len(fix.steps) > 1 else ''}{_text(note)}"
        if step.argv:
            yield fenced(command(step.argv), "sh")
    if fix.undo:
        yield f"To undo: {_text(fix.undo)}"


def _unjudged(diagnosis: Diagnosis) -> Iterator[str]:
    yield "<details>"
    yield f"<summary>{len(diagnosis.unjudged)} rules were not judged</summary>"
    said = []
    for reason in report.reasons(diagnosis):
        facts = f" ({', '.join(map(code, reason.facts))})" if reason.facts else ""
        said.append(f"- {_text(reason.why)}{facts}: {', '.join(map(code, reason.rules))}")
    yield "\n".join(said)
    yield "</details>"


def fenced(text: str, language: str = "") -> str:
    """The text as a block of code; its fence is longer than any run of back-ticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{safe(text)}\n{fence}"


def code(text: str) -> str:
    """The text as code within a line; its fence is longer than any run of back-ticks in it."""
    clean = one_line(text)
    longest = max((len(run) for run in re.findall(r"`+", clean)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if "`" in clean else ""
    return f"{fence}{pad}{clean or ' '}{pad}{fence}"


def _cell(text: str) -> str:
    """A value in a table: code, unless it has a bar, which would end the cell."""
    return _text(text) if "|" in text else code(text)


def _text(text: str) -> str:
    """Foreign text as it reads, on one line: nothing in it is markup, a mention or a reference to an issue."""
    clean = _REFERENCE.sub(lambda found: found[0] + _JOINER, one_line(text))
    return _ITEM.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", clean))
