"""Dialogs with a field to type in: a value, a file to open, a file to save to."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.language import say
from gpudoctor.views._terminal import padded
from gpudoctor.views.tui.widgets.frame import Line
from gpudoctor.views.tui.widgets.prose import Block, Prose, plain
from gpudoctor.views.tui.widgets.rows import Cell, Rows
from gpudoctor.views.tui.work import Work, error_text, run_in_thread


class TextDialog(ModalScreen[str]):
    """A dialog with one field; dismissed with the typed text, which may be empty, or None if the user went back."""

    SCOPED_CSS = False
    CSS = """
    TextDialog { align: center middle; background: $background 60%; }
    #ask { width: 60; max-width: 96%; height: auto; border: round $primary; padding: 1 2; background: $surface; }
    #ask Input { height: 1; border: none; padding: 0; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "go back")]

    def __init__(self, title: str, value: str, hint: str) -> None:
        super().__init__()
        self._title, self._value, self._hint = title, value, hint

    def compose(self) -> ComposeResult:
        """The input field, with the current value, and a hint below it."""
        with Vertical(id="ask") as frame:
            frame.border_title = plain(say(self._title))
            frame.border_subtitle = Content(say("enter takes it · esc goes back"))
            yield Input(self._value, select_on_focus=True)
            yield Prose()

    def on_mount(self) -> None:
        """Show the hint that says what the field takes."""
        self.query_one(Prose).put([Block(plain(say(self._hint), "dim"))])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close the dialog with the typed text, without blanks around it."""
        self.dismiss(event.value.strip())


# ---- A file to open: what is wrong with it is said here, where one can name another ----

T = TypeVar("T")
_MOST_NAMES = 5000
"""Names of a folder that are looked through."""
_HINT = "A pasted report, a log, a snapshot or a record: anything that gpudoctor read takes."


class FileNameSuggester(Suggester):
    """Suggests the first file name that begins with what was typed, folders with a slash."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        """The typed path completed; None if it ends in no part of a name, or nothing in its folder begins so."""
        typed, begin = os.path.split(value)
        return await asyncio.to_thread(_first_match, typed, begin) if begin else None


def _first_match(folder: str, begin: str) -> str | None:
    """Path of the alphabetically first name in the folder that begins with `begin`, as typed, a folder with a slash.

    None if there is none or the folder cannot be read. At most `_MOST_NAMES` names are looked at.
    """
    try:
        with os.scandir(Path(folder).expanduser()) as entries:
            some = islice(entries, _MOST_NAMES)
            names = [entry.name + "/" * entry.is_dir() for entry in some if entry.name.startswith(begin)]
    except OSError:
        return None
    return os.path.join(folder, min(names)) if names else None  # noqa: PTH118 - as it was typed


class OpenFile(ModalScreen["tuple[str, T] | None"], Generic[T]):
    """A dialog that opens a file; dismissed with its name and what `opened` returned, or None."""

    CSS = """
    OpenFile { align: center middle; background: $background 60%; }
    #open-file { width: 76; max-width: 100%; height: auto; max-height: 100%; padding: 1 2; background: $surface; }
    #open-file Input { height: 1; border: none; padding: 0 1; background: $panel; margin: 0 0 1 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Back", show=False)]

    def __init__(self, title: str, opened: Callable[[str], T]) -> None:
        super().__init__()
        self._title = title
        self._open = opened
        self._busy = False

    def compose(self) -> Iterable[Widget]:
        """The input field for a path, and below it a hint or what is wrong."""
        self.name_of_it = Input(placeholder=say("path of a file"), select_on_focus=False, suggester=FileNameSuggester())
        self.said = Prose()
        with Vertical(id="open-file", classes="pane") as box:
            box.border_title = plain(say(self._title))
            box.border_subtitle = plain(say("→ completes · enter opens · esc goes back"))
            yield self.name_of_it
            yield self.said

    def on_mount(self) -> None:
        """Show what kinds of file can be opened."""
        self.said.put([Block(plain(say(_HINT), "dim"))])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Open the file in a thread; ignored without a name or while another one is being opened."""
        name = event.value.strip()
        if not name or self._busy:
            return
        self._busy = True
        self.said.put([Block(plain(say("reading {name} …", name=name)))])
        run_in_thread(self.app, "open", lambda: self._open(name), lambda answer: self._receive_result(name, answer))

    def _receive_result(self, name: str, answer: T | BaseException) -> None:
        """Close the dialog with the file's name and what opening it returned, or show why it cannot be opened."""
        if not self.is_current:
            return
        self._busy = False
        if isinstance(answer, BaseException):
            self.said.put([Block(plain(error_text(answer), "$error"))])
        else:
            self.dismiss((name, answer))


# ---- A form and a file to save what is shown: what cannot be written is refused in words ----

_FORMS = {
    "txt": ("Text", "as gpudoctor check prints it"),
    "md": ("Markdown", "for an issue tracker or a chat"),
    "html": ("HTML", "one page to send, to print or to keep"),
    "json": ("JSON", "all of it; gpudoctor read opens it again"),
    "svg": ("SVG", "a picture of the screen as it was"),
}
"""Forms by the ending of their files, and what they are good for."""


class FormsTable(Rows):
    """The forms that a report can be saved in; the one under the cursor is chosen."""

    def __init__(self, endings: Iterable[str]) -> None:
        super().__init__(id="forms")
        self.endings = list(endings)

    @property
    def ending(self) -> str:
        """File name ending of the form under the cursor: ``json``."""
        return self.endings[self.cursor]

    def row(self, index: int) -> Iterable[Cell]:
        """The cells of that form: whether the cursor is on it, its name, and what it is good for."""
        name, about = _FORMS.get(self.endings[index], (self.endings[index], ""))
        here = index == self.cursor
        return [(" ◉ " if here else " ○ ", "accent" if here else ""), (padded(say(name), 10), ""), (say(about), "dim")]


class SaveScreen(ModalScreen[str]):
    """The dialog that saves a report; dismissed with the path written and what was hidden, or None."""

    SCOPED_CSS = False
    CSS = """
    .over { align: center middle; background: $background 60%; }
    #save { width: 76; max-width: 100%; height: auto; max-height: 100%; overflow-y: auto; background: $background; }
    #forms { height: auto; margin: 1 0; }
    #hide { padding: 0; margin: 0 0 1 0; }
    #save Input { padding: 0 1; background: $panel; }
    #said { margin: 1 0 0 0; padding: 0; }
    #keys { padding: 0; color: $foreground 60%; }
    """
    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "back"),
        Binding("up", "choose(-1)", "The form above", show=False, priority=True),
        Binding("down", "choose(1)", "The form below", show=False, priority=True),
        Binding("tab", "hide", "Hide what is personal, or not", show=False, priority=True),
    ]

    def __init__(self, diagnosis: Diagnosis, work: Work, picture: Callable[[], str]) -> None:
        super().__init__(classes="over")
        self._diagnosis, self._work = diagnosis, work
        self._picture = picture
        self._warned_path = ""
        """The path of a file that is there, of which that was said."""
        self._hides = False

    def compose(self) -> ComposeResult:
        """Forms, whether to hide personal data (if that is possible), file name, and message."""
        self.forms = FormsTable([*self._work.forms, "svg"])
        with Vertical(id="save", classes="pane") as box:
            box.border_title = Content(say("Save"))
            yield self.forms
            if self._work.hide:
                yield Line(id="hide")
            yield Input(f"{self._file_stem()}.{self.forms.ending}", id="file", compact=True)
            yield Prose(id="said")
            yield Line(id="keys")

    def on_mount(self) -> None:
        """Show the forms, the current folder (or a warning that there is none) and the keys."""
        self.forms.fill(len(self.forms.endings))
        try:
            self._show_message(say("in {folder}", folder=Path.cwd()))
        except OSError as error:
            self._show_message(say("there is no folder to write to: {why}", why=error.strerror), "$warning")
        self._update_hints()

    def _file_stem(self) -> str:
        """The suggested file name: ``gpudoctor-node17``; ``gpudoctor-report`` if the name is hidden or unusable."""
        machine = re.sub(r"[^A-Za-z0-9._-]+", "-", self._diagnosis.snapshot.target.name).strip(".-")[:60]
        return "gpudoctor-report" if self._hides or not machine else f"gpudoctor-{machine}"

    def _update_hints(self) -> None:
        """Show the keys, and whether personal data is hidden."""
        can = self._work.hide is not None
        self.query_one("#keys", Line).say(
            say("↑↓ form   {can}enter save   esc back", can=say("tab hide   ") if can else "")
        )
        if can:
            about = say("names, addresses, serial numbers and secrets are hidden")
            mark = (" [x] ", "$primary") if self._hides else " [ ] "
            self.query_one("#hide", Line).say(Content.assemble(mark, say("to share  "), (about, "dim")))

    def action_hide(self) -> None:
        """Switch whether personal data is hidden, and with it the suggested file name; nothing if not possible."""
        if self._work.hide is None:
            return
        file, before = self.query_one(Input), self._file_stem()
        self._hides = not self._hides
        if file.value.startswith(f"{before}."):
            file.value = file.value.replace(before, self._file_stem(), 1)
        self._update_hints()

    def _show_message(self, text: str, look: str = "") -> None:
        """Show this text in the dialog, in the style `look`."""
        self.query_one("#said", Prose).put([Block(plain(text, look))])

    def on_rows_moved(self) -> None:
        """Give the file name the ending of the form under the cursor, if it has the ending of another form."""
        self.forms.refresh()
        file = self.query_one(Input)
        stem, dot, ending = file.value.rpartition(".")
        if dot and ending in self.forms.endings:
            file.value = f"{stem}.{self.forms.ending}"
            file.cursor_position = len(file.value)

    def on_rows_chosen(self) -> None:
        """Save, as Enter in the field does."""
        self.on_input_submitted()

    def action_choose(self, by: int) -> None:
        """Move to the form above (-1) or below (1)."""
        self.forms.action_move(by)

    def on_input_submitted(self) -> None:
        """Write the report or picture to the file in a thread; a message if that is not possible.

        An existing file is replaced only when Enter is pressed again.
        """
        name = self.query_one(Input).value.strip()
        if not name:
            self._show_message(say("give the file a name"), "$warning")
            return
        try:
            path = Path.cwd() / Path(name).expanduser()
            exists = path.exists() and not path.is_dir()
        except (OSError, ValueError, RuntimeError) as error:
            self._show_message(f"{name}: {getattr(error, 'strerror', None) or error}", "$warning")
            return
        if exists and self._warned_path != str(path):
            self._warned_path = str(path)
            self._show_message(say("{name} is there already: enter again replaces it", name=path.name), "$warning")
            return
        work, form = self._work, self._work.forms.get(self.forms.ending)
        write, hide = work.save, work.hide if self._hides else None
        if write is None:
            self._show_message(say("nothing can be written from here"), "$warning")
            return

        if hide and form is None:
            other = say("a picture shows what the screen showed: another form hides what is personal")
            self._show_message(other, "$warning")
            return

        def make() -> str:
            """Write the file, without personal data if so chosen; returns its path, and what was hidden."""
            diagnosis, hidden = hide(self._diagnosis) if hide else (self._diagnosis, "")
            write(form(diagnosis) if form else self._picture(), str(path))
            return f"{path}; {hidden}" if hidden else str(path)

        run_in_thread(self.app, "save", make, self._receive_result)

    def _receive_result(self, answer: str | BaseException) -> None:
        """Close the dialog with the path that was written, or show why nothing was; ignored once it is closed."""
        if not self.is_attached:
            return
        if isinstance(answer, str):
            self.dismiss(answer)
        else:
            self._show_message(error_text(answer), "$warning")
