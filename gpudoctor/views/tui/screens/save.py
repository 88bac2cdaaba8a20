"""Save what is shown: choose a form and a file; what cannot be written is refused in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.errors import DoctorError
from gpudoctor.views.tui import background
from gpudoctor.views.tui.widgets.frame import Line
from gpudoctor.views.tui.widgets.prose import Block, Prose, plain
from gpudoctor.views.tui.widgets.rows import Cell, Rows

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from gpudoctor.views.tui.app import DoctorApp

ABOUT = {
    "txt": ("Text", "as gpudoctor check prints it"),
    "md": ("Markdown", "for an issue tracker or a chat"),
    "html": ("HTML", "one page to send, to print or to keep"),
    "json": ("JSON", "all of it; gpudoctor read opens it again"),
    "svg": ("SVG", "a picture of the screen as it was"),
}
"""Forms by the ending of their files, and what they are good for."""


class Forms(Rows):
    """The forms, the one that is chosen under the cursor."""

    def __init__(self, endings: Iterable[str]) -> None:
        super().__init__(id="forms")
        self.endings = list(endings)

    @property
    def ending(self) -> str:
        """Of the form that is chosen."""
        return self.endings[self.cursor]

    def row(self, index: int) -> Iterable[Cell]:
        """Whether it is chosen, its name, what it is good for."""
        name, about = ABOUT.get(self.endings[index], (self.endings[index], ""))
        here = index == self.cursor
        return [(" ◉ " if here else " ○ ", "accent" if here else ""), (f"{name:<10}", ""), (about, "dim")]


class SaveScreen(ModalScreen[str]):
    """Closes with the path that was written and what was hidden in it, or with nothing."""

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
        Binding("escape", "close", "back"),
        Binding("up", "choose(-1)", "The form above", show=False, priority=True),
        Binding("down", "choose(1)", "The form below", show=False, priority=True),
        Binding("tab", "hide", "Hide what is personal, or not", show=False, priority=True),
    ]

    def __init__(self, diagnosis: Diagnosis, picture: Callable[[], str]) -> None:
        super().__init__(classes="over")
        self._diagnosis = diagnosis
        self._picture = picture
        self._warned = ""
        """The path of a file that is there, of which that was said."""
        self._hides = False

    @property
    def doctor(self) -> DoctorApp:
        """The app, by its own type."""
        return cast("DoctorApp", self.app)

    def compose(self) -> ComposeResult:
        """Forms, file, what became of it."""
        self.forms = Forms([*self.doctor.work.forms, "svg"])
        with Vertical(id="save", classes="pane") as box:
            box.border_title = Content("Save")
            yield self.forms
            if self.doctor.work.hide:
                yield Line(id="hide")
            yield Input(f"{self._stem()}.{self.forms.ending}", id="file", compact=True)
            yield Prose(id="said")
            yield Line(id="keys")

    def on_mount(self) -> None:
        """Show the forms."""
        self.forms.fill(len(self.forms.endings))
        self._say(f"in {Path.cwd()}")
        self._offer()

    def _stem(self) -> str:
        """The file's name as it is offered; the machine's is personal, too."""
        return "gpudoctor-report" if self._hides else f"gpudoctor-{_named(self._diagnosis)}"

    def _offer(self) -> None:
        """Say what can be chosen, and what is."""
        can = self.doctor.work.hide is not None
        self.query_one("#keys", Line).say(f"↑↓ form   {'tab hide   ' if can else ''}enter save   esc back")
        if can:
            about = "names, addresses, serial numbers and secrets are hidden"
            mark = (" [x] ", "$primary") if self._hides else " [ ] "
            self.query_one("#hide", Line).say(Content.assemble(mark, "to share  ", (about, "dim")))

    def action_hide(self) -> None:
        """What others may see alone, or all of it."""
        if self.doctor.work.hide is None:
            return
        file, before = self.query_one(Input), self._stem()
        self._hides = not self._hides
        if file.value.startswith(f"{before}."):
            file.value = file.value.replace(before, self._stem(), 1)
        self._offer()

    def _say(self, text: str, look: str = "") -> None:
        self.query_one("#said", Prose).put([Block(plain(text, look))])

    def on_rows_moved(self) -> None:
        """The file's ending follows the form, where it is the ending of one."""
        self.forms.refresh()
        file = self.query_one(Input)
        stem, dot, ending = file.value.rpartition(".")
        if dot and ending in self.forms.endings:
            file.value = f"{stem}.{self.forms.ending}"
            file.cursor_position = len(file.value)

    def on_rows_chosen(self) -> None:
        """A form that is clicked twice is saved."""
        self._save()

    def on_input_submitted(self) -> None:
        """Enter saves."""
        self._save()

    def action_choose(self, by: int) -> None:
        """Another form."""
        self.forms.action_move(by)

    def action_close(self) -> None:
        """Nothing is written."""
        self.dismiss()

    def _save(self) -> None:
        name = self.query_one(Input).value.strip()
        if not name:
            self._say("give the file a name", "$warning")
            return
        try:
            path = Path.cwd() / Path(name).expanduser()
            there = path.exists() and not path.is_dir()
        except (OSError, ValueError, RuntimeError) as error:
            self._say(f"{name}: {getattr(error, 'strerror', None) or error}", "$warning")
            return
        if there and self._warned != str(path):
            self._warned = str(path)
            self._say(f"{path.name} is there already: enter again replaces it", "$warning")
            return
        work, form = self.doctor.work, self.doctor.work.forms.get(self.forms.ending)
        write, hide = work.save, work.hide if self._hides else None
        if write is None:
            self._say("nothing can be written from here", "$warning")
            return

        if hide and form is None:
            self._say("a picture shows what the screen showed: another form hides what is personal", "$warning")
            return

        def make() -> str:
            diagnosis, told = hide(self._diagnosis) if hide else (self._diagnosis, "")
            write(form(diagnosis) if form else self._picture(), str(path))
            return f"{path}; {told}" if told else str(path)

        background.start(self.app, "save", make, self._saved)

    def _saved(self, answer: str | BaseException) -> None:
        if not self.is_attached:
            return
        if isinstance(answer, str):
            self.dismiss(answer)
        else:
            said = str(answer) if isinstance(answer, DoctorError) else f"{type(answer).__name__}: {answer}"
            self._say(said, "$warning")


def _named(diagnosis: Diagnosis) -> str:
    """The machine's name as a part of a file's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", diagnosis.snapshot.target.name).strip(".-")[:60] or "report"
