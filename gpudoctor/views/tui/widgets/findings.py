"""The list of findings: causes in the order to act on them, what they explain folded under them, then the counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from textual.binding import Binding, BindingType
from textual.content import Content

from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.language import say
from gpudoctor.core.rule import LAYERS
from gpudoctor.views import _report as report
from gpudoctor.views._report import Reason
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.rows import Cell, Rows
from gpudoctor.views.tui.words import summary

Section = Literal["", "order", "notes", "unjudged", "passed"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: all findings of one id, a reason why rules were not judged, one such rule, or a summary line.

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
        """True if entries can be folded under this one: symptoms of a cause, or the rules of a reason."""
        return bool(self.under) or (self.reason is not None and not self.rule)

    @property
    def rule(self) -> bool:
        """True if the entry is a single rule that was not judged."""
        return self.reason is not None and self.names == (self.id,)

    @property
    def bad(self) -> bool:
        """True if the entry is a finding of severity error or warning."""
        return bool(self.findings and self.findings[0].severity != "info")


def found_entries(diagnosis: Diagnosis, folded_ids: Collection[str]) -> Iterator[Entry]:
    """An entry for each rule found that is not folded under another, its symptoms below unless its id is in
    `folded_ids`; findings of one id share an entry.

    Then summary lines: what to do first, notes, how many rules were not judged, and what passed.
    """
    under = summary.folded(diagnosis)
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
        symptoms = below.get(name, [])
        yield Entry(name, tuple(group), tuple(symptom[0] for symptom in symptoms))
        for at, symptom in enumerate(() if name in folded_ids else symptoms, 1):
            yield Entry(symptom[0].id, tuple(symptom), guide="  └ " if at == len(symptoms) else "  ├ ")
    yield from _summary_entries(diagnosis)


def unjudged_entries(diagnosis: Diagnosis, folded_ids: Collection[str]) -> Iterator[Entry]:
    """Reasons why rules were not judged, the most frequent first, each with its rules below unless folded."""
    for reason in report.reasons(diagnosis):
        name = f"because {reason.why}"
        yield Entry(name, reason=reason, names=reason.rules, title=reason.why)
        for at, rule in enumerate(() if name in folded_ids else reason.rules, 1):
            guide = "  └ " if at == len(reason.rules) else "  ├ "
            yield Entry(rule, reason=reason, names=(rule,), title=rule, guide=guide)


def matching(entries: Iterable[Entry], words: str) -> Iterator[Entry]:
    """Entries that contain every word in id or titles, without indent and what is folded; summary lines never match."""
    words_lower = words.lower().split()
    for entry in entries:
        text = " ".join([entry.id, entry.title, *(finding.title for finding in entry.findings)]).lower()
        if not entry.section and all(word in text for word in words_lower):
            yield replace(entry, guide="", under=())


def _summary_entries(diagnosis: Diagnosis) -> Iterator[Entry]:
    """The lines below the findings: order of work (of two causes on), notes, not judged, passed (by topic if sound)."""
    if len(causes := summary.to_act_on(diagnosis)) > 1:
        yield Entry("order", section="order", title=say("What to do first: {count} steps in order", count=len(causes)))
    if notes := len(diagnosis.notes):
        yield Entry("notes", section="notes", title=say("{notes} notes", notes=notes) if notes > 1 else say("A note"))
    if many := len(diagnosis.unjudged):
        yield Entry("unjudged", section="unjudged", title=say("{many} not judged", many=many))
    if diagnosis.verdict != "sound":
        if diagnosis.passed:
            yield Entry(
                "passed",
                section="passed",
                names=diagnosis.passed,
                title=say("{count} passed", count=len(diagnosis.passed)),
            )
        return
    for topic, names in by_topic(diagnosis.passed).items():
        yield Entry(
            f"passed {topic}",
            section="passed",
            names=names,
            title=say("{topic:<11} {count:>3} passed", topic=topic, count=len(names)),
        )


def by_topic(passed: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Rule ids by topic (the part before the first dot), topics of the lowest layer first."""
    order = {layer: at for at, layer in enumerate(LAYERS)}
    names_by_topic: dict[str, list[str]] = {}
    for name in passed:
        names_by_topic.setdefault(name.partition(".")[0], []).append(name)
    return {
        topic: tuple(names_by_topic[topic])
        for topic in sorted(names_by_topic, key=lambda topic: order.get(topic, len(order)))
    }


_SECTION_MARKS: dict[Section, tuple[str, str]] = {
    "order": ("→", "accent"),
    "notes": ("i", "info"),
    "unjudged": (marks.UNREAD, "accent"),
    "passed": (marks.PASSED, "good"),
}


def entry_cells(entry: Entry, folded: bool) -> list[Cell]:
    """The cells of an entry: fold mark or indent, mark of severity, and title."""
    lead = entry.guide or ("▸ " if folded else "▾ ") if entry.folds or entry.guide else "  "
    if entry.section:
        mark, look = _SECTION_MARKS[entry.section]
        return [(lead, ""), (f"{mark} ", look), (entry.title, "dim")]
    if entry.reason:
        title = one_line(entry.title)
        if entry.rule:
            return [(lead, "dim"), (title, "")]
        return [(lead, "dim"), (f"{marks.UNREAD} {len(entry.names):>3}  ", "accent"), (title, "")]
    finding = entry.findings[0]
    glyph, _, _ = marks.SEVERITY[finding.severity]
    many = say(" (and {count} more)", count=len(entry.findings) - 1) if len(entry.findings) > 1 else ""
    return [
        (lead, "dim"),
        (f"{glyph} ", finding.severity),
        (f"{one_line(report.headline(finding))}{many}", "dim" if entry.guide else ""),
    ]


# ---- The list ----


class Findings(Rows):
    """The list of findings, which follows a growing diagnosis.

    The cursor is on the first cause until the user presses a key, then stays on the id under it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "fold", "fold, unfold", show=False)]

    def __init__(self) -> None:
        super().__init__(id="findings", classes="pane")
        self.entries: list[Entry] = []
        self.only_unjudged = False
        self._diagnosis: Diagnosis | None = None
        self._folded_ids: set[str] = set()
        self._chosen_id = ""
        """The id that the user put the cursor on; empty while it follows the first cause."""
        self._chosen_in_other_view = ""
        """The id that was chosen in the view that is not shown: causes, or what was not judged."""
        self._moving_by_code = False
        self._search_words = ""
        """Words that an entry must have to be shown."""
        self._update_title()

    @property
    def entry(self) -> Entry | None:
        """The entry under the cursor; None without entries."""
        return self.entries[self.cursor] if self.entries else None

    def put(self, diagnosis: Diagnosis) -> None:
        """Show the entries of this diagnosis that have the searched words; the cursor stays on the user's choice.

        What hides that entry is unfolded. Posts `Moved`.
        """
        self._diagnosis = diagnosis
        rows = unjudged_entries if self.only_unjudged else found_entries
        shown = rows(diagnosis, () if self._search_words else self._folded_ids)
        self.entries = list(matching(shown, self._search_words) if self._search_words else shown)
        self.empty = (
            say("nothing here has {words!r}; esc shows all", words=one_line(self._search_words))
            if self._search_words
            else "Nothing found yet."
        )
        places = {entry.id: at for at, entry in reversed(list(enumerate(self.entries)))}
        if (
            self._chosen_id
            and self._chosen_id not in places
            and not self._search_words
            and self._unfold(self._chosen_id)
        ):
            return
        self._moving_by_code = True
        before = self.virtual_size
        self.fill(len(self.entries))
        if self.virtual_size != before:
            self.refresh(layout=True)  # it is as high as its rows where it is above the detail
        self.cursor = places.get(self._chosen_id, min(self.cursor, len(places) - 1) if self._chosen_id else 0)
        self._moving_by_code = False
        self._update_title()
        self.post_message(self.Moved(self))

    def row(self, index: int) -> Iterable[Cell]:
        """The cells of that row: fold mark, severity and title."""
        entry = self.entries[index]
        return entry_cells(entry, entry.id in self._folded_ids)

    def pin(self) -> None:
        """Keep the cursor on the id of the entry it is on, however the list changes from now on."""
        if self.entry:
            self._chosen_id = self.entry.id

    def watch_cursor(self) -> None:
        """Remember the entry as the user's choice unless code moved the cursor; then scroll and post `Moved`."""
        if not self._moving_by_code:
            self.pin()
        super().watch_cursor()

    def action_move(self, by: int) -> None:
        """Move by so many rows, and keep the cursor there from now on."""
        super().action_move(by)
        self.pin()

    def action_edge(self, last: int) -> None:
        """Move to the last row, or the first if `last` is 0, and keep the cursor there."""
        super().action_edge(last)
        self.pin()

    def go(self, name: str) -> bool:
        """Put the cursor on the finding or unjudged rule of that id; False if there is none.

        If there is one, the search ends, everything is unfolded, and the view changes to that which has it.
        """
        if not self._diagnosis:
            return False
        found = any(finding.id == name for finding in self._diagnosis.findings)
        if not found and all(item.id != name for item in self._diagnosis.unjudged):
            return False
        self.only_unjudged, self._search_words = not found, ""
        self._folded_ids.clear()
        self._chosen_id = name
        self.put(self._diagnosis)
        return True

    def filter_by(self, words: str) -> None:
        """Show only entries with all of these words; everything for an empty text."""
        self._search_words = words.strip()
        if self._diagnosis:
            self.put(self._diagnosis)

    def next(self, by: int) -> None:
        """Move to the next error or warning, wrapping round, and stay on it; `by` -1: the previous.

        Without errors and warnings it moves to the next row.
        """
        bad = [at for at, entry in enumerate(self.entries) if entry.bad] or list(range(len(self.entries)))
        self.move_to_next(bad, by)
        self.pin()

    def toggle_unjudged(self) -> None:
        """Switch the list between what was found and what was not judged; each has its own chosen entry."""
        self.only_unjudged = not self.only_unjudged
        self._chosen_id, self._chosen_in_other_view = self._chosen_in_other_view, self._chosen_id
        if self._diagnosis:
            self.put(self._diagnosis)

    def action_fold(self) -> None:
        """Fold or unfold what is below the entry under the cursor; nothing if it has nothing below."""
        entry = self.entry
        if entry and entry.folds and self._diagnosis:
            self._folded_ids ^= {entry.id}
            self._chosen_id = entry.id
            self.put(self._diagnosis)

    def action_choose(self) -> None:
        """Enter: fold or unfold the entry, or switch to what was not judged on that line; then post `Chosen`."""
        self.pin()
        if self.entry and self.entry.section == "unjudged":
            self.toggle_unjudged()
        else:
            self.action_fold()
        super().action_choose()

    def _unfold(self, name: str) -> bool:
        """Unfold the entry that hides that id and redraw; False if none hides it."""
        for entry in self.entries:
            if entry.id in self._folded_ids and name in {finding.id for finding in entry.under} | set(entry.names):
                self._folded_ids.discard(entry.id)
                if self._diagnosis:
                    self.put(self._diagnosis)
                return True
        return False

    def _update_title(self) -> None:
        """Set the pane's title: causes, what was looked for (no errors and warnings), or not judged."""
        bad = any(entry.bad for entry in self.entries)
        causes = say("Causes" if bad or not self.entries else "What was looked for")
        self.border_title = Content(say("Not judged, because") if self.only_unjudged else causes)
        self.border_subtitle = Content(say("u causes")) if self.only_unjudged else None
