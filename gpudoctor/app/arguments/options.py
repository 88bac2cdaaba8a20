"""Parsers that say what a misspelt word was probably meant to be, and the options that several commands have."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from gpudoctor.core.language import LANGUAGES, meant, phrase, say
from gpudoctor.core.pattern import pattern

_CHOICE = pattern(r"invalid choice: '?(.*?)'? \(choose from (.*)\)\Z")
_UNKNOWN = "unrecognized arguments: "
_ARGPARSE = (
    "unrecognized arguments: {rest}",
    "ambiguous option: {option} could match {names}",
    "the following arguments are required: {names}",
    "one of the arguments {names} is required",
    "argument {option}: expected one argument",
    "argument {option}: expected at least one argument",
    "argument {option}: invalid choice: {value} (choose from {names})",
    "argument {option}: not allowed with argument {other}",
    "argument {option}: ignored explicit argument {value}",
    "argument {argument}: {rest}",
)
"""What argparse says of words that it does not take."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser with our help format, whose errors end in ``; did you mean --level?`` if something is near."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"formatter_class": Help, **more})

    def error(self, message: str) -> NoReturn:
        """Print usage and the message, with a suggestion if something similar exists, to stderr and exit with 2."""
        self.print_usage(sys.stderr)
        wrong = f"{phrase(message, _ARGPARSE)}{self._suggestion(message)}"
        self.exit(2, say("{program}: error: {wrong}", program=self.prog, wrong=wrong) + "\n")

    def _suggestion(self, message: str) -> str:
        """``; did you mean --level?`` for an argparse error, empty if nothing is near."""
        if choice := _CHOICE.search(message):
            return meant(choice[1], re.findall(r"[\w.+-]+", choice[2]))
        if not message.startswith(_UNKNOWN):
            return ""
        word = message.removeprefix(_UNKNOWN).split(" ")[0].partition("=")[0]
        return meant(word, [known for known in _option_names(self) if known.startswith("-") == word.startswith("-")])


def _option_names(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Every option and command name of the parser and of its commands' parsers."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other list of them
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for name, command in action.choices.items():
                yield name
                yield from _option_names(command)


def parser_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command that these arguments name; the given parser if they name none."""
    for word in arguments:
        for action in parser._actions:  # noqa: SLF001
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:  # noqa: SLF001
                parser = action.choices[word]
                break
    return parser


class Intermixed(Parser):
    """A parser that allows options between positional arguments, which argparse otherwise takes too early."""

    _within = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, by `parse_known_intermixed_args`; that calls this method again, which then is argparse's."""
        if self._within:
            return super().parse_known_args(args, namespace)
        self._within = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._within = False


# ---- How the help of every command looks ----


class Help(argparse.HelpFormatter):
    """Help formatter that fills paragraphs, but keeps those with indented lines as they are."""

    def __init__(self, prog: str, **more: Any) -> None:
        """argparse makes one for each option; a given `width` keeps it from loading shutil to ask the terminal."""
        super().__init__(prog, **{"width": _columns() - 2, **more})

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """The text with each paragraph filled to the width, unless its lines are indented."""
        filled = super()._fill_text
        blocks = text.split("\n\n")
        return "\n\n".join(block if "\n  " in block else filled(block, width, indent) for block in blocks)


def _columns() -> int:
    """Columns of the terminal: COLUMNS, else its own size, else 80."""
    try:
        return int(os.environ.get("COLUMNS", "")) or 80
    except ValueError:
        pass
    try:
        return os.get_terminal_size().columns
    except OSError:
        return 80


# ---- Options that several commands have, and what their values must be ----

FORMS = ("text", "json", "markdown", "html", "junit", "prometheus")


def new_command(commands: Any, name: str, about: str, act: str = "", **more: str) -> argparse.ArgumentParser:
    """Add a command to the subparsers `commands`; `act` names its function for `act_of`, by default `name`."""
    command: argparse.ArgumentParser = commands.add_parser(name, help=about, **more)
    command.set_defaults(act=act or name)
    return command


def add_out(command: argparse.ArgumentParser, about: str = "where to (default: standard output)") -> None:
    """Add ``-o FILE``."""
    command.add_argument("-o", dest="out", metavar="FILE", help=about)


def add_target(command: argparse.ArgumentParser, level: str = "standard") -> None:
    """Add ``--level`` with this default, and ``--python``."""
    command.add_argument(
        "--level", choices=("quick", "standard", "deep"), default=level, help=f"how much to ask (default: {level})"
    )
    add_python(command)


def add_python(command: argparse.ArgumentParser, about: str = "the Python whose torch is examined") -> None:
    """Add ``--python``, ``--as-owner`` and ``--trust-python``."""
    command.add_argument("--python", metavar="PATH", help=about)
    trust = command.add_mutually_exclusive_group()
    trust.add_argument("--as-owner", action="store_true", help="as root: ask another user's Python as that user")
    trust.add_argument("--trust-python", action="store_true", help="as root: run another user's Python as root")


def add_program(command: argparse.ArgumentParser) -> None:
    """Add ``--program`` and ``--ssh-options``, for hosts that are asked."""
    command.add_argument(
        "--program",
        type=words,
        metavar="PATH",
        default="gpudoctor",
        help="gpudoctor on the hosts: /opt/venv/bin/gpudoctor",
    )
    command.add_argument("--ssh-options", type=words, metavar="WORDS", default="", help="for ssh: '-l root -F FILE'")


def add_wait(command: argparse.ArgumentParser) -> None:
    """Add ``--wait SECONDS``."""
    about = "how long sleeping GPUs may take to wake (default: 30; above level quick 5 for each GPU if that is more)"
    command.add_argument("--wait", metavar="SECONDS", type=seconds, help=about)


def add_rules(command: argparse.ArgumentParser) -> None:
    """Add ``--rules DIR``."""
    command.add_argument("--rules", metavar="DIR", type=Path, action="append", default=[], help="a site's own pages")


def add_expect(command: argparse.ArgumentParser) -> None:
    """Add ``--expect FILE``."""
    about = "what the machine must be: a profile in TOML, or the name of one that ships (gpudoctor expect list)"
    command.add_argument("--expect", metavar="FILE", help=about)


def add_share(command: argparse.ArgumentParser) -> None:
    """Add ``--share``."""
    command.add_argument(
        "--share",
        action="store_true",
        help="hide personal data: names of users and hosts, home folders, serial numbers, UUIDs, addresses, secrets",
    )


def add_format(command: argparse.ArgumentParser) -> None:
    """Add ``--json`` and ``--format`` of a report."""
    command.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    command.add_argument("--format", choices=FORMS, help="the report's form (default: text)")


def add_report(command: argparse.ArgumentParser) -> None:
    """Add the options of a report: ``--json``, ``--format``, ``-o``, ``--share``, ``--rules``, ``--strict``..."""
    add_format(command)
    add_out(command, "write the report there: the file is whole or not there (default: standard output)")
    add_share(command)
    add_rules(command)
    command.add_argument("--strict", action="store_true", help="exit 1 on warnings too")
    add_lang(command)


def add_lang(command: argparse.ArgumentParser) -> None:
    """Add ``--lang``."""
    command.add_argument(
        "--lang",
        choices=LANGUAGES,
        help="the language of messages (default: GPUDOCTOR_LANG, else the locale's; documents for programs: en)",
    )


def add_serve(command: argparse.ArgumentParser) -> None:
    """Add ``--serve`` and ``--allow-changes``."""
    command.add_argument(
        "--serve",
        nargs="?",
        const="127.0.0.1:0",
        metavar="HOST:PORT",
        help="show it in a browser, to whoever has the printed URL (default: 127.0.0.1, a free port)",
    )
    command.add_argument(
        "--allow-changes",
        action="store_true",
        help="with --serve: allow fix, undo and save from the browser, as the user who serves it",
    )


# ---- Types of values ----
# argparse names the option, and shows their message.


def seconds(text: str) -> float:
    """A time limit in seconds, greater than 0 and less than a million; raises ArgumentTypeError otherwise."""
    if not 0 < (seconds := _number(text)) < 1e6:
        raise argparse.ArgumentTypeError(
            say("{value} is no time in seconds, more than 0 and less than a million", value=repr(text))
        )
    return seconds


def minutes(text: str) -> float:
    """A time in minutes, greater than 0 and at most a week; raises ArgumentTypeError otherwise."""
    if not 0 < (minutes := _number(text)) <= 7 * 24 * 60:
        raise argparse.ArgumentTypeError(
            say("{value} is no time in minutes, more than 0 and a week at most", value=repr(text))
        )
    return minutes


def count(text: str) -> int:
    """A number of at least 1; raises ArgumentTypeError otherwise."""
    if (count := _number(text)) < 1 or not count.is_integer():
        raise argparse.ArgumentTypeError(say("{value} is no whole number of at least 1", value=repr(text)))
    return int(count)


def process_id(text: str) -> int:
    """The number of a process; raises ArgumentTypeError for anything but digits."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(say("{value} is no process id, a positive whole number", value=repr(text)))
    return int(text)


def _number(text: str) -> float:
    """The text as a number; 0, which none of these values may be, where it is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def words(text: str) -> str:
    """The text unchanged if a shell can split it; raises ArgumentTypeError for an unclosed quote."""
    try:
        shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(say("{value} has a quote that is not closed", value=repr(text))) from error
    return text
