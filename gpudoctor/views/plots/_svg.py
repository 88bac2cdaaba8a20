"""Parts of a picture: a figure with its words, a rectangle with its hint, text; everything foreign escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from gpudoctor.views._terminal import one_line

_LONGEST = 300


def words(text: str, most: int = _LONGEST) -> str:
    """Foreign text in an element or an attribute: on one line, and not longer than that."""
    return escape(one_line(text)[:most], quote=True)


def figure(
    title: str, about: str, size: tuple[float, float], parts: Iterable[str], note: str = "", wide: bool = False
) -> str:
    """A picture of `size` (width, height, in pixels) under its caption; `about` says it to who cannot see it."""
    width, height = map(_number, size)
    small = f" <small>{words(note)}</small>" if note else ""
    fixed = f' width="{width}"' if wide else ""
    head = f"<figure{_WIDE if wide else ''}><figcaption>{words(title)}{small}</figcaption>"
    drawn = f'<svg role="img" viewBox="0 0 {width} {height}"{fixed}>'
    said = f"<title>{words(title)}</title><desc>{words(about, 2000)}</desc>"
    return f"{head}{drawn}{said}{''.join(parts)}</svg></figure>"


_WIDE = ' class="wide"'


def box(place: tuple[float, float], size: tuple[float, float], look: str, hint: str = "", shade: float = 1.0) -> str:
    """A rectangle from its upper left corner; `hint` is shown where the pointer rests on it."""
    x, y, width, height = map(_number, (*place, *size))
    faint = "" if shade >= 1 else f' fill-opacity="{_number(max(shade, 0))}"'
    said = f"<title>{words(hint)}</title>" if hint else ""
    return f'<rect class="{look}" x="{x}" y="{y}" width="{width}" height="{height}"{faint}>{said}</rect>'


def line(start: tuple[float, float], end: tuple[float, float], look: str) -> str:
    """A straight line."""
    x1, y1, x2, y2 = map(_number, (*start, *end))
    return f'<line class="{look}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def text(place: tuple[float, float], said: str, anchor: str = "start", look: str = "", turned: bool = False) -> str:
    """A line of text at its baseline; `turned`: upwards."""
    x, y = map(_number, place)
    style = f' class="{look}"' if look else ""
    turn = f' transform="rotate(-90 {x} {y})"' if turned else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{style}{turn}>{words(said, 40)}</text>'


def shortened(said: str, most: int) -> str:
    """At most that many characters, the middle left out."""
    if len(said) <= most:
        return said
    return f"{said[: most // 2]}…{said[-(most - most // 2 - 1) :]}"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
