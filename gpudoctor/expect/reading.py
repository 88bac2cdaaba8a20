"""From a file, or the name of a shipped profile, to a `Profile`; what does not belong is refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpudoctor import pages, trusted
from gpudoctor.expect.entries import condition_line, fact_line, kernel_line
from gpudoctor.expect.profile import Line, Profile
from gpudoctor.model.errors import UsageError
from gpudoctor.model.near import meant

MOST = 128 << 10
"""Bytes of a profile that are read; one of 500 lines has 50 KiB."""
_WIDEST = 1500
"""Characters of a line: a key of many parts takes TOML's reader time by the square of their number."""
_MOST_LINES = 2000
_DEEPEST = 8
"""Profiles that extend each other."""
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}\Z")
_KEYS = ("profile", "about", "sources", "checked", "extends", "without", "expect", "measure", "line")


def folder() -> Path:
    """Where the profiles that ship with the package are."""
    return pages.home() / "profiles"


def shipped() -> list[str]:
    """Their names."""
    return sorted(path.stem for path in folder().glob("*.toml"))


def load(asked: str) -> Profile:
    """The profile in that file, or the shipped one of that name; raises `UsageError`."""
    return _loaded(_found(asked), ())


def text_of(name: str) -> str:
    """The text of a shipped profile; raises `UsageError` for a name that is none."""
    if name not in shipped():
        raise UsageError(_no_such(name))
    return (folder() / f"{name}.toml").read_text("utf-8")


def _found(asked: str, beside: Path | None = None) -> Path:
    """The file of that name, or the shipped profile. What another one `beside` it extends is a plain file: no pipe."""
    path = (beside or Path()) / asked
    try:
        there = path.is_file() if beside is not None else path.exists()
    except (OSError, ValueError):  # a name that no file can have
        there = False
    if not there and asked in shipped():
        return folder() / f"{asked}.toml"
    if not there:
        raise UsageError(_no_such(asked))
    return path


def _no_such(asked: str) -> str:
    names = shipped()
    near = meant(asked, names)
    return f"{asked[:200]}: no such file, and no profile of that name ships{near}; gpudoctor expect list shows them"


def _loaded(path: Path, above: tuple[Path, ...]) -> Profile:
    if path in above or len(above) == _DEEPEST:
        raise UsageError(f"{path}: profiles extend each other without end, or more than {_DEEPEST} deep")
    return profile_of(_toml(path), str(path), path.parent, (*above, path))


def profile_of(raw: Mapping[str, Any], origin: str, beside: Path = Path(), above: tuple[Path, ...] = ()) -> Profile:
    """What TOML gave as a profile; `beside` is the folder in which the profiles that it extends are looked for.

    Raises `UsageError` for the first thing that is wrong, naming the file and the entry.
    """
    for key in raw:
        if key not in _KEYS:
            raise UsageError(f"{origin}: unknown key {key[:60]!r}{meant(key, _KEYS)}")
    name = raw.get("profile")
    if not isinstance(name, str) or not NAME.match(name):
        raise UsageError(f'{origin}: it begins with its name, in lower case: profile = "our-h100"')
    bases = raw.get("extends", [])
    bases = [bases] if isinstance(bases, str) else _texts(raw, "extends", origin)
    lines: dict[str, Line] = {}
    sources: list[str] = []
    for base in bases:
        extended = _loaded(_found(base, beside), above)
        lines.update(extended.lines)
        sources += extended.sources
    for gone in _texts(raw, "without", origin):
        if lines.pop(_plain(gone), None) is None:
            raise UsageError(f"{origin}: without: there is no line {gone[:60]!r}{meant(_plain(gone), list(lines))}")
    own: dict[str, Line] = {}
    for line in _lines(raw, origin):
        if line.name in own:
            raise UsageError(f"{origin}: two lines would be called {line.name}; write one as [line.ANOTHER-NAME]")
        own[line.name] = line
        if len(own) > _MOST_LINES:
            raise UsageError(f"{origin}: more than {_MOST_LINES} lines")
    if not lines and not own:
        raise UsageError(f"{origin}: it expects nothing; write [expect] and under it: gpu.count = 8")
    about = raw.get("about", "")
    if not isinstance(about, str):
        raise UsageError(f"{origin}: about is text")
    return Profile(name, {**lines, **own}, about, (*sources, *_texts(raw, "sources", origin)), origin)


def _lines(raw: Mapping[str, Any], origin: str) -> Iterator[Line]:
    for table, make in (("expect", fact_line), ("measure", kernel_line), ("line", condition_line)):
        entries = raw.get(table, {})
        if not isinstance(entries, Mapping):
            raise UsageError(f"{origin}: {table} is a table: [{table}]")
        for key, entry in _flat(entries, table):
            try:
                yield make(key, entry, origin)
            except UsageError as error:
                raise UsageError(f"{origin}: [{table}] {key[:80]}: {error}") from error


def _flat(entries: Mapping[str, Any], table: str, above: str = "") -> Iterator[tuple[str, Any]]:
    """Keys as they were typed: ``gpu.count`` without quotes is a table within a table to TOML."""
    from gpudoctor.expect.entries import is_key

    for key, entry in entries.items():
        name = f"{above}{key}"
        within = isinstance(entry, Mapping) and table != "line" and not is_key(name, table)
        if within and entry and name.count(".") < _DEEPEST:
            yield from _flat(entry, table, f"{name}.")
        else:
            yield name, entry


def _toml(path: Path) -> dict[str, Any]:
    """The file's tables; raises `UsageError` with the line where it is no TOML."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib
    if path.parent != folder():
        trusted.named(path, f"--expect {path}")
    try:
        with path.open("rb") as file:
            read = file.read(MOST + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    if len(read) > MOST:
        raise UsageError(f"{path}: larger than {MOST >> 10} KiB; no profile is")
    try:
        text = read.decode("utf-8-sig").replace("\r\n", "\n")
        if wide := next((number for number, line in enumerate(text.split("\n"), 1) if len(line) > _WIDEST), 0):
            raise UsageError(f"{path}: line {wide} is longer than {_WIDEST} characters")
        loaded: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {error if str(error) else type(error).__name__}") from error
    return loaded


def _texts(raw: Mapping[str, Any], key: str, origin: str) -> tuple[str, ...]:
    value = raw.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"{origin}: {key} is a list of texts")
    return tuple(value)


def _plain(name: str) -> str:
    from gpudoctor.expect.entries import line_name

    return line_name(name)
