"""The package list, and the extensions among them, while commands change them."""

from __future__ import annotations

from collections.abc import Callable, Container

from gpudoctor.model.fact import Fact, Known, Row
from gpudoctor.remedy.effects.commands import normal
from gpudoctor.remedy.effects.outlook import ANEW, SOURCE, Outlook

_GROUPS = ("package", "extension")


def name_of(row: Row) -> str:
    """The package's name as lists have it; empty where it is not known."""
    name = row.get("name")
    return normal(str(name.value)) if isinstance(name, Known) else ""


def version_of(outlook: Outlook, name: str) -> str:
    """The version of that package; empty where it is not listed, or without one."""
    versions = (row.get("version") for row in outlook.rows("package") if name_of(row) == name)
    return next((str(version.value) for version in versions if isinstance(version, Known)), "")


def take_away(outlook: Outlook, names: Container[str]) -> None:
    """The list without these packages."""
    for group in _GROUPS:
        keep(outlook, group, lambda row: name_of(row) not in names)


def keep(outlook: Outlook, group: str, wanted: Callable[[Row], bool]) -> None:
    """The group with these of its rows."""
    rows = outlook.rows(group)
    kept = tuple(row for row in rows if wanted(row))
    if kept != rows:
        outlook.put_rows(group, kept)


def put(outlook: Outlook, name: str, version: str, tool: str) -> None:
    """The list with that package, at that version or one that is not known.

    An extension that is installed again has other libraries than before.
    """
    fact: Fact = Known(version, SOURCE) if version else ANEW
    row: Row = {"name": Known(name, SOURCE), "version": fact, "installer": Known(tool, SOURCE)}
    if isinstance(outlook.groups.get("package"), tuple):
        kept = tuple(item for item in outlook.rows("package") if name_of(item) != name)
        outlook.put_rows("package", (*kept, row))
    before = outlook.rows("extension")
    if any(name_of(item) == name for item in before):
        fresh = ({**dict.fromkeys(item, ANEW), "name": item["name"], "version": fact} for item in before)
        rows = (new if name_of(old) == name else old for old, new in zip(before, fresh, strict=True))
        outlook.put_rows("extension", tuple(rows))
