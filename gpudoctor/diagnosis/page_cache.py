"""TOML under ``rules/``: a wheel ships compiled copies of its pages, made when it was built.

A checkout, whose pages take 2.5 s to parse and check, keeps such copies in the user's cache folder. They are named by
what the pages hold, and used where only this user and root can have written them; without a cache the pages are parsed.
A site's own pages are parsed each time (some 10 ms each): no copy of them decides what is run.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpudoctor.core import files, shipped
from gpudoctor.core.about import __version__
from gpudoctor.core.document import parse_toml
from gpudoctor.core.errors import RuleError

_FORMAT = 10
"""Form of the compiled copies; one of another form is not read."""
_MOST_COPIES = 8
"""Copies of one kind: those of other checkouts stay for a while."""


def home() -> Path:
    """The folder of the shipped pages, ``rules``: inside an installed package, beside it in a checkout."""
    inside = shipped.folder("rules")
    return inside if inside.is_dir() else inside.parent.parent / "rules"


def toml(path: Path) -> dict[str, Any]:
    """The tables of one TOML file; raises `RuleError` naming the file and, where it is no TOML, the line."""
    try:
        return parse_toml(path.read_text("utf-8"))
    except OSError as error:
        raise RuleError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        message, line = str(error), re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
        place = f"{path}:{line[1]}: {message[: line.start()]} at column {line[2]}" if line else f"{path}: {message}"
        raise RuleError(place) from error


def compiled(folder: Path | None, name: str, build: Callable[[Path], Any]) -> Any:
    """What `build` makes of the TOML under `folder`; for None of the shipped pages, from a compiled copy or the cache.

    Without either, the shipped pages are built and the result is cached. `name` may have a folder, as ``tables/gpus``,
    which is the one built from; raises what `build` raises.
    """
    if folder is not None:
        source = folder.joinpath(name).parent
        return build(folder if folder.is_file() else source)
    copy = shipped.data(f"rules/{name}.json")
    if copy is None and (packed := shipped.data(f"rules/{name}.json.z")):  # most, in a wheel
        copy = zlib.decompress(packed)
    if copy is not None:
        return json.loads(copy)
    source = home().joinpath(name).parent
    kind = name.rpartition("/")[2]
    cache = files.cache_folder() / "pages" / f"{kind}-{_digest(source)}.json"
    kept = _read_cache(cache)
    if kept is None:
        kept = build(source)
        _write_cache(cache, kind, kept)
    return kept


@lru_cache(maxsize=8)
def _digest(folder: Path) -> str:
    """SHA-256 in hexadecimal of the program's version and the folder's TOML files, names and contents; cached."""
    import hashlib  # loads OpenSSL; an installed gpudoctor never needs it

    whole = hashlib.sha256(f"{__version__} {_FORMAT}\n".encode())
    for path in sorted(folder.rglob("*.toml")):
        content = path.read_bytes()
        whole.update(f"{path.relative_to(folder)} {len(content)}\n".encode())
        whole.update(content)
    return whole.hexdigest()


def _read_cache(cache: Path) -> Any:
    """The cached JSON; None where there is none, it is broken, or others could have written it."""
    try:
        return None if files.doubt(cache) else json.loads(cache.read_bytes())
    except (OSError, ValueError):
        return None


def _write_cache(cache: Path, kind: str, built: object) -> None:
    """Writes the cache atomically, mode 0600, and deletes the kind's oldest files; failures are ignored."""
    try:
        files.make_private(cache.parent)
        if files.doubt(cache.parent):
            return
        files.put(cache, json.dumps(built, separators=(",", ":")).encode(), 0o600)
        for old in sorted(cache.parent.glob(f"{kind}-*.json"), key=lambda path: path.stat().st_mtime)[:-_MOST_COPIES]:
            old.unlink(missing_ok=True)
    except OSError:
        return
