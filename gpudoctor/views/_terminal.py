"""What every text view needs: colour where it is wanted, no control character ever, wrapping by columns, and figures.

Some characters, as Chinese ones are, take two columns. Text of such has no blanks to break lines at: a line may end
behind any wide character, but no line begins with what closes or parts (，。）) and none ends with what opens (（“),
which typesetters call kinsoku.
"""

from __future__ import annotations

import os
import re
import shlex
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import wraps
from typing import ParamSpec, TextIO

from gpudoctor.core.fact import Known, value_to_json
from gpudoctor.core.frozen import frozen
from gpudoctor.core.language import say
from gpudoctor.core.system import shell_line

WIDTH = 80
_CODES = {"bold": "1", "red": "31", "yellow": "33", "green": "32", "dim": "2"}
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters, those that change the direction of text, and invisible ones."""
_UNTYPABLE = re.compile(rf"{_UNSAFE.pattern}|[\t\n]")
"""`_UNSAFE`, and tabs and newlines: they cannot be typed in a command line."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*[mK]")
_LINE_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
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


@frozen
class Style:
    """How text is painted: with ANSI colours, or plain."""

    colour: bool = False

    def paint(self, text: str, *names: str) -> str:
        """The text in the ANSI codes of these names (``bold``, ``red``); unchanged if the style has no colour."""
        if not self.colour:
            return text
        return f"\x1b[{';'.join(_CODES[name] for name in names)}m{text}\x1b[0m"


PLAIN = Style()


def style_of(stream: TextIO) -> Style:
    """A `Style` with colour if the stream is a terminal, unless NO_COLOR is set or TERM is ``dumb``; else without."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return Style(colour=not plain)


ERASE = "\r\x1b[2K"
"""Erases the line on which a terminal's cursor is."""


def put_status(stream: TextIO, text: str) -> None:
    """Write the text over the line that the terminal's cursor is on, cut to its width so that it does not wrap."""
    columns = 0
    with suppress(OSError, ValueError):
        columns = os.get_terminal_size(stream.fileno()).columns
    stream.write(f"{ERASE}{cut(drawable(text), (columns or WIDTH) - 1)}")
    stream.flush()


def safe(text: str) -> str:
    r"""The text with control and invisible characters as escapes (``\x1b``); tabs and newlines stay."""
    return _UNSAFE.sub(lambda match: repr(match.group())[1:-1], text)


def drawable(text: str) -> str:
    """The text made `safe` and on one line, newlines and tabs as one blank each; fast if it is printable already."""
    return text if text.isprintable() else safe(text.replace("\n", " ").replace("\t", " "))


def one_line(text: str) -> str:
    """The text made `safe` and on one line, runs of white space as one blank, none at its ends."""
    return " ".join(safe(text).split())


def uncoloured(line: str) -> str:
    """The line without ANSI codes that colour or erase (``ESC [ m``, ``ESC [ K``); other control characters stay."""
    return _COLOURS.sub("", line)


def few(text: str) -> str:
    """The first three parts of a text separated by ``; ``, and how many more; unchanged up to four parts."""
    parts = text.split("; ")
    return text if len(parts) <= 4 else "; ".join([*parts[:3], say("and {count} more", count=len(parts) - 3)])


def digits(value: float) -> str:
    """A number in at most five characters, a sign aside: ``4e-05``, ``0.195``, ``54.1``, ``712``, ``1234``, ``12.3k``,
    ``1.2M``.
    """
    size = abs(value)
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= unit * 0.9995:
            scaled = value / (1e3 if name == "k" else unit)
            return f"{scaled:.0f}{name}" if abs(scaled) >= 99.95 else f"{scaled:.1f}{name}"
    if size < 0.01:
        return f"{value:.0e}" if size else "0"
    return f"{value:.{3 if size < 0.9995 else 2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


def seconds(value: float) -> str:
    """A duration given in seconds as text: ``0.2 s``, ``18 s``, ``2 min 5 s``."""
    if value < 10:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def size(mib: float) -> str:
    """A size given in MiB as text: ``850 MiB``, ``2.4 GiB``."""
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib:.0f} MiB"


def plural(count: int, word: str) -> str:
    """The count with its noun, translated: ``1 step``, ``3 steps``."""
    return say(f"{{count}} {word}{'s' if count != 1 else ''}", count=count)


def value(fact: Known) -> str:
    """A fact's value on one line, list items separated by commas; cut with ``...`` at 300 characters."""
    raw = value_to_json(fact.value)
    text = _LINE_BREAKS.sub(" ", ", ".join(map(str, raw)) if isinstance(raw, list) else str(raw))
    return text if len(text) <= 300 else text[:297] + "..."


_WHOLE = re.compile(
    r"""gpudoctor\x20(?:(?:setup|explain)\x20)?[a-z][\w.-]*(?:\x20\S+(?=\x20--))?"""
    r"""(?:\x20--?[a-z][\w-]*(?:[ =](?:'[^']*'|"[^"]*"|[^\s'"(-]\S*))?)*"""
    r"""|(?<!\S)--?[a-z][\w-]*[ =](?:'[^']*'|"[^"]*")|\$\([^)]*\)|(?<![^\s(\[=])'[^']{1,60}'(?![^\s.,;:)\]])"""
)
"""What no line is broken in: a command of gpudoctor with its options, an option with a quoted value, a substitution of
the shell, and short quotations.
"""
_HELD = "\0"
"""Stands for a blank at which no line is broken; `safe` text has none."""


def wrapped(text: str, indent: int = 0, hang: int | None = None, paragraphs: bool = False) -> list[str]:
    """The text, made `safe`, as lines of at most `WIDTH` columns; a longer word and what `_WHOLE` matches stay whole.

    `indent` is of the first line, `hang` of the others (default: the same). Line breaks in the text become blanks, so
    that foreign text cannot begin a line of its own; with `paragraphs`, the text is divided at its blank lines, and
    each part begins a new line (no blank line is returned).
    """
    first, rest = " " * indent, " " * (indent if hang is None else hang)
    lines = []
    plain = safe(text if paragraphs else _LINE_BREAKS.sub(" ", text))
    held = _WHOLE.sub(lambda match: re.sub(r"[^\S\n]", _HELD, match[0]), plain)
    for paragraph in re.split(r"\n\s*\n", held) if paragraphs else [held]:
        if has_wide(paragraph):
            lines += fold_wide(paragraph, WIDTH, first, rest)
            continue
        wrapper = textwrap.TextWrapper(WIDTH, first, rest, break_long_words=False, break_on_hyphens=False)
        lines += wrapper.wrap(paragraph) or [""]
    return [line.replace(_HELD, " ") for line in lines]


_SHELL_PART = re.compile(
    r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\$\([^)]*\)|\{[^}]*\}|\x20\x20\#\x20.*|[^;])+""", re.VERBOSE | re.DOTALL
)


def shell_lines(lead: str, text: str, indent: int) -> Iterator[str]:
    """The text behind `lead` where one line takes both; else each command of it on a line of its own, never broken.

    Commands are separated by ``;``; what follows ``  # `` in the last is a remark, which is wrapped.
    """
    text = safe(_LINE_BREAKS.sub(" ", text))
    if width(f"{lead} {text}") <= WIDTH - indent:
        yield f"{' ' * indent}{lead} {text}"
        return
    yield f"{' ' * indent}{lead}"
    for part in map(str.strip, _SHELL_PART.findall(text)):
        typed, mark, remark = part.partition("  # ")
        if mark and width(part) > WIDTH - indent - 2:
            yield from (f"{' ' * indent}  {typed}", *wrapped(f"# {remark}", indent + 4, indent + 6))
        elif part:
            yield f"{' ' * indent}  {part}"


_Arguments = ParamSpec("_Arguments")


def joined(lines: Callable[_Arguments, Iterator[str]]) -> Callable[_Arguments, str]:
    """Decorator for a function that yields lines: it then returns them as one text, without a newline at its end."""

    @wraps(lines)
    def text(*args: _Arguments.args, **more: _Arguments.kwargs) -> str:
        """The lines of the decorated function as one text."""
        return "\n".join(lines(*args, **more))

    return text


def step_marks(needs: Sequence[str], touches: str) -> str:
    """What a step needs and touches, translated: ``(needs root, changes the system)``; empty if nothing."""
    parts = [say(_MARKS[need]) if need in _MARKS else say("needs {what}", what=need) for need in needs]
    if touches in _MARKS:
        parts.append(say(_MARKS[touches]))
    return say("({marks})", marks=say(", ").join(parts)) if parts else ""


def step_text(text: str, needs: Sequence[str], touches: str) -> str:
    """A step's text followed by its `step_marks`; empty if it has neither."""
    return say("{text} {marks}", text=text, marks=step_marks(needs, touches)).strip()


def command(argv: Sequence[str]) -> str:
    """The command as typed in a shell, quoted by `shell_line`; words with control or invisible characters in bash's
    ``$'...'`` form.
    """
    if not any(map(_UNTYPABLE.search, argv)):
        return shell_line(argv)
    return " ".join(_ansi_quoted(word) if _UNTYPABLE.search(word) else shlex.quote(word) for word in argv)


def _ansi_quoted(word: str) -> str:
    """The word in bash's ``$'...'`` quoting; each character that cannot be typed as an escape."""
    quoted = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_UNTYPABLE.sub(lambda match: _escaped(match[0]), quoted)}'"


def _escaped(character: str) -> str:
    """One character as bash's escape: ``\\t``; ``\\xc2\\xad``, as bash takes ``\\xad`` for a byte, not for U+00AD."""
    if character.isascii():
        return repr(character)[1:-1]
    is_byte = "\udc80" <= character <= "\udcff"  # of a name that is not UTF-8, as `os.fsdecode` has it
    encoded = character.encode("utf-8", "surrogateescape" if is_byte else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in encoded)


# ---- Columns of wide characters ----

_WORD = re.compile(r"(\s*)(\S+)")
_NEVER_FIRST = frozenset("，。、；：？！）》】」』”’…％,.;:?!)]}")
_NEVER_LAST = frozenset("（《【「『“‘([{")


def width(text: str) -> int:
    """Columns that the text takes in a terminal, the sum of `_columns`: two for East Asian wide characters and curly
    quotation marks, none for combining ones.
    """
    return len(text) if text.isascii() else sum(map(_columns, text))


def has_wide(text: str) -> bool:
    """True if some character takes two columns (East Asian wide or fullwidth)."""
    return not text.isascii() and any(unicodedata.east_asian_width(character) in "WF" for character in text)


def _columns(character: str) -> int:
    """Columns of one character: 0, 1 or 2. Curly quotation marks and the ellipsis, which a font may draw in one or two,
    count as two.
    """
    if character.isascii():
        return 1
    if unicodedata.combining(character) or character in "\u200d\ufe0f\u2060":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" or character in "“”‘’…" else 1


def cut(text: str, columns: int) -> str:
    """As much of the text's beginning as fits in that many terminal columns."""
    text = text[:columns]
    while width(text) > columns:
        text = text[:-1]
    return text


def padded(text: str, columns: int) -> str:
    """The text with blanks appended up to that many columns; unchanged if it is wider."""
    return text + " " * (columns - width(text))


def fold_wide(text: str, columns: int, first: str, rest: str) -> list[str]:
    """Text with wide characters as lines of at most `columns` columns; a longer word stays whole. Empty if blank.

    `first` and `rest` are the indents, as text, of the first line and of the others.
    """
    lines, line, used, has_piece = [], first, width(first), False
    for blank, piece in _unbreakable_pieces(text):
        added = blank + piece if has_piece else piece
        if has_piece and used + width(added) > columns:
            lines.append(line)
            line, used, added = rest, width(rest), piece
        line, used, has_piece = line + added, used + width(added), True
    return [*lines, line] if has_piece else []


def _unbreakable_pieces(text: str) -> Iterator[tuple[str, str]]:
    """(blanks before it, piece) of each part of the text that must stay on one line."""
    for blank, word in _WORD.findall(text):
        blanks, piece = blank, ""
        for character in word:
            if piece and _may_break_between(piece[-1], character):
                yield " " * len(blanks), piece
                blanks, piece = "", ""
            piece += character
        yield " " * len(blanks), piece


def _may_break_between(before: str, after: str) -> bool:
    """True if a line may end between these two adjacent characters: one is wide, and punctuation does not forbid it."""
    if after in _NEVER_FIRST or before in _NEVER_LAST:
        return False
    return _columns(before) == 2 or _columns(after) == 2
