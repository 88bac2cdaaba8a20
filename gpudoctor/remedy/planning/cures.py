"""The cures of one cause, in the order in which they are offered; judged on what they would make true."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpudoctor.catalog import catalog
from gpudoctor.model.diagnosis import Finding
from gpudoctor.model.fact import Json
from gpudoctor.model.rule import Step
from gpudoctor.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Cure:
    """One of the cures of a cause: its steps for every row that was found."""

    title: str
    steps: tuple[Step, ...]
    undo: str = ""


def cures_of(findings: Iterable[Finding], snapshot: Snapshot) -> list[Cure]:
    """One finding a GPU: the same cures, each with its own commands; what a command makes, it makes of each."""
    found: dict[str, Cure] = {}
    for finding in findings:
        for fix in finding.fixes:
            cure = found.setdefault(fix.title, Cure(fix.title, (), fix.undo))
            steps = tuple(replace(step, makes=tuple(_of_row(step.makes, finding, snapshot))) for step in fix.steps)
            found[fix.title] = replace(cure, steps=merged(cure.steps, steps))
    return list(found.values())


def merged(steps: Sequence[Step], more: Iterable[Step]) -> tuple[Step, ...]:
    """The steps and those that are not among them yet; of one that is, what it makes in addition."""
    out = list(steps)
    for step in more:
        place = next((place for place, one in enumerate(out) if same(one, step)), None)
        if place is None:
            out.append(step)
        else:
            out[place] = replace(out[place], makes=tuple({**dict(out[place].makes), **dict(step.makes)}.items()))
    return tuple(out)


def same(one: Step, other: Step) -> bool:
    """Whether it is the same command, or the same words where it is done by hand."""
    return one.argv == other.argv and (bool(one.argv) or one.text == other.text)


def _of_row(makes: Iterable[tuple[str, Json]], finding: Finding, snapshot: Snapshot) -> Iterator[tuple[str, Json]]:
    """What is said of a column is said of the rows that were found: ``gpu[2].mig_pending``."""
    for name, value in makes:
        group, _, column = name.rpartition(".")
        spec = catalog().find(name)
        rows = finding.rows_of(group, snapshot) if spec and spec.group else []
        if rows:
            yield from ((f"{group}[{row}].{column}", value) for row in rows)
        else:
            yield name, value
