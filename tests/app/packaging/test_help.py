"""Every command's help ends with command lines that work."""

from __future__ import annotations

import re
import shlex
from itertools import takewhile

import pytest

from gpudoctor.app.arguments import COMMANDS as TOP
from gpudoctor.app.arguments import EXAMPLES, commands_of, parse, parser

COMMANDS = dict(commands_of(parser()))


def examples(command: str) -> list[str]:
    """The lines under ``examples:`` in the help as it is printed."""
    _, _, block = COMMANDS[command].format_help().partition("\nexamples:\n")
    return block.splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_a_few_examples_on_lines_of_their_own(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = examples(command)
    assert 2 <= len(lines) <= 4
    assert all(line.startswith("  ") and len(line) <= 80 for line in lines)
    assert lines == [f"  {line}" for line in EXAMPLES[command].strip().splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_defaults_that_help_names_are_those_that_hold(command: str) -> None:
    for option in COMMANDS[command]._actions:
        named = re.search(r"\(default: ([\w.]+)\)", option.help or "")
        if named and option.default and isinstance(option.default, (str, int, float)):
            assert type(option.default)(named[1]) == option.default, option.option_strings


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_are_of_that_command_and_are_understood(command: str) -> None:
    for line in examples(command):
        typed = line.strip().partition("  ")[0].removeprefix('eval "$(').removesuffix(')"')
        words = shlex.split(typed)
        own = list(takewhile(lambda word: word not in "|>", words[words.index("gpudoctor") + 1 :]))
        options = parse(own if own[:1] and own[0] in TOP else ["check", *own])
        assert " ".join(own[: len(command.split())]) == command, line
        assert options.act
