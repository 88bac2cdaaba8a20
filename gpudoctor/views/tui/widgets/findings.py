"""The list of findings: causes in the order to act on them, symptoms folded under what explains them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType

from gpudoctor.model.diagnosis import Diagnosis, Finding, Unjudged
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import counts, marks
from gpudoctor.views.tui.widgets.rows import Cell, Rows


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: all findings of one id, or a rule that was not judged; `under` are those folded below it."""

    id: str
    findings: tuple[Finding, ...] = ()
    unjudged: Unjudged | None = None
    under: tuple[Finding, ...] = ()
    guide: str = ""


class Findings(Rows):
    """Follows a diagnosis while it grows. The cursor is the user's: once moved it stays on the id it was put on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "next(1)", "next"),
        Binding("N", "next(-1)", "previous", show=False),
        Binding("u", "unjudged", "not judged"),
        Binding("space", "fold", "fold, unfold", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="findings", classes="pane")
        self.border_title = "Causes"
        self.entries: list[Entry] = []
        self.only_unjudged = False
        self._diagnosis: Diagnosis | None = None
        self._shut: set[str] = set()
        self._chosen = ""
        """The id that the user put the cursor on; empty while it follows the first cause."""
        self._placing = False

    @property
    def entry(self) -> Entry | None:
        """What is under the cursor."""
        return self.entries[self.cursor] if self.entries else None

    def put(self, diagnosis: Diagnosis) -> None:
        """Show these findings, with the cursor where the user left it."""
        self._diagnosis = diagnosis
        self.entries = list(self._unjudged() if self.only_unjudged else self._found())
        ids = [entry.id for entry in self.entries]
        self._placing = True
        self.fill(len(ids))
        self.cursor = ids.index(self._chosen) if self._chosen in ids else 0
        self._placing = False
        self.post_message(self.Moved(self))

    def row(self, index: int) -> Iterable[Cell]:
        """Fold mark, severity and title."""
        entry = self.entries[index]
        if entry.unjudged:
            return [(f" {marks.UNREAD} ", "accent"), (f"{entry.id}  ", ""), (one_line(entry.unjudged.because), "dim")]
        finding = entry.findings[0]
        glyph, _, _ = marks.SEVERITY[finding.severity]
        fold = ("▸" if entry.id in self._shut else "▾") if entry.under else " "
        guess = "Possibly: " if finding.confidence == "possible" else ""
        many = f" (and {len(entry.findings) - 1} more)" if len(entry.findings) > 1 else ""
        return [
            (entry.guide or f"{fold} ", "dim"),
            (f"{glyph} ", finding.severity),
            (f"{guess}{one_line(finding.title)}{many}", "dim" if entry.guide else ""),
        ]

    def watch_cursor(self) -> None:
        """What the user chooses stays chosen."""
        if not self._placing and self.entries:
            self._chosen = self.entries[self.cursor].id
        super().watch_cursor()

    def go(self, name: str) -> bool:
        """Put the cursor on the finding of that id, unfolded; whether there is one."""
        diagnosis = self._diagnosis
        if not diagnosis:
            return False
        unjudged = {item.id for item in diagnosis.unjudged}
        if name in unjudged | {finding.id for finding in diagnosis.findings}:
            self.only_unjudged = name in unjudged
            self._shut.clear()
            self._chosen = name
            self.put(diagnosis)
            return True
        return False

    def action_next(self, by: int) -> None:
        """To the next error or warning."""
        bad = [at for at, entry in enumerate(self.entries) if entry.unjudged or entry.findings[0].severity != "info"]
        if bad:
            later = [at for at in bad if (at - self.cursor) * by > 0]
            self.cursor = (later or bad)[0 if by > 0 else -1]

    def action_unjudged(self) -> None:
        """What could not be judged, and why; or back to what was found."""
        self.only_unjudged = not self.only_unjudged
        self.border_title = "Not judged" if self.only_unjudged else "Causes"
        self._chosen = ""
        if self._diagnosis:
            self.put(self._diagnosis)

    def action_fold(self) -> None:
        """Fold or unfold the symptoms."""
        entry = self.entry
        if entry and entry.under and self._diagnosis:
            self._shut ^= {entry.id}
            self._chosen = entry.id
            self.put(self._diagnosis)

    def action_choose(self) -> None:
        """Enter on a cause with symptoms folds them; what else it does is the screen's."""
        self.action_fold()
        super().action_choose()

    def _found(self) -> Iterator[Entry]:
        assert self._diagnosis
        under = counts.folded(self._diagnosis)
        groups: dict[str, list[Finding]] = {}
        for finding in self._diagnosis.findings:
            groups.setdefault(finding.id, []).append(finding)
        for name, same in groups.items():
            if name in under:
                continue
            below = [groups[other] for other in groups if under.get(other) == name]
            yield Entry(name, tuple(same), under=tuple(group[0] for group in below))
            for at, group in enumerate(() if name in self._shut else below, 1):
                yield Entry(group[0].id, tuple(group), guide="  └ " if at == len(below) else "  ├ ")

    def _unjudged(self) -> Iterator[Entry]:
        assert self._diagnosis
        for item in self._diagnosis.unjudged:
            yield Entry(item.id, unjudged=item)
