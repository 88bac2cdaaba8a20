"""YAML as nodes with their lines. Nothing is built from them: an alias is the node it names, however often it is named.

ruamel.yaml is imported when the first such file is read.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from gpudoctor.readers._paste import clean
from gpudoctor.readers.files._manifest import UnreadableError, nested

LONGEST = 160_000
"""Characters that are parsed at most: pure Python takes half a second for them."""
_MOST = 500
"""Entries of one list or mapping that are looked at."""
_PARTS = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_DEEPEST = 100
_STAIRS = re.compile(r"^[ ]{400}|(?:[-?:] ){100}", re.MULTILINE)
"""What only a text has that leads a parser astray: a parser calls itself for each list within a list."""
_MERGES = 5
"""Merges within merges that are followed: an anchor may merge itself."""


class Node:
    """A place in the document; a place that is not there is a node, too, and holds nothing."""

    __slots__ = ("_node", "_start")

    def __init__(self, node: Any = None, start: int = 0) -> None:
        self._node = node
        self._start = start

    def __bool__(self) -> bool:
        return self._node is not None

    @property
    def line(self) -> int:
        """Where it begins, counted from 1."""
        return int(self._node.start_mark.line) + 1 + self._start if self else 1

    @property
    def text(self) -> str:
        """The scalar as written; empty for anything else."""
        value = self._node.value if self and self._kind == "scalar" else ""
        null = value in ("null", "~", "Null", "NULL") and not self._node.style if value else True
        return "" if null else clean(str(value))[:4000]

    @property
    def given(self) -> bool:
        """Whether it is a scalar that somebody wrote, be it empty: not a null."""
        return bool(self) and self._kind == "scalar" and (bool(self.text) or bool(self._node.style))

    @property
    def _kind(self) -> str:
        return str(self._node.id) if self else ""

    @property
    def is_mapping(self) -> bool:
        """Whether it has keys."""
        return self._kind == "mapping"

    def items(self, depth: int = 0) -> Iterator[tuple[str, Node]]:
        """The keys and values of a mapping, its own before those it merges (``<<``)."""
        merged: list[Node] = []
        for key, value in self._node.value[:_MOST] if self._kind == "mapping" else ():
            name = Node(key).text
            if name == "<<":
                merged.append(Node(value, self._start))
            else:
                yield name, Node(value, self._start)
        for other in merged if depth < _MERGES else ():
            for one in [other, *other.list()]:
                yield from one.items(depth + 1)

    def list(self) -> list[Node]:
        """The entries of a list."""
        return [Node(one, self._start) for one in self._node.value[:_MOST]] if self._kind == "sequence" else []

    def at(self, *path: str) -> Node:
        """The node under those keys."""
        found = self
        for name in path:
            found = next((value for key, value in found.items() if key == name), Node())
        return found

    def key_line(self, name: str) -> int:
        """The line on which that key stands."""
        for key, _ in self._node.value[:_MOST] if self._kind == "mapping" else ():
            if Node(key).text == name:
                return Node(key, self._start).line
        return self.line


def documents(text: str, having: tuple[str, ...] = ()) -> list[Node]:
    """The documents of the text; of a longer one those that hold one of the words, as many as can be parsed in time.

    Raises `UnreadableError` with line and reason.
    """
    found: list[Node] = []
    room = LONGEST
    start = 0
    parts = _parts(text)
    for part in parts:
        if len(parts) == 1 or not having or any(word in part for word in having):
            room -= len(part)
            if room < 0:
                if not found:
                    raise UnreadableError(f"longer than {LONGEST} characters of YAML in one document")
                break
            found.append(Node(_composed(part, start), start))
        start += part.count("\n")
    return [node for node in found if node]


def _parts(text: str) -> list[str]:
    places = [match.start() for match in _PARTS.finditer(text)]
    edges = [0, *(place for place in places if place), len(text)]
    return [text[one:two] for one, two in pairwise(edges) if text[one:two].strip("- \n\r")]


def _composed(text: str, start: int) -> Any:
    if nested(text) > _DEEPEST or _STAIRS.search(text):
        raise UnreadableError("lists within lists without end")
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an anchor that is set twice
            return YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1 + start}: " if mark else ""
        raise UnreadableError(f"{line}no YAML: {clean(str(error.problem or error.context))[:200]}") from error
    except (YAMLError, RecursionError, ValueError, AttributeError, TypeError, IndexError, KeyError) as error:
        raise UnreadableError(f"no YAML: {type(error).__name__} {clean(str(error))[:120]}".strip()) from error
