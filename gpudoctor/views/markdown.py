"""The report for an issue tracker: a headline, each finding with its evidence as a table, commands in fenced blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.language import say
from gpudoctor.model.diagnosis import Diagnosis, Evidence, Finding
from gpudoctor.model.fact import Absent, Known
from gpudoctor.model.rule import Fix
from gpudoctor.views import _report as report
from gpudoctor.views._markdown import cell, code, fenced, text
from gpudoctor.views._since import since
from gpudoctor.views._terminal import command, noted, value

_WORDS = {"error": "Error", "warning": "Warning", "info": "Info"}
MOST = 65_000
"""Characters of the whole: trackers refuse more than 65,536."""
_MOST_EVIDENCE = 20


def render(diagnosis: Diagnosis) -> str:
    """The whole report, ending without a newline."""
    blocks = [f"## gpudoctor: {text(report.verdict(diagnosis))}", text(report.about(diagnosis))]
    if installed := list(report.installs(diagnosis)):
        blocks.append(say("What it would bring:"))
        blocks.append(
            "\n".join(f"- {code(f'{name} {version}')} ({text(source)})" for name, version, source in installed)
        )
    for finding, others in report.together(diagnosis.findings):
        blocks.append("\n\n".join(_finding(finding, others)))
    if len(causes := report.causes(diagnosis)) > 1:
        blocks.append(f"### {say('To act on, in this order')}")
        acts = enumerate(report.acts(causes), 1)
        blocks.append("\n".join(f"{at}. {text(act)} {code(one.id)}" for at, (one, act) in acts))
    if diagnosis.unjudged:
        blocks.append("\n\n".join(_unjudged(diagnosis)))
    blocks += [f"> {text(note.text)}" for note in diagnosis.notes]
    return _joined(blocks, f"{text(report.counts(diagnosis))} (gpudoctor {code(diagnosis.tool_version)})")


def _joined(blocks: Sequence[str], counts: str) -> str:
    """The blocks that a tracker has room for, those at the top first, and the counts."""
    kept: list[str] = []
    room = MOST - len(counts) - 200
    for block in blocks:
        room -= len(block) + 2
        if room >= 0:
            kept.append(block)
    if left := len(blocks) - len(kept):
        kept.append(
            say("{count} parts are left out, for a tracker takes no more: gpudoctor --json has all.", count=left)
        )
    return "\n\n".join([*kept, counts])


def _finding(finding: Finding, others: Sequence[Finding]) -> Iterator[str]:
    guess = say("possibly: ") if finding.confidence == "possible" else ""
    yield say("### {severity}: {title}", severity=say(_WORDS[finding.severity]), title=guess + text(finding.title))
    alike, unlike = report.elsewhere(finding, others)
    if unlike:
        yield "\n".join(say("- also: {title}", title=text(other.title)) for other in unlike)
    if alike:
        yield say("The same of {names}.", names=text(", ".join(alike)))
    if finding.why:
        yield text(finding.why)
    if finding.evidence:
        yield say("How it is known ({confidence}):", confidence=say(finding.confidence))
        yield "\n".join(_table(finding.evidence))
    if finding.since:
        lead, changes = since(finding)
        yield f"{text(lead)}:"
        yield "\n".join(f"- {text(change)}" for change in changes)
    if finding.by_rule:
        newer = "Judged by rule, not by record: newer than the tables: {facts}."
        yield say(newer, facts=", ".join(map(code, finding.by_rule)))
    if finding.confidence != "certain" and finding.confirm:
        yield say("To be sure: {how}", how=text(finding.confirm))
    if finding.explains:
        yield say("This explains: {ids}.", ids=", ".join(map(code, finding.explains)))
    for fix in finding.fixes:
        yield from _fix(fix)
    yield say("{id}, more: {command}", id=code(finding.id), command=code(command(finding.more)))


def _table(evidence: Sequence[Evidence]) -> Iterator[str]:
    yield f"| {say('fact')} | {say('value')} | {say('read from')} |"
    yield "|---|---|---|"
    for item in evidence[:_MOST_EVIDENCE]:
        name = code(report.fact_name(item))
        if isinstance(item.state, Known):
            yield f"| {name} | {cell(value(item.state) or say('none'))} | {text(item.state.source)} |"
        elif isinstance(item.state, Absent):
            yield f"| {name} | {say('none')} | {text(item.state.why)} |"
    if (more := len(evidence) - _MOST_EVIDENCE) > 0:
        yield f"| {say('and {count} more', count=more)} | | |"


def _fix(fix: Fix) -> Iterator[str]:
    yield f"**{say('What to do: {title}', title=text(fix.title))}**"
    for number, step in enumerate(fix.steps, 1):
        note = noted(step.text, step.needs, step.touches)
        if note:
            yield (say("Step {number}: ", number=number) if len(fix.steps) > 1 else "") + text(note)
        if step.argv:
            yield fenced(command(step.argv), "sh")
    if fix.undo:
        yield say("To undo: {how}", how=text(fix.undo))


def _unjudged(diagnosis: Diagnosis) -> Iterator[str]:
    yield "<details>"
    yield f"<summary>{say('{count} rules were not judged', count=len(diagnosis.unjudged))}</summary>"
    said = []
    for reason in report.reasons(diagnosis):
        facts = f" ({', '.join(map(code, reason.facts))})" if reason.facts else ""
        said.append(f"- {text(reason.why)}{facts}: {', '.join(map(code, reason.rules))}")
    yield "\n".join(said)
    yield "</details>"
