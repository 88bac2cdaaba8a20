"""The report for an issue tracker: a headline, each finding with its evidence as a table, commands in fenced blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.language import say
from gpudoctor.views import _report as report
from gpudoctor.views._terminal import command, one_line, safe, step_text

_WORDS = {"error": "Error", "warning": "Warning", "info": "Info"}
MOST_CHARACTERS = 65_000
"""Characters of the whole: trackers refuse more than 65,536."""
_MOST_EVIDENCE = 20


def render(diagnosis: Diagnosis) -> str:
    """The whole report in Markdown, at most `MOST_CHARACTERS` characters, ending without a newline."""
    blocks = [f"## gpudoctor: {text(report.verdict(diagnosis))}", text(report.target_text(diagnosis))]
    if installed := list(report.packages_to_install(diagnosis)):
        blocks.append(say("What it would bring:"))
        blocks.append(
            "\n".join(f"- {code(f'{name} {version}')} ({text(source)})" for name, version, source in installed)
        )
    for finding, others in report.group_same_rule(diagnosis.findings):
        blocks.append("\n\n".join(_finding_blocks(finding, others)))
    if len(causes := report.causes(diagnosis)) > 1:
        blocks.append(f"### {say('To act on, in this order')}")
        numbered = enumerate(report.actions(causes), 1)
        blocks.append("\n".join(f"{number}. {text(action)} {code(cause.id)}" for number, (cause, action) in numbered))
    if diagnosis.unjudged:
        blocks.append("\n\n".join(_unjudged_blocks(diagnosis)))
    blocks += [f"> {text(note.text)}" for note in diagnosis.notes]
    return _join_within_limit(blocks, f"{text(report.counts(diagnosis))} (gpudoctor {code(diagnosis.tool_version)})")


def _join_within_limit(blocks: Sequence[str], counts: str) -> str:
    """The blocks that fit into `MOST_CHARACTERS` as one text, then how many were left out, if any, and `counts`.

    A block that does not fit is left out whole; later ones that fit are kept.
    """
    kept: list[str] = []
    room = MOST_CHARACTERS - len(counts) - 200
    for block in blocks:
        if len(block) + 2 <= room:
            kept.append(block)
            room -= len(block) + 2
    if dropped := len(blocks) - len(kept):
        kept.append(
            say("{count} parts are left out, for a tracker takes no more: gpudoctor --json has all.", count=dropped)
        )
    return "\n\n".join([*kept, counts])


def _finding_blocks(finding: Finding, others: Sequence[Finding]) -> Iterator[str]:
    """Markdown blocks of one finding: title, why, evidence, changes, what it explains, fixes.

    `others` are findings of the same rule about other GPUs.
    """
    account = report.account(finding, others)
    yield say("### {severity}: {title}", severity=say(_WORDS[finding.severity]), title=text(report.headline(finding)))
    if account.also:
        yield "\n".join(say("- also: {title}", title=text(title)) for title in account.also)
    if account.same_of:
        yield say("The same of {names}.", names=text(account.same_of))
    if finding.why:
        yield text(finding.why)
    if finding.evidence:
        yield say("How it is known ({confidence}):", confidence=say(finding.confidence))
        yield "\n".join(_evidence_rows(account.proofs))
    if account.changes:
        yield f"{text(account.changes_lead)}:"
        yield "\n".join(f"- {text(change)}" for change in account.changes)
    if finding.by_rule:
        newer = "Judged by rule, not by record: newer than the tables: {facts}."
        yield say(newer, facts=", ".join(map(code, finding.by_rule)))
    if account.confirm:
        yield say("To be sure: {how}", how=text(account.confirm))
    if finding.explains:
        yield say("This explains: {ids}.", ids=", ".join(map(code, finding.explains)))
    for fix in finding.fixes:
        yield f"**{say('What to do: {title}', title=text(fix.title))}**"
        for number, step in enumerate(fix.steps, 1):
            note = step_text(step.text, step.needs, step.touches)
            if note:
                yield (say("Step {number}: ", number=number) if len(fix.steps) > 1 else "") + text(note)
            if step.argv:
                yield fenced(command(step.argv), "sh")
        if fix.undo:
            yield say("To undo: {how}", how=text(fix.undo))
    yield say("{id}, more: {command}", id=code(finding.id), command=code(command(finding.more)))


def _evidence_rows(proofs: Sequence[report.Proof]) -> Iterator[str]:
    """Lines of a Markdown table of facts, values and sources; at most `_MOST_EVIDENCE`, then how many more."""
    yield f"| {say('fact')} | {say('value')} | {say('read from')} |"
    yield "|---|---|---|"
    for proof in proofs[:_MOST_EVIDENCE]:
        yield f"| {code(proof.name)} | {cell(proof.value)} | {text(proof.source)} |"
    if (more := len(proofs) - _MOST_EVIDENCE) > 0:
        yield f"| {say('and {count} more', count=more)} | | |"


def _unjudged_blocks(diagnosis: Diagnosis) -> Iterator[str]:
    """Markdown blocks of a collapsed list of the rules that were not judged, by reason."""
    yield "<details>"
    yield f"<summary>{say('{count} rules were not judged', count=len(diagnosis.unjudged))}</summary>"
    lines = []
    for reason in report.reasons(diagnosis):
        facts = f" ({', '.join(map(code, reason.facts))})" if reason.facts else ""
        lines.append(f"- {text(reason.why)}{facts}: {', '.join(map(code, reason.rules))}")
    yield "\n".join(lines)
    yield "</details>"


# ---- Foreign text in Markdown, as GitHub and GitLab read it ----
# Nothing in it is markup, a mention, a link or a picture.

_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~&!$^]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_LIST_MARK = re.compile(r"^(\d+(?=[.)](?:\s|$))|(?=[-+=]))")
"""Start of a line that Markdown would read as a list item, heading underline or rule."""
_REFERENCE = re.compile(r"@|[#!](?=\d)|\bGH-(?=\d)|:(?=(?:[a-z][a-z0-9_+-]*|100|1234|[+-]1):)")
"""Starts of mentions, issue references and emoji codes: ``@name``, ``#12``, ``GH-12``, ``:de:``."""
_JOINER = "\u2060"
"""A character without width; after a `_REFERENCE` it keeps a tracker from recognizing one."""
_PCI_ADDRESS = re.compile(r"(?<![\w:])((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?![\w.])")
"""A PCI address: shown as code, as ``:de:`` in ``0000:de:00.0`` would become a flag."""
_LONGEST_TEXT = 4000
"""Characters of one text; a longer one is cut."""


def text(raw: str) -> str:
    """Foreign text on one line with Markdown escaped, PCI addresses as code; cut at `_LONGEST_TEXT` characters."""
    clean = one_line(raw)
    if len(clean) > _LONGEST_TEXT:
        clean = clean[:_LONGEST_TEXT] + " ..."
    plain, *rest = _PCI_ADDRESS.split(clean)
    parts = [_LIST_MARK.sub(r"\1\\", _escaped(plain))]
    for address, after in zip(rest[::2], rest[1::2], strict=True):
        parts += [f"`{address}`", _escaped(after)]
    return "".join(parts)


def _escaped(raw: str) -> str:
    """The text with Markdown escaped; mentions, issue references and emoji codes broken by an invisible character."""
    return _SPECIAL.sub(r"\\\1", _REFERENCE.sub(lambda match: match[0] + _JOINER, raw))


def cell(raw: str) -> str:
    """A value for a Markdown table: as code, or as escaped text if it contains ``|``, which would end the cell."""
    return text(raw) if "|" in raw else code(raw)


def code(raw: str) -> str:
    """The text as inline code on one line, cut unmarked at `_LONGEST_TEXT`; the fence outnumbers its backticks."""
    clean = one_line(raw)[:_LONGEST_TEXT]
    fence = "`" * (_longest_backtick_run(clean) + 1)
    pad = " " if "`" in clean else ""
    return f"{fence}{pad}{clean or ' '}{pad}{fence}"


def fenced(raw: str, language: str = "") -> str:
    """The text as a code block in that language; the fence is longer than any run of backticks in it."""
    fence = "`" * max(3, _longest_backtick_run(raw) + 1)
    return f"{fence}{language}\n{safe(raw)}\n{fence}"


def _longest_backtick_run(raw: str) -> int:
    """Length of the longest run of backticks in the text; 0 without any."""
    return max((len(run) for run in re.findall(r"`+", raw)), default=0)
