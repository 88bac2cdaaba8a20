"""Parsers that say what a misspelt word was probably meant to be."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from gpudoctor.model.pattern import pattern

_CHOICE = pattern(r"invalid choice: '?(.*?)'? \(choose from (.*)\)\Z")
_UNKNOWN = "unrecognized arguments: "


class Parser(argparse.ArgumentParser):
    """argparse's, with our help, whose errors end in ``; did you mean --level?`` where something is near."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"formatter_class": Help, **more})

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit with 2."""
        super().error(f"{message}{self._meant(message)}")

    def _meant(self, message: str) -> str:
        from gpudoctor.model.near import meant

        if choice := _CHOICE.search(message):
            return meant(choice[1], re.findall(r"[\w.+-]+", choice[2]))
        if not message.startswith(_UNKNOWN):
            return ""
        word = message.removeprefix(_UNKNOWN).split(" ")[0].partition("=")[0]
        return meant(word, [known for known in _words(self) if known.startswith("-") == word.startswith("-")])


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Every option and every command of the parser, and of the parsers of its commands."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other list of them
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for name, command in action.choices.items():
                yield name
                yield from _words(command)


def asked(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command that these words name, for its own usage."""
    for word in words:
        for action in parser._actions:  # noqa: SLF001
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:  # noqa: SLF001
                parser = action.choices[word]
                break
    return parser


class Intermixed(Parser):
    """A command whose options may stand between its words: argparse gives a word that may be left out up too early."""

    _within = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._within:
            return super().parse_known_args(args, namespace)
        self._within = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._within = False


# ---- How the help of every command looks ----


class Help(argparse.HelpFormatter):
    """Paragraphs are filled; one whose lines are indented stands as it is."""

    def __init__(self, prog: str, **more: Any) -> None:
        """argparse makes one for each option; where no `width` is given that loads shutil to ask the terminal."""
        super().__init__(prog, **{"width": _columns() - 2, **more})

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = super()._fill_text
        blocks = text.split("\n\n")
        return "\n\n".join(block if "\n  " in block else filled(block, width, indent) for block in blocks)


def _columns() -> int:
    """Columns of the terminal, as `shutil.get_terminal_size` has them."""
    try:
        return int(os.environ.get("COLUMNS", "")) or 80
    except ValueError:
        pass
    try:
        return os.get_terminal_size().columns
    except OSError:
        return 80
