"""ASCII for the glyphs, column for column, where a terminal cannot show them; applied as a line is drawn."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_CORNERS_AND_JOINTS = "╭╮╰╯┌┐└┘├┤┬┴┼╔╗╚╝╞╡╤╧╪┏┓┗┛"
_ACROSS, _DOWN = "─━═╌╍┄┅╴╶╸╺▔▁", "│┃║╎╏▏▕▌▐"
GLYPHS: Mapping[str, str] = {
    **dict.fromkeys(_CORNERS_AND_JOINTS, "+"),
    **dict.fromkeys(_ACROSS, "-"),
    **dict.fromkeys(_DOWN, "|"),
    **dict(zip("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\|/-\\|/", strict=True)),
    **dict(zip("▂▃▄▅▆▇█", ".:-=+*#", strict=True)),
    **dict(zip("▓▒░", "#=.", strict=True)),
    **dict(zip("✗✓▲●▼▾▸▴◂•◉○", "X+^*vv>^<*@o", strict=True)),
    **dict(zip("↑↓←→⏎…·–—−×≥≤≈°µ§", "^v<>~~.---x><~ uS", strict=True)),
    **dict(zip("‘’‚“”„«»", '\'\',"""<>', strict=True)),
    "\N{NO-BREAK SPACE}": " ",
}
"""Each is one column wide. What is not here becomes a question mark a column."""


def wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal shows ASCII only, as far as it says.

    Terminals of before Unicode and the kernel's console have none of the glyphs. Else the user's locale names the
    encoding; where it names none (a container, a bare ssh), nearly every terminal takes UTF-8.
    """
    if environ.get("TERM", "").startswith(("vt", "linux", "ansi", "cons25", "dumb")):
        return True
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or "UTF-8"
    if locale == "C.UTF-8" and not environ.get("LC_ALL"):  # Python itself writes this into LC_CTYPE where LANG is C
        locale = environ.get("LANG") or locale
    return "utf" not in locale.lower()


class Ascii(LineFilter):
    """Draws every glyph by its stand-in."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - Textual's signature
        """The same columns in ASCII."""
        return [Segment(ascii_of(text), style, control) for text, style, control in segments]


@lru_cache(2048)
def ascii_of(text: str) -> str:
    """The text in ASCII, as many columns wide."""
    if text.isascii():
        return text
    return "".join(
        character if character.isascii() else GLYPHS.get(character) or "?" * cell_len(character) for character in text
    )
