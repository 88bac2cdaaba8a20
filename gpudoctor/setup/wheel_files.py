"""Wheels as files: what their names say, and which fit a Python and a platform (PEP 425, PEP 600)."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass

from packaging import tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

_GLIBC = 45
"""The newest glibc 2.x whose wheels are counted in; every machine of today has one of at least 2.17."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file of an index; `sha256` is empty where the index tells none."""

    name: str
    version: str
    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Platform:
    """For whom wheels are looked up: ``3.12``, ``linux``, ``windows`` or ``wsl``, ``x86_64`` or ``aarch64``."""

    python: str
    system: str = "linux"
    arch: str = "x86_64"
    threads: bool = False
    """Whether it is a build without the global lock, whose wheels are its own."""

    def tags(self) -> frozenset[tags.Tag]:
        """What of a wheel's file name fits it."""
        major, _, minor = self.python.partition(".")
        version = (int(major), int(minor.partition(".")[0] or 0))
        if self.system == "windows":
            platforms = ["win_amd64" if self.arch == "x86_64" else "win_arm64"]
        else:
            platforms = [f"manylinux_2_{minor}_{self.arch}" for minor in range(_GLIBC, 4, -1)]
            platforms += [f"manylinux{old}_{self.arch}" for old in ("2014", "2010", "1")] + [f"linux_{self.arch}"]
        interpreter = f"cp{version[0]}{version[1]}"
        abis = [f"{interpreter}t"] if self.threads else None
        own = tags.cpython_tags(version, abis, platforms)
        return frozenset(own) | frozenset(tags.compatible_tags(version, interpreter, platforms))


def fitting(found: Iterable[Wheel], version: str, fits: frozenset[tags.Tag]) -> Wheel | None:
    """The first wheel of exactly that version, its build included, that fits."""
    try:
        wanted = Version(version)
    except InvalidVersion:
        return None
    for wheel in found:
        filename = urllib.parse.unquote(wheel.url.rpartition("/")[2])
        if wheel.version == str(wanted) and parse_wheel_filename(filename)[3] & fits:
            return wheel
    return None


def wheel_at(url: str, digest: str) -> Wheel | None:
    """A wheel of that URL; None for any other file, and for what is not served over HTTP."""
    if not url.startswith(("https://", "http://")) or not re.fullmatch(r"[\x21-\x7e]{1,2000}", url):
        return None
    try:
        name, version, _, _ = parse_wheel_filename(urllib.parse.unquote(url.rpartition("/")[2]))
    except (InvalidWheelFilename, InvalidVersion, ValueError):
        return None
    return Wheel(name, str(version), url, digest if re.fullmatch(r"[0-9a-f]{64}", digest) else "")
