"""The distributions of the target's environment, from the names of their ``dist-info`` and ``egg-info`` folders.

One listing per package folder gives names and versions; METADATA, RECORD and the like are read only of those that a
probe asks about, and once per target.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpudoctor.model.distribution import normal
from gpudoctor.model.fact import Absent, Unread
from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.probes._python.site import Site, once, site_of
from gpudoctor.target import Target

_INFO = pattern(r"(?P<name>.+?)-(?P<version>\d[^-]*?)(?:-py\d[\d.]*)?\.(?:dist|egg)-info", re.IGNORECASE)
_LIBRARY = pattern(rb"(\.so(?:\.\d+)*)\"?,[^,\n]*,(\d+)\r?$", re.MULTILINE)
"""The end of a line of a RECORD: a pattern that starts with a literal is fast in the thousands of lines of torch."""
_TEXT_LIMIT = 1 << 18
_RECORD_LIMIT = 1 << 24


@frozen
class Dist:
    """One installed distribution: `name` as PEP 503 normalises it, `folder` the package folder it is in."""

    name: str
    version: str
    folder: str
    info: str

    @property
    def path(self) -> str:
        """Its ``dist-info``."""
        return f"{self.folder}/{self.info}"


@frozen
class Library:
    """A shared library that a distribution wrote, by its RECORD: full path and size in bytes."""

    path: str
    size: int


@frozen
class Environment:
    """Everything installed, in ``sys.path`` order; `leftovers` are what an interrupted pip left (``~orch``)."""

    dists: tuple[Dist, ...]
    leftovers: tuple[str, ...]
    conda: tuple[Dist, ...]
    source: str

    def first(self, *names: str) -> Dist | None:
        """The one that an import would meet: of the first of `names` that is installed, the first on ``sys.path``."""
        return next((dist for name in names for dist in self.dists if dist.name == name), None)

    def by_conda(self, dist: Dist) -> bool:
        """Whether conda installed it: its RECORD was written before conda moved its libraries."""
        return any((dist.name, dist.version) == (other.name, other.version) for other in self.conda)

    def all(self, name: str) -> list[Dist]:
        """Every copy."""
        return [dist for dist in self.dists if dist.name == name]


def environment(target: Target) -> Environment | Absent | Unread:
    """What is installed in the target interpreter's environment."""
    return once(target, "environment", lambda: _list(target))


def headers(target: Target, dist: Dist) -> Mapping[str, Sequence[str]]:
    """METADATA's headers by lower-case name; empty where it has none. Raises `OSError` where it is refused."""
    return once(target, f"headers {dist.path}", lambda: _headers(target, dist))


def installer(target: Target, dist: Dist) -> str | None:
    """Who installed it: pip, uv, conda; None where the distribution does not say."""
    try:
        return target.read(f"{dist.path}/INSTALLER", 256).strip().split()[0].lower()
    except (OSError, IndexError):
        return None


def libraries(target: Target, dist: Dist) -> tuple[Library, ...] | None:
    """The shared libraries in its RECORD; None where there is no RECORD to read."""
    return once(target, f"libraries {dist.path}", lambda: _libraries(target, dist))


def _list(target: Target) -> Environment | Absent | Unread:
    site = site_of(target)
    if not isinstance(site, Site):
        return site
    dists: list[Dist] = []
    leftovers: list[str] = []
    refused: list[str] = []
    for folder in site.folders:
        try:
            names = target.listing(folder)
        except OSError as error:
            refused.append(f"{folder}: {error.strerror or error}")
            continue
        for name in names:
            if name.startswith("~"):
                leftovers.append(f"{folder}/{name}")
            elif match := _INFO.fullmatch(name):
                dists.append(Dist(normal(match["name"]), match["version"], folder, name))
    if refused:
        return Unread(f"package folders could not be listed: {'; '.join(refused)}")
    return Environment(tuple(dists), tuple(leftovers), _conda(target, site.prefix), ", ".join(site.folders))


def _conda(target: Target, prefix: str) -> tuple[Dist, ...]:
    """What conda installed, by ``conda-meta/pytorch-2.4.0-py3.11_cuda12.1_cudnn9.1.0_0.json``; `info` is the build."""
    found: list[Dist] = []
    folder = f"{prefix}/conda-meta"
    for name in target.listing(folder):
        parts = name[:-5].rsplit("-", 2)
        if name.endswith(".json") and len(parts) == 3:
            found.append(Dist(normal(parts[0]), parts[1], folder, parts[2]))
    return tuple(found)


def _headers(target: Target, dist: Dist) -> Mapping[str, Sequence[str]]:
    try:
        text = target.read(f"{dist.path}/METADATA", _TEXT_LIMIT)
    except (FileNotFoundError, NotADirectoryError):
        try:
            text = target.read(f"{dist.path}/PKG-INFO", _TEXT_LIMIT)
        except (FileNotFoundError, NotADirectoryError):
            return {}
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line.strip():
            break
        key, colon, value = line.partition(":")
        if colon and not line[0].isspace():
            found.setdefault(key.strip().lower(), []).append(value.strip())
    return found


def _libraries(target: Target, dist: Dist) -> tuple[Library, ...] | None:
    try:
        raw = target.read_bytes(f"{dist.path}/RECORD", _RECORD_LIMIT)
    except OSError:
        return None
    found: list[Library] = []
    for match in _LIBRARY.finditer(raw):
        path = raw[raw.rfind(b"\n", 0, match.start()) + 1 : match.end(1)].removeprefix(b'"')
        if b"," not in path and b'"' not in path:
            found.append(Library(f"{dist.folder}/{path.decode('utf-8', 'replace')}", int(match[2])))
    return tuple(found)
