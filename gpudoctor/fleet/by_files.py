"""Documents that something else gathered: files, folders of them, standard input; one document a file or a line."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from gpudoctor.fleet.reading import Reply
from gpudoctor.model.errors import UsageError

LIMIT = 32 << 20
"""Bytes of one document, and of what a file holds beside its documents; more is not kept."""
_GZIP = b"\x1f\x8b"


def verify(names: Sequence[str]) -> None:
    """Raise `UsageError` for a name that is none."""
    if names.count("-") > 1:
        raise UsageError("-: standard input can be read only once")
    for name in names:
        if name != "-" and not os.path.exists(name):  # noqa: PTH110 - a name too long is no file either
            raise UsageError(f"{name}: no such file or folder; give what gpudoctor check --json wrote on each host")


def replies(names: Sequence[str]) -> Iterator[Reply]:
    """What stands in them, a document at a time."""
    for name in names:
        if name == "-":
            yield from _pieces(sys.stdin.buffer, "standard input")
        else:
            for path in _files(Path(name)):
                yield from _file(path)


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or the files of the folder and of those in it, in the order of their names."""
    if not path.is_dir():
        yield path
        return
    for inside in sorted(path.iterdir()):
        if not inside.name.startswith("."):
            yield from _files(inside)


def _file(path: Path) -> Iterator[Reply]:
    name = path.name.removesuffix(".gz").partition(".json")[0].partition(".out")[0] or path.name
    try:
        with path.open("rb") as file:
            zipped = file.peek(2)[:2] == _GZIP
            yield from _pieces(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if zipped else file, name)
    except (OSError, EOFError) as error:
        yield Reply("", name=name, because=f"{path}: {getattr(error, 'strerror', None) or error}")


def _pieces(file: BinaryIO, name: str) -> Iterator[Reply]:
    """Each line that is a document by itself; then all that is left, if a document may be in it or none was found."""
    left, size, found = [], 0, False
    while line := file.readline(LIMIT):
        if line.startswith(b"{") and b'"schema"' in line[:200] and line.rstrip().endswith(b"}"):
            found = True
            yield Reply(_text(line), name=name)
        elif size < LIMIT:
            left.append(line)
            size += len(line)
    if left and (not found or any(line.startswith(b"{") for line in left)):
        yield Reply(_text(b"".join(left)), name=name)
    elif not found:
        yield Reply("", name=name)


def _text(raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    return raw.decode("utf-8-sig", "replace")
