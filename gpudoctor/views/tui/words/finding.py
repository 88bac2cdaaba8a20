"""A finding in words: what is, what follows, what to do, how it is known, what would confirm it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from textual.content import Content

from gpudoctor.model.diagnosis import Evidence, Finding, Note
from gpudoctor.model.fact import Absent, Known
from gpudoctor.model.rule import Fix, Step
from gpudoctor.views import _report as report
from gpudoctor.views._since import since
from gpudoctor.views._terminal import command, one_line, value
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.prose import GAP, Block, plain

_HANG = 6
_MOST_EVIDENCE = 12
_MOST_OTHERS = 12
_NAME = 30
"""Columns that names of facts get at most, so that their values stand in a column."""


def blocks(
    finding: Finding,
    others: Sequence[Finding] = (),
    under: Sequence[Finding] = (),
    notes: Iterable[Note] = (),
    cure_first: bool = False,
) -> Iterator[Block]:
    """All that is known of it. `others` are the same about other GPUs, `under` the findings folded under it.

    `cure_first` puts what to do before what follows: where there are few lines, the command is on the first of them.
    """
    glyph, word, colour = marks.SEVERITY[finding.severity]
    head = Content.assemble((f" {glyph} {word} ", f"bold reverse {colour}"), " ")
    yield Block(plain(_guess(finding) + finding.title, "bold"), head, head.cell_length)
    yield from _others(finding, others)
    parts = (_cures(finding.fixes), _follows(finding, under))
    for part in parts if cure_first else reversed(parts):
        yield from part
    yield GAP
    yield Block(Content(f"{finding.confidence}, because"), Content.styled("Read", "bold"), _HANG)
    yield from _evidence(finding.evidence)
    if finding.since:
        yield GAP
        lead, changes = since(finding)
        yield Block(plain(f"{lead}: {'; '.join(changes)}"), Content.styled("Since", "bold"), _HANG)
    if finding.by_rule:
        newer = f"newer than the tables: {', '.join(finding.by_rule)}"
        yield Block(plain(f"judged by rule, not by record; {newer}"), hang=_HANG)
    if finding.confirm and finding.confidence != "certain":
        yield GAP
        yield Block(plain(finding.confirm), Content.styled("Sure?", "bold"), _HANG)
    for note in notes:
        if finding.id in note.rules:
            yield GAP
            yield Block(plain(note.text), Content.styled("Note", "bold"), _HANG)
    yield GAP
    yield Block(plain(f"{finding.id} · {finding.layer} · {finding.role}", "dim"))


def commands(finding: Finding) -> list[str]:
    """Every command of its cures, in their order, as one types it."""
    return [command(step.argv) for fix in finding.fixes for step in fix.steps if step.argv]


def commands_alone(finding: Finding) -> list[str]:
    """The same under the headings of their cures, which a shell takes for comments."""
    lines: list[str] = []
    for number, fix in enumerate(finding.fixes, 1):
        own = [command(step.argv) for step in fix.steps if step.argv]
        words = one_line(fix.title)
        lines += [*([""] if lines else []), f"# {'or ' if number > 1 else ''}{number}: {words}"]
        lines += own or ["# in words only: see gpudoctor"]
    return lines


def _guess(finding: Finding) -> str:
    return "Possibly: " if finding.confidence == "possible" else ""


def _others(finding: Finding, others: Sequence[Finding]) -> Iterator[Block]:
    alike, unlike = report.elsewhere(finding, others)
    also = Content.styled("also", "dim")
    for other in unlike[:_MOST_OTHERS]:
        yield Block(plain(other.title), also, _HANG)
    if (more := len(unlike) - _MOST_OTHERS) > 0:
        yield Block(Content(f"{more} more of this kind; a saved report names each"), also, _HANG)
    if alike:
        yield Block(plain(f"the same of {', '.join(alike)}"), also, _HANG)


def _follows(finding: Finding, under: Sequence[Finding]) -> Iterator[Block]:
    yield GAP
    if finding.why:
        yield Block(plain(one_line(finding.why)), Content.styled("So", "bold"), _HANG)
    if under:
        many = f"the {len(under)} symptoms" if len(under) > 1 else "the symptom"
        yield Block(Content(f"Explains {many} folded under it."), hang=_HANG)


def _cures(fixes: Sequence[Fix]) -> Iterator[Block]:
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
                yield Block(plain(command(step.argv), "$primary"), Content.styled("      $ ", "dim"), _HANG + 2)
        if fix.undo:
            yield Block(plain(f"undo: {fix.undo}", "dim"), hang=_HANG)


def _marks(step: Step) -> str:
    said = [marks.NEEDS.get(need, f"▲ needs {need}") for need in step.needs]
    if step.touches in marks.TOUCHES:
        said.append(marks.TOUCHES[step.touches])
    return "  ".join(said)


def _evidence(evidence: Sequence[Evidence]) -> Iterator[Block]:
    shown = evidence[:_MOST_EVIDENCE]
    width = min(max((len(name(item)) for item in shown if item.fact != "text.line"), default=0), _NAME)
    for item in shown:
        state = item.state
        named = plain(f"{name(item):<{width}}  ")
        if item.fact == "text.line" and isinstance(state, Known):
            yield Block(Content.assemble(plain(value(state)), plain(f"  {state.source}", "dim")), hang=_HANG)
        elif isinstance(state, Known):
            known = plain(value(state) or "none", "bold")
            yield Block(Content.assemble(named, known, plain(f"  {state.source}", "dim")), hang=_HANG)
        elif isinstance(state, Absent):
            yield Block(Content.assemble(named, ("none", "bold"), plain(f"  {state.why}", "dim")), hang=_HANG)
    if (more := len(evidence) - _MOST_EVIDENCE) > 0:
        yield Block(Content.styled(f"and {more} more facts; 3 shows them all", "dim"), hang=_HANG)


def name(item: Evidence) -> str:
    """``gpu.5.name`` for a row's fact."""
    group, _, column = item.fact.rpartition(".")
    return item.fact if item.index is None else f"{group}.{item.index}.{column}"
