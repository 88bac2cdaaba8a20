"""Completion is made of the real parser, and real shells complete with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpudoctor.app.commands.supplies import COMPLETIONS
from tests import completion, needs
from tests.conftest import Program
from tests.views.tui.terminal import Terminal

CASES = [
    ("gpudoctor comp", "completion"),
    ("gpudoctor demo lost", "lost-gpu"),
    ("gpudoctor explain driver.mis", "driver.missing"),
    ("gpudoctor setup torch --emit dock", "dockerfile"),
    ("gpudoctor --stri", "--strict"),
    ("gpudoctor expect show hgx-h1", "hgx-h100"),
]


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_what_ships_is_what_the_parser_gives(shell: str, gpudoctor: Program) -> None:
    made = completion.made()[shell]
    assert gpudoctor("completion", shell).out == made, "python -m tests.completion --write brings it up to date"


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
