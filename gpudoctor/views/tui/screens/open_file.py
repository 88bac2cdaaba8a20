"""Asks for a file and opens it: what is wrong with it is said here, where one can name another."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input

from gpudoctor.model.errors import DoctorError
from gpudoctor.views.tui import background
from gpudoctor.views.tui.widgets.prose import Block, Prose, plain

T = TypeVar("T")
_MOST_NAMES = 5000
"""Names of a folder that are looked through."""
_HINT = "A pasted report, a log, a snapshot or a record: anything that gpudoctor read takes."


class Names(Suggester):
    """Completes what is typed to the next name in its folder, a folder's with a slash; the right arrow takes it."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        """The first name by alphabet that begins so; none where nothing was typed, or the folder is not to be read."""
        typed, begin = os.path.split(value)
        return await asyncio.to_thread(_complete, typed, begin) if begin else None


def _complete(folder: str, begin: str) -> str | None:
    try:
        with os.scandir(Path(folder).expanduser()) as entries:
            some = islice(entries, _MOST_NAMES)
            names = [entry.name + "/" * entry.is_dir() for entry in some if entry.name.startswith(begin)]
    except OSError:
        return None
    return os.path.join(folder, min(names)) if names else None  # noqa: PTH118 - as it was typed


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
        self.name_of_it = Input(placeholder="path of a file", select_on_focus=False, suggester=Names())
        self.said = Prose()
        with Vertical(id="open-file", classes="pane") as box:
            box.border_title = plain(self._title)
            box.border_subtitle = plain("→ completes · enter opens · esc goes back")
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
