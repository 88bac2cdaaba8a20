"""What keeps a step from being run, and what must hold before it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from gpudoctor.model.fact import Known, Value
from gpudoctor.model.plan import PlanStep, Requirement
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.remedy.effects.commands import bare, command_of

_WORDS = ("DEFAULT",)
"""Words in capitals that a command takes as they are; any other stands for what only a person knows."""
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_SHELL = re.compile(r"[;&|`$<>(){}'\"\\*?!#\s]")
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9][\w.-]*(\[[\w.,-]+\])?((===?|[<>~!]=|[<>=])[\w.+!*]+(,\s?[<>~!=]{1,3}[\w.+!*]+)*(=[\w.*]+)?)?"
)
_PLACE = re.compile(r"([\w.-]+ @ )?https?://\S+|[/~.\\].*|[A-Za-z]:[\\/].*")
"""A URL, a wheel by its URL, or a path; none begins with what a program would take for an option."""


def blanks(argv: Sequence[str]) -> Iterator[str]:
    """Words that stand for what only a person knows: IMAGE, POD."""
    return (word for word in argv if word.isalpha() and word.isupper() and len(word) > 1 and word not in _WORDS)


class Names:
    """The names and paths that a snapshot holds: whoever wrote it chose them, and no word of a command may be one that
    a program would take for something else.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        values = [fact.value for fact in snapshot.facts.values() if isinstance(fact, Known)]
        for group, rows in snapshot.groups.items():
            if group != "text" and isinstance(rows, tuple):
                values += [fact.value for row in rows for fact in row.values() if isinstance(fact, Known)]
        told = {text for value in values for text in _texts(value)}
        self.options = {text for text in told if text.startswith("-")}
        self.scripts = {text for text in told if len(text) > 2 and _SHELL.search(text)}

    def refuse(self, argv: Sequence[str]) -> str:
        """Why these words are no command to run; empty where they are one."""
        for word in argv:
            if _UNPRINTABLE.search(word.replace("\n", " ") if argv[:2] == ("sh", "-c") else word):
                return f"{word[:40]!r} holds characters that do not show"
            if any(word == option or word.endswith(f"={option}") for option in self.options):
                return f"{word[:40]!r} was read from the machine and would be taken for an option"
        if argv and PurePath(argv[0]).name in ("sh", "bash"):
            return self._refuse_script(" ".join(argv[2:]))
        return _no_package(argv)

    def _refuse_script(self, script: str) -> str:
        """Why a shell must not see this script: what was read from the machine would be more than a word in it."""
        spoilt = next((text for text in self.scripts if text in script), "")
        spoilt = spoilt or next((word for word in script.split() if word in self.options), "")
        return f"{spoilt[:40]!r} was read from the machine, and a shell would take it apart" if spoilt else ""


def _no_package(argv: Sequence[str]) -> str:
    """Of a package command: the word that is neither a package, a path, a URL nor an option."""
    if command_of(argv) is None:
        return ""
    for word in argv[1:]:
        if not word.startswith("-") and not _REQUIREMENT.fullmatch(word) and not _PLACE.fullmatch(word):
            return f"{word[:40]!r} is no package, path or address"
    return ""


def _texts(value: Value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)


def requires(step: PlanStep, environment: str) -> tuple[Requirement, ...]:
    """What must hold before that step: its program is there, its environment can be written to and is as it was."""
    if not step.argv:
        return ()
    program = next(iter(bare(step.argv)), "")
    wanted = [Requirement("program", program)] if program and not program.startswith(".") else []
    command = command_of(step.argv)
    if command and environment and not command.creates and step.touches == "environment":
        wanted += [Requirement("writable", environment), Requirement("unchanged", environment)]
    return tuple(wanted)
