"""Tables for people: what one knows, and the rows that answer for a key, with their sources and the day."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.model.table import Entries, Entry, Table
from gpudoctor.views._terminal import command, safe, wrapped


def table_page(table: Table) -> str:
    """What the table is about, every key, its sources."""
    return "\n".join(_table_lines(table))


def _table_lines(table: Table) -> Iterator[str]:
    yield from wrapped(f"Table {table.name}: {table.about}")
    yield from _listed(f"Checked {table.checked} against", table.sources)
    for heading, keys in table.keys:
        yield ""
        yield f"{heading} ({len(keys)}):"
        yield from wrapped(", ".join(keys), 2)
    yield ""
    yield "To see rows of it:"
    for key in table.tries:
        yield f"  $ {command(('gpudoctor', 'explain', table.name, key))}"


def entries_page(table: Table, entries: Entries) -> str:
    """The rows, then where they come from."""
    return "\n".join(_entries_lines(table, entries))


def _entries_lines(table: Table, entries: Entries) -> Iterator[str]:
    if entries.note:
        yield from wrapped(entries.note)
        yield ""
    for entry in entries.entries:
        yield from _entry(entry)
        yield ""
    yield from wrapped(f"Table {table.name}, checked {table.checked} against", 0, 2)
    for source in table.sources:
        yield from wrapped(source, 2, 4)


def _entry(entry: Entry) -> Iterator[str]:
    yield from wrapped(entry.title, 0, 4)
    width = max((len(label) for label, _ in entry.lines), default=0)
    for label, said in entry.lines:
        yield from wrapped(f"{label + ':':<{width + 1}} {said}", 2, width + 4)
    if entry.source:
        yield from wrapped(f"Source: {entry.source}", 2, 4)


def _listed(title: str, items: Sequence[str]) -> Iterator[str]:
    yield f"{title}:"
    for item in items:
        yield from wrapped(safe(item), 2, 4)
