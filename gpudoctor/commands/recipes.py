"""The files that ship for provisioning, CI and schedulers: ``recipe list``, ``recipe show``, ``recipe write``.

A recipe is one file, or a folder whose README.md says what it is. Where one installs gpudoctor, it pins the version
that wrote it: that is what ``@VERSION@`` in the package becomes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor import shipped
from gpudoctor.commands.exits import SOUND
from gpudoctor.model.errors import UsageError
from gpudoctor.version import __version__

if TYPE_CHECKING:
    import argparse

_TITLE = r'(?m)^(?:#(?!!|SBATCH|cloud-config|\s*syntax=)[#\s]*|""")(.+)'
"""The first line that says something: a comment, a heading or a docstring, but no instruction to a program."""


def titles() -> Mapping[str, str]:
    """Every recipe by the name it is asked for, and what it does in a line, as the recipe itself says."""
    return {name: _title(files) for name, files in _recipes().items()}


def listed(_: argparse.Namespace) -> int:
    import textwrap

    about = titles()
    width = max(map(len, about)) + 2
    for name, title in about.items():
        print(textwrap.fill(title, 80, initial_indent=f"{name:{width}}", subsequent_indent=" " * width))
    return SOUND


def show(options: argparse.Namespace) -> int:
    files = _recipe(options.name)
    for name, text in files.items():
        head = f"# ==> {name}\n" if len(files) > 1 else ""
        print(head + text, end="" if len(files) == 1 else "\n")
    return SOUND


def write(options: argparse.Namespace) -> int:
    from gpudoctor import output

    files = {options.folder / name: text for name, text in _recipe(options.name).items()}
    there = next((place for place in files if place.exists() or place.is_symlink()), None)
    if there:
        raise UsageError(f"{there} is there already, and is left as it is; name another folder")
    for place, text in files.items():
        output.put_new(text.removesuffix("\n") + "\n", place)
        if text.startswith("#!"):
            place.chmod(0o755)
        print(place)
    return SOUND


def _recipe(name: str) -> Mapping[str, str]:
    """Its files by their place in the folder that it is written to. Raises `UsageError` for a name that is none."""
    recipes = _recipes()
    names = [one for one in recipes if name in {one, Path(one).stem}]
    if len(names) != 1:
        raise UsageError(f"{name!r} is no recipe; there are {', '.join(recipes)}")
    return recipes[names[0]]


def _recipes() -> Mapping[str, Mapping[str, str]]:
    home = shipped.folder("recipes")
    files = sorted(path for path in home.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    recipes: dict[str, dict[str, str]] = {}
    for path in files:
        name = path.relative_to(home).as_posix()
        recipes.setdefault(name.split("/")[0], {})[name] = path.read_text("utf-8").replace("@VERSION@", __version__)
    return recipes


def _title(files: Mapping[str, str]) -> str:
    text = next((text for name, text in files.items() if name.endswith("/README.md")), next(iter(files.values())))
    found = re.search(_TITLE, text)
    return found[1].strip() if found else ""
