"""Words of commands that are filled from facts: each matches the grammar of its place, or the command is not offered.

A fact is what somebody else wrote: the name of a package is in its metadata, a path in a report. A page's template says
where it stands in the command; what does not fit there (an option, a URL, a second command) never becomes a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePath

from gpudoctor.language import say
from gpudoctor.model.pattern import pattern

_HOLE = pattern(r"\{([^{}]+)\}")
_QUOTED = pattern(r"'([^']*)'|\"([^\"]*)\"")
_HIDDEN = pattern(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_UPWARDS = pattern(r"(?:^|[/\\])\.\.(?:[/\\]|$)")
_SHELL = pattern(r"[A-Za-z0-9_.:/@%+=,-]*")

_PATH = pattern(r"/[^/].*|/|[A-Za-z]:[\\/].*|\\\\[^\\].*")
_PROGRAM = pattern(r"/[^/].*|[A-Za-z]:[\\/].*|[A-Za-z][A-Za-z0-9._+-]*")
_SPECIFIER = r"(?:===?|[<>~!]=|[<>=])\s?[\w.+!*-]+"
_REQUIREMENT = pattern(
    rf"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?(?:\[[\w.-]+(?:,[\w.-]+)*\])?(?:{_SPECIFIER}(?:,\s?{_SPECIFIER})*(?:=[\w.*]+)?)?"
)
_PACKAGE = pattern(r"[A-Za-z0-9][A-Za-z0-9.+_:~^*-]*(?:=[A-Za-z0-9.+_:~^*-]+)?")
_URL = pattern(r"https://[A-Za-z0-9.-]+(?::\d+)?(?:/[\w.+~%-]*)*")
_GPU = pattern(r"\d{1,4}|(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?|(?:GPU|MIG)-[\w/-]+|[A-Z]{2,}")
_NUMBER = pattern(r"\d+(?:\.\d+)?")
_HOST = pattern(r"[A-Za-z0-9](?:[\w.:-]*[A-Za-z0-9])?")
_PLAIN = pattern(r"[^\s\-;&|`$<>(){}'\"\\*?!#/~][^\s;&|`$<>(){}'\"\\*?!#]*")
_VALUE = pattern(r"--?[A-Za-z][\w-]*=[^\s;&|`$<>(){}'\"\\*?!#]+")

_MANAGERS = ("apt-get", "apt", "dnf", "yum", "microdnf", "zypper", "pacman", "ubuntu-drivers", "winget")
_INSTALLERS = ("pip", "pip3", "uv", "conda", "mamba", "micromamba")


def fault(templates: Sequence[str], words: Sequence[str], filled: Callable[[str], str]) -> str:
    """Why these words, filled into the templates, are no command to run; empty where they are one.

    `filled` is what fills a template.
    """
    first = _program(templates)
    name = _name(words, first)
    for place, (template, word) in enumerate(zip(templates, words, strict=True)):
        holes = _HOLE.findall(template)
        if all(_is_of_the_page(hole, filled) for hole in holes):
            continue
        shown = repr(word[:60])
        if _HIDDEN.search(word):
            return say("{word} holds characters that do not show", word=shown)
        if name in ("sh", "bash") and place > first:
            values = (filled(f"{{{hole}}}") for hole in holes if not _is_of_the_page(hole, filled))
            if spoilt := next((value for value in values if not _SHELL.fullmatch(value)), ""):
                return say("{word} is more than one word to a shell", word=repr(spoilt[:60]))
            continue
        what, grammar = _wanted(name, template, words[place - 1] if place > first else "", program=place == first)
        if not grammar.fullmatch(word) or _UPWARDS.search(word):
            return say("{word} is no {what}", word=shown, what=say(what))
    return ""


def _wanted(name: str, template: str, before: str, *, program: bool) -> tuple[str, re.Pattern[str]]:
    """What stands in that place of the command of that program, and its grammar."""
    if program:
        return "program by its absolute path", _PROGRAM
    if template.startswith("https://"):
        return "https address", _URL
    if before in ("--python", "-p", "--prefix") or template.startswith("/"):
        return "absolute path", _PATH
    if template.startswith("-"):
        return "value of an option", _VALUE
    if name in _INSTALLERS:
        return "package name or version (PEP 508, PEP 440)", _REQUIREMENT
    if name in _MANAGERS:
        return "package name of the system", _PACKAGE
    if name == "nvidia-smi":
        return ("GPU's number, address or UUID", _GPU) if before in ("-i", "--id") else ("number", _NUMBER)
    if name == "ssh":
        return "host name", _HOST
    if template.startswith("{") and template.endswith("/torch"):
        return "absolute path", _PATH
    return "plain word", _PLAIN


def _program(templates: Sequence[str]) -> int:
    """The place of the program behind ``env NAME=VALUE -u NAME`` and ``sudo``."""
    place = 0
    while place < len(templates) - 1 and (
        templates[place] in ("env", "sudo", "-u") or re.match(r"[A-Z_]+=", templates[place])
    ):
        place += 2 if templates[place] == "-u" else 1
    return place


def _name(words: Sequence[str], first: int) -> str:
    """What is run: ``pip`` of ``python -m pip`` as well."""
    if tuple(words[first + 1 : first + 2]) == ("-m",) and len(words) > first + 2:
        return words[first + 2]
    return PurePath(words[first]).name if words else ""


def _is_of_the_page(hole: str, filled: Callable[[str], str]) -> bool:
    """Whether what fills the hole is one of the page's own words, so that a fact chose among them at most."""
    value = filled(f"{{{hole}}}")
    inner, mark, otherwise = hole.partition("|")
    literals = {single or double for single, double in _QUOTED.findall(inner)}
    return value in literals or (bool(mark) and value == otherwise.strip().strip("'"))
