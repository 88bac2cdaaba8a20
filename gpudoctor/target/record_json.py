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
from collections.abc import Mapping
from typing import Any, get_args

from gpudoctor.model.errors import DocumentError
from gpudoctor.model.parsing import parsed
from gpudoctor.model.snapshot import Level
from gpudoctor.target._record_parts import Part, decoded
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
