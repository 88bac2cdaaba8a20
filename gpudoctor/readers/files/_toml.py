"""TOML as a tree, and where in the text something of it stands."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from gpudoctor.readers.files._manifest import Manifest, UnreadableError, nested

LONGEST = 256 << 10
"""Characters of the largest file that is parsed: a project's own file has a hundredth."""
_DEEPEST = 60
"""Brackets within brackets, and names within names: a parser that calls itself must not be led further."""


def parsed(text: str) -> Mapping[str, Any]:
    """The document; raises `UnreadableError` with line and reason."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    if len(text) > LONGEST:
        raise UnreadableError(f"longer than {LONGEST >> 10} KB of TOML")
    for number, line in enumerate(text.split("\n"), 1):
        if nested(line) > _DEEPEST or line.partition("=")[0].count(".") > _DEEPEST * 2:
            raise UnreadableError(f"line {number}: brackets or names within each other without end")
    try:
        tree: Mapping[str, Any] = tomllib.loads(text.replace("\r\n", "\n"))
        return tree
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise UnreadableError(f"no TOML: {str(error)[:200]}") from error


def at(tree: object, *path: str) -> Any:
    """What stands there; none where something else, or nothing, does."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def table(tree: object, *path: str) -> Mapping[str, Any]:
    """The table there; an empty one where there is none."""
    found = at(tree, *path)
    return found if isinstance(found, Mapping) else {}


def items(tree: object, *path: str) -> list[Any]:
    """The array there; an empty one where there is none."""
    found = at(tree, *path)
    return found[:2000] if isinstance(found, list) else []


_TRIED = 50
"""Places of a word that are looked at for the words beside it."""


class Places:
    """Where words stand in the text: TOML's parser does not say."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    def of(self, word: str, *beside: str) -> int:
        """The line of the word that has those `beside` it, else its first line; 1 where it is not to be found."""
        text = self.manifest.text
        first = place = text.find(word)
        for _ in range(_TRIED):
            end = text.find("\n", place)
            if place < 0 or all(
                other in text[text.rfind("\n", 0, place) + 1 : end if end >= 0 else None] for other in beside
            ):
                break
            place = text.find(word, place + 1)
        return text.count("\n", 0, max(place if place >= 0 else first, 0)) + 1
