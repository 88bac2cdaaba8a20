"""A manifest's text by lines, and which of them were understood; YAML as nodes with their lines."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

from gpudoctor.core.catalog import column, fact
from gpudoctor.core.fact import Fact, Known, Row
from gpudoctor.core.frozen import frozen
from gpudoctor.readers._paste import clean

WIDTH = 2000
"""Characters of one line that are looked at."""


_BRACKETS = re.compile(r"[\[\]{}]")


class UnreadableError(Exception):
    """The file has the name of this format and cannot be parsed; the message gives line and reason."""


def nesting_depth(text: str) -> int:
    """The deepest nesting of square and curly brackets in the text."""
    deepest = depth = 0
    for bracket in _BRACKETS.findall(text):
        depth = max(0, depth + (1 if bracket in "[{" else -1))
        deepest = max(deepest, depth)
    return deepest


class Manifest:
    """The text of a manifest and which of its lines were understood (`used`); `name` is the file's name."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.used: set[int] = set()

    @cached_property
    def lines(self) -> list[str]:
        """The manifest's lines without control characters, each cut to 2000 characters."""
        return [clean(line[:WIDTH]).rstrip() for line in self.text.split("\n")]

    @cached_property
    def filled(self) -> int:
        """Number of the manifest's lines that are neither blank nor a comment."""
        return sum(1 for line in self.lines if (bare := line.strip()) and not bare.startswith("#"))

    def use(self, first: int, last: int | None = None) -> str:
        """Mark lines (counted from 1) as understood; returns the source of the first: ``requirements.txt, line 3``."""
        self.used.update(range(first, (last or first) + 1))
        return self.at(first)

    def at(self, line: int) -> str:
        """The source of a fact in that line (counted from 1): ``requirements.txt, line 3``."""
        return f"{self.name}, line {line}"


# ---- YAML as nodes with their lines ----
# Nothing is built from them: an alias is the node it names, however often it is named.
# ruamel.yaml is imported when the first such file is read.

LONGEST_YAML = 160_000
"""Characters that are parsed at most: pure Python takes half a second for them."""
_MOST_ENTRIES = 500
"""Entries of one list or mapping that are looked at."""
_PARTS = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_DEEPEST_YAML = 100
_STAIRS = re.compile(r"^[ ]{400}|(?:[-?:] ){100}", re.MULTILINE)
"""What only a text has that leads a parser astray: a parser calls itself for each list within a list."""
_MOST_MERGES = 5
"""Merges within merges that are followed: an anchor may merge itself."""


class Node:
    """A YAML node with its line; a false one, empty in every respect, stands for what is not there.

    `start` is the number of lines before its document.
    """

    __slots__ = ("_node", "_start")

    def __init__(self, node: Any = None, start: int = 0) -> None:
        self._node = node
        self._start = start

    def __bool__(self) -> bool:
        return self._node is not None

    @property
    def line(self) -> int:
        """The line on which the YAML node begins, counted from 1; 1 for a node that stands for a missing one."""
        return int(self._node.start_mark.line) + 1 + self._start if self else 1

    @property
    def text(self) -> str:
        """The YAML scalar as written, at most 4000 characters; empty for null, a list, a mapping or a missing node."""
        value = self._node.value if self and self._kind == "scalar" else ""
        null = value in ("null", "~", "Null", "NULL") and not self._node.style if value else True
        return "" if null else clean(str(value))[:4000]

    @property
    def given(self) -> bool:
        """Whether the YAML node is a scalar other than null; a quoted empty text counts."""
        return bool(self) and self._kind == "scalar" and (bool(self.text) or bool(self._node.style))

    @property
    def _kind(self) -> str:
        """scalar, mapping or sequence: the kind of the YAML node; empty where it stands for a missing one."""
        return str(self._node.id) if self else ""

    @property
    def is_mapping(self) -> bool:
        """Whether the YAML node is a mapping."""
        return self._kind == "mapping"

    def items(self, depth: int = 0) -> Iterator[tuple[str, Node]]:
        """Keys and values of a mapping, then those merged in with ``<<``; none for other nodes.

        At most 500 keys; `depth` counts merges within merges, of which five are followed.
        """
        merged: list[Node] = []
        for key, value in self._node.value[:_MOST_ENTRIES] if self._kind == "mapping" else ():
            name = Node(key).text
            if name == "<<":
                merged.append(Node(value, self._start))
            else:
                yield name, Node(value, self._start)
        for merged_node in merged if depth < _MOST_MERGES else ():
            for mapping in [merged_node, *merged_node.list()]:
                yield from mapping.items(depth + 1)

    def list(self) -> list[Node]:
        """The entries of a YAML list, at most 500; empty for other nodes."""
        return (
            [Node(entry, self._start) for entry in self._node.value[:_MOST_ENTRIES]] if self._kind == "sequence" else []
        )

    def at(self, *path: str) -> Node:
        """The YAML node under those keys, one level each; where one is missing, a false node, empty in every way."""
        node = self
        for name in path:
            node = next((value for key, value in node.items() if key == name), Node())
        return node

    def key_line(self, name: str) -> int:
        """The line of that key in a YAML mapping, counted from 1; the node's own line where it has no such key."""
        for key, _ in self._node.value[:_MOST_ENTRIES] if self._kind == "mapping" else ():
            if Node(key).text == name:
                return Node(key, self._start).line
        return self.line


def documents(text: str, having: tuple[str, ...] = ()) -> list[Node]:
    """The YAML documents of the text, empty ones left out; of several only those that hold a word of `having`.

    As many as fit into 160 000 characters. Raises `UnreadableError` for broken YAML or a first document beyond that.
    """
    nodes: list[Node] = []
    room_left = LONGEST_YAML
    start = 0
    parts = _split_documents(text)
    for part in parts:
        if len(parts) == 1 or not having or any(word in part for word in having):
            room_left -= len(part)
            if room_left < 0:
                if not nodes:
                    raise UnreadableError(f"longer than {LONGEST_YAML} characters of YAML in one document")
                break
            nodes.append(Node(_compose(part, start), start))
        start += part.count("\n")
    return [node for node in nodes if node]


def _split_documents(text: str) -> list[str]:
    """The text split at its ``---`` lines, empty parts left out."""
    starts = [match.start() for match in _PARTS.finditer(text)]
    edges = [0, *(start for start in starts if start), len(text)]
    return [text[begin:end] for begin, end in pairwise(edges) if text[begin:end].strip("- \n\r")]


def _compose(text: str, start: int) -> Any:
    """The root node that ruamel.yaml composes, None for an empty text; raises `UnreadableError`.

    `start` is the number of lines before this document.
    """
    if nesting_depth(text) > _DEEPEST_YAML or _STAIRS.search(text):
        raise UnreadableError("lists within lists without end")
    from ruamel import yaml

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an anchor that is set twice
            return yaml.YAML(typ="safe", pure=True).compose(text)
    except yaml.error.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1 + start}: " if mark else ""
        raise UnreadableError(f"{line}no YAML: {clean(str(error.problem or error.context))[:200]}") from error
    except (yaml.error.YAMLError, RecursionError, ValueError, AttributeError, TypeError, IndexError, KeyError) as error:
        raise UnreadableError(f"no YAML: {type(error).__name__} {clean(str(error))[:120]}".strip()) from error


T = TypeVar("T")
_CUDA_WORDS = ("cuda", "nvidia", "pytorch", "vllm", "tensorrt", "triton")

FACTS = (
    fact("container.compat_cuda", "version", "CUDA of the compatibility libraries (cuda-compat) that the image brings"),
    column("service.name", "text", "a container that a compose file or a pod starts, or the image that is built"),
    column(
        "service.image", "text", "the image that it starts from, such as pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime"
    ),
    column("service.for_gpus", "bool", "whether that image is made for GPUs"),
    column("service.system_python", "bool", "whether no command of it installs a Python beside the distribution's"),
    column("service.asks_gpus", "bool", "whether it asks for GPUs"),
    column("service.asks", "text", "how it asks, such as gpus: all, nvidia.com/gpu: 2, runtime: nvidia"),
    column(
        "service.by_variable", "bool", "whether it names GPUs in NVIDIA_VISIBLE_DEVICES, which NVIDIA's runtime reads"
    ),
    column("service.shm_mib", "int", "the size that it gives /dev/shm"),
)


@frozen
class Service:
    """One container of a compose file, pod or image. `shm_mib` is its /dev/shm in MiB.

    `asks` says how it asks for GPUs: empty where it does not, None where the file cannot tell.
    """

    name: str
    image: str = ""
    asks: str | None = None
    shm_mib: int | None = None
    by_variable: bool = False

    def row(self, source: str) -> Row:
        """The container as a row of ``service``; columns without a value are left out."""
        row: dict[str, Fact] = {"name": Known(clean(self.name)[:100], source)}
        if self.image:
            row["image"] = Known(clean(self.image)[:300], source)
        if self.asks is not None:
            row["asks_gpus"] = Known(bool(self.asks), source)
            row["by_variable"] = Known(self.by_variable, source)
            if self.asks:
                row["asks"] = Known(clean(self.asks)[:100], source)
        if self.shm_mib is not None:
            row["shm_mib"] = Known(self.shm_mib, source)
        return row


def first_gpu_service(services: Sequence[tuple[Service, str, T]]) -> tuple[Service, str, T]:
    """The first service that asks for GPUs, else the first with a CUDA image or NVIDIA variable, else the first.

    Each entry is service, source and details; at least one is needed.
    """
    for service, source, details in services:
        if service.asks:
            return service, source, details
    for service, source, details in services:
        if service.by_variable or any(word in service.image for word in _CUDA_WORDS):
            return service, source, details
    return services[0]


# ---- Sizes as container engines write them: 16gb, 2Gi, 67108864 ----

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1, "m": 2, "g": 3, "t": 4}


def size_mib(text: str) -> int | None:
    """The size in MiB, rounded down; a bare number is bytes; None for no size. ``M``, ``MB`` and ``Mi`` are MiB."""
    match = _SIZE.fullmatch(text[:40])
    if not match:
        return None
    number, unit = float(match[1]), match[2].lower()
    size = number * 1024 ** _FACTORS[unit] if unit else number
    return int(size / 1024**2)


# ---- Variables in the text of a Dockerfile or a compose file ----

_VARIABLE = re.compile(r"\\\$|\$(?:\{([A-Za-z_]\w*)(?:(:?[-+])([^{}]*))?\}|([A-Za-z_]\w*))")


def substituted(text: str, values: Mapping[str, str]) -> str:
    """The text with ``$NAME``, ``${NAME}``, ``${NAME:-default}`` and ``${NAME:+alternative}`` replaced, cut to 8000
    characters.

    Names without a value or default stay; an escaped ``$`` becomes a plain one.
    """

    def replacement(match: re.Match[str]) -> str:
        r"""What replaces one variable reference: its value, default or alternative, ``$`` for ``\$``, else itself."""
        name, operator, alternative = match[1] or match[4], match[2], match[3] or ""
        if not name:
            return "$"
        if operator and operator.endswith("+"):
            return alternative if values.get(name) else ""
        if name in values and (values[name] or not (operator or "").startswith(":")):
            return values[name]
        return alternative if operator else match[0]

    return _VARIABLE.sub(replacement, text)[:8000]
