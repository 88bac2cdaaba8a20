"""The report a tired engineer reads: what is, what follows, what to type; then what could not be judged, and counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.language import say
from gpudoctor.core.rule import Fix
from gpudoctor.views import _report as report
from gpudoctor.views._terminal import PLAIN, Style, command, shell_lines, step_text, width, wrapped

_IS_NEWER = "Judged by rule, not by record: {facts} is newer than the tables"
_ARE_NEWER = "Judged by rule, not by record: {facts} are newer than the tables"
_MOST_EVIDENCE = 8
_MOST_FIXES = 3
_MOST_IDS = 5


def render(diagnosis: Diagnosis, style: Style = PLAIN) -> str:
    """The whole report of a diagnosis as text, ending without a newline."""
    sentence = style.paint(report.verdict(diagnosis), "bold", report.VERDICT_COLOURS[diagnosis.verdict])
    blocks = [f"gpudoctor {diagnosis.tool_version}{say(': ')}{report.target_text(diagnosis)}\n{sentence}"]
    if installed := list(report.packages_to_install(diagnosis)):
        lines = (row for name, version, source in installed for row in wrapped(f"{name} {version}  ({source})", 4, 6))
        blocks.append("\n".join([say("What it would bring:"), *lines]))
    blocks += findings(diagnosis.findings, style)
    if len(causes := report.causes(diagnosis)) > 1:
        numbered = enumerate(report.actions(causes), 1)
        actions = (f"{number}. {action}  [{finding.id}]" for number, (finding, action) in numbered)
        lines = (row for action in actions for row in wrapped(action, 2, 5))
        blocks.append("\n".join([say("To act on, in this order:"), *lines]))
    if diagnosis.unjudged:
        blocks.append("\n".join(unjudged_lines(diagnosis, style)))
    blocks += ["\n".join(wrapped(note.text, hang=2)) for note in diagnosis.notes]
    blocks.append(report.counts(diagnosis))
    return "\n\n".join(blocks)


def findings(items: Sequence[Finding], style: Style) -> Iterator[str]:
    """A text of several lines per rule that was found; adjacent findings of one rule about several GPUs share it."""
    for finding, others in report.group_same_rule(items):
        yield "\n".join(_finding_lines(finding, others, style))


def _finding_lines(finding: Finding, others: Sequence[Finding], style: Style) -> Iterator[str]:
    """Lines of a finding: title, why, evidence, changes, fixes; `others` are of the same rule about other GPUs."""
    word, colour = say(finding.severity.upper()), report.SEVERITY_COLOURS[finding.severity]
    account = report.account(finding, others)
    hang = width(word) + 2
    lines = wrapped(f"{word}  {report.headline(finding)}", hang=hang)
    yield style.paint(lines[0], "bold", colour)
    yield from lines[1:]
    for title in account.also:
        yield from wrapped(say("also: {title}", title=title), indent=hang)
    if account.same_of:
        yield from wrapped(say("the same of {names}", names=account.same_of), indent=hang)
    if finding.why:
        yield from wrapped(finding.why, 2, paragraphs=True)
    if finding.evidence:
        yield ""
        yield say("  How it is known ({confidence}):", confidence=say(finding.confidence))
        for proof in account.proofs[:_MOST_EVIDENCE]:
            if proof.is_line:
                yield from wrapped(say("{source}: {value}", source=proof.source, value=proof.value), 4, 6)
            elif proof.is_absent:
                yield from wrapped(
                    say("{fact}: {value} ({source})", fact=proof.name, value=proof.value, source=proof.source), 4, 6
                )
            else:
                yield from wrapped(
                    say("{fact} = {value}  ({source})", fact=proof.name, value=proof.value, source=proof.source), 4, 6
                )
        if (more := len(account.proofs) - _MOST_EVIDENCE) > 0:
            yield say("    and {count} more; --json lists them", count=more)
    if account.changes:
        yield from ("", f"  {say('{title}:', title=account.changes_lead)}")
        for change in account.changes:
            yield from wrapped(change, 4, 6)
    if finding.by_rule:
        newer = _ARE_NEWER if len(finding.by_rule) > 1 else _IS_NEWER
        yield from wrapped(say(newer, facts=", ".join(finding.by_rule)), 2, 4)
    if account.confirm:
        yield from shell_lines(say("To be sure: {how}", how="").rstrip(), account.confirm, 2)
    if finding.explains:
        yield from wrapped(say("This explains: {ids}", ids=", ".join(finding.explains)), 2, 4)
    yield from _fixes_lines(finding.fixes)
    yield ""
    yield style.paint(say("  [{id}]  more: {command}", id=finding.id, command=command(finding.more)), "dim")


def _fixes_lines(fixes: Sequence[Fix]) -> Iterator[str]:
    """Lines of the first `_MOST_FIXES` fixes in full, and the titles of the others."""
    for fix in fixes[:_MOST_FIXES]:
        yield ""
        yield from wrapped(say("What to do: {title}", title=fix.title), 2, 4)
        for number, step in enumerate(fix.steps, 1):
            label = f"{number}. " if len(fix.steps) > 1 else ""
            note = step_text(step.text, step.needs, step.touches)
            if note:
                yield from wrapped(label + note, 4, 4 + len(label))
            if step.argv:
                yield f"    {'' if note else label}{' ' * len(label) if note else ''}$ {command(step.argv)}"
        if fix.undo:
            yield from wrapped(say("To undo: {how}", how=fix.undo), 4, 6)
    if others := fixes[_MOST_FIXES:]:
        yield ""
        yield say("  Or, where it applies (gpudoctor explain shows how):")
        for fix in others:
            yield from wrapped(f"- {fix.title}", 4, 6)


def unjudged_lines(diagnosis: Diagnosis, style: Style) -> Iterator[str]:
    """Lines on why rules were not judged, the commonest reason first, with facts and rule ids; then what would help.

    For a manifest one sentence.
    """
    if report.is_manifest(diagnosis):
        only = "Not judged ({count}): what no file can show, only a machine that runs."
        yield from wrapped(say(only, count=len(diagnosis.unjudged)))
        return
    yield style.paint(say("Not judged ({count}), because", count=len(diagnosis.unjudged)), "bold")
    for reason in report.reasons(diagnosis):
        yield from wrapped(f"{reason.why}{say(': ') if reason.facts else ''}{_first_ids(reason.facts)}", 2, 4)
        yield from wrapped(f"-> {_first_ids(reason.rules)}", 4, 7)
    if diagnosis.snapshot.target.kind == "local":
        yield say("  The log of a job that failed can be judged too: gpudoctor read LOG")
    elif diagnosis.snapshot.pasted:
        yield say("  To have more judged, save the output of these:")
        yield from (f"      $ {line}" for line in report.ASK_FOR)
        yield say("  and read it with what you have:")
        yield f"      $ {report.read_again(diagnosis)}"


def _first_ids(names: Sequence[str]) -> str:
    """The first `_MOST_IDS` names, separated by commas, and how many more there are."""
    more = say(" and {count} more", count=len(names) - _MOST_IDS) if len(names) > _MOST_IDS else ""
    return ", ".join(names[:_MOST_IDS]) + more
