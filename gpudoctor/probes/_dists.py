"""The distributions of the target's environment, from the names of their ``dist-info`` folders, and what they require.

One listing per package folder gives names and versions; METADATA, RECORD and the like are read only of those that a
probe asks about, and once per target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gpudoctor.core import system
from gpudoctor.core.fact import Absent, Unread
from gpudoctor.core.frozen import frozen
from gpudoctor.core.pattern import pattern
from gpudoctor.core.versions import normal
from gpudoctor.probes._site import Site, once_per_target, site_of
from gpudoctor.target import Target

if TYPE_CHECKING:
    from packaging.requirements import Requirement


_INFO = pattern(r"(?P<name>.+?)-(?P<version>\d[^-]*?)(?:-py\d[\d.]*)?\.(?:dist|egg)-info", re.IGNORECASE)
_LIBRARY = pattern(rb"(\.so(?:\.\d+)*)\"?,[^,\n]*,(\d+)\r?$", re.MULTILINE)
"""The end of a line of a RECORD: a pattern that starts with a literal is fast in the thousands of lines of torch."""
_MOST_TEXT_BYTES = 1 << 18
_MOST_RECORD_BYTES = 1 << 24


@frozen
class Dist:
    """One installed distribution: `name` as PEP 503 normalises it, `folder` the package folder it is in, `info` its
    ``dist-info`` folder's name.

    One that conda lists has conda-meta as `folder` and its build string as `info`.
    """

    name: str
    version: str
    folder: str
    info: str

    @property
    def path(self) -> str:
        """Path of its ``dist-info`` folder; of one that conda lists, of its file in conda-meta."""
        return f"{self.folder}/{f'{self.name}-{self.version}-{self.info}.json' if self.of_conda else self.info}"

    @property
    def of_conda(self) -> bool:
        """True if conda lists it: there is no METADATA or RECORD to be read."""
        return self.folder.endswith("/conda-meta")


@frozen
class Library:
    """A shared library that a distribution wrote, by its RECORD: full path and size in bytes."""

    path: str
    size: int


@frozen
class Environment:
    """Everything installed, in ``sys.path`` order; `leftovers`: folders that an interrupted pip left (``~orch``)."""

    dists: tuple[Dist, ...]
    leftovers: tuple[str, ...]
    conda: tuple[Dist, ...]
    source: str

    def first(self, *names: str) -> Dist | None:
        """Of the first of `names` that is installed, the copy that an import would find; None if none is."""
        return next((dist for name in names for dist in self.dists if dist.name == name), None)

    def by_conda(self, dist: Dist) -> bool:
        """True if conda lists a package of the same name and version: RECORD was then written before conda moved the
        libraries.
        """
        return any((dist.name, dist.version) == (other.name, other.version) for other in self.conda)

    def all(self, name: str) -> list[Dist]:
        """Every installed copy of the distribution of that (normalised) name, in ``sys.path`` order."""
        return [dist for dist in self.dists if dist.name == name]


def environment(target: Target) -> Environment | Absent | Unread:
    """The distributions in the target interpreter's environment, listed once per target.

    Absent without an interpreter; unread if it cannot be examined, or a package folder cannot be listed.
    """
    return once_per_target(target, "environment", lambda: _list_environment(target))


def headers_of(target: Target, dist: Dist) -> Mapping[str, Sequence[str]]:
    """The headers of a distribution's METADATA, else PKG-INFO, values by lower-case name; empty if it has neither.

    Read once per target. Raises `OSError` if refused.
    """
    return once_per_target(target, f"headers {dist.path}", lambda: _read_headers(target, dist))


def installer(target: Target, dist: Dist) -> str | None:
    """The installer that the distribution's INSTALLER names, such as pip, uv or conda; None if it cannot be read."""
    try:
        return target.read(f"{dist.path}/INSTALLER", 256).strip().split()[0].lower()
    except (OSError, IndexError):
        return None


def libraries_of(target: Target, dist: Dist) -> tuple[Library, ...] | None:
    """The shared libraries that a distribution's RECORD lists, read once per target; None if RECORD cannot be read."""
    return once_per_target(target, f"libraries {dist.path}", lambda: _read_libraries(target, dist))


def _list_environment(target: Target) -> Environment | Absent | Unread:
    """The environment, by listing each package folder. Absent without an interpreter; unread if it cannot be examined,
    or a folder cannot be listed.
    """
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
    return Environment(tuple(dists), tuple(leftovers), _conda_packages(target, site.prefix), ", ".join(site.folders))


def _conda_packages(target: Target, prefix: str) -> tuple[Dist, ...]:
    """The packages that conda installed, by file names in conda-meta; `info` is the build string. Empty without conda.

    ``conda-meta/pytorch-2.4.0-py3.11_cuda12.1_cudnn9.1.0_0.json``
    """
    found: list[Dist] = []
    folder = f"{prefix}/conda-meta"
    for name in target.listing(folder):
        parts = name[:-5].rsplit("-", 2)
        if name.endswith(".json") and len(parts) == 3:
            found.append(Dist(normal(parts[0]), parts[1], folder, parts[2]))
    return tuple(found)


def _read_headers(target: Target, dist: Dist) -> Mapping[str, Sequence[str]]:
    """Values by lower-case name of METADATA's headers, else PKG-INFO's; empty if there is neither. Raises `OSError`."""
    try:
        text = target.read(f"{dist.path}/METADATA", _MOST_TEXT_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        try:
            text = target.read(f"{dist.path}/PKG-INFO", _MOST_TEXT_BYTES)
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


def _read_libraries(target: Target, dist: Dist) -> tuple[Library, ...] | None:
    """The shared libraries that a distribution's RECORD lists, with their sizes; None if it cannot be read."""
    try:
        raw = target.read_bytes(f"{dist.path}/RECORD", _MOST_RECORD_BYTES)
    except OSError:
        return None
    found: list[Library] = []
    for match in _LIBRARY.finditer(raw):
        path = raw[raw.rfind(b"\n", 0, match.start()) + 1 : match.end(1)].removeprefix(b'"')
        if b"," not in path and b'"' not in path:
            found.append(Library(f"{dist.folder}/{path.decode('utf-8', 'replace')}", int(match[2])))
    return tuple(found)


# ---- What a distribution requires, by its METADATA, where the markers hold for the target's interpreter ----

_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TAG = pattern(r"(linux|win|macosx).*?_(x86_64|aarch64|ppc64le|s390x|amd64|arm64)\b")


def requirements(
    target: Target, site: Site, dist: Dist, wanted: Callable[[str], bool], extras: Sequence[str] = ("",)
) -> Iterator[Requirement]:
    """Yields requirements on names that `wanted` accepts, whose markers hold for this interpreter with one of `extras`.

    Malformed ones are left out. Raises `OSError` if METADATA is refused.
    """
    requirement_lines = headers_of(target, dist).get("requires-dist", ())
    lines = [line for line in requirement_lines if _names_wanted(line, wanted) and _may_apply(line, extras)]
    if not lines:
        return
    from packaging import markers, requirements  # 25 ms: only where there is something to check

    marker_environments = [_marker_environment(target, site, dist, extra) for extra in extras]
    for line in lines:
        try:
            found = requirements.Requirement(line)
            applies = found.marker is None or any(
                found.marker.evaluate(marker_environment) for marker_environment in marker_environments
            )
        except (
            requirements.InvalidRequirement,
            markers.UndefinedComparison,
            markers.UndefinedEnvironmentName,
        ):
            continue
        if applies:
            yield found


def meets(version: str, requirement: Requirement) -> bool:
    """True if the version satisfies the requirement, pre-releases included."""
    return requirement.specifier.contains(version, prereleases=True)


def exact_pins(requirement: Requirement) -> list[str]:
    """The versions that the requirement pins with ``==``; empty if none."""
    return [item.version for item in requirement.specifier if item.operator == "=="]


def wanted_text(requirement: Requirement) -> str:
    """The requirement's versions as text: ``9.1.0.70`` for an exact pin, ``<14,>=13.0.3`` for anything else."""
    specifiers = list(requirement.specifier)
    if len(specifiers) == 1 and specifiers[0].operator == "==":
        return specifiers[0].version
    return ",".join(sorted(map(str, specifiers)))


def lowest_version(requirement: Requirement) -> str:
    """The exact or lowest version that the requirement names, ``13.0.96`` for ``==13.0.96.*``; empty if none."""
    found = [item.version for item in requirement.specifier if item.operator in ("==", ">=", "~=")]
    return found[0].removesuffix(".*") if found else ""


def _names_wanted(line: str, wanted: Callable[[str], bool]) -> bool:
    """True if the requirement line starts with a name that `wanted` accepts, once normalised (PEP 503)."""
    match = _NAME.match(line)
    return bool(match) and wanted(normal(match[0])) if match else False


def _may_apply(line: str, extras: Sequence[str]) -> bool:
    """True if the requirement line's marker names no extra, or one of `extras`; by its text alone."""
    found = re.findall(r"""\bextra\s*==\s*["']([^"']+)["']""", line)
    return not found or any(normal(extra) in extras for extra in found)


def _wheel_platform(target: Target, dist: Dist) -> tuple[str, str]:
    """System (linux, win or macosx) and machine that the wheel was made for, by its tag in the file WHEEL.

    linux and the machine that gpudoctor runs on if WHEEL cannot be read or names no platform (``py3-none-any``).
    """
    try:
        match = _TAG.search(target.read(f"{dist.path}/WHEEL", 1 << 14))
    except OSError:
        match = None
    return (match[1], match[2]) if match else ("linux", system.machine_name())


def _marker_environment(target: Target, site: Site, dist: Dist, extra: str) -> dict[str, str]:
    """Values of the PEP 508 marker variables for the target interpreter and `extra`; platform by the wheel's tag."""
    system, machine = _wheel_platform(target, dist)
    name = {"linux": "Linux", "win": "Windows", "macosx": "Darwin"}[system]
    return {
        "implementation_name": site.implementation,
        "implementation_version": site.version,
        "os_name": "nt" if system == "win" else "posix",
        "platform_machine": machine.upper() if system == "win" else machine,
        "platform_python_implementation": {"cpython": "CPython", "pypy": "PyPy"}.get(site.implementation, ""),
        "platform_release": "",
        "platform_system": name,
        "platform_version": "",
        "python_full_version": site.version,
        "python_version": site.minor,
        "sys_platform": {"Linux": "linux", "Windows": "win32", "Darwin": "darwin"}[name],
        "extra": extra,
    }
