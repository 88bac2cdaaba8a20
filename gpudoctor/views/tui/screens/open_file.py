"""Asks for a file and opens it: what is wrong with it is said here, where one can name another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar, Generic, TypeVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input

from gpudoctor.model.errors import DoctorError
from gpudoctor.views.tui import background
from gpudoctor.views.tui.widgets.prose import Block, Prose, plain

T = TypeVar("T")
_HINT = "A pasted report, a log, a snapshot or a record: anything that gpudoctor read takes."


class OpenFile(ModalScreen["tuple[str, T] | None"], Generic[T]):
    """Gives the file's name and what opening it gave; None where the user went back."""

    CSS = """
    OpenFile { align: center middle; background: $background 60%; }
    #open-file { width: 76; max-width: 100%; height: auto; max-height: 100%; padding: 1 2; background: $surface; }
    #open-file Input { height: 1; border: none; padding: 0 1; background: $panel; margin: 0 0 1 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back", show=False)]

    def __init__(self, title: str, opened: Callable[[str], T]) -> None:
        super().__init__()
        self._title = title
        self._opened = opened
        self._busy = False

    def compose(self) -> Iterable[Widget]:
        """The name, and below it what to type or what was wrong."""
        self.name_of_it = Input(placeholder="path of a file", select_on_focus=False)
        self.said = Prose()
        with Vertical(id="open-file", classes="pane") as box:
            box.border_title = plain(self._title)
            box.border_subtitle = plain("enter opens it · esc goes back")
            yield self.name_of_it
            yield self.said

    def on_mount(self) -> None:
        """Say what can be opened."""
        self.said.put([Block(plain(_HINT, "dim"))])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Open it, beside the interface."""
        name = event.value.strip()
        if not name or self._busy:
            return
        self._busy = True
        self.said.put([Block(plain(f"reading {name} …"))])
        background.start(self.app, "open", lambda: self._opened(name), lambda answer: self._answered(name, answer))

    def _answered(self, name: str, answer: T | BaseException) -> None:
        if not self.is_current:
            return
        self._busy = False
        if isinstance(answer, BaseException):
            words = str(answer) if isinstance(answer, DoctorError) else f"{type(answer).__name__}: {answer}"
            self.said.put([Block(plain(words, "$error"))])
        else:
            self.dismiss((name, answer))

    def action_back(self) -> None:
        """Leave it."""
        self.dismiss(None)
