"""TOML under ``rules/``, read through a compiled copy: parsing pages costs 0.3 s, their JSON 5 ms.

The copy is kept in the user's cache folder, named by the pages' names, sizes and times; an unwritable cache only
costs the time. A wheel ships its own copies beside the pages, made when it was built.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpudoctor import shipped
from gpudoctor.model.errors import RuleError
from gpudoctor.version import __version__

_FORM = 5
"""Form of the compiled copies; one of another form is not read."""


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
    """What `build` makes of the TOML files under `folder`, from the compiled copy where there is a fresh one.

    None stands for our own pages, of which a wheel and a zip file carry the copies. A name such as ``tables/gpus`` is
    of a folder in that folder.
    """
    copy = shipped.data(f"rules/{name}.json") if folder is None else None
    if copy is not None:
        return json.loads(copy)
    source = (folder or home()).joinpath(name).parent
    if source.is_file():  # one page, which somebody is writing
        return build(source)
    place = f"{zlib.crc32(str(source).encode()):08x}"
    cache = _cache_folder() / f"{name.rpartition('/')[2]}-{place}-{_stamp(source)}.json"
    try:
        return json.loads(cache.read_bytes())
    except (OSError, ValueError):
        pass
    built = build(source)
    _store(cache, built)
    return built


def _stamp(folder: Path) -> str:
    """Checksums of all names, sizes and times; hashlib would load OpenSSL for it and cost more than the pages."""
    states = [(path.name, path.stat()) for path in sorted(folder.rglob("*.toml"))]
    text = f"{__version__} {_FORM}\n" + "".join(
        f"{name} {state.st_size} {state.st_mtime_ns}\n" for name, state in states
    )
    return f"{zlib.crc32(text.encode()):08x}{zlib.adler32(text.encode()):08x}"


def _cache_folder() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("gpudoctor")


def _store(cache: Path, built: object) -> None:
    """Write the copy beside its name and move it there, so that no reader sees half of it; drop this folder's older."""
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        scratch = cache.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(built, separators=(",", ":")), "utf-8")
        scratch.replace(cache)
        stem = cache.name.rpartition("-")[0]
        for old in cache.parent.glob(f"{stem}-*.json"):
            if old != cache:
                old.unlink(missing_ok=True)
    except OSError:
        return
