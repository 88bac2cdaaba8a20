"""Every wheel of torch that the tables have, as the solver compares them: one build of one release."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from packaging.version import Version

from gpudoctor.core.frozen import frozen
from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis.knowledge import archs, drivers
from gpudoctor.diagnosis.knowledge._tables import TableRow, table
from gpudoctor.diagnosis.knowledge.archs import Capability, Code, cuda_serves
from gpudoctor.fixes.solver.machine import Wheels

Runs = Literal["code", "ptx", ""]


@frozen
class Listing:
    """Architectures compiled into one wheel. `like` names the release whose list was used if the wheel's own is not
    known.
    """

    codes: tuple[Code, ...]
    like: str = ""


@frozen(eq=False)
class Build:
    """One CUDA build of one torch release, such as ``2.14.1`` ``cu126`` (12, 6); ``cpu`` has CUDA (0, 0).
    Instances are cached and compared by identity.
    """

    torch: str
    version: Version
    name: str
    cuda: tuple[int, int]
    release: TableRow
    row: TableRow
    listings: dict[Wheels, Listing]

    @property
    def label(self) -> str:
        """Release and build for messages: ``2.14.1 cu126``."""
        return f"{self.torch} {self.name}"

    @property
    def cuda_words(self) -> str:
        """CUDA version as text, ``12.6``; ``""`` for a CPU build."""
        return f"{self.cuda[0]}.{self.cuda[1]}" if self.cuda[0] else ""

    def default(self, wheels: Wheels) -> bool:
        """True if PyPI itself serves this build for the platform (on Windows the CPU build)."""
        return self.name == ("cpu" if wheels == "windows" else self.release[wheels])

    def tags(self, wheels: Wheels) -> frozenset[str]:
        """Python tags of the build's wheels for the platform, such as ``cp312``."""
        return _split_tags(self.release.get(f"{wheels}_pythons", self.release["pythons"]))

    def floor(self, drivers_of: str) -> str:
        """Oldest driver for the build's CUDA, with minor-version compatibility, ``0`` without CUDA; `drivers_of`:
        ``linux`` or ``windows``.
        """
        return _driver_floor(self.cuda_words, drivers_of)

    def runs(self, wheels: Wheels, capability: Capability) -> Runs:
        """How the build runs on a GPU: ``code`` (machine code), ``ptx`` (compiled by the driver), or ``""`` (not at
        all). PTX counts only if its CUDA knows the GPU, since cuBLAS and cuDNN contain no PTX.
        """
        return _how_it_runs(self, wheels, capability)


@lru_cache(maxsize=1)
def builds() -> tuple[Build, ...]:
    """All CUDA builds in the tables, newest release first, within one the newest CUDA first."""
    releases = {row["version"]: row for row in table("torch")["release"]}
    found = [_build(releases[row["torch"]], row) for row in table("torch")["build"]]
    found.sort(key=lambda build: (build.version, build.cuda), reverse=True)
    return tuple(found)


@lru_cache(maxsize=1)
def cpu_builds() -> tuple[Build, ...]:
    """CPU builds of all releases in the tables, newest first."""
    everywhere: tuple[Wheels, ...] = ("linux", "aarch64", "windows")
    rows = sorted(table("torch")["release"], key=lambda row: Version(row["version"]), reverse=True)
    return tuple(
        Build(row["version"], Version(row["version"]), "cpu", (0, 0), row, {}, dict.fromkeys(everywhere, Listing(())))
        for row in rows
    )


def _build(release: TableRow, row: TableRow) -> Build:
    """Build from its release's row and its own row in the tables."""
    cuda = tuple(map(int, row["cuda"].split(".")))
    return Build(
        torch=row["torch"],
        version=Version(row["torch"]),
        name=row["build"],
        cuda=(cuda[0], cuda[1]),
        release=release,
        row=row,
        listings=dict(_listings(release, row)),
    )


def _listings(release: TableRow, row: TableRow) -> Iterator[tuple[Wheels, Listing]]:
    """(platform, architectures in the wheel) for each platform with a wheel of that build.
    A Windows wheel without a list of its own has that of Linux less the PTX (RELEASE.md of torch 2.9 and later).
    """
    linux = _listing(row, "archs")
    yield "linux", linux
    if row.get("windows_wheel", True):
        own = "windows" in row
        yield (
            "windows",
            _listing(row, "windows") if own else Listing(tuple(c for c in linux.codes if not c.ptx), linux.like),
        )
    if "aarch64" in row or release["aarch64"] == row["build"]:
        yield "aarch64", _listing(row, "aarch64")


def _listing(row: TableRow, column: str) -> Listing:
    """Architectures from that column; if it is missing, those of the same build of the newest earlier release that has
    it, which is then `like`. No architectures, and ``none`` as `like`, if there is no such release.
    """
    if column in row:
        return Listing(tuple(archs.codes_of_list(row[column])))
    before = [
        earlier
        for earlier in table("torch")["build"]
        if earlier["build"] == row["build"] and column in earlier and Version(earlier["torch"]) < Version(row["torch"])
    ]
    newest = max(before, key=lambda earlier: Version(earlier["torch"]), default=None)
    return Listing(tuple(archs.codes_of_list(newest[column])), newest["torch"]) if newest else Listing((), "none")


@lru_cache(maxsize=64)
def _split_tags(written: str) -> frozenset[str]:
    """Python tags of a space-separated list."""
    return frozenset(written.split())


@lru_cache(maxsize=64)
def _driver_floor(cuda: str, drivers_of: str) -> str:
    """Oldest driver for that CUDA; ``0`` without CUDA."""
    return drivers.driver_floor(cuda, drivers_of) if cuda else "0"


@lru_cache(maxsize=8192)
def _how_it_runs(build: Build, wheels: Wheels, capability: Capability) -> Runs:
    """How the build runs on a GPU of that capability: ``code``, ``ptx``, or ``""`` (not at all); cached."""
    fitting = [code for code in build.listings[wheels].codes if code.runs_on(capability)]
    if any(not code.ptx for code in fitting):
        return "code"
    return "ptx" if fitting and _cuda_knows(build.cuda_words, f"{capability[0]}.{capability[1]}") else ""


def _cuda_knows(cuda: str, capability: str) -> bool:
    """True if that CUDA release supports the compute capability; False if the tables do not tell."""
    try:
        return cuda_serves(cuda, capability)
    except CannotJudge:
        return False
