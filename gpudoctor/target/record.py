"""A machine kept as a value: what its files held, its commands printed, and its drivers and torch answered.

``nvml`` and ``cuda`` hold a native library's answers by the name of its function, its arguments behind the handle in
parentheses: ``{"system": {call: answer}, "every": {call: answer}, "gpus": [{call: answer}], "faults": [...]}``. An
answer is the JSON of the value, or ``{"code": n}``; a call that is nowhere is not supported by that machine.

A sparse file has only the parts of it that were read; `level` is how deep the machine was asked. What is left out was
there and is not in the record: it reads as unread, never as missing.

``kernels`` holds what the children of a ladder were asked and said, ``{"children": [{"ask": {...}, "out": [...], "err":
"", "status": 0}], "meanwhile": [{"kernel": id, "gpu": n, ...}]}``, the latter what NVML said of a GPU while one ran.

The file format is JSON, ``gpudoctor-record/1``::

    {"schema": "gpudoctor-record/1", "title": "...",
     "level": "standard",
     "host": {"files": {path: text}, "bytes": {path: base64}, "links": {path: goal}, "folders": [path],
              "sparse": {path: {"size": n, "parts": [[offset, length]], "data": base64 of the parts, zlib-compressed}},
              "left_out": [path],
              "devices": {path: "195:0 0666"}, "denied": [path], "space": {path: [total, free]},
              "inodes": {path: [total, free]}, "times": {path: seconds since 1970},
              "environ": {name: text}, "python": path, "name": text,
              "commands": [{"argv": [...], "status": 0, "out": "", "err": "", "do": "hang"}]},
     "nvml": {...}, "cuda": {...}, "torch_child": {"out": [...], "err": "", "status": 0},
     "kernels": {"children": [...], "meanwhile": [...]}, "expect": {...}}
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, get_args

from gpudoctor.core.document import parse_json
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.frozen import field, frozen
from gpudoctor.core.measurement import meanwhile_from_json
from gpudoctor.core.snapshot import Level


@frozen
class Command:
    """What a recorded program printed. `status` is its exit code, negative for a signal; `hangs`: it never ended."""

    argv: tuple[str, ...]
    status: int = 0
    out: str = ""
    err: str = ""
    hangs: bool = False


@frozen
class Sparse:
    """A file of `size` bytes of which only some parts were read, as (offset, bytes) pairs."""

    size: int
    parts: tuple[tuple[int, bytes], ...]


@frozen
class Record:
    """Everything recorded of one machine.

    Paths are absolute, without ``.`` and ``..``; `space` is total and free bytes of a file system, `inodes` the same
    of its inodes, `times` are modification times in seconds since 1970.
    """

    title: str = ""
    level: str = "standard"
    files: Mapping[str, bytes] = field(default_factory=dict)
    sparse: Mapping[str, Sparse] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()
    devices: Mapping[str, str] = field(default_factory=dict)
    denied: Sequence[str] = ()
    space: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    inodes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    name: str = "record"
    commands: Sequence[Command] = ()
    nvml: Mapping[str, Any] | None = None
    cuda: Mapping[str, Any] | None = None
    torch_child: Mapping[str, Any] | None = None
    kernels: Mapping[str, Any] | None = None
    expect: Mapping[str, Any] = field(default_factory=dict)


# ---- A record as JSON ----

SCHEMA = "gpudoctor-record/1"
MOST_FILES = 50_000
_PARTS = frozenset({"schema", "title", "level", "host", "nvml", "cuda", "torch_child", "kernels", "network", "expect"})
_DEVICE = re.compile(r"\d{1,4}:\d{1,7} 0[0-7]{3}")


def is_record(text: str) -> bool:
    """Whether a file's text looks like a record (JSON that names the record schema), even a broken one."""
    return text.lstrip("\ufeff \t\r\n").startswith("{") and f'"{SCHEMA.partition("/")[0]}/' in text


def parse(text: str) -> Record:
    """The record in JSON text; raises `DocumentError` naming the place where it is cut short or invalid."""
    return from_json(parse_json(text))


def from_json(raw: object) -> Record:
    """The recorded machine in parsed JSON; raises `DocumentError` for an unknown schema, part, level, type or path."""
    top = _JsonObject(raw, "the record")
    schema = top.text("schema")
    if schema != SCHEMA:
        raise DocumentError(f"schema {schema[:40]!r} is not {SCHEMA}; read it with the gpudoctor that wrote it")
    unknown = sorted(str(key) for key in top.raw if key not in _PARTS)
    if unknown or "host" not in top.raw:  # to pass over a part would be to diagnose another machine
        what = f"{unknown[0][:40]!r} is no part of a record" if unknown else "it has no host"
        raise DocumentError(f"not a whole record: {what}; make one with gpudoctor record")
    host = top.child_object("host")
    files = {path: text.encode("utf-8", "surrogatepass") for path, text in host.text_items("files", paths=True)}
    files.update({path: _from_base64(path, text) for path, text in host.text_items("bytes", paths=True)})
    links = dict(host.text_items("links", paths=True))
    devices = dict(host.text_items("devices", paths=True))
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
    _check_path_conflicts(files, sparse, dict.fromkeys(left_out), links, devices)
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
        space=dict(host.sizes("space", "bytes")),
        inodes=dict(host.sizes("inodes", "inodes")),
        times=dict(host.times()),
        environ=dict(host.text_items("environ")),
        python=host.text("python") or None,
        name=host.text("name") or "record",
        commands=tuple(host.commands()),
        nvml=top.library("nvml"),
        cuda=top.library("cuda"),
        torch_child=top.optional_object("torch_child"),
        kernels=top.kernels("kernels"),
        expect=top.optional_object("expect") or {},
    )


def to_json(record: Record) -> dict[str, Any]:
    """The record as JSON that `from_json` takes back; files that are not UTF-8 go under ``bytes`` in base64.

    Empty parts of the host and sections that were not recorded are left out.
    """
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
        "sparse": {path: _sparse_json(sparse) for path, sparse in sorted(record.sparse.items())},
        "left_out": sorted(record.left_out),
        "links": dict(sorted(record.links.items())),
        "folders": sorted(record.folders),
        "devices": dict(sorted(record.devices.items())),
        "denied": sorted(record.denied),
        "space": {path: list(pair) for path, pair in sorted(record.space.items())},
        "inodes": {path: list(pair) for path, pair in sorted(record.inodes.items())},
        "times": dict(sorted(record.times.items())),
        "commands": [_command_json(command) for command in record.commands],
    }
    sections = ("nvml", "cuda", "torch_child", "kernels", "expect")
    present_sections = {name: section for name in sections if (section := getattr(record, name))}
    head = {"schema": SCHEMA, "title": record.title, "level": record.level}
    return {**head, "host": {k: v for k, v in host.items() if v}, **present_sections}


def _sparse_json(sparse: Sparse) -> dict[str, Any]:
    """Size, (offset, length) of each part, and the parts' bytes together, zlib-compressed in base64, for JSON."""
    data = zlib.compress(b"".join(data for _, data in sparse.parts), 9)
    parts = [[offset, len(data)] for offset, data in sparse.parts]
    return {"size": sparse.size, "parts": parts, "data": base64.b64encode(data).decode()}


def _command_json(command: Command) -> dict[str, Any]:
    """The command as JSON; empty output is left out, a program that hangs has ``"do": "hang"``."""
    out: dict[str, Any] = {"argv": list(command.argv), "status": command.status}
    out.update({name: text for name, text in (("out", command.out), ("err", command.err)) if text})
    return {**out, "do": "hang"} if command.hangs else out


def _check_path_conflicts(*kinds: Mapping[str, object]) -> None:
    """Raise `DocumentError` for a path given twice, or below another that is a file, link or device."""
    known_paths: set[str] = set()
    for kind in kinds:
        for path in kind:
            if path in known_paths:
                raise DocumentError(f"host: {path[:80]!r} is there twice")
            known_paths.add(path)
    for path in known_paths:
        parent = path.rpartition("/")[0]
        while parent:
            if parent in known_paths:
                raise DocumentError(f"host: {path[:80]!r} lies below {parent[:80]!r}, which is no folder")
            parent = parent.rpartition("/")[0]


# ---- The parts of a record's JSON, taken apart with every type, path and size checked ----

MOST_BYTES = 1 << 37
"""Size of the largest sparse file."""
MOST_UNPACKED = 1 << 26
"""Bytes of all parts of a sparse file."""


class _JsonObject:
    """One JSON object of the record, whose members are read with their types checked.

    `where` names the object in errors. Every method raises `DocumentError` for a member of another type.
    """

    def __init__(self, raw: object, where: str) -> None:
        if not isinstance(raw, Mapping):
            raise DocumentError(f"{where} is not an object")
        self.raw, self.where = raw, where

    def optional_object(self, key: str) -> Mapping[str, Any] | None:
        """The object under `key`, None where it is missing or null; raises `DocumentError` for anything else."""
        entry = self.raw.get(key)
        return None if entry is None else _JsonObject(entry, key).raw

    def child_object(self, key: str) -> _JsonObject:
        """The object under `key`, empty where it is missing or null; raises `DocumentError` for anything else."""
        return _JsonObject(self.optional_object(key) or {}, key)

    def text(self, key: str) -> str:
        """The text under `key`, empty where it is missing or null; raises `DocumentError` for anything else."""
        entry = self.raw.get(key)
        if entry is None:
            return ""
        if not isinstance(entry, str) or "\0" in entry:
            raise DocumentError(f"{self.where}: {key} is not a text")
        return entry

    def text_items(self, key: str, paths: bool = False) -> Iterator[tuple[str, str]]:
        """Name and text of each member of the object under `key`, none where it is missing or null; with `paths` each
        name must be an absolute path.

        Raises `DocumentError` for anything else.
        """
        for name, entry in self.child_object(key).raw.items():
            if not isinstance(entry, str):
                raise DocumentError(f"{self.where}.{key}: {str(name)[:80]!r} is not a text")
            yield _checked_path(name, f"{self.where}.{key}") if paths else str(name), entry

    def items(self, key: str) -> list[Any]:
        """The list under `key`, empty where it is missing or null; raises `DocumentError` for anything else."""
        entry = self.raw.get(key)
        if entry is not None and not isinstance(entry, list):
            raise DocumentError(f"{self.where}: {key} is not a list")
        return entry or []

    def paths(self, key: str) -> tuple[str, ...]:
        """The list of absolute paths under `key`, empty where it is missing; raises `DocumentError`."""
        return tuple(_checked_path(entry, f"{self.where}.{key}") for entry in self.items(key))

    def sizes(self, key: str, unit: str) -> Iterator[tuple[str, tuple[int, int]]]:
        """Path and (total, free), in `unit`, of each member of the object under `key`; raises `DocumentError`."""
        for path, pair in self.child_object(key).raw.items():
            well_formed = isinstance(pair, list) and len(pair) == 2 and all(type(size) is int for size in pair)
            if not well_formed or not 0 <= pair[1] <= pair[0] < 1 << 62:
                raise DocumentError(f"{self.where}.{key}: {str(path)[:80]!r} is not [total, free] in {unit}")
            yield _checked_path(path, f"{self.where}.{key}"), (pair[0], pair[1])

    def times(self) -> Iterator[tuple[str, int]]:
        """Path, and modification time in seconds since 1970, of each member of ``times``; raises `DocumentError`."""
        for path, seconds in self.child_object("times").raw.items():
            if type(seconds) is not int or not 0 <= seconds < 1 << 40:
                raise DocumentError(f"{self.where}.times: {str(path)[:80]!r} is no time in seconds since 1970")
            yield _checked_path(path, f"{self.where}.times"), seconds

    def sparse(self) -> Iterator[tuple[str, Sparse]]:
        """Path and `Sparse` of each member of ``sparse``, decompressed.

        Raises `DocumentError`, also where parts lie outside of the file's size.
        """
        for path, entry in self.child_object("sparse").raw.items():
            file = _JsonObject(entry, f"{self.where}.sparse")
            size, parts = file.raw.get("size"), file.items("parts")
            pairs = [pair for pair in parts if isinstance(pair, list) and [type(n) for n in pair] == [int, int]]
            in_bounds = type(size) is int and all(min(pair) >= 0 and sum(pair) <= size for pair in pairs)
            if not isinstance(size, int) or not in_bounds or len(pairs) < len(parts) or not 0 <= size <= MOST_BYTES:
                raise DocumentError(f"{file.where}: {str(path)[:80]!r} has parts outside of its size")
            data = _decompressed(path, file.text("data"), sum(length for _, length in pairs))
            starts = accumulate((length for _, length in pairs), initial=0)
            read_parts = [
                (offset, data[start : start + length]) for (offset, length), start in zip(pairs, starts, strict=False)
            ]
            yield _checked_path(path, file.where), Sparse(size, tuple(read_parts))

    def commands(self) -> Iterator[Command]:
        """The commands of the record's JSON, in order; raises `DocumentError` for one that is malformed."""
        for entry in self.items("commands"):
            part = _JsonObject(entry, f"{self.where}.commands")
            argv, status = part.items("argv"), part.raw.get("status", 0)
            if not argv or not all(isinstance(word, str) and "\0" not in word for word in argv):
                raise DocumentError(f"{part.where}: argv is not a list of texts")
            if type(status) is not int:
                raise DocumentError(f"{part.where}: the status of {argv[0][:80]!r} is not a whole number")
            yield Command(tuple(argv), status, part.text("out"), part.text("err"), part.raw.get("do") == "hang")

    def library(self, key: str) -> Mapping[str, Any] | None:
        """The section of a native library (``nvml``, ``cuda``), its calls and faults checked; None if it is missing."""
        section = self.optional_object(key)
        if section is None:
            return None
        part = _JsonObject(section, key)
        for calls in (
            part.child_object("system"),
            part.child_object("every"),
            *(_JsonObject(gpu, f"{key}.gpus") for gpu in part.items("gpus")),
        ):
            if not all(isinstance(call, str) for call in calls.raw):
                raise DocumentError(f"{calls.where}: a call is not a text")
        for entry in part.items("faults"):
            fault = _JsonObject(entry, f"{key}.faults")
            if not isinstance(fault.raw.get("call"), str) or not isinstance(fault.raw.get("do"), (str, int)):
                raise DocumentError(f"{fault.where}: a fault needs call and do")
        return section

    def kernels(self, key: str) -> Mapping[str, Any] | None:
        """The section of kernel children and of what NVML reported meanwhile, its form checked; None if absent."""
        section = self.optional_object(key)
        part = _JsonObject(section or {}, key)
        for entry in part.items("children"):
            child = _JsonObject(entry, f"{key}.children")
            child.child_object("ask")
            child.items("out")
            child.text("err")
            if type(child.raw.get("status")) not in {int, type(None)}:
                raise DocumentError(f"{child.where}: a status is not a whole number")
        for entry in part.items("meanwhile"):
            meanwhile_from_json(entry)
        return section


def _checked_path(raw: object, where: str) -> str:
    """The path, if it is absolute and has no ``.``, ``..`` or overlong part; else raises `DocumentError`."""
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


def _from_base64(path: str, text: str) -> bytes:
    """The bytes of base64 text; raises `DocumentError` naming `path` for anything else."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise DocumentError(f"host: {path[:80]!r} is not base64: {error}") from error


def _decompressed(path: str, text: str, size: int) -> bytes:
    """Exactly `size` bytes from zlib data in base64; raises `DocumentError` for fewer, more or above the limit."""
    if size > MOST_UNPACKED:
        raise DocumentError(f"host.sparse: {path[:80]!r} has {size} bytes in its parts")
    try:
        data = zlib.decompressobj().decompress(_from_base64(path, text), size + 1)
    except zlib.error as error:
        raise DocumentError(f"host.sparse: {path[:80]!r} is not compressed data: {error}") from error
    if len(data) != size:
        raise DocumentError(f"host.sparse: {path[:80]!r} holds other than the {size} bytes of its parts")
    return data
