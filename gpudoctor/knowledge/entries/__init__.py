"""The tables for people: what each knows, and the rows that answer for a key, in words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpudoctor.knowledge._tables import TableRow, table
from gpudoctor.knowledge.entries.hardware import of_compilers, of_drivers, of_gpus, of_rates
from gpudoctor.knowledge.entries.hits import Found, Hit
from gpudoctor.knowledge.entries.named import of_codes, of_nccl, of_xid
from gpudoctor.knowledge.entries.software import of_companions, of_images, of_symbols, of_torch
from gpudoctor.knowledge.entries.words import PAIRED, SECTIONS, TABLES, Section
from gpudoctor.knowledge.gpu_names import plain
from gpudoctor.model.errors import UsageError
from gpudoctor.model.table import Entries, Entry, Table

_MOST_NEAR = 5
_LONGEST = 1000
"""Characters of a key that are looked at: mangled symbols are long."""
_YES_NO = {True: "yes", False: "no"}
_FINDERS: Mapping[str, Callable[[str], Found]] = {
    "codes": of_codes,
    "companions": of_companions,
    "compilers": of_compilers,
    "drivers": of_drivers,
    "gpus": of_gpus,
    "images": of_images,
    "nccl": of_nccl,
    "rates": of_rates,
    "symbols": of_symbols,
    "torch": of_torch,
    "xid": of_xid,
}

NAMES = tuple(TABLES)
"""Every table that can be asked."""


def overview(name: str) -> Table:
    """What the table knows, from where, as of when."""
    raw, about = table(name), TABLES[name]
    return Table(name, about.says, raw["checked"], tuple(raw["source"]), tuple(_keys(name)), about.tries)


def entries(name: str, key: str) -> Entries:
    """The rows that answer for the key; raises `UsageError` naming the nearest keys where there is none."""
    found = _FINDERS[name](key.strip()[:_LONGEST])
    if not found.hits:
        known = [one for _, keys in _keys(name) for one in keys]
        near = nearest(_spelt(key) if name == "gpus" else key, known)
        help_ = f"near it: {', '.join(near)}" if near else f"it takes keys such as {', '.join(TABLES[name].tries)}"
        raise UsageError(f"the table {name} has no {key[:80]!r}; {help_}; gpudoctor explain {name} lists them")
    return Entries(key, tuple(_entry(name, hit) for hit in found.hits), found.note)


def near_gpus(name: str) -> list[str]:
    """The names in the tables that are most like it; none where nothing is."""
    return nearest(_spelt(name), [one for _, keys in _keys("gpus") for one in keys])


def gpu_is_listed(name: str) -> bool:
    """Whether the name is that of a row of the tables, or a part of one: ``H100`` of ``H100 SXM5 80GB``."""
    spelt = _spelt(name).casefold()
    return any(spelt in one.casefold() for _, keys in _keys("gpus") for one in keys)


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


def _spelt(name: str) -> str:
    """A GPU's name as the table spells it."""
    bare, _ = plain(name)
    return f"GeForce {bare}" if re.match(r"[RG]TX? \d", bare) else bare


def nearest(key: str, known: Sequence[str]) -> list[str]:
    """The keys most like it: the nearest numbers behind the same words, else those that are spelt alike."""
    head, numbers = _split(key)
    numbered = [one for one in known if _split(one)[1]]
    alike = [one for one in numbered if _split(one)[0] == head] or ([] if head else numbered)
    if numbers and alike:
        return sorted(alike, key=lambda one: abs(_weight(_split(one)[1]) - _weight(numbers)))[:_MOST_NEAR]
    lower = {one.casefold(): one for one in known}
    return [lower[one] for one in difflib.get_close_matches(key.casefold(), lower, _MOST_NEAR, 0.5)]


def _split(key: str) -> tuple[str, tuple[int, ...]]:
    """The words of a key, and the version or number that it ends in."""
    match = re.search(r"\d+(?:\.\d+)*$", key[:200])
    if not match:
        return key.casefold(), ()
    return key[: match.start()].casefold().strip(), tuple(int(part[:9]) for part in match[0].split("."))


def _weight(numbers: tuple[int, ...]) -> float:
    """A version as one number: 13.3.1 is nearer to 14.1 than 13.1 is."""
    return sum(number / float(1000**place) for place, number in enumerate(numbers))
