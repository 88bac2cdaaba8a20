"""The themes to choose from: each is shown as soon as the cursor is on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen

from gpudoctor.views.tui import marks, themes
from gpudoctor.views.tui.widgets.rows import Cell, Rows

if TYPE_CHECKING:
    from textual.app import ComposeResult

_NAMES = tuple(themes.NAMES)


class Themes(Rows):
    """One row a theme, with the colours of the states."""

    def row(self, index: int) -> Iterable[Cell]:
        """Its name, and what it makes of the states."""
        yield f" {themes.NAMES[_NAMES[index]]:<32}", ""
        for glyph, look in ((marks.SEVERITY["error"][0], "error"), (marks.SEVERITY["warning"][0], "warning")):
            yield f"{glyph} {look}  ", look
        yield f"{marks.PASSED} passed", "good"


class ThemeScreen(ModalScreen[str]):
    """Gives the name of the theme that was chosen: the one there was before, where none was."""

    SCOPED_CSS = False
    CSS = """
    ThemeScreen, ThemeScreen:ansi { align: center middle; background: transparent; }
    #themes { width: 66; max-width: 100%; height: 7; background: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", "leave it as it was", show=False)]

    def compose(self) -> ComposeResult:
        """The list, on the theme there is."""
        self.before = self.app.theme
        self.list = Themes(id="themes", classes="pane")
        self.list.border_title = Content("Theme")
        self.list.border_subtitle = Content("enter keep   esc as it was")
        yield self.list

    def on_mount(self) -> None:
        """The cursor on the theme there is."""
        self.list.fill(len(_NAMES))
        self.list.cursor = _NAMES.index(self.before) if self.before in _NAMES else 0
        self.list.focus()

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Show it."""
        if self.is_current:
            self.app.theme = _NAMES[event.rows.cursor]

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Take it."""
        event.stop()
        self.dismiss(_NAMES[event.rows.cursor])

    def action_leave(self) -> None:
        """As it was."""
        self.app.theme = self.before
        self.dismiss(self.before)
