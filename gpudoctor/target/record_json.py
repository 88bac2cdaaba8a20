"""Records as files, JSON of the format ``gpudoctor-record/1``::

    {"schema": "gpudoctor-record/1", "title": "...",
     "level": "standard",
     "host": {"files": {path: text}, "bytes": {path: base64}, "links": {path: goal}, "folders": [path],
              "sparse": {path: {"size": n, "parts": [[offset, length]], "data": base64 of the parts, zlib-compressed}},
              "left_out": [path],
              "devices": {path: "195:0 0666"}, "denied": [path], "space": {path: [total, free]},
              "times": {path: seconds since 1970},
              "environ": {name: text}, "python": path, "name": text,
              "commands": [{"argv": [...], "status": 0, "out": "", "err": "", "do": "hang"}]},
     "nvml": {...}, "cuda": {...}, "torch_child": {"out": [...], "err": "", "status": 0},
     "kernels": {"children": [...], "meanwhile": [...]}, "expect": {...}}

`gpudoctor.target.record` says what each part means.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, get_args

from gpudoctor.model.errors import DocumentError
from gpudoctor.model.measurement_json import meanwhile
from gpudoctor.model.parsing import parsed
from gpudoctor.model.snapshot import Level
from gpudoctor.target.record import Command, Record, Sparse

SCHEMA = "gpudoctor-record/1"
MOST_FILES = 50_000
_PARTS = frozenset({"schema", "title", "level", "host", "nvml", "cuda", "torch_child", "kernels", "network", "expect"})
_DEVICE = re.compile(r"\d{1,4}:\d{1,7} 0[0-7]{3}")


def is_record(text: str) -> bool:
    """Whether a file's text is meant to be a record, whole or not."""
    return text.lstrip("\ufeff \t\r\n").startswith("{") and f'"{SCHEMA.partition("/")[0]}/' in text


def parse(text: str) -> Record:
    """The record in `text`; raises `DocumentError` naming the place for what is cut short or no record."""
    return from_json(parsed(text))


def from_json(raw: object) -> Record:
    """The record in parsed JSON; raises `DocumentError`."""
    top = Part(raw, "the record")
    schema = top.text("schema")
    if schema != SCHEMA:
        raise DocumentError(f"schema {schema[:40]!r} is not {SCHEMA}; read it with the gpudoctor that wrote it")
    unknown = sorted(str(key) for key in top.raw if key not in _PARTS)
    if unknown or "host" not in top.raw:  # to pass over a part would be to diagnose another machine
        what = f"{unknown[0][:40]!r} is no part of a record" if unknown else "it has no host"
        raise DocumentError(f"not a whole record: {what}; make one with gpudoctor record")
    host = top.part("host")
    files = {path: text.encode("utf-8", "surrogatepass") for path, text in host.texts("files", paths=True)}
    files.update({path: decoded(path, text) for path, text in host.texts("bytes", paths=True)})
    links = dict(host.texts("links", paths=True))
    devices = dict(host.texts("devices", paths=True))
    for path, word in devices.items():
        if not _DEVICE.fullmatch(word):
            raise DocumentError(f"host.devices: {path[:80]!r} is {word[:40]!r}, not like '195:0 0666'")
    folders, denied = host.paths("folders"), host.paths("denied")
    sparse, left_out = dict(host.sparse()), host.paths("left_out")
    if len(files) + len(sparse) + len(left_out) + len(links) + len(devices) + len(folders) > MOST_FILES:
        raise DocumentError(f"host: more than {MOST_FILES} files")
    level = top.text("level") or "standard"
    if level not in get_args(Level):
        raise DocumentError(f"level {level[:40]!r} is none of {', '.join(get_args(Level))}")
    _check_places(files, sparse, dict.fromkeys(left_out), links, devices)
    return Record(
        title=top.text("title"),
        level=level,
        files=files,
        sparse=sparse,
        left_out=left_out,
        links=links,
        folders=folders,
        devices=devices,
        denied=denied,
        space=dict(host.spaces()),
        times=dict(host.times()),
        environ=dict(host.texts("environ")),
        python=host.text("python") or None,
        name=host.text("name") or "record",
        commands=tuple(host.commands()),
        nvml=top.library("nvml"),
        cuda=top.library("cuda"),
        torch_child=top.maybe("torch_child"),
        kernels=top.kernels("kernels"),
        expect=top.maybe("expect") or {},
    )


def to_json(record: Record) -> dict[str, Any]:
    """JSON that `from_json` takes back; bytes that are no text go under ``bytes``."""
    texts: dict[str, str] = {}
    raw: dict[str, str] = {}
    for path, content in sorted(record.files.items()):
        try:
            texts[path] = content.decode()
        except UnicodeDecodeError:
            raw[path] = base64.b64encode(content).decode()
    host: dict[str, Any] = {
        "name": record.name,
        "python": record.python,
        "environ": dict(sorted(record.environ.items())),
        "files": texts,
        "bytes": raw,
        "sparse": {path: _sparse(sparse) for path, sparse in sorted(record.sparse.items())},
        "left_out": sorted(record.left_out),
        "links": dict(sorted(record.links.items())),
        "folders": sorted(record.folders),
        "devices": dict(sorted(record.devices.items())),
        "denied": sorted(record.denied),
        "space": {path: list(pair) for path, pair in sorted(record.space.items())},
        "times": dict(sorted(record.times.items())),
        "commands": [_command(command) for command in record.commands],
    }
    sections = ("nvml", "cuda", "torch_child", "kernels", "expect")
    kept = {name: section for name in sections if (section := getattr(record, name))}
    head = {"schema": SCHEMA, "title": record.title, "level": record.level}
    return {**head, "host": {k: v for k, v in host.items() if v}, **kept}


def _sparse(sparse: Sparse) -> dict[str, Any]:
    data = zlib.compress(b"".join(data for _, data in sparse.parts), 9)
    parts = [[offset, len(data)] for offset, data in sparse.parts]
    return {"size": sparse.size, "parts": parts, "data": base64.b64encode(data).decode()}


def _command(command: Command) -> dict[str, Any]:
    out: dict[str, Any] = {"argv": list(command.argv), "status": command.status}
    out.update({name: text for name, text in (("out", command.out), ("err", command.err)) if text})
    return {**out, "do": "hang"} if command.hangs else out


def _check_places(*kinds: Mapping[str, object]) -> None:
    """No path twice, and none below another that is a file, a link or a device."""
    places: set[str] = set()
    for kind in kinds:
        for path in kind:
            if path in places:
                raise DocumentError(f"host: {path[:80]!r} is there twice")
            places.add(path)
    for path in places:
        parent = path.rpartition("/")[0]
        while parent:
            if parent in places:
                raise DocumentError(f"host: {path[:80]!r} lies below {parent[:80]!r}, which is no folder")
            parent = parent.rpartition("/")[0]


# ---- The parts of a record's JSON, taken apart with every type, path and size checked ----

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
