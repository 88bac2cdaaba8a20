"""The manual page is made of the real parser, renders everywhere, and leaves out no command, option or variable."""

from __future__ import annotations

import re
import subprocess

import pytest

from gpudoctor.app.arguments import commands_of, parser
from tests import manual, needs

PAGE = str(manual.PLACE)
OWN = {"GPUDOCTOR_CHILD", "GPUDOCTOR_SERVE_CHANGES"}
"""Variables that children inherit from us, and nobody sets."""


def rendered() -> str:
    """As text without marks, long lines unbroken."""
    argv = [needs.program("groff"), "-man", "-Tutf8", "-P-c", "-rLL=400n", PAGE]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return re.sub(".\b", "", text).replace("\u2010", "-").replace("\u2212", "-")


def test_what_ships_is_what_the_parser_gives() -> None:
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
