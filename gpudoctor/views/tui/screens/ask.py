"""Asks for one value of a field, typed."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input

from gpudoctor.views.tui.widgets.prose import Block, Prose, plain


class Ask(ModalScreen[str]):
    """The text that was typed; empty where the user went back."""

    SCOPED_CSS = False
    CSS = """
    Ask { align: center middle; background: $background 60%; }
    #ask { width: 60; max-width: 96%; height: auto; border: round $primary; padding: 1 2; background: $surface; }
    #ask Input { height: 1; border: none; padding: 0; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss('')", "go back")]

    def __init__(self, title: str, value: str, hint: str) -> None:
        super().__init__()
        self._title, self._value, self._hint = title, value, hint

    def compose(self) -> ComposeResult:
        """The field and what it takes."""
        with Vertical(id="ask") as frame:
            frame.border_title = plain(self._title)
            frame.border_subtitle = Content("enter takes it · esc goes back")
            yield Input(self._value, select_on_focus=True)
            yield Prose()

    def on_mount(self) -> None:
        """Say what it takes."""
        self.query_one(Prose).put([Block(plain(self._hint, "dim"))])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        self.dismiss(event.value.strip())
