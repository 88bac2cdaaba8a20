"""Help, completion, the manual and the documentation say what the program says; real shells and programs read them."""

import os
import re
import shlex
import subprocess
from itertools import takewhile
from pathlib import Path

import pytest

from gpudoctor.app.arguments import COMMANDS as TOP
from gpudoctor.app.arguments import EXAMPLES, commands_of, parse, parser
from gpudoctor.app.cli import run
from gpudoctor.app.commands.bundled import COMPLETIONS
from gpudoctor.diagnosis import rulebook
from tests import completion, manual, needs
from tests.conftest import Program
from tests.needs import REPOSITORY
from tests.readme import DOCS, README, SITE, generated, pages
from tests.views.tui.terminal import Terminal

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


CASES = [
    ("gpudoctor comp", "completion"),
    ("gpudoctor demo lost-g", "lost-gpu"),
    ("gpudoctor explain driver.mis", "driver.missing"),
    ("gpudoctor setup torch --emit dock", "dockerfile"),
    ("gpudoctor --stri", "--strict"),
    ("gpudoctor expect show hgx-h1", "hgx-h100"),
]


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_the_completion_that_ships_is_what_the_parser_gives(shell: str, called: Program) -> None:
    made = completion.made()[shell]
    assert called("completion", shell).out == made, "python -m tests.completion --write brings it up to date"


@pytest.mark.parametrize(("typed", "whole"), CASES)
def test_fish_completes(typed: str, whole: str) -> None:
    code = f"source {completion.PLACE}/gpudoctor.fish; complete -C '{typed}'"
    fish = [needs.program("fish"), "--no-config", "-c", code]
    done = subprocess.run(fish, check=True, capture_output=True, text=True, timeout=600)
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == [whole]
    assert done.stderr == ""


def typed_into(program: str, words: list[str], setup: str, tmp_path: Path) -> None:
    """Type each case and the tab key into an interactive shell, and then a word that it writes to a file."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "dumb", "PS1": "$ ", "LC_ALL": "C.UTF-8"}
    (tmp_path / "gpudoctor").write_text(f'#!/bin/sh\necho "got: $*" >> {tmp_path}/got\n')
    (tmp_path / "gpudoctor").chmod(0o755)
    environ["PATH"] = f"{tmp_path}:{environ['PATH']}"
    with Terminal(words, size=(200, 50), environ=environ, program=program) as terminal:
        terminal.type(f"{setup}; echo rea''dy\n")
        terminal.wait_for("ready")
        for typed, whole in CASES:
            terminal.type(f"{typed}\t")
            terminal.wait_for(whole.rpartition(typed.rpartition(" ")[2])[2] or whole)
            terminal.type(f"; echo do''ne {whole}\n")
            terminal.wait_for(f"done {whole}")
        terminal.type("exit\n")
        assert terminal.ended(20) == 0
    told = [line.removeprefix("got: ").strip() for line in (tmp_path / "got").read_text().splitlines()]
    assert told == [f"{typed.rpartition(' ')[0]} {whole}".removeprefix("gpudoctor ") for typed, whole in CASES]


def test_bash_completes(tmp_path: Path) -> None:
    setup = f"source {completion.PLACE}/gpudoctor.bash"
    typed_into(needs.program("bash"), ["--norc", "--noprofile", "-i"], setup, tmp_path)


def test_zsh_completes(tmp_path: Path) -> None:
    setup = f"unsetopt zle_bracketed_paste; fpath=({completion.PLACE} $fpath); autoload -Uz compinit; compinit -u -D"
    typed_into(needs.program("zsh"), ["-f", "-i"], setup, tmp_path)


PAGE = str(manual.PLACE)
OWN = {"GPUDOCTOR_CHILD", "GPUDOCTOR_SERVE_CHANGES"}
"""Variables that children inherit from us, and nobody sets."""


def rendered() -> str:
    """As text without marks, long lines unbroken."""
    argv = [needs.program("groff"), "-man", "-Tutf8", "-P-c", "-rLL=400n", PAGE]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return re.sub(".\b", "", text).replace("\u2010", "-").replace("\u2212", "-")


def test_the_manual_that_ships_is_what_the_parser_gives() -> None:
    assert manual.PLACE.read_text("utf-8") == manual.page(), "python -m tests.manual --write brings it up to date"


@pytest.mark.parametrize(
    "argv",
    [("mandoc", "-Tlint", "-Wwarning"), ("groff", "-man", "-ww", "-z"), ("man", "--warnings", "-l")],
    ids=lambda a: a[0],
)
def test_it_is_rendered_without_a_warning(argv: tuple[str, ...]) -> None:
    done = subprocess.run([needs.program(argv[0]), *argv[1:], PAGE], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert argv[0] != "mandoc" or done.stdout == ""


def test_it_has_every_command_option_and_variable() -> None:
    text = rendered()
    for name, one in commands_of(parser()):
        words = [option for action in one._actions for option in action.option_strings if action.dest != "help"]
        if words and name:
            _, _, section = text.partition(f"gpudoctor {name}\n")
            assert section, name
            assert [word for word in words if word not in section.split("\n   gpudoctor ")[0]] == []
    package = needs.REPOSITORY / "gpudoctor"
    known = {
        name for path in package.rglob("*.py") for name in re.findall("GPUDOCTOR_[A-Z_]+", path.read_text("utf-8"))
    }
    assert {name for name in known - OWN if name not in text} == set()


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_generated_parts_are_up_to_date(page: Path) -> None:
    current = page.read_text("utf-8")
    assert generated(current) == current, "run: python -m tests.readme --write"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_what_a_page_leads_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_the_readme_leads_to_every_page() -> None:
    text = README.read_text("utf-8")
    assert [page.name for page in pages() if page != README and f"({page.relative_to(REPOSITORY)})" not in text] == []


def test_pages_named_beside_other_checkers_are_ours() -> None:
    table = [line for line in (DOCS / "comparison.md").read_text("utf-8").splitlines() if line.startswith("| ")]
    named = set(re.findall(r"`([a-z]+\.[a-z-]+)`", "\n".join(table)))
    assert len(named) > 40
    rules = rulebook.load()
    assert [name for name in named if not rules.find(name)] == []


def test_each_question_ends_in_a_command_and_names_pages_that_there_are() -> None:
    _, *questions = (DOCS / "questions.md").read_text("utf-8").split("\n## ")
    rules = rulebook.load()
    for question in questions:
        command = re.search(r"```console\n\$ gpudoctor ([^\n]+)\n```\s*\Z", question)
        assert command, question
        parse(shlex.split(command[1]))
        assert [name for name in re.findall(r"`([a-z]+\.[a-z]+-[a-z-]+)`", question) if not rules.find(name)] == []


def test_the_readme_is_read_in_five_minutes() -> None:
    """At 240 words a minute, without what the program prints and what is folded away."""
    text = re.sub(r"<details>.*?</details>|```.*?```", "", README.read_text("utf-8"), flags=re.DOTALL)
    assert len(text.split()) <= 5 * 240


def test_the_page_that_is_shown_proves_itself(capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(SITE.parent.parent)
    assert run(["rules", "test", folder]) == 0
    assert "3 cases passed, 0 failed" in capsys.readouterr().out
