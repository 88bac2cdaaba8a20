"""What is installed in an environment: every distribution, read from the disk, with pip or without."""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpudoctor.remedy.keeping.environment import Environment

_MOST = 1 << 20
_MOST_RECORD = 64 << 20


@dataclass(frozen=True, slots=True)
class Distribution:
    """One that is installed. `record` is the hash of the list of its files, `origin` its direct_url (PEP 610)."""

    name: str
    version: str
    place: str
    record: str = ""
    origin: str = ""


Lock = tuple[Distribution, ...]
"""What is installed, in the order of their places."""


def lock(environment: Environment) -> Lock:
    """Every distribution with its version, pip or no pip; for conda's, each package with its build as well."""
    found = [item for site in environment.sites for item in _in_site(site)]
    meta = Path(environment.prefix, "conda-meta")
    if environment.conda:
        found += [_of_conda(place) for place in meta.glob("*.json")]
    return tuple(sorted(found, key=lambda item: item.place))


def changes(before: Lock, after: Lock) -> tuple[str, ...]:
    """What came, went and changed, in words: ``torch 2.9.0+cu130 → 2.9.0+cu128``."""
    then, now = _versions(before), _versions(after)
    names = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    return tuple(f"{name} {then.get(name, 'not installed')} → {now.get(name, 'removed')}" for name in names)


def _versions(installed: Iterable[Distribution]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for item in installed:
        found.setdefault(item.name, []).append(item.version)
    return {name: ", ".join(sorted(set(versions))) for name, versions in found.items()}


def record_of(distribution: Distribution) -> Iterator[str]:
    """The absolute paths that its RECORD lists."""
    base = os.path.dirname(distribution.place)  # noqa: PTH120 - may be no sane path
    text = _text(f"{distribution.place}/RECORD", _MOST_RECORD)
    for row in csv.reader(text.splitlines()):
        if row and "\0" not in row[0]:
            yield os.path.normpath(os.path.join(base, row[0]))  # noqa: PTH118


def _in_site(site: str) -> Iterator[Distribution]:
    try:
        names = sorted(os.listdir(site))  # noqa: PTH208 - names, not paths
    except OSError:
        return
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            yield _distribution(f"{site}/{name}")


def _distribution(place: str) -> Distribution:
    metadata = _text(f"{place}/METADATA") or _text(f"{place}/PKG-INFO") or _text(place)
    head = dict(line.partition(": ")[::2] for line in metadata.partition("\n\n")[0].splitlines())
    stem = os.path.basename(place).rpartition(".")[0]  # noqa: PTH119
    name = head.get("Name", stem.partition("-")[0]).strip().lower().replace("_", "-").replace(".", "-")
    record = _text(f"{place}/RECORD", _MOST_RECORD)
    return Distribution(
        name,
        head.get("Version", stem.partition("-")[2]).strip(),
        place,
        hashlib.sha256(record.encode()).hexdigest() if record else "",
        _text(f"{place}/direct_url.json").strip(),
    )


def _of_conda(place: Path) -> Distribution:
    name, version, build = [*place.stem.rsplit("-", 2), "", ""][:3]
    return Distribution(f"{name} (conda)", f"{version} {build}", str(place))


def _text(place: str, most: int = _MOST) -> str:
    try:
        with open(place, "rb") as file:  # noqa: PTH123
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
