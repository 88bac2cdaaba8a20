"""What every text view needs: wrapping, marks, colour where it is wanted, and no control character ever."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from gpudoctor.language import say
from gpudoctor.model.fact import Known, value_to_json
from gpudoctor.views._columns import folded, has_wide

WIDTH = 80
_CODES = {"bold": "1", "red": "31", "yellow": "33", "green": "32", "dim": "2"}
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]"
)
"""What a terminal obeys, what turns the direction of a line, and what nobody sees."""
_UNTYPED = re.compile(rf"{_UNSAFE.pattern}|[\t\n]")
"""What belongs in no command line."""
_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
_MARKS = {
    "by hand": "by hand",
    "root": "needs root",
    "reboot": "needs a reboot",
    "network": "needs the network",
    "downtime": "interrupts jobs",
    "environment": "changes this environment",
    "system": "changes the system",
    "hardware": "touches hardware",
}


@dataclass(frozen=True, slots=True)
class Style:
    """Whether to colour."""

    colour: bool = False

    def paint(self, text: str, *names: str) -> str:
        """The text in those colours, or as it is."""
        if not self.colour:
            return text
        return f"\x1b[{';'.join(_CODES[name] for name in names)}m{text}\x1b[0m"


def style_of(stream: TextIO) -> Style:
    """Colour on a terminal, unless NO_COLOR or TERM=dumb."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return Style(colour=not plain)


def safe(text: str) -> str:
    """The text with control characters spelt out, so that a GPU's name cannot drive the terminal."""
    return _UNSAFE.sub(lambda match: repr(match.group())[1:-1], text)


def drawable(text: str) -> str:
    """The text safe and on one line, its spaces kept: quick where there is nothing to be done."""
    return text if text.isprintable() else safe(text.replace("\n", " ").replace("\t", " "))


def one_line(text: str) -> str:
    """The text safe and on one line, so that a name cannot pass for a line of ours."""
    return " ".join(safe(text).split())


def few(said: str, most: int = 3) -> str:
    """The first of many things that are said in one line, ``;`` between them, and how many there are besides."""
    parts = said.split("; ")
    if len(parts) <= most + 1:
        return said
    return "; ".join([*parts[:most], say("and {count} more", count=len(parts) - most)])


def value(known: Known) -> str:
    """A fact's value as a person reads it, cut where it is long."""
    raw = value_to_json(known.value)
    text = _BREAKS.sub(" ", ", ".join(map(str, raw)) if isinstance(raw, list) else str(raw))
    return text if len(text) <= 300 else text[:297] + "..."


def wrapped(text: str, indent: int = 0, hang: int | None = None, paragraphs: bool = False) -> list[str]:
    """The text in lines of at most `WIDTH` columns; a longer word (a command, a path) stays whole.

    It is one paragraph, so that foreign words in it cannot begin a line of their own; a page's text has `paragraphs`.
    """
    first, rest = " " * indent, " " * (indent if hang is None else hang)
    lines = []
    for paragraph in re.split(r"\n\s*\n", safe(text)) if paragraphs else [safe(_BREAKS.sub(" ", text))]:
        if has_wide(paragraph):
            lines += folded(paragraph, WIDTH, first, rest)
            continue
        lines += textwrap.wrap(
            paragraph,
            WIDTH,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return lines


def marks(needs: Sequence[str], touches: str) -> str:
    """What a step asks for, in words: ``(needs root, changes the system)``."""
    words = [say(_MARKS[need]) if need in _MARKS else say("needs {what}", what=need) for need in needs]
    if touches in _MARKS:
        words.append(say(_MARKS[touches]))
    return say("({marks})", marks=say(", ").join(words)) if words else ""


def noted(text: str, needs: Sequence[str], touches: str) -> str:
    """What is said of a step: its text, and what it asks for."""
    return say("{text} {marks}", text=text, marks=marks(needs, touches)).strip()


def command(argv: Sequence[str]) -> str:
    """The command as one types it, on one line: what the terminal would obey is spelt out as bash reads it."""
    import shlex

    return " ".join(_spelt(word) if _UNTYPED.search(word) else shlex.quote(word) for word in argv)


def _spelt(word: str) -> str:
    quoted = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_UNTYPED.sub(lambda match: repr(match.group())[1:-1], quoted)}'"
