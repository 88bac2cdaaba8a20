"""The report a tired engineer reads: what is, what follows, what to type; then what could not be judged, and counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.model.diagnosis import Diagnosis, Evidence, Finding, Verdict
from gpudoctor.model.fact import Absent, Known
from gpudoctor.model.rule import Fix
from gpudoctor.views import _report as report
from gpudoctor.views._terminal import WIDTH, Style, command, marks, style_of, value, wrapped

_COLOURS: dict[Verdict, str] = {"sound": "green", "impaired": "yellow", "broken": "red", "unknown": "yellow"}
_WORDS = {"error": ("ERROR", "red"), "warning": ("WARNING", "yellow"), "info": ("INFO", "green")}
_MOST_EVIDENCE = 8
_MOST_FIXES = 3
_MOST_IDS = 12


def render(diagnosis: Diagnosis, style: Style | None = None) -> str:
    """The whole report, ending without a newline."""
    style = style or Style()
    blocks = [_head(diagnosis, style)]
    blocks += findings(diagnosis.findings, style)
    if len(causes := report.causes(diagnosis)) > 1:
        blocks.append("\n".join(["To act on, in this order:", *_plan(causes)]))
    if diagnosis.unjudged:
        blocks.append("\n".join(_unjudged(diagnosis, style)))
    blocks += ["\n".join(wrapped(note.text)) for note in diagnosis.notes]
    blocks.append(report.counts(diagnosis))
    return "\n\n".join(blocks)


def findings(found: Sequence[Finding], style: Style) -> Iterator[str]:
    """A block for each, those that say the same of several GPUs as one."""
    for finding, others in report.together(found):
        yield "\n".join(_finding(finding, others, style))


def _head(diagnosis: Diagnosis, style: Style) -> str:
    said = style.paint(report.verdict(diagnosis), "bold", _COLOURS[diagnosis.verdict])
    return f"gpudoctor {diagnosis.tool_version}: {report.about(diagnosis)}\n{said}"


def _finding(finding: Finding, others: Sequence[Finding], style: Style) -> Iterator[str]:
    """One finding, or the same one about several GPUs."""
    word, colour = _WORDS[finding.severity]
    guess = "Possibly: " if finding.confidence == "possible" else ""
    lines = wrapped(f"{word}  {guess}{finding.title}", hang=len(word) + 2)
    yield style.paint(lines[0], "bold", colour)
    yield from lines[1:]
    alike, unlike = report.elsewhere(finding, others)
    for other in unlike:
        yield from wrapped(f"also: {other.title}", indent=len(word) + 2)
    if alike:
        yield from wrapped(f"the same of {', '.join(alike)}", indent=len(word) + 2)
    yield from wrapped(finding.why, 2)
    if finding.evidence:
        yield ""
        yield f"  How it is known ({finding.confidence}):"
        yield from _evidence(finding.evidence)
    if finding.by_rule:
        what = f"{', '.join(finding.by_rule)} {'are' if len(finding.by_rule) > 1 else 'is'}"
        yield from wrapped(f"Judged by rule, not by record: {what} newer than the tables", 2, 4)
    if finding.confidence != "certain" and finding.confirm:
        yield from wrapped(f"To be sure: {finding.confirm}", 2, 4)
    if finding.explains:
        yield from wrapped(f"This explains: {', '.join(finding.explains)}", 2, 4)
    if not finding.nearness:  # what only words point to is to be made sure of first
        yield from _fixes(finding.fixes)
    yield ""
    yield style.paint(f"  [{finding.id}]  more: gpudoctor explain {finding.id}", "dim")


def _plan(causes: Sequence[Finding]) -> Iterator[str]:
    """One point a cause: what to do about it."""
    for number, finding in enumerate(causes, 1):
        yield from wrapped(f"{number}. {report.act(finding)}  [{finding.id}]", 2, 5)


def _evidence(evidence: tuple[Evidence, ...]) -> Iterator[str]:
    for item in evidence[:_MOST_EVIDENCE]:
        if item.fact == "text.line" and isinstance(item.state, Known):
            yield from wrapped(f"{item.state.source}: {value(item.state)}", 4, 6)
        elif isinstance(item.state, Known):
            yield from wrapped(f"{report.fact_name(item)} = {value(item.state) or 'none'}  ({item.state.source})", 4, 6)
        elif isinstance(item.state, Absent):
            yield from wrapped(f"{report.fact_name(item)}: none ({item.state.why})", 4, 6)
    if len(evidence) > _MOST_EVIDENCE:
        yield f"    and {len(evidence) - _MOST_EVIDENCE} more; --json lists them"


def _fixes(fixes: Sequence[Fix]) -> Iterator[str]:
    """The first few in full, of the rest the titles."""
    for fix in fixes[:_MOST_FIXES]:
        yield ""
        yield from _fix(fix)
    if rest := fixes[_MOST_FIXES:]:
        yield ""
        yield "  Or, where it applies (gpudoctor explain shows how):"
        for fix in rest:
            yield from wrapped(f"- {fix.title}", 4, 6)


def _fix(fix: Fix) -> Iterator[str]:
    yield from wrapped(f"What to do: {fix.title}", 2, 4)
    for number, step in enumerate(fix.steps, 1):
        label = f"{number}. " if len(fix.steps) > 1 else ""
        note = f"{step.text} {marks(step.needs, step.touches)}".strip()
        if note:
            yield from wrapped(label + note, 4, 4 + len(label))
        if step.argv:
            yield f"    {'' if note else label}{' ' * len(label) if note else ''}$ {command(step.argv)}"
    if fix.undo:
        yield from wrapped(f"To undo: {fix.undo}", 4, 6)


def _unjudged(diagnosis: Diagnosis, style: Style) -> Iterator[str]:
    """Reasons first, the commonest at the top, each with what was missing and the rules that wait for it."""
    yield style.paint(f"Not judged ({len(diagnosis.unjudged)}), because", "bold")
    for reason in report.reasons(diagnosis):
        yield from wrapped(f"{reason.why}{': ' if reason.facts else ''}{_some(reason.facts)}", 2, 4)
        yield from wrapped(f"-> {_some(reason.rules)}", 4, 7)
    if diagnosis.snapshot.target.kind == "local":
        yield "  The log of a job that failed can be judged too: gpudoctor read LOG"
    elif diagnosis.snapshot.pasted:
        yield "  To have more judged, save the output of these, and read it with what you have:"
        yield from (f"      $ {line}" for line in report.ASK_FOR)
        yield "      $ gpudoctor read --together FIRST SECOND"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_IDS} more" if len(names) > _MOST_IDS else ""
    return ", ".join(names[:_MOST_IDS]) + more


__all__ = ["WIDTH", "Style", "render", "style_of"]
