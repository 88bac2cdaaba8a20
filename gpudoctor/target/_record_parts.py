"""The parts of a record's JSON, taken apart with every type, path and size checked."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from gpudoctor.model.errors import DocumentError
from gpudoctor.model.measurement_json import meanwhile
from gpudoctor.target.record import Command, Sparse

MOST_BYTES = 1 << 37
"""Size of the largest sparse file."""
MOST_UNPACKED = 1 << 26
"""Bytes of all parts of a sparse file."""


class Part:
    """One JSON object of the record, taken apart with every type checked; `where` names it in errors."""

    def __init__(self, raw: object, where: str) -> None:
        if not isinstance(raw, Mapping):
            raise DocumentError(f"{where} is not an object")
        self.raw, self.where = raw, where

    def maybe(self, key: str) -> Mapping[str, Any] | None:
        entry = self.raw.get(key)
        return None if entry is None else Part(entry, key).raw

    def part(self, key: str) -> Part:
        return Part(self.raw.get(key) or {}, key)

    def text(self, key: str) -> str:
        entry = self.raw.get(key)
        if entry is None:
            return ""
        if not isinstance(entry, str) or "\0" in entry:
            raise DocumentError(f"{self.where}: {key} is not a text")
        return entry

    def texts(self, key: str, paths: bool = False) -> Iterator[tuple[str, str]]:
        for name, entry in self.part(key).raw.items():
            if not isinstance(entry, str):
                raise DocumentError(f"{self.where}.{key}: {str(name)[:80]!r} is not a text")
            yield _path(name, f"{self.where}.{key}") if paths else str(name), entry

    def items(self, key: str) -> list[Any]:
        entry = self.raw.get(key) or []
        if not isinstance(entry, list):
            raise DocumentError(f"{self.where}: {key} is not a list")
        return entry

    def paths(self, key: str) -> tuple[str, ...]:
        return tuple(_path(entry, f"{self.where}.{key}") for entry in self.items(key))

    def spaces(self) -> Iterator[tuple[str, tuple[int, int]]]:
        for path, pair in self.part("space").raw.items():
            whole = isinstance(pair, list) and len(pair) == 2 and all(type(size) is int for size in pair)
            if not whole or not 0 <= pair[1] <= pair[0] < 1 << 62:
                raise DocumentError(f"{self.where}.space: {str(path)[:80]!r} is not [total, free] in bytes")
            yield _path(path, f"{self.where}.space"), (pair[0], pair[1])

    def times(self) -> Iterator[tuple[str, int]]:
        for path, seconds in self.part("times").raw.items():
            if type(seconds) is not int or not 0 <= seconds < 1 << 40:
                raise DocumentError(f"{self.where}.times: {str(path)[:80]!r} is no time in seconds since 1970")
            yield _path(path, f"{self.where}.times"), seconds

    def sparse(self) -> Iterator[tuple[str, Sparse]]:
        for path, entry in self.part("sparse").raw.items():
            one = Part(entry, f"{self.where}.sparse")
            size, parts = one.raw.get("size"), one.items("parts")
            pairs = [pair for pair in parts if isinstance(pair, list) and [type(n) for n in pair] == [int, int]]
            inside = type(size) is int and all(min(pair) >= 0 and sum(pair) <= size for pair in pairs)
            if not isinstance(size, int) or not inside or len(pairs) < len(parts) or not 0 <= size <= MOST_BYTES:
                raise DocumentError(f"{one.where}: {str(path)[:80]!r} has parts outside of its size")
            data = _unpacked(path, one.text("data"), sum(length for _, length in pairs))
            starts = accumulate((length for _, length in pairs), initial=0)
            read = [(offset, data[at : at + length]) for (offset, length), at in zip(pairs, starts, strict=False)]
            yield _path(path, one.where), Sparse(size, tuple(read))

    def commands(self) -> Iterator[Command]:
        for entry in self.items("commands"):
            one = Part(entry, f"{self.where}.commands")
            argv, status = one.items("argv"), one.raw.get("status", 0)
            if not argv or not all(isinstance(word, str) and "\0" not in word for word in argv):
                raise DocumentError(f"{one.where}: argv is not a list of texts")
            if type(status) is not int:
                raise DocumentError(f"{one.where}: the status of {argv[0][:80]!r} is not a whole number")
            yield Command(tuple(argv), status, one.text("out"), one.text("err"), one.raw.get("do") == "hang")

    def library(self, key: str) -> Mapping[str, Any] | None:
        """The section of a native library: answers by call, for the system, for every GPU and for each."""
        section = self.maybe(key)
        if section is None:
            return None
        part = Part(section, key)
        for calls in (
            part.part("system"),
            part.part("every"),
            *(Part(gpu, f"{key}.gpus") for gpu in part.items("gpus")),
        ):
            if not all(isinstance(call, str) for call in calls.raw):
                raise DocumentError(f"{calls.where}: a call is not a text")
        for entry in part.items("faults"):
            fault = Part(entry, f"{key}.faults")
            if not isinstance(fault.raw.get("call"), str) or not isinstance(fault.raw.get("do"), (str, int)):
                raise DocumentError(f"{fault.where}: a fault needs call and do")
        return section

    def kernels(self, key: str) -> Mapping[str, Any] | None:
        """What the children of a ladder were asked and said."""
        section = self.maybe(key)
        part = Part(section or {}, key)
        for entry in part.items("children"):
            child = Part(entry, f"{key}.children")
            child.part("ask")
            child.items("out")
            child.text("err")
            if type(child.raw.get("status")) not in {int, type(None)}:
                raise DocumentError(f"{child.where}: a status is not a whole number")
        for entry in part.items("meanwhile"):
            meanwhile(entry)
        return section


def _path(raw: object, where: str) -> str:
    """An absolute path that stays inside its root."""
    path = str(raw)
    parts = path.split("/")
    if (
        not isinstance(raw, str)
        or not path.startswith("/")
        or "\0" in path
        or (path != "/" and not {"", ".", ".."}.isdisjoint(parts[1:]))
    ):
        raise DocumentError(f"{where}: {path[:80]!r} is not an absolute path without '.' and '..'")
    if len(path) > 4000 or max(map(len, parts)) > 255:
        raise DocumentError(f"{where}: {path[:80]!r} is too long for a path")
    return path


def decoded(path: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise DocumentError(f"host: {path[:80]!r} is not base64: {error}") from error


def _unpacked(path: str, text: str, size: int) -> bytes:
    """Exactly `size` bytes; a bomb is not unpacked."""
    if size > MOST_UNPACKED:
        raise DocumentError(f"host.sparse: {path[:80]!r} has {size} bytes in its parts")
    try:
        data = zlib.decompressobj().decompress(decoded(path, text), size + 1)
    except zlib.error as error:
        raise DocumentError(f"host.sparse: {path[:80]!r} is not compressed data: {error}") from error
    if len(data) != size:
        raise DocumentError(f"host.sparse: {path[:80]!r} holds other than the {size} bytes of its parts")
    return data
