"""Options that several commands have, and what their values must be."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gpudoctor.language import LANGUAGES

FORMS = ("text", "json", "markdown", "html", "junit", "prometheus")


def new_command(commands: Any, name: str, about: str, act: str = "", **more: str) -> argparse.ArgumentParser:
    """A command of that name; `act` is what `gpudoctor.cli` calls for it, by default its name."""
    command: argparse.ArgumentParser = commands.add_parser(name, help=about, **more)
    command.set_defaults(act=act or name)
    return command


def add_out(command: argparse.ArgumentParser, about: str = "where to (default: standard output)") -> None:
    """``-o FILE``."""
    command.add_argument("-o", dest="out", metavar="FILE", help=about)


def add_target(command: argparse.ArgumentParser, level: str = "standard") -> None:
    """How much to ask, and of which Python."""
    command.add_argument(
        "--level", choices=("quick", "standard", "deep"), default=level, help=f"how much to ask (default: {level})"
    )
    add_python(command)


def add_python(command: argparse.ArgumentParser, about: str = "the interpreter whose torch is meant") -> None:
    """Which Python, and as whom root runs it where it is another user's."""
    command.add_argument("--python", metavar="PATH", help=about)
    trust = command.add_mutually_exclusive_group()
    trust.add_argument("--as-owner", action="store_true", help="as root: ask another user's Python as that user")
    trust.add_argument("--trust-python", action="store_true", help="as root: run another user's Python as root")


def add_wait(command: argparse.ArgumentParser) -> None:
    """How long GPUs may take to wake."""
    about = "how long sleeping GPUs may take to wake (default: 30; above level quick 5 for each GPU if that is more)"
    command.add_argument("--wait", metavar="SECONDS", type=seconds, help=about)


def add_rules(command: argparse.ArgumentParser) -> None:
    """A site's own pages."""
    command.add_argument("--rules", metavar="DIR", type=Path, action="append", default=[], help="a site's own pages")


def add_expect(command: argparse.ArgumentParser) -> None:
    """What the machine must be."""
    about = "what the machine must be: a profile in TOML, or the name of one that ships (gpudoctor expect list)"
    command.add_argument("--expect", metavar="FILE", help=about)


def add_share(command: argparse.ArgumentParser) -> None:
    """What others may see."""
    command.add_argument(
        "--share",
        action="store_true",
        help="hide what is personal: names of users and hosts, home folders, serial numbers, UUIDs, addresses, secrets",
    )


def add_report(command: argparse.ArgumentParser) -> None:
    """The report's form, by which pages, and what counts as bad."""
    command.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    command.add_argument("--format", choices=FORMS, help="the report's form (default: text)")
    add_out(command, "write the report there: the file is whole or not there (default: standard output)")
    add_share(command)
    add_rules(command)
    command.add_argument("--strict", action="store_true", help="exit 1 on warnings too")
    add_lang(command)


def add_lang(command: argparse.ArgumentParser) -> None:
    """The language of titles, reasons and cures."""
    command.add_argument(
        "--lang",
        choices=LANGUAGES,
        help="the language of the words (default: GPUDOCTOR_LANG, else the locale's; documents for programs: en)",
    )


def add_serve(command: argparse.ArgumentParser) -> None:
    """The interface in a browser."""
    command.add_argument(
        "--serve",
        nargs="?",
        const="127.0.0.1:0",
        metavar="HOST:PORT",
        help="show it in a browser, to whoever has the URL that is printed (default: 127.0.0.1, a free port)",
    )
    command.add_argument(
        "--allow-changes",
        action="store_true",
        help="with --serve: fix, undo and save from the browser, too, as the user who serves it",
    )


def seconds(text: str) -> float:
    """A time limit; refused are texts that are no number above zero."""
    seconds = float(text)
    if not 0 < seconds < 1e6:
        raise ValueError(text)
    return seconds


def count(text: str) -> int:
    """How many at once: one at least."""
    count = int(text)
    if count < 1:
        raise ValueError(text)
    return count


def words(text: str) -> str:
    """Words as a shell splits them; refused is a quote that is not closed."""
    import shlex

    shlex.split(text)
    return text
