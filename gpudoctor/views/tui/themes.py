"""How it looks: our themes, the list to choose one of, and the choice of theme and marks that is kept.

Each theme keeps error, warning, passed and accent four different colours, with 16 colours, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.theme import BUILTIN_THEMES, Theme

from gpudoctor.core import files
from gpudoctor.core.language import say
from gpudoctor.views._terminal import padded
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.widgets.rows import Cell, Rows

DEFAULTS = {"on-state": "#000000"}
"""Variables that a theme may set: the colour of text on a band or badge of error, warning, success or primary."""

NIGHT = Theme(
    "gpudoctor-dark",
    primary="#5fafff",
    secondary="#87afd7",
    accent="#5fafff",
    success="#5fd787",
    warning="#ffd75f",
    error="#ff5f5f",
    foreground="#d7d7d7",
    background="#121212",
    surface="#1c1c1c",
    panel="#262626",
)
DAY = Theme(
    "gpudoctor-light",
    primary="#005faf",
    secondary="#5f5f87",
    accent="#005faf",
    success="#007a1f",
    warning="#8a5a00",
    error="#c00000",
    foreground="#121212",
    background="#ffffff",
    surface="#f4f4f4",
    panel="#eaeaea",
    dark=False,
    variables={"on-state": "#ffffff"},
)
CONTRAST = Theme(
    "gpudoctor-contrast",
    primary="#00ffff",
    secondary="#ffffff",
    accent="#00ffff",
    success="#00ff00",
    warning="#ffff00",
    error="#ff6060",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1a1a1a",
)
ANSI_NIGHT = replace(
    BUILTIN_THEMES["ansi-dark"],
    primary="ansi_bright_cyan",
    accent="ansi_bright_cyan",
    success="ansi_bright_green",
    warning="ansi_bright_yellow",
    error="ansi_bright_red",
)
"""The terminal's own colours, the bright ones: its dark blue is hardly seen on black."""
ANSI_DAY = replace(
    BUILTIN_THEMES["ansi-light"],
    accent="ansi_blue",
    warning="ansi_magenta",
    variables={**BUILTIN_THEMES["ansi-light"].variables, "on-state": "ansi_bright_white"},
)
"""Warnings are magenta: yellow is not seen on white, and bright red is another error."""
OURS = (NIGHT, DAY, CONTRAST, ANSI_NIGHT, ANSI_DAY)
NAMES = {
    NIGHT.name: "dark",
    DAY.name: "light",
    CONTRAST.name: "high contrast",
    ANSI_NIGHT.name: "the terminal's colours, dark",
    ANSI_DAY.name: "the terminal's colours, light",
}
"""Each of them in words, in the order to choose from."""


# ---- The themes to choose from: each is shown as soon as the cursor is on it ----

_NAMES = tuple(NAMES)


class ThemeTable(Rows):
    """A row for each theme, with the colours of the states."""

    def row(self, index: int) -> Iterable[Cell]:
        """The cells of that theme: its name, and samples of its colours."""
        yield f" {padded(say(NAMES[_NAMES[index]]), 32)}", ""
        for glyph, look in ((marks.SEVERITY["error"][0], "error"), (marks.SEVERITY["warning"][0], "warning")):
            yield f"{glyph} {say(look)}  ", look
        yield f"{marks.PASSED} {say('passed')}", "good"


class ThemeScreen(ModalScreen[str]):
    """The list of themes, each shown while the cursor is on it; dismissed with the chosen one's name.

    Escape restores the former theme.
    """

    SCOPED_CSS = False
    CSS = """
    ThemeScreen, ThemeScreen:ansi { align: center middle; background: transparent; }
    #themes { width: 66; max-width: 100%; height: 7; background: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", "leave it as it was", show=False)]

    def compose(self) -> ComposeResult:
        """The list of themes; the current theme is remembered."""
        self.before = self.app.theme
        self.list = ThemeTable(id="themes", classes="pane")
        self.list.border_title = Content(say("Theme"))
        self.list.border_subtitle = Content(say("enter keep   esc as it was"))
        yield self.list

    def on_mount(self) -> None:
        """Fill and focus the list, the cursor on the current theme, else on the first."""
        self.list.fill(len(_NAMES))
        self.list.cursor = _NAMES.index(self.before) if self.before in _NAMES else 0
        self.list.focus()

    def on_rows_moved(self, event: Rows.Moved) -> None:
        """Use the theme under the cursor for the whole app, as a preview."""
        if self.is_current:
            self.app.theme = _NAMES[event.rows.cursor]

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Close the list with the name of the theme under the cursor."""
        event.stop()
        self.dismiss(_NAMES[event.rows.cursor])

    def action_leave(self) -> None:
        """Restore the theme from before, and close the list with its name."""
        self.app.theme = self.before
        self.dismiss(self.before)


# ---- What the user chose and wants again: a few words in the platform's folder for configuration ----

_MOST_BYTES = 4096
"""A larger file is not ours."""
_MOST_LETTERS = 60


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user chose, kept between runs; empty: no choice."""

    theme: str = ""
    marks: str = ""
    """``ascii`` or ``unicode``, where the terminal is not to be asked."""


class ChoicesError(Exception):
    """The file of choices cannot be read or written; the message says why."""


def choices_path() -> Path:
    """Path of the file with the user's choices; raises `ChoicesError` if there is no folder for configuration."""
    folder = files.config_folder()
    if not folder.is_absolute():
        raise ChoicesError("no home folder")
    return folder / "tui.json"


def load_choices() -> Choices:
    """The stored choices, empty ones if there is no file; raises `ChoicesError` if it is unreadable or malformed."""
    try:
        raw = json.loads(_read_limited(choices_path()))
        if not isinstance(raw, dict):
            raise ChoicesError("no JSON object")
        words = {field.name: raw.get(field.name, "") for field in fields(Choices)}
        for name, word in words.items():
            if not isinstance(word, str) or len(word) > _MOST_LETTERS:
                raise ChoicesError(f"{name} is no word")
        return Choices(**words)
    except (OSError, ValueError, RecursionError) as error:
        raise ChoicesError(_error_words(error)) from error


def _read_limited(file: Path) -> bytes:
    """The file's bytes, ``{}`` if it does not exist; raises `ChoicesError` if it is no regular file or too large."""
    if not file.exists():
        return b"{}"
    if not file.is_file():  # a pipe would keep us waiting
        raise ChoicesError("not a file")
    with file.open("rb") as stream:
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ChoicesError(f"more than {_MOST_BYTES} bytes")
    return content


def keep_choices(choices: Choices) -> None:
    """Write the choices to their file, atomically, for the user alone; raises `ChoicesError` if that fails."""
    try:
        file = Path(os.path.realpath(choices_path()))  # where it is a link, the file it leads to is written
        file.parent.mkdir(parents=True, exist_ok=True)
        words = {name: word for name, word in asdict(choices).items() if word}
        files.put(file, f"{json.dumps(words, indent=2)}\n".encode(), 0o600)
    except OSError as error:
        raise ChoicesError(_error_words(error)) from error


def _error_words(error: Exception) -> str:
    """Why the file of choices could not be read or written: the system's message of an OSError, else ``not JSON``."""
    return error.strerror or str(error) if isinstance(error, OSError) else say("not JSON")
