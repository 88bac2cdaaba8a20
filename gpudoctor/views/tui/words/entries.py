"""The rows of the list of findings, made of a diagnosis: causes with what they explain, then the three counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.rule import LAYERS
from gpudoctor.views import _report as report
from gpudoctor.views._report import Reason
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.rows import Cell
from gpudoctor.views.tui.words import counts

Section = Literal["", "order", "notes", "unjudged", "passed"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: all findings of one id, a reason why rules were not judged, one such rule, or what sums up the rest.

    `under` are the findings folded below it, `names` the rules that it is about.
    """

    id: str
    findings: tuple[Finding, ...] = ()
    under: tuple[Finding, ...] = ()
    reason: Reason | None = None
    names: tuple[str, ...] = ()
    section: Section = ""
    title: str = ""
    guide: str = ""
    """How it hangs under the entry above it."""

    @property
    def folds(self) -> bool:
        """Whether anything can be folded under it."""
        return bool(self.under) or (self.reason is not None and not self.rule)

    @property
    def rule(self) -> bool:
        """Whether it is one rule that was not judged."""
        return self.reason is not None and self.names == (self.id,)

    @property
    def bad(self) -> bool:
        """Whether it asks for something to be done."""
        return bool(self.findings and self.findings[0].severity != "info")


def found(diagnosis: Diagnosis, shut: Collection[str]) -> Iterator[Entry]:
    """Causes with their symptoms, those of `shut` folded; then what to do first, notes, and what was not found."""
    under = counts.folded(diagnosis)
    groups: dict[str, list[Finding]] = {}
    for finding in diagnosis.findings:
        groups.setdefault(finding.id, []).append(finding)
    below: dict[str, list[list[Finding]]] = {}
    for name, group in groups.items():
        if name in under:
            below.setdefault(under[name], []).append(group)
    for name, group in groups.items():
        if name in under:
            continue
        mine = below.get(name, [])
        yield Entry(name, tuple(group), tuple(symptom[0] for symptom in mine))
        for at, symptom in enumerate(() if name in shut else mine, 1):
            yield Entry(symptom[0].id, tuple(symptom), guide="  └ " if at == len(mine) else "  ├ ")
    yield from _rest(diagnosis)


def unjudged(diagnosis: Diagnosis, shut: Collection[str]) -> Iterator[Entry]:
    """The reasons, what keeps most rules first, each with its rules below it unless it is one of `shut`."""
    for reason in report.reasons(diagnosis):
        name = f"because {reason.why}"
        yield Entry(name, reason=reason, names=reason.rules, title=reason.why)
        for at, rule in enumerate(() if name in shut else reason.rules, 1):
            guide = "  └ " if at == len(reason.rules) else "  ├ "
            yield Entry(rule, reason=reason, names=(rule,), title=rule, guide=guide)


def having(rows: Iterable[Entry], words: str) -> Iterator[Entry]:
    """Those that have each of the words in their id or in what they say, whatever they hang under."""
    wanted = words.lower().split()
    for entry in rows:
        said = " ".join([entry.id, entry.title, *(finding.title for finding in entry.findings)]).lower()
        if not entry.section and all(word in said for word in wanted):
            yield replace(entry, guide="", under=())


def _rest(diagnosis: Diagnosis) -> Iterator[Entry]:
    if len(causes := counts.to_act_on(diagnosis)) > 1:
        yield Entry("order", section="order", title=f"What to do first: {len(causes)} steps in order")
    if notes := len(diagnosis.notes):
        yield Entry("notes", section="notes", title=f"{notes} notes" if notes > 1 else "A note")
    if many := len(diagnosis.unjudged):
        yield Entry("unjudged", section="unjudged", title=f"{many} not judged")
    if diagnosis.verdict != "sound":
        if diagnosis.passed:
            yield Entry("passed", section="passed", names=diagnosis.passed, title=f"{len(diagnosis.passed)} passed")
        return
    for topic, names in topics(diagnosis.passed).items():
        yield Entry(f"passed {topic}", section="passed", names=names, title=f"{topic:<11} {len(names):>3} passed")


def topics(passed: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Rules by their topic, from the ground up."""
    order = {layer: at for at, layer in enumerate(LAYERS)}
    found: dict[str, list[str]] = {}
    for name in passed:
        found.setdefault(name.partition(".")[0], []).append(name)
    return {topic: tuple(found[topic]) for topic in sorted(found, key=lambda topic: order.get(topic, len(order)))}


_MARKS: dict[Section, tuple[str, str]] = {
    "order": ("→", "accent"),
    "notes": ("i", "info"),
    "unjudged": (marks.UNREAD, "accent"),
    "passed": (marks.PASSED, "good"),
}


def cells(entry: Entry, shut: bool) -> list[Cell]:
    """Fold mark, severity and title."""
    lead = entry.guide or ("▸ " if shut else "▾ ") if entry.folds or entry.guide else "  "
    if entry.section:
        mark, look = _MARKS[entry.section]
        return [(lead, ""), (f"{mark} ", look), (entry.title, "dim")]
    if entry.reason:
        title = one_line(entry.title)
        if entry.rule:
            return [(lead, "dim"), (title, "")]
        return [(lead, "dim"), (f"{marks.UNREAD} {len(entry.names):>3}  ", "accent"), (title, "")]
    finding = entry.findings[0]
    glyph, _, _ = marks.SEVERITY[finding.severity]
    guess = "Possibly: " if finding.confidence == "possible" else ""
    many = f" (and {len(entry.findings) - 1} more)" if len(entry.findings) > 1 else ""
    return [
        (lead, "dim"),
        (f"{glyph} ", finding.severity),
        (f"{guess}{one_line(finding.title)}{many}", "dim" if entry.guide else ""),
    ]
