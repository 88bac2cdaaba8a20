"""Completion for bash, zsh and fish, made of the real parser: ``python -m tests.completion --write`` after a change.

What stands in the package is what `gpudoctor completion` prints and what a wheel installs.
"""

import argparse
import sys
from collections.abc import Mapping

import shtab

from gpudoctor.app import demos
from gpudoctor.app.arguments import commands_of, parser
from gpudoctor.app.commands import bundled
from gpudoctor.app.commands.bundled import COMPLETIONS
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.expect import reading
from gpudoctor.diagnosis.knowledge import explain_tables
from gpudoctor.kernels import specs
from tests.needs import REPOSITORY

PLACE = REPOSITORY / "gpudoctor/app/completion"
_PATHS: Mapping[str, object] = {
    "FILE": shtab.FILE,
    "PATH": shtab.FILE,
    "RESULTS": shtab.FILE,
    "A": shtab.FILE,
    "B": shtab.FILE,
    "DIR": shtab.DIRECTORY,
}
"""Metavars of what is a path."""


def made() -> dict[str, str]:
    """The file for each shell."""
    return {shell: shtab.complete(_dressed(), shell).rstrip() + "\n" for shell in COMPLETIONS}


def names() -> dict[tuple[str, str], list[str]]:
    """What a word can be, by command and destination, where the parser itself does not say."""
    book = rulebook.load()
    ids = list(dict.fromkeys(rule.id for rule in (*book.rules, *book.cluster)))
    return {
        ("explain", "id"): [*ids, *explain_tables.NAMES, *catalog().specs],
        ("fix", "ids"): [rule.id for rule in book.rules if rule.role == "cause" and rule.fixes],
        ("fix", "undo"): ["last"],
        ("bench", "kernel"): [*specs.FAMILIES, *(one.spec.id for one in specs.all_kernels())],
        ("expect", "name"): reading.shipped_names(),
        ("demo", "name"): [demo.name for demo in demos.every()],
        ("recipe show", "name"): list(bundled.recipe_titles()),
        ("recipe write", "name"): list(bundled.recipe_titles()),
    }


def _dressed() -> argparse.ArgumentParser:
    """The parser with names and paths as shtab wants them. Without a command, the options are those of ``check``."""
    top, known = parser(), names()
    lines = abouts(top)
    for command, one in commands_of(top):
        one.description = lines.get(id(one)) or one.description  # a line, not a paragraph
        for action in one._actions:
            if found := known.get((command, action.dest)):
                action.choices = found
            elif action.metavar in _PATHS and not action.choices:
                action.complete = _PATHS[str(action.metavar)]  # type: ignore[attr-defined]
    check = dict(commands_of(top))["check"]
    for action in check._actions:
        if action.dest != "help":
            top._add_action(action)
    return top


def abouts(top: argparse.ArgumentParser) -> dict[int, str | None]:
    """What each command does in a line, by the identity of its parser."""
    groups = [action for _, one in commands_of(top) for action in one._actions]
    listed = [action for action in groups if isinstance(action, argparse._SubParsersAction)]
    return {id(each.choices[one.dest]): one.help for each in listed for one in each._choices_actions}


if __name__ == "__main__":
    for shell, text in made().items():
        if "--write" in sys.argv:
            (PLACE / COMPLETIONS[shell]).write_text(text, "utf-8")
        else:
            sys.stdout.write(text)
