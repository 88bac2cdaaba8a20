"""A table of ``rules/tables`` as a person reads it: what it knows, from where, as of when."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """What a table is about, its sources, the day they were last compared with it, and its keys by heading.

    `tries` are keys in other spellings that it takes as well.
    """

    name: str
    about: str
    checked: str
    sources: tuple[str, ...]
    keys: tuple[tuple[str, tuple[str, ...]], ...]
    tries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: its title, what it says under which label, and its own source where it has one."""

    title: str
    lines: tuple[tuple[str, str], ...]
    source: str = ""


@dataclass(frozen=True, slots=True)
class Entries:
    """The rows that answer for a key; `note` says how the key was understood where that is not plain."""

    key: str
    entries: tuple[Entry, ...]
    note: str = ""
