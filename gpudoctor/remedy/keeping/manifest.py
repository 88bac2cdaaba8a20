"""The list of what is kept of one tree, and where each content lies."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gpudoctor import durable
from gpudoctor.model.errors import DocumentError
from gpudoctor.remedy.keeping.tree import Entries, Entry

_FORM = 1


class Small(NamedTuple):
    """A content that was copied: where it begins in the file of all such, and its SHA-256."""

    offset: int
    digest: str


class Large(NamedTuple):
    """A content that has a file of its own, by its number. `linked` is whether that is the tree's own inode."""

    number: int
    linked: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was there, by path, and its contents: each file is in one of `small` and `large`."""

    entries: Entries
    small: dict[str, Small]
    large: dict[str, Large]

    def save(self, place: Path) -> None:
        """Have it on disk; raises `OSError`."""
        document = {"form": _FORM, "entries": self.entries, "small": self.small, "large": self.large}
        durable.put(place, gzip.compress(json.dumps(document).encode(), 1), 0o600)
        durable.settle(place.parent)


def digest(place: Path) -> str:
    """That of the file; raises `OSError`."""
    return hashlib.sha256(place.read_bytes()).hexdigest()


def load(place: Path, expected: str = "") -> Manifest:
    """The manifest in that file, of that digest if one is expected; raises `DocumentError`."""
    document = _read(place, expected)
    try:
        return Manifest(
            _each(document["entries"], Entry._make),
            _each(document["small"], Small._make),
            _each(document["large"], Large._make),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DocumentError(f"{place}: not a whole list of what was kept") from error


def save_entries(place: Path, entries: Entries) -> None:
    """Have a list without contents on disk; raises `OSError`."""
    Manifest(entries, {}, {}).save(place)


def _each(raw: dict[str, Any], make: Callable[[Any], Any]) -> dict[str, Any]:
    return {path: make(item) for path, item in raw.items()}


def _read(place: Path, expected: str) -> dict[str, Any]:
    try:
        data = place.read_bytes()
        if expected and hashlib.sha256(data).hexdigest() != expected:
            raise DocumentError(f"{place}: it was changed since it was written, and nothing is put back by it")
        document = json.loads(gzip.decompress(data))
    except (OSError, ValueError, EOFError) as error:
        raise DocumentError(f"{place}: {getattr(error, 'strerror', None) or 'broken'}") from error
    if not isinstance(document, dict) or document.get("form") != _FORM:
        raise DocumentError(f"{place}: no list of what was kept")
    return document
