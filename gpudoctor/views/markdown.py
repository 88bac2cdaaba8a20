"""The report for an issue tracker: a headline, each finding with its evidence as a table, commands in fenced blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpudoctor.language import say
from gpudoctor.model.diagnosis import Diagnosis, Evidence, Finding
from gpudoctor.model.fact import Absent, Known
from gpudoctor.model.rule import Fix
from gpudoctor.views import _report as report
from gpudoctor.views._since import since
from gpudoctor.views._terminal import command, noted, one_line, safe, value

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


# ---- Foreign text in Markdown, as GitHub and GitLab read it ----
# Nothing in it is markup, a mention, a link or a picture.

_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~&!$^]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_ITEM = re.compile(r"^(\d+(?=[.)](?:\s|$))|(?=[-+=]))")
"""What makes an item or a rule of a line is behind this."""
_REFERENCE = re.compile(r"@|[#!](?=\d)|\bGH-(?=\d)|:(?=(?:[a-z][a-z0-9_+-]*|100|1234|[+-]1):)")
"""Calls a person, links an issue, or is a picture: ``@name``, ``#12``, ``GH-12``, ``:de:``."""
_JOINER = "\u2060"
"""Has no width; behind the first of these it keeps a tracker from reading on."""
_ADDRESS = re.compile(r"(?<![\w:])((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?![\w.])")
"""A PCI address: it is to be copied, and ``0000:de:00.0`` has the flag of a country in it."""
_LONGEST = 4000
"""Characters of one text: what is longer is a log that somebody put where a word belongs."""


def text(said: str) -> str:
    """Foreign text as it reads, on one line."""
    clean = one_line(said)
    if len(clean) > _LONGEST:
        clean = clean[:_LONGEST] + " ..."
    plain, *found = _ADDRESS.split(clean)
    parts = [_ITEM.sub(r"\1\\", _plain(plain))]
    for address, behind in zip(found[::2], found[1::2], strict=True):
        parts += [f"`{address}`", _plain(behind)]
    return "".join(parts)


def _plain(said: str) -> str:
    return _SPECIAL.sub(r"\\\1", _REFERENCE.sub(lambda found: found[0] + _JOINER, said))


def cell(said: str) -> str:
    """A value in a table: code, unless it has a bar, which would end the cell."""
    return text(said) if "|" in said else code(said)


def code(said: str) -> str:
    """The text as code within a line; its fence is longer than any run of back-ticks in it."""
    clean = one_line(said)[:_LONGEST]
    fence = "`" * (_longest_run(clean) + 1)
    pad = " " if "`" in clean else ""
    return f"{fence}{pad}{clean or ' '}{pad}{fence}"


def fenced(said: str, language: str = "") -> str:
    """The text as a block of code; its fence is longer than any run of back-ticks in it."""
    fence = "`" * max(3, _longest_run(said) + 1)
    return f"{fence}{language}\n{safe(said)}\n{fence}"


def _longest_run(said: str) -> int:
    return max((len(run) for run in re.findall(r"`+", said)), default=0)
