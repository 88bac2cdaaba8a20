"""The tables for people: what each knows, and the rows that answer for a key, in words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from gpudoctor.knowledge._tables import TableRow, table
from gpudoctor.knowledge.entries.finding import Hit, find
from gpudoctor.knowledge.entries.words import PAIRED, SECTIONS, TABLES, Section
from gpudoctor.model.errors import UsageError
from gpudoctor.model.table import Entries, Entry, Table

_MOST_NEAR = 5
_YES_NO = {True: "yes", False: "no"}

NAMES = tuple(TABLES)
"""Every table that can be asked."""


def overview(name: str) -> Table:
    """What the table knows, from where, as of when."""
    raw, about = table(name), TABLES[name]
    return Table(name, about.says, raw["checked"], tuple(raw["source"]), tuple(_keys(name)), about.tries)


def entries(name: str, key: str) -> Entries:
    """The rows that answer for the key; raises `UsageError` naming the nearest keys where there is none."""
    found = find(name, key)
    if not found.hits:
        known = [one for _, keys in _keys(name) for one in keys]
        near = nearest(key, known)
        rest = f"; near it: {', '.join(near)}" if near else ""
        raise UsageError(f"the table {name} has no {key[:80]!r}{rest}; gpudoctor explain {name} lists its keys")
    return Entries(key, tuple(_entry(name, hit) for hit in found.hits), found.note)


def _keys(name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for (owner, part), section in SECTIONS.items():
        if owner == name:
            yield section.heading, tuple(dict.fromkeys(section.key.format_map(row) for row in table(name)[part]))
    if name == "companions":
        for package in PAIRED:
            versions = dict.fromkeys(row[package] for row in table("torch")["release"] if package in row)
            yield package, tuple(f"{package} {version}" for version in versions)


def _entry(name: str, hit: Hit) -> Entry:
    section = SECTIONS.get((name, hit.section)) or PAIRED[hit.row["package"]]
    title = section.title.format_map({"meaning": hit.row.get("name", ""), **hit.row})
    return Entry(title, tuple(_lines(section, hit.row)), hit.row.get("source", ""))


def _lines(section: Section, row: TableRow) -> Iterator[tuple[str, str]]:
    for column, value in row.items():
        label = section.labels.get(column, column)
        if label and column != "source":
            yield label, _words(column, value)


def _words(column: str, value: object) -> str:
    if isinstance(value, bool):
        return _YES_NO[value]
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if column == "pci":
        return " ".join(f"10de:{device}" for device in str(value).split())
    return str(value)


def nearest(key: str, known: Sequence[str]) -> list[str]:
    """The keys most like it: the nearest numbers behind the same words, else those that are spelt alike."""
    head, numbers = _split(key)
    alike = [one for one in known if _split(one)[0] == head and _split(one)[1]]
    if numbers and alike:
        return sorted(alike, key=lambda one: _distance(_split(one)[1], numbers))[:_MOST_NEAR]
    lower = {one.casefold(): one for one in known}
    return [lower[one] for one in difflib.get_close_matches(key.casefold(), lower, _MOST_NEAR, 0.5)]


def _split(key: str) -> tuple[str, tuple[int, ...]]:
    """The words of a key, and the version or number that it ends in."""
    match = re.search(r"\d+(?:\.\d+)*$", key[:200])
    if not match:
        return key.casefold(), ()
    return key[: match.start()].casefold().strip(), tuple(int(part[:9]) for part in match[0].split("."))


def _distance(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    length = max(len(a), len(b))
    wide = [(*numbers, *(0,) * (length - len(numbers))) for numbers in (a, b)]
    return tuple(abs(left - right) for left, right in zip(*wide, strict=True))
