"""The report a tired engineer reads: what is, what follows, what to type; then what could not be judged, and counts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from gpudoctor.model.diagnosis import Diagnosis, Evidence, Finding, Verdict
from gpudoctor.model.fact import Absent, Known
from gpudoctor.model.rule import Fix
from gpudoctor.views._terminal import WIDTH, Style, command, marks, one_line, style_of, value, wrapped

_VERDICTS: dict[Verdict, tuple[str, str]] = {
    "sound": ("Sound", "green"),
    "impaired": ("Impaired: it works, with the warnings below", "yellow"),
    "broken": ("Broken: the first finding is the one to act on first", "red"),
    "unknown": ("No verdict: no error found, and too little could be read to call it sound", "yellow"),
}
_ONE_CAUSE = "Broken: the finding below is why"
_WORDS = {"error": ("ERROR", "red"), "warning": ("WARNING", "yellow"), "info": ("INFO", "green")}
_MOST_EVIDENCE = 8
_MOST_FIXES = 3
_MOST_IDS = 12


def render(diagnosis: Diagnosis, style: Style | None = None) -> str:
    """The whole report, ending without a newline."""
    style = style or Style()
    blocks = [_head(diagnosis, style)]
    for _, same in groupby(diagnosis.findings, key=lambda finding: (finding.id, finding.severity)):
        blocks.append("\n".join(_finding(list(same), style)))
    if len(causes := _causes(diagnosis)) > 1:
        blocks.append("\n".join(["To act on, in this order:", *_plan(causes)]))
    if diagnosis.unjudged:
        blocks.append("\n".join(_unjudged(diagnosis, style)))
    blocks += ["\n".join(wrapped(note.text)) for note in diagnosis.notes]
    blocks.append(_counts(diagnosis))
    return "\n\n".join(blocks)


def _head(diagnosis: Diagnosis, style: Style) -> str:
    target = diagnosis.snapshot.target
    about = [target.name, f"level {target.level}"] if target.kind == "local" else [target.kind, target.name]
    if target.python:
        about.append(target.python)
    text, colour = _VERDICTS[diagnosis.verdict]
    if diagnosis.verdict == "broken" and len(diagnosis.findings) == 1:
        text = _ONE_CAUSE
    return f"gpudoctor {diagnosis.tool_version}: {one_line(', '.join(about))}\n{style.paint(text, 'bold', colour)}"


def _finding(same: list[Finding], style: Style) -> Iterator[str]:
    """One finding, or the same one about several GPUs."""
    finding = same[0]
    word, colour = _WORDS[finding.severity]
    guess = "Possibly: " if finding.confidence == "possible" else ""
    lines = wrapped(f"{word}  {guess}{finding.title}", hang=len(word) + 2)
    yield style.paint(lines[0], "bold", colour)
    yield from lines[1:]
    alike = [other for other in same[1:] if other.title == finding.title and other.subject]
    for other in same[1:]:
        if other not in alike:
            yield from wrapped(f"also: {other.title}", indent=len(word) + 2)
    if alike:
        rows = ", ".join(f"{group} {row}" for other in alike for group, row in list((other.subject or {}).items())[:1])
        yield from wrapped(f"the same of {rows}", indent=len(word) + 2)
    yield from wrapped(finding.why, 2)
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


def _causes(diagnosis: Diagnosis) -> list[Finding]:
    """What is to be acted on, each cause once, in the order of the diagnosis."""
    causes = {
        finding.id: finding
        for finding in reversed(diagnosis.findings)
        if finding.role == "cause" and finding.severity != "info" and finding.confidence != "possible"
    }
    return list(reversed(causes.values()))


def _plan(causes: Sequence[Finding]) -> Iterator[str]:
    """One point a cause: what to do about it."""
    for number, finding in enumerate(causes, 1):
        act = finding.fixes[0].title if finding.fixes else finding.title
        yield from wrapped(f"{number}. {act}  [{finding.id}]", 2, 5)


def _evidence(evidence: tuple[Evidence, ...]) -> Iterator[str]:
    for item in evidence[:_MOST_EVIDENCE]:
        if item.fact == "text.line" and isinstance(item.state, Known):
            yield from wrapped(f"{item.state.source}: {value(item.state)}", 4, 6)
        elif isinstance(item.state, Known):
            yield from wrapped(f"{_name(item)} = {value(item.state) or 'none'}  ({item.state.source})", 4, 6)
        elif isinstance(item.state, Absent):
            yield from wrapped(f"{_name(item)}: none ({item.state.why})", 4, 6)
    if len(evidence) > _MOST_EVIDENCE:
        yield f"    and {len(evidence) - _MOST_EVIDENCE} more; --json lists them"


def _name(item: Evidence) -> str:
    """``gpu[0].name`` for a row's fact."""
    group, _, column = item.fact.rpartition(".")
    return item.fact if item.index is None else f"{group}[{item.index}].{column}"


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
    reasons: dict[str, tuple[dict[str, None], list[str]]] = {}
    for item in diagnosis.unjudged:
        named = _MISSING.match(item.because)
        facts, ids = reasons.setdefault(named[2] if named else item.because, ({}, []))
        if named:
            facts[named[1]] = None
        ids.append(item.id)
    yield style.paint(f"Not judged ({len(diagnosis.unjudged)}), because", "bold")
    for why, (facts, ids) in sorted(reasons.items(), key=lambda entry: -len(entry[1][1])):
        yield from wrapped(f"{why}{': ' if facts else ''}{_some(list(facts))}", 2, 4)
        yield from wrapped(f"-> {_some(ids)}", 4, 7)
    if diagnosis.snapshot.target.kind == "local":
        yield "  The log of a job that failed can be judged too: gpudoctor read LOG"
    elif diagnosis.snapshot.pasted:
        yield "  To have more judged, save the output of these, and read it with what you have:"
        yield from (f"      $ {line}" for line in _ASK_FOR)
        yield "      $ gpudoctor read --together FIRST SECOND"


_MISSING = re.compile(r"([a-z_]+(?:\.\w+)?): (.+)", re.DOTALL)
_ASK_FOR = (
    "nvidia-smi",
    "python -m torch.utils.collect_env",
    "sudo dmesg | grep -iE 'nvrm|xid|nvidia'",
    "env | grep -E 'CUDA|NVIDIA|NCCL|LD_'",
)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_IDS} more" if len(names) > _MOST_IDS else ""
    return ", ".join(names[:_MOST_IDS]) + more


def _counts(diagnosis: Diagnosis) -> str:
    report = diagnosis.snapshot.get("report.lines")
    placed = diagnosis.snapshot.get("report.placed")
    counts = f"{len(diagnosis.findings)} found, {len(diagnosis.unjudged)} not judged, {len(diagnosis.passed)} passed"
    if isinstance(report, Known) and isinstance(placed, Known):
        counts += f"; {placed.value} of {report.value} lines of the report were understood"
    return counts


__all__ = ["WIDTH", "Style", "render", "style_of"]
