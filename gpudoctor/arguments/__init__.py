"""The command line of the contract, as far as it is built. `act` is the command's name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from gpudoctor.arguments._examples import add_examples
from gpudoctor.arguments._expect import add_expect_command
from gpudoctor.arguments._fix import add_fix
from gpudoctor.arguments._installing import add_installing, add_mcp
from gpudoctor.arguments._measuring import add_bench, add_fleet, add_preflight
from gpudoctor.arguments._options import add_expect, add_lang, add_report, add_serve, add_target, new_command
from gpudoctor.arguments._parser import Parser
from gpudoctor.arguments._setup import add_setup
from gpudoctor.arguments._showing import add_explain, add_recipes, add_rulebook, add_saving
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
    options = parser(own[0] if own and own[0] in COMMANDS else "").parse_args(own)
    options.command = command
    return options


def no_command(word: str) -> NoReturn:
    """Exit with 2: the first word is no command; a file is something to read."""
    from pathlib import Path

    from gpudoctor.model.near import meant

    read = f"; to read a file: gpudoctor read {word}" if Path(word).exists() else ""
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
            add(commands)
    add_examples(top)
    return top


def _add_check(commands: Any) -> None:
    check = new_command(commands, "check", "diagnose this machine")
    add_target(check)
    add_report(check)
    add_expect(check)
    add_serve(check)


def _add_read(commands: Any) -> None:
    read = new_command(commands, "read", "diagnose pasted reports, logs, saved snapshots, records, or manifests")
    read.add_argument("files", nargs="+", metavar="FILE", help="a text file; - is standard input")
    read.add_argument(
        "--together", action="store_true", help="all files are about one machine: one diagnosis, the later file wins"
    )
    read.add_argument(
        "--for",
        dest="machine",
        metavar="MACHINE",
        default="",
        help="judge requirements.txt, pyproject.toml, environment.yml, a Dockerfile, compose.yaml or a pod's manifest"
        " for gpu=NAME,driver=V,python=V,os=linux|windows|wsl,arch=..., or for the machine that is here",
    )
    read.add_argument("--tui", action="store_true", help="show it in the terminal interface")
    add_report(read)
    add_expect(read)
    add_serve(read)


def _add_demo(commands: Any) -> None:
    demo = new_command(commands, "demo", "look at a recorded sick machine in the terminal interface")
    demo.add_argument("name", nargs="?", default="", metavar="NAME", help="which one (default: choose from a list)")
    add_lang(demo)
    add_serve(demo)


def _add_schema(commands: Any) -> None:
    schema = new_command(commands, "schema", "print the JSON Schema of a document")
    schema.add_argument(
        "kind",
        nargs="?",
        choices=("diagnosis", "snapshot", "kernels", "plan", "run", "stack", "fleet", "diff", "history", "profile"),
        default="diagnosis",
        help="of which (default: diagnosis)",
    )


_ADDED: Sequence[tuple[Sequence[str], Callable[[Any], None]]] = (
    (("check",), _add_check),
    (("read",), _add_read),
    (("snapshot", "diff", "history", "record"), add_saving),
    (("explain",), add_explain),
    (("fix",), add_fix),
    (("bench",), add_bench),
    (("preflight",), add_preflight),
    (("fleet",), add_fleet),
    (("setup",), add_setup),
    (("expect",), add_expect_command),
    (("demo",), _add_demo),
    (("recipe",), add_recipes),
    (("rules",), add_rulebook),
    (("schema",), _add_schema),
    (("pyz", "completion"), add_installing),
    (("mcp",), add_mcp),
)
"""What adds which commands, in the order of the help."""
