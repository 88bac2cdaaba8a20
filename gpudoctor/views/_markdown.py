"""Foreign text in Markdown, as GitHub and GitLab read it: nothing in it is markup, a mention, a link or a picture."""

from __future__ import annotations

import re

from gpudoctor.views._terminal import one_line, safe

_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~&!$^]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_ITEM = re.compile(r"^(\d+(?=[.)](?:\s|$))|(?=[-+=]))")
"""What makes an item or a rule of a line is behind this."""
_REFERENCE = re.compile(r"@|[#!](?=\d)|\bGH-(?=\d)|:(?=(?:[a-z][a-z0-9_+-]*|100|1234|[+-]1):)")
"""Calls a person, links an issue, or is a picture: ``@name``, ``#12``, ``GH-12``, ``:de:``."""
_JOINER = "\u2060"
"""Has no width; behind the first of these it keeps a tracker from reading on."""
_ADDRESS = re.compile(r"(?<![\w:])((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?![\w.])")
"""A PCI address: it is to be copied, and ``0000:de:00.0`` has the flag of a country in it."""
_LONGEST = 4000
"""Characters of one text: what is longer is a log that somebody put where a word belongs."""


def text(said: str) -> str:
    """Foreign text as it reads, on one line."""
    clean = one_line(said)
    if len(clean) > _LONGEST:
        clean = clean[:_LONGEST] + " ..."
    plain, *found = _ADDRESS.split(clean)
    parts = [_ITEM.sub(r"\1\\", _plain(plain))]
    for address, behind in zip(found[::2], found[1::2], strict=True):
        parts += [f"`{address}`", _plain(behind)]
    return "".join(parts)


def _plain(said: str) -> str:
    return _SPECIAL.sub(r"\\\1", _REFERENCE.sub(lambda found: found[0] + _JOINER, said))


def cell(said: str) -> str:
    """A value in a table: code, unless it has a bar, which would end the cell."""
    return text(said) if "|" in said else code(said)


def code(said: str) -> str:
    """The text as code within a line; its fence is longer than any run of back-ticks in it."""
    clean = one_line(said)[:_LONGEST]
    fence = "`" * (_longest_run(clean) + 1)
    pad = " " if "`" in clean else ""
    return f"{fence}{pad}{clean or ' '}{pad}{fence}"


def fenced(said: str, language: str = "") -> str:
    """The text as a block of code; its fence is longer than any run of back-ticks in it."""
    fence = "`" * max(3, _longest_run(said) + 1)
    return f"{fence}{language}\n{safe(said)}\n{fence}"


def _longest_run(said: str) -> int:
    return max((len(run) for run in re.findall(r"`+", said)), default=0)
