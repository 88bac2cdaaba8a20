"""The command line of the contract, as far as it is built. `act` is the command's name."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from gpudoctor.arguments._examples import add_examples
from gpudoctor.arguments._parser import Parser, asked
from gpudoctor.version import __version__

COMMANDS = (
    "check",
    "read",
    "snapshot",
    "diff",
    "history",
    "record",
    "explain",
    "fix",
    "bench",
    "preflight",
    "fleet",
    "setup",
    "expect",
    "demo",
    "recipe",
    "rules",
    "schema",
    "pyz",
    "completion",
    "mcp",
)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options; of ``preflight`` what follows ``--`` is the command, whatever it looks like."""
    own, command = list(words), []
    if own[:1] == ["preflight"] and "--" in own:
        at = own.index("--")
        own, command = own[:at], own[at + 1 :]
    top = parser(own[0] if own and own[0] in COMMANDS else "")
    options, unknown = top.parse_known_args(own)
    if unknown:
        after = (
            "; what is to be run stands after --" if own[0] == "preflight" and not unknown[0].startswith("-") else ""
        )
        asked(top, own).error(f"unrecognized arguments: {' '.join(unknown)}{after}")
    options.command = command
    return options


def no_command(word: str) -> NoReturn:
    """Exit with 2: the first word is no command; a file is something to read."""
    from pathlib import Path

    from gpudoctor.model.near import meant

    read = f"; to read a file: gpudoctor read {word}" if Path(word).exists() else ""
    if word in {"help", "version"}:
        read = f"; did you mean --{word}?"
    Parser(prog="gpudoctor", usage="gpudoctor [-h] [-V] COMMAND ...").error(
        f"no command {word!r}{read or meant(word, COMMANDS) or '; gpudoctor --help names them all'}"
    )


def parser(command: str = "") -> argparse.ArgumentParser:
    """Every command with its options, or that one alone: to take one's words the others need not be made."""
    top = Parser(prog="gpudoctor", description="Names the cause when a GPU machine does not work.")
    top.add_argument("-V", "--version", action="version", version=f"gpudoctor {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, prog=top.prog)
    for names, add in _ADDED:
        if not command or command in names:
            module, _, name = add.partition(".")
            getattr(import_module(f"gpudoctor.arguments.{module}"), name)(commands)
    add_examples(top)
    return top


_ADDED: Sequence[tuple[Sequence[str], str]] = (
    (("check",), "_looking.add_check"),
    (("read",), "_looking.add_read"),
    (("snapshot", "diff", "history", "record"), "_showing.add_saving"),
    (("explain",), "_showing.add_explain"),
    (("fix",), "_fix.add_fix"),
    (("bench",), "_measuring.add_bench"),
    (("preflight",), "_measuring.add_preflight"),
    (("fleet",), "_measuring.add_fleet"),
    (("setup",), "_setup.add_setup"),
    (("expect",), "_expect.add_expect_command"),
    (("demo",), "_looking.add_demo"),
    (("recipe",), "_showing.add_recipes"),
    (("rules",), "_showing.add_rulebook"),
    (("schema",), "_looking.add_schema"),
    (("pyz", "completion"), "_installing.add_installing"),
    (("mcp",), "_installing.add_mcp"),
)
"""By which function of which file which commands are added, in the order of the help."""
