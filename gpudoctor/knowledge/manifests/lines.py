"""Which lines of a manifest are for the place: their markers (PEP 508), their extras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from packaging.markers import InvalidMarker, Marker, UndefinedComparison, UndefinedEnvironmentName

from gpudoctor.knowledge._filling import given, text
from gpudoctor.knowledge.manifests.companions import BRING
from gpudoctor.knowledge.manifests.pip_takes import Place
from gpudoctor.model.fact import Known, Row

_SYSTEMS = {
    "linux": ("Linux", "linux", "posix"),
    "windows": ("Windows", "win32", "nt"),
    "macos": ("Darwin", "darwin", "posix"),
}


class Line(NamedTuple):
    """One requirement that applies, and where it stands. `urls` are its indexes, the main one first; empty is PyPI."""

    name: str
    spec: str
    urls: tuple[str, ...]
    installer: str
    source: str
    url: str = ""
    build: str = ""
    step: int = 0
    extras: tuple[str, ...] = ()


def applying(rows: Sequence[Row], place: Place) -> tuple[list[Line], list[str]]:
    """The lines that are for that place, and in words those of which nobody can say.

    What an extra or a group adds is left out: it is installed on request. Only where it is the one that brings torch
    does it count.
    """
    lines: list[Line] = []
    unsure: list[str] = []
    extra: dict[str, list[Line]] = {}
    for row in rows:
        applies = _applies(text(row, "marker"), place)
        if applies is None:
            unsure.append(f"whether {text(row, 'name')} is for this machine ({text(row, 'marker')})")
        elif applies:
            (extra.setdefault(text(row, "extra"), []) if text(row, "extra") else lines).append(_line(row))
    with_torch = [name for name, added in extra.items() if any(line.name == "torch" for line in added)]
    if with_torch and not any(line.name == "torch" or line.name in BRING for line in lines):
        if len(with_torch) == 1:
            lines += extra[with_torch[0]]
        else:
            unsure.append(f"which torch: that of the extra {' or '.join(with_torch)}")
    return lines, unsure


def _line(row: Row) -> Line:
    more, step, name = given(row, "more_indexes"), given(row, "step"), row.get("name")
    extras = given(row, "extras")
    return Line(
        text(row, "name"),
        text(row, "asked"),
        (text(row, "index"), *(map(str, more) if isinstance(more, tuple) else ())),
        text(row, "installer"),
        name.source if isinstance(name, Known) else "",
        text(row, "url"),
        text(row, "build"),
        step if isinstance(step, int) else 0,
        tuple(map(str, extras)) if isinstance(extras, tuple) else (),
    )


def _applies(marker: str, place: Place) -> bool | None:
    """Whether the condition holds there; none where it asks for what nobody says."""
    if not marker:
        return True
    values = _values(place)
    if any(name in marker and not value for name, value in values.items()):
        return None
    try:
        return Marker(marker).evaluate({**values, "extra": ""})
    except (InvalidMarker, UndefinedComparison, UndefinedEnvironmentName, ValueError, RecursionError):
        return None


def _values(place: Place) -> dict[str, str]:
    system, sys_platform, os_name = _SYSTEMS.get(place.platform, ("", "", ""))
    whole = place.python if place.python.count(".") > 1 or not place.python else f"{place.python}.0"
    return {
        "platform_system": system,
        "sys_platform": sys_platform,
        "os_name": os_name,
        "platform_machine": "AMD64" if (place.platform, place.machine) == ("windows", "x86_64") else place.machine,
        "python_version": ".".join(place.python.split(".")[:2]),
        "python_full_version": whole,
    }
