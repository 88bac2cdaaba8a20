"""Commands about what ships with gpudoctor: ``recipe``, ``schema``, ``completion``, ``pyz`` and the server ``mcp``.

A recipe is one file, or a folder whose README.md says what it is. Where one installs gpudoctor, it pins the version
that wrote it: that is what ``@VERSION@`` in the package becomes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from gpudoctor.app import output
from gpudoctor.app.output import SOUND
from gpudoctor.core import shipped
from gpudoctor.core.about import __version__
from gpudoctor.core.errors import ExtraError, UsageError
from gpudoctor.core.language import ENGLISH, current, say, words
from gpudoctor.views._terminal import fold_wide, wrapped

_TITLE = r'(?m)^(?:#(?!!|SBATCH|cloud-config|\s*syntax=)[#\s]*|""")(.+)'
"""The first line that says something: a comment, a heading or a docstring, but no instruction to a program."""


def recipe_titles() -> Mapping[str, str]:
    """Title of each recipe, by name: the first line of its text."""
    return {name: _title(files) for name, files in _recipes().items()}


def recipe_list(_: argparse.Namespace) -> int:
    """``gpudoctor recipe list``: print names and titles; exit code 0."""
    about = recipe_titles()
    width = max(map(len, about)) + 2
    for name, title in about.items():
        print("\n".join(wrapped(f"{name:{width}}{translated(title)}", 0, width)))
    print(
        say("\n{show} prints one, {write} writes it.", show="gpudoctor recipe show NAME", write="recipe write NAME DIR")
    )
    return SOUND


def recipe_show(options: argparse.Namespace) -> int:
    """``gpudoctor recipe show``: print the files of a recipe, each with its path if several; exit code 0."""
    files = _recipe(options.name)
    for name, text in files.items():
        head = f"# ==> {name}\n" if len(files) > 1 else ""
        print(head + text, end="" if len(files) == 1 else "\n")
    return SOUND


def recipe_write(options: argparse.Namespace) -> int:
    """``gpudoctor recipe write``: write a recipe's files into a folder and print their paths; exit code 0.

    Raises `UsageError`, before anything is written, if one of them exists.
    """
    files = {options.folder / name: text for name, text in _recipe(options.name).items()}
    there = next((place for place in files if place.exists() or place.is_symlink()), None)
    if there:
        raise UsageError(say("{there} is there already, and is left as it is; name another folder", there=there))
    for place, text in files.items():
        output.put_new(text.removesuffix("\n") + "\n", place)
        if text.startswith("#!"):
            place.chmod(0o755)
        print(place)
    return SOUND


_PASSAGE = (r'(?:^|(?<=# |  |\| )|(?<=""")|(?<=FILL IN: ))', r"(?: +|\n *(?:# *)?)", r'(?=$| \||"|  )')
"""What is before a passage of a shipped file, between its words, and behind it."""


def translated(text: str) -> str:
    """The text of a shipped file, its comments and prose in the language in use; unchanged in English.

    What is translated is a passage: whole lines of a comment, a docstring or a README, a remark behind code, the cell
    of a table, a blank to fill in.
    """
    if current() == ENGLISH:
        return text
    flat = re.sub(r"\s+(?:# *)?", " ", text)
    before, gap, behind = _PASSAGE
    for english, worded in words(f"{current()}.files").items():
        if english in flat:
            passage = before + gap.join(map(re.escape, english.split(" "))) + behind
            text = re.sub(passage, partial(_folded, worded), text, flags=re.MULTILINE)
    return text


def _folded(worded: str, passage: re.Match[str]) -> str:
    """The translation of a passage: on as few lines, each beginning as the passage's second, or on one, as it is."""
    second = re.search(r"\n( *(?:# *)?)", passage[0])
    if not second:
        return worded
    first = passage.string[: passage.start()].rpartition("\n")[2]
    return "\n".join(fold_wide(worded, 120, first, second[1])).removeprefix(first)


def _recipe(name: str) -> Mapping[str, str]:
    """Texts of a recipe's files by relative path, in the language in use; raises `UsageError` for an unknown name."""
    recipes = _recipes()
    names = [one for one in recipes if name in {one, Path(one).stem}]
    if len(names) != 1:
        near = [one for one in recipes if name.lower() in one.lower()]
        hint = say("; did you mean {names}?", names=say(" or ").join(near[:3])) if near else ""
        raise UsageError(
            say("{name} is no recipe; available: {names}{hint}", name=repr(name), names=", ".join(recipes), hint=hint)
        )
    return {place: translated(text) for place, text in recipes[names[0]].items()}


def _recipes() -> Mapping[str, Mapping[str, str]]:
    """Texts of the files of every recipe, by recipe and relative path, with the version filled in."""
    home = shipped.folder("app/recipes")
    there = (path for path in home.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    files = sorted(there, key=lambda path: path.parts)  # as text: Paths of Windows ignore case
    recipes: dict[str, dict[str, str]] = {}
    for path in files:
        name = path.relative_to(home).as_posix()
        recipes.setdefault(name.split("/")[0], {})[name] = path.read_text("utf-8").replace("@VERSION@", __version__)
    return recipes


def _title(files: Mapping[str, str]) -> str:
    """The title in a recipe's README.md, else in its first file: its first comment or docstring; empty without one."""
    text = next((text for name, text in files.items() if name.endswith("/README.md")), next(iter(files.values())))
    found = re.search(_TITLE, text)
    return found[1].strip() if found else ""


COMPLETIONS = {"bash": "gpudoctor.bash", "zsh": "_gpudoctor", "fish": "gpudoctor.fish"}
"""Files of ``gpudoctor/app/completion``, named as each shell looks for them."""


def completion(options: argparse.Namespace) -> int:
    """``gpudoctor completion``: print the completion script of a shell; exit code 0."""
    print(shipped.text(f"app/completion/{COMPLETIONS[options.shell]}"), end="")
    return SOUND


def schema(options: argparse.Namespace) -> int:
    """``gpudoctor schema``: print the JSON Schema of a document; exit code 0."""
    from gpudoctor.views import schema

    print(schema.text(options.kind))
    return SOUND


def pyz(options: argparse.Namespace) -> int:
    """``gpudoctor pyz``: build gpudoctor as one file; exit code 0."""
    from gpudoctor.app.pyz import build

    place = Path(options.out)
    build(place, options.pythons, not options.without_tui, _print_note)
    size = place.stat().st_size / 1e6
    _print_note(say("{place}, {size} MB; it runs as python3 {place} check", place=place, size=f"{size:.1f}"))
    return SOUND


def _print_note(sentence: str) -> None:
    """Print a message to standard error."""
    output.put_message(sentence)


def mcp(options: argparse.Namespace) -> int:
    """``gpudoctor mcp``: serve the Model Context Protocol on stdin and stdout; raises ExtraError without mcp."""
    if not find_spec("mcp"):
        raise ExtraError(say("mcp is missing"), "mcp")
    from gpudoctor.app.mcp import serve

    serve(options.python, options.share, options.folders)
    return SOUND
