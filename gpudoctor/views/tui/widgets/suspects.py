"""The list of suspects: who, what, and on what evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpudoctor.model.fleet import Suspect
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.rows import Cell, Rows
from gpudoctor.views.tui.words import fleets

_WIDEST = 20


class Suspects(Rows):
    """The likeliest first, each with its evidence in the rows below; the cursor goes from suspect to suspect."""

    empty = "Nobody is suspect."

    def __init__(self) -> None:
        super().__init__(id="suspects", classes="pane")
        self.border_title = "Suspects, the likeliest first"
        self._suspects: Sequence[Suspect] = ()
        self._lines: list[tuple[int, str]] = []
        """Which suspect each row is about, and its evidence; none in the row that names it."""
        self._brief = False

    @property
    def brief(self) -> bool:
        """Whether there is no room for the evidence."""
        return self._brief

    @brief.setter
    def brief(self, brief: bool) -> None:
        if brief != self._brief:
            self._brief = brief
            self.put(self._suspects)

    def put(self, suspects: Sequence[Suspect]) -> None:
        """Show these."""
        here = self._lines[self.cursor][0] if self._lines else 0
        self._suspects = suspects
        self._lines = [
            (at, text)
            for at, suspect in enumerate(suspects)
            for text in ("", *(() if self._brief else suspect.evidence))
        ]
        self.fill(len(self._lines))
        self._go(min(here, max(len(suspects) - 1, 0)))

    @property
    def suspect(self) -> Suspect | None:
        """The one under the cursor."""
        return self._suspects[self._lines[self.cursor][0]] if self._lines else None

    def row(self, index: int) -> Iterable[Cell]:
        """Number, severity, who and what; or a piece of evidence."""
        at, evidence = self._lines[index]
        width = min(max(len(fleets.who(suspect)) for suspect in self._suspects), _WIDEST)
        if evidence:
            return [(f"{'':<{width + 7}}→ ", "dim"), (one_line(evidence), "dim")]
        suspect = self._suspects[at]
        glyph = marks.SEVERITY[suspect.severity][0] if suspect.severity != "info" else marks.UNREAD
        return [
            (f"{at + 1:<2} ", "dim"),
            (f"{glyph} ", suspect.severity),
            (f"{fleets.who(suspect):<{width}}  ", "bold"),
            (one_line(suspect.title), ""),
            (f"  {suspect.confidence}  {one_line(suspect.id)}", "dim"),
        ]

    def validate_cursor(self, cursor: int) -> int:
        """Always on the row that names a suspect."""
        while 0 < cursor < len(self._lines) and self._lines[cursor][1]:
            cursor -= 1
        return cursor

    def action_move(self, by: int) -> None:
        """By suspects."""
        if self._lines:
            self._go(min(max(self._lines[self.cursor][0] + by, 0), len(self._suspects) - 1))

    def _go(self, suspect: int) -> None:
        self.cursor = next((row for row, (at, text) in enumerate(self._lines) if at == suspect and not text), 0)
