"""A finding in words: what is, what follows, what to do, how it is known, what would confirm it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from textual.content import Content

from gpudoctor.model.diagnosis import Diagnosis, Evidence, Finding
from gpudoctor.model.fact import Absent, Known
from gpudoctor.model.rule import Fix, Step
from gpudoctor.views._terminal import safe, value
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.prose import GAP, Block, plain

_HANG = 6
_MOST_EVIDENCE = 12


def blocks(finding: Finding, others: Sequence[Finding], under: Sequence[Finding]) -> Iterator[Block]:
    """All that is known of it. `others` are the same about other GPUs, `under` the findings folded under it."""
    glyph, word, colour = marks.SEVERITY[finding.severity]
    head = Content.assemble((f" {glyph} {word} ", f"bold reverse {colour}"), " ")
    yield Block(plain(_guess(finding) + finding.title, "bold"), head, head.cell_length)
    alike = [other for other in others if other.title == finding.title]
    for other in others:
        if other not in alike:
            yield Block(plain(other.title), Content.styled("also", "dim"), _HANG)
    if alike:
        yield Block(plain(f"the same of {', '.join(map(_subject, alike))}"), Content.styled("also", "dim"), _HANG)
    yield GAP
    if finding.why:
        yield Block(plain(" ".join(finding.why.split())), Content.styled("So", "bold"), _HANG)
    if under:
        many = f"the {len(under)} symptoms" if len(under) > 1 else "the symptom"
        yield Block(Content(f"Explains {many} folded under it."), hang=_HANG)
    if not finding.nearness:
        yield from _fixes(finding.fixes)
    yield GAP
    yield Block(Content(f"{finding.confidence}, because"), Content.styled("Read", "bold"), _HANG)
    yield from _evidence(finding.evidence)
    if finding.by_rule:
        newer = f"newer than the tables: {', '.join(finding.by_rule)}"
        yield Block(plain(f"judged by rule, not by record; {newer}"), hang=_HANG)
    if finding.confirm and finding.confidence != "certain":
        yield GAP
        yield Block(plain(finding.confirm), Content.styled("Sure?", "bold"), _HANG)
    yield GAP
    yield Block(plain(f"{finding.id} · {finding.layer} · {finding.role}", "dim"))


def commands(finding: Finding) -> list[str]:
    """Every command of its cures, in their order, as one types it."""
    return [command(step) for fix in finding.fixes for step in fix.steps if step.argv]


def command(step: Step) -> str:
    """The step's command as one types it."""
    return safe(shlex.join(step.argv))


def passed(diagnosis: Diagnosis) -> Iterator[Block]:
    """What was checked and found in order, by topic: what a sound machine shows."""
    topics: dict[str, list[str]] = {}
    for name in diagnosis.passed:
        topic, _, rest = name.partition(".")
        topics.setdefault(topic, []).append(rest)
    for topic, names in topics.items():
        yield Block(plain(", ".join(names)), Content.styled(f"{marks.PASSED} {topic}", "$success"), 13)


def _guess(finding: Finding) -> str:
    return "Possibly: " if finding.confidence == "possible" else ""


def _subject(finding: Finding) -> str:
    """``gpu 3``, or as much of its id as there is."""
    group, row = next(iter((finding.subject or {}).items()), (finding.id, ""))
    return f"{group} {row}".strip()


def _fixes(fixes: Sequence[Fix]) -> Iterator[Block]:
    for number, fix in enumerate(fixes, 1):
        yield GAP
        label = f"Do {number}" if number == 1 else f"or {number}"
        yield Block(plain(fix.title, "bold"), Content.styled(label, "bold"), _HANG)
        for step in fix.steps:
            if step.text:
                yield Block(plain(step.text), hang=_HANG)
            if said := _marks(step):
                yield Block(Content.styled(said, "$warning" if "▲" in said else "dim"), hang=_HANG)
            if step.argv:
                yield Block(plain(command(step), "$primary"), Content.styled("      $ ", "dim"), _HANG + 2)
        if fix.undo:
            yield Block(plain(f"undo: {fix.undo}", "dim"), hang=_HANG)


def _marks(step: Step) -> str:
    said = [marks.NEEDS.get(need, f"▲ needs {need}") for need in step.needs]
    if step.touches in marks.TOUCHES:
        said.append(marks.TOUCHES[step.touches])
    return "  ".join(said)


def _evidence(evidence: Sequence[Evidence]) -> Iterator[Block]:
    for item in evidence[:_MOST_EVIDENCE]:
        state = item.state
        if item.fact == "text.line" and isinstance(state, Known):
            yield Block(Content.assemble(plain(value(state)), plain(f"  {state.source}", "dim")), hang=_HANG)
        elif isinstance(state, Known):
            text = Content.assemble(plain(f"{name(item)}  "), plain(value(state) or "none", "bold"))
            yield Block(Content.assemble(text, plain(f"  {state.source}", "dim")), hang=_HANG)
        elif isinstance(state, Absent):
            yield Block(Content.assemble(plain(f"{name(item)}  none"), plain(f"  {state.why}", "dim")), hang=_HANG)
    if (more := len(evidence) - _MOST_EVIDENCE) > 0:
        yield Block(Content.styled(f"and {more} more facts; 3 shows them all", "dim"), hang=_HANG)


def name(item: Evidence) -> str:
    """``gpu.5.name`` for a row's fact."""
    group, _, column = item.fact.rpartition(".")
    return item.fact if item.index is None else f"{group}.{item.index}.{column}"
