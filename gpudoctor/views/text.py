"""The report a tired engineer reads: what is, what follows, what to type; then what could not be judged, and counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.language import say
from gpudoctor.model.diagnosis import Diagnosis, Evidence, Finding, Verdict
from gpudoctor.model.fact import Absent, Known
from gpudoctor.model.rule import Fix
from gpudoctor.views import _report as report
from gpudoctor.views._columns import width
from gpudoctor.views._since import since
from gpudoctor.views._terminal import WIDTH, Style, command, noted, style_of, value, wrapped

_COLOURS: dict[Verdict, str] = {"sound": "green", "impaired": "yellow", "broken": "red", "unknown": "yellow"}
_WORDS = {"error": ("ERROR", "red"), "warning": ("WARNING", "yellow"), "info": ("INFO", "green")}
_IS_NEWER = "Judged by rule, not by record: {facts} is newer than the tables"
_ARE_NEWER = "Judged by rule, not by record: {facts} are newer than the tables"
_MOST_EVIDENCE = 8
_MOST_FIXES = 3
_MOST_IDS = 12


def render(diagnosis: Diagnosis, style: Style | None = None) -> str:
    """The whole report, ending without a newline."""
    style = style or Style()
    blocks = [_head(diagnosis, style)]
    if installed := list(report.installs(diagnosis)):
        blocks.append("\n".join(_installs(installed)))
    blocks += findings(diagnosis.findings, style)
    if len(causes := report.causes(diagnosis)) > 1:
        blocks.append("\n".join([say("To act on, in this order:"), *_plan(causes)]))
    if diagnosis.unjudged:
        blocks.append("\n".join(_unjudged(diagnosis, style)))
    blocks += ["\n".join(wrapped(note.text, hang=2)) for note in diagnosis.notes]
    blocks.append(report.counts(diagnosis))
    return "\n\n".join(blocks)


def _installs(packages: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    yield say("What it would bring:")
    for name, version, source in packages:
        yield from wrapped(f"{name} {version}  ({source})", 4, 6)


def findings(found: Sequence[Finding], style: Style) -> Iterator[str]:
    """A block for each, those that say the same of several GPUs as one."""
    for finding, others in report.together(found):
        yield "\n".join(_finding(finding, others, style))


def _head(diagnosis: Diagnosis, style: Style) -> str:
    said = style.paint(report.verdict(diagnosis), "bold", _COLOURS[diagnosis.verdict])
    return f"gpudoctor {diagnosis.tool_version}: {report.about(diagnosis)}\n{said}"


def _finding(finding: Finding, others: Sequence[Finding], style: Style) -> Iterator[str]:
    """One finding, or the same one about several GPUs."""
    english, colour = _WORDS[finding.severity]
    word = say(english)
    guess = say("Possibly: ") if finding.confidence == "possible" else ""
    hang = width(word) + 2
    lines = wrapped(f"{word}  {guess}{finding.title}", hang=hang)
    yield style.paint(lines[0], "bold", colour)
    yield from lines[1:]
    alike, unlike = report.elsewhere(finding, others)
    for other in unlike:
        yield from wrapped(say("also: {title}", title=other.title), indent=hang)
    if alike:
        yield from wrapped(say("the same of {names}", names=", ".join(alike)), indent=hang)
    if finding.why:
        yield from wrapped(finding.why, 2, paragraphs=True)
    if finding.evidence:
        yield ""
        yield say("  How it is known ({confidence}):", confidence=say(finding.confidence))
        yield from _evidence(finding.evidence)
    if finding.since:
        lead, changes = since(finding)
        yield from ("", f"  {lead}:")
        for change in changes:
            yield from wrapped(change, 4, 6)
    if finding.by_rule:
        newer = _ARE_NEWER if len(finding.by_rule) > 1 else _IS_NEWER
        yield from wrapped(say(newer, facts=", ".join(finding.by_rule)), 2, 4)
    if finding.confidence != "certain" and finding.confirm:
        yield from wrapped(say("To be sure: {how}", how=finding.confirm), 2, 4)
    if finding.explains:
        yield from wrapped(say("This explains: {ids}", ids=", ".join(finding.explains)), 2, 4)
    yield from _fixes(finding.fixes)
    yield ""
    yield style.paint(say("  [{id}]  more: {command}", id=finding.id, command=command(finding.more)), "dim")


def _plan(causes: Sequence[Finding]) -> Iterator[str]:
    """One point a cause: what to do about it."""
    for number, (finding, act) in enumerate(report.acts(causes), 1):
        yield from wrapped(f"{number}. {act}  [{finding.id}]", 2, 5)


def _evidence(evidence: tuple[Evidence, ...]) -> Iterator[str]:
    for item in evidence[:_MOST_EVIDENCE]:
        if item.fact == "text.line" and isinstance(item.state, Known):
            yield from wrapped(f"{item.state.source}: {value(item.state)}", 4, 6)
        elif isinstance(item.state, Known):
            yield from wrapped(
                f"{report.fact_name(item)} = {value(item.state) or say('none')}  ({item.state.source})", 4, 6
            )
        elif isinstance(item.state, Absent):
            yield from wrapped(f"{report.fact_name(item)}: {say('none')} ({item.state.why})", 4, 6)
    if (more := len(evidence) - _MOST_EVIDENCE) > 0:
        yield say("    and {count} more; --json lists them", count=more)


def _fixes(fixes: Sequence[Fix]) -> Iterator[str]:
    """The first few in full, of the rest the titles."""
    for fix in fixes[:_MOST_FIXES]:
        yield ""
        yield from _fix(fix)
    if rest := fixes[_MOST_FIXES:]:
        yield ""
        yield say("  Or, where it applies (gpudoctor explain shows how):")
        for fix in rest:
            yield from wrapped(f"- {fix.title}", 4, 6)


def _fix(fix: Fix) -> Iterator[str]:
    yield from wrapped(say("What to do: {title}", title=fix.title), 2, 4)
    for number, step in enumerate(fix.steps, 1):
        label = f"{number}. " if len(fix.steps) > 1 else ""
        note = noted(step.text, step.needs, step.touches)
        if note:
            yield from wrapped(label + note, 4, 4 + len(label))
        if step.argv:
            yield f"    {'' if note else label}{' ' * len(label) if note else ''}$ {command(step.argv)}"
    if fix.undo:
        yield from wrapped(say("To undo: {how}", how=fix.undo), 4, 6)


def _unjudged(diagnosis: Diagnosis, style: Style) -> Iterator[str]:
    """Reasons first, the commonest at the top, each with what was missing and the rules that wait for it."""
    if report.manifest(diagnosis):
        only = "Not judged ({count}): what no file can show, only a machine that runs."
        yield from wrapped(say(only, count=len(diagnosis.unjudged)))
        return
    yield style.paint(say("Not judged ({count}), because", count=len(diagnosis.unjudged)), "bold")
    for reason in report.reasons(diagnosis):
        yield from wrapped(f"{reason.why}{': ' if reason.facts else ''}{_some(reason.facts)}", 2, 4)
        yield from wrapped(f"-> {_some(reason.rules)}", 4, 7)
    if diagnosis.snapshot.target.kind == "local":
        yield say("  The log of a job that failed can be judged too: gpudoctor read LOG")
    elif diagnosis.snapshot.pasted:
        yield say("  To have more judged, save the output of these, and read it with what you have:")
        yield from (f"      $ {line}" for line in report.ASK_FOR)
        yield "      $ gpudoctor read --together FIRST SECOND"


def _some(names: Sequence[str]) -> str:
    more = say(" and {count} more", count=len(names) - _MOST_IDS) if len(names) > _MOST_IDS else ""
    return ", ".join(names[:_MOST_IDS]) + more


__all__ = ["WIDTH", "Style", "render", "style_of"]
