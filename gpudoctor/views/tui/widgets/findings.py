"""The list of findings: causes in the order to act on them, symptoms folded under what explains them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui.widgets.rows import Cell, Rows
from gpudoctor.views.tui.words import entries
from gpudoctor.views.tui.words.entries import Entry


class Findings(Rows):
    """Follows a diagnosis while it grows. The cursor is the user's: once a key was used it stays on the id under it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "fold", "fold, unfold", show=False)]

    def __init__(self) -> None:
        super().__init__(id="findings", classes="pane")
        self.entries: list[Entry] = []
        self.only_unjudged = False
        self._diagnosis: Diagnosis | None = None
        self._shut: set[str] = set()
        self._chosen = ""
        """The id that the user put the cursor on; empty while it follows the first cause."""
        self._left = ""
        """The id that was chosen in the view that is not shown: causes, or what was not judged."""
        self._placing = False
        self._sought = ""
        """Words that an entry must have to be shown."""
        self._title()

    @property
    def entry(self) -> Entry | None:
        """What is under the cursor."""
        return self.entries[self.cursor] if self.entries else None

    def put(self, diagnosis: Diagnosis) -> None:
        """Show these findings, with the cursor where the user left it."""
        self._diagnosis = diagnosis
        rows = entries.unjudged if self.only_unjudged else entries.found
        shown = rows(diagnosis, () if self._sought else self._shut)
        self.entries = list(entries.having(shown, self._sought) if self._sought else shown)
        self.empty = (
            f"nothing here has {one_line(self._sought)!r}; esc shows all" if self._sought else "Nothing found yet."
        )
        places = {entry.id: at for at, entry in reversed(list(enumerate(self.entries)))}
        if self._chosen and self._chosen not in places and not self._sought and self._unfold(self._chosen):
            return
        self._placing = True
        before = self.virtual_size
        self.fill(len(self.entries))
        if self.virtual_size != before:
            self.refresh(layout=True)  # it is as high as its rows where it is above the detail
        self.cursor = places.get(self._chosen, min(self.cursor, len(places) - 1) if self._chosen else 0)
        self._placing = False
        self._title()
        self.post_message(self.Moved(self))

    def row(self, index: int) -> Iterable[Cell]:
        """Fold mark, severity and title."""
        entry = self.entries[index]
        return entries.cells(entry, entry.id in self._shut)

    def pin(self) -> None:
        """The cursor is the user's from now on: it stays on the entry it is on."""
        if self.entry:
            self._chosen = self.entry.id

    def watch_cursor(self) -> None:
        """What the user chooses stays chosen."""
        if not self._placing:
            self.pin()
        super().watch_cursor()

    def action_move(self, by: int) -> None:
        """Up or down; at an end, too, the cursor is the user's."""
        super().action_move(by)
        self.pin()

    def action_edge(self, last: int) -> None:
        """To the first or the last row."""
        super().action_edge(last)
        self.pin()

    def go(self, name: str) -> bool:
        """Put the cursor on the finding or the unjudged rule of that id, unfolded; whether it is here."""
        if not self._diagnosis:
            return False
        found = any(finding.id == name for finding in self._diagnosis.findings)
        if not found and all(item.id != name for item in self._diagnosis.unjudged):
            return False
        self.only_unjudged, self._sought = not found, ""
        self._shut.clear()
        self._chosen = name
        self.put(self._diagnosis)
        return True

    def seek(self, words: str) -> None:
        """Show only what has these words, or everything again."""
        self._sought = words.strip()
        if self._diagnosis:
            self.put(self._diagnosis)

    def next(self, by: int) -> None:
        """To the next error or warning, round the end; without any, to the next row."""
        bad = [at for at, entry in enumerate(self.entries) if entry.bad] or list(range(len(self.entries)))
        later = [at for at in bad if (at - self.cursor) * by > 0]
        if bad:
            self.cursor = (later or bad)[0 if by > 0 else -1]
            self.pin()

    def turn(self) -> None:
        """What could not be judged, and why; or back to what was found."""
        self.only_unjudged = not self.only_unjudged
        self._chosen, self._left = self._left, self._chosen
        if self._diagnosis:
            self.put(self._diagnosis)

    def action_fold(self) -> None:
        """Fold or unfold what hangs under the entry."""
        entry = self.entry
        if entry and entry.folds and self._diagnosis:
            self._shut ^= {entry.id}
            self._chosen = entry.id
            self.put(self._diagnosis)

    def action_choose(self) -> None:
        """Enter folds what can be folded, and opens what was not judged."""
        self.pin()
        if self.entry and self.entry.section == "unjudged":
            self.turn()
        else:
            self.action_fold()
        super().action_choose()

    def _unfold(self, name: str) -> bool:
        """Unfold what hides the entry of that id; whether anything did."""
        for entry in self.entries:
            if entry.id in self._shut and name in {finding.id for finding in entry.under} | set(entry.names):
                self._shut.discard(entry.id)
                if self._diagnosis:
                    self.put(self._diagnosis)
                return True
        return False

    def _title(self) -> None:
        bad = any(entry.bad for entry in self.entries)
        causes = "Causes" if bad or not self.entries else "What was looked for"
        self.border_title = Content("Not judged, because" if self.only_unjudged else causes)
        self.border_subtitle = Content("u causes") if self.only_unjudged else None
