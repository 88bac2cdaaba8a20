"""The command line: parsers of all commands. The default `act` of a parser is its command's name.

- `diagnosing`: commands that only look, from ``check`` to ``fleet``; `changing`: ``fix``, ``setup`` and all others
- `options`: options that several commands have
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from gpudoctor.app.arguments import changing, diagnosing
from gpudoctor.app.arguments.options import Parser, parser_of
from gpudoctor.core import shipped
from gpudoctor.core.about import __version__
from gpudoctor.core.language import meant, say

_BEFORE_A_COMMAND = ("preflight", "run")
"""Commands that another command follows, after ``--``."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed options of a command line; what follows ``--`` of ``preflight`` and ``run`` is `options.command`.

    Prints an error and exits with 2 for unknown or wrong arguments, with 0 after --help and --version.
    """
    own, command = list(arguments), []
    if own and own[0] in _BEFORE_A_COMMAND and "--" in own:
        at = own.index("--")
        own, command = own[:at], own[at + 1 :]
    top = parser(own[0] if own and own[0] in COMMANDS else "")
    options, unknown = top.parse_known_args(own)
    if unknown:
        after = (
            say("; what is to be run stands after --")
            if own[0] in _BEFORE_A_COMMAND and not unknown[0].startswith("-")
            else ""
        )
        parser_of(top, own).error(f"unrecognized arguments: {' '.join(unknown)}{after}")
    options.command = command
    return options


_SYNONYMS = {
    **dict.fromkeys(("diagnose", "diagnosis", "doctor", "scan", "test"), "check"),
    **dict.fromkeys(("install", "torch", "solve"), "setup torch"),
    **dict.fromkeys(("hang", "stuck", "ps"), "job"),
    **dict.fromkeys(("gate", "precheck"), "preflight"),
    **dict.fromkeys(("repair", "cure", "heal"), "fix"),
    **dict.fromkeys(("rule", "list"), "rules list"),
}
"""What a newcomer may type first, and the command for it."""


def no_command(word: str) -> NoReturn:
    """Print to stderr that the word is no command, with what may be meant instead, and exit with 2; never returns."""
    read = say("; to read a file: gpudoctor read {name}", name=word) if Path(word).exists() else ""
    if word in {"help", "version"}:
        read = say("; did you mean {names}?", names=f"--{word}")
    elif word in _SYNONYMS:
        read = say("; did you mean {names}?", names=_SYNONYMS[word])
    Parser(prog="gpudoctor", usage="gpudoctor [-h] [-V] COMMAND ...").error(
        say(
            "no command {word}{near}",
            word=repr(word),
            near=read or meant(word, COMMANDS) or say("; gpudoctor --help names them all"),
        )
    )


def parser(command: str = "") -> argparse.ArgumentParser:
    """The parser of all commands, or of that one alone, which is faster to build."""
    top = Parser(prog="gpudoctor", description="Names the cause when a GPU machine does not work.")
    top.add_argument("-V", "--version", action="version", version=f"gpudoctor {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, prog=top.prog)
    for names, add in _ADDED:
        if not command or command in names:
            add(commands)
    add_examples(top)
    return top


_ADDED: Sequence[tuple[Sequence[str], Callable[[Any], None]]] = (
    (("check",), diagnosing.add_check),
    (("read",), diagnosing.add_read),
    (("snapshot", "diff", "history", "replay", "record"), diagnosing.add_saving),
    (("explain",), diagnosing.add_explain),
    (("fix",), changing.add_fix),
    (("bench",), diagnosing.add_bench),
    (("soak",), diagnosing.add_soak),
    (("preflight",), diagnosing.add_preflight),
    (("run",), diagnosing.add_run),
    (("job",), diagnosing.add_job),
    (("fleet",), diagnosing.add_fleet),
    (("setup",), changing.add_setup),
    (("expect",), changing.add_expect_command),
    (("demo",), diagnosing.add_demo),
    (("recipe",), changing.add_recipes),
    (("rules",), changing.add_rulebook),
    (("schema",), changing.add_schema),
    (("pyz", "completion"), changing.add_installing),
    (("mcp",), changing.add_mcp),
)
"""By which function which commands are added, in the order of the help."""
COMMANDS = tuple(name for names, _ in _ADDED for name in names)


# ---- Command lines that each command's help ends with; the man page and the tests read them there ----

EXAMPLES = {
    heading.removeprefix("# gpudoctor").strip(): f"\n{lines}\n"
    for block in shipped.text("app/arguments/examples.txt").strip().split("\n\n")
    for heading, _, lines in [block.partition("\n")]
}
"""By the command's words; two spaces stand between a line and what it is for."""


def add_examples(top: argparse.ArgumentParser) -> None:
    """Append to the help of each command its examples, if it has some."""
    for name, command in commands_of(top):
        if name in EXAMPLES:
            examples = "examples:" + EXAMPLES[name].rstrip().replace("\n", "\n  ").replace("%", "%%")
            command.epilog = f"{command.epilog}\n\n{examples}" if command.epilog else examples


def commands_of(top: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parser and those of all commands below it, each with its full name: ``rules test``."""
    yield name, top
    for action in top._actions:  # noqa: SLF001 - argparse has no other list of them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for word, below in action.choices.items():
                yield from commands_of(below, f"{name} {word}".strip())
