"""TOML under ``rules/``: a wheel ships compiled copies of its pages, made when it was built.

A checkout, whose pages take 2.5 s to parse and check, keeps such copies in the user's cache folder. They are named by
what the pages hold, and used where only this user and root can have written them; without a cache the pages are parsed.
A site's own pages are parsed each time (some 10 ms each): no copy of them decides what is run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpudoctor import durable, shipped, state, trusted
from gpudoctor.model.errors import RuleError
from gpudoctor.version import __version__

_FORM = 8
"""Form of the compiled copies; one of another form is not read."""
_MOST_COPIES = 8
"""Copies of one kind: those of other checkouts stay for a while."""


def home() -> Path:
    """The folder of our pages: inside an installed package, beside it in a checkout."""
    inside = shipped.folder("rules")
    return inside if inside.is_dir() else inside.parent.parent / "rules"


def toml(path: Path) -> dict[str, Any]:
    """One TOML file; raises `RuleError` naming the file and line."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib
    try:
        loaded: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise RuleError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        import re

        said, line = str(error), re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
        place = f"{path}:{line[1]}: {said[: line.start()]} at column {line[2]}" if line else f"{path}: {said}"
        raise RuleError(place) from error
    return loaded


def compiled(folder: Path | None, name: str, build: Callable[[Path], Any]) -> Any:
    """What `build` makes of the TOML files under `folder`; of our own pages, for None, from a compiled copy.

    A name such as ``tables/gpus`` is of a folder in that folder.
    """
    if folder is not None:
        source = folder.joinpath(name).parent
        return build(folder if folder.is_file() else source)
    copy = shipped.data(f"rules/{name}.json")
    if copy is not None:
        return json.loads(copy)
    source = home().joinpath(name).parent
    kind = name.rpartition("/")[2]
    cache = state.cache() / "pages" / f"{kind}-{_digest(source)}.json"
    kept = _kept(cache)
    if kept is None:
        kept = build(source)
        _store(cache, kind, kept)
    return kept


@lru_cache(maxsize=8)
def _digest(folder: Path) -> str:
    """The SHA-256 of all names and contents, and of this program's version."""
    import hashlib

    whole = hashlib.sha256(f"{__version__} {_FORM}\n".encode())
    for path in sorted(folder.rglob("*.toml")):
        content = path.read_bytes()
        whole.update(f"{path.relative_to(folder)} {len(content)}\n".encode())
        whole.update(content)
    return whole.hexdigest()


def _kept(cache: Path) -> Any:
    """What the copy holds; None where there is none, or somebody else can have written it."""
    try:
        return None if trusted.doubt(cache) else json.loads(cache.read_bytes())
    except (OSError, ValueError):
        return None


def _store(cache: Path, kind: str, built: object) -> None:
    """Put the copy there in one step, for this user alone; drop this kind's older ones. In vain where it cannot be."""
    try:
        trusted.make(cache.parent)
        if trusted.doubt(cache.parent):
            return
        durable.put(cache, json.dumps(built, separators=(",", ":")).encode(), 0o600)
        for old in sorted(cache.parent.glob(f"{kind}-*.json"), key=lambda path: path.stat().st_mtime)[:-_MOST_COPIES]:
            old.unlink(missing_ok=True)
    except OSError:
        return
