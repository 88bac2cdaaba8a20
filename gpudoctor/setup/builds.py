"""Every wheel of torch that the tables have, as the solver compares them: one build of one release."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from packaging.version import Version

from gpudoctor.knowledge import archs, drivers
from gpudoctor.knowledge._tables import TableRow, table
from gpudoctor.knowledge.archs import Capability, Code
from gpudoctor.knowledge.toolchain import cuda_serves
from gpudoctor.model.frozen import frozen
from gpudoctor.model.values import CannotJudge
from gpudoctor.setup.machine import Wheels

Runs = Literal["code", "ptx", ""]


@frozen
class Listing:
    """The code in one wheel. `like` is the release whose list it is, where the wheel's own is not in the tables."""

    codes: tuple[Code, ...]
    like: str = ""


@frozen(eq=False)
class Build:
    """One build of one torch release: ``2.14.1``, ``cu126``, (12, 6); ``cpu`` has no CUDA. Each exists once."""

    torch: str
    version: Version
    name: str
    cuda: tuple[int, int]
    release: TableRow
    row: TableRow
    listings: dict[Wheels, Listing]

    @property
    def label(self) -> str:
        """``2.14.1 cu126``, as reasons name it."""
        return f"{self.torch} {self.name}"

    @property
    def cuda_words(self) -> str:
        """``12.6``; empty for a CPU build."""
        return f"{self.cuda[0]}.{self.cuda[1]}" if self.cuda[0] else ""

    def default(self, wheels: Wheels) -> bool:
        """Whether the Python package index itself gives this build: on Windows that is always the one without CUDA."""
        return self.name == ("cpu" if wheels == "windows" else self.release[wheels])

    def tags(self, wheels: Wheels) -> frozenset[str]:
        """The Python tags of its wheels: ``cp312``."""
        return _tags(self.release.get(f"{wheels}_pythons", self.release["pythons"]))

    def floor(self, drivers_of: str) -> str:
        """The oldest driver that runs its CUDA, by minor-version compatibility."""
        return _floor(self.cuda_words, drivers_of)

    def runs(self, wheels: Wheels, capability: Capability) -> Runs:
        """How it serves a GPU: by machine code, only by PTX, or not at all.

        PTX counts only for a GPU that its CUDA knows: the libraries beside torch, cuBLAS and cuDNN, have none.
        """
        return _runs(self, wheels, capability)


@lru_cache(maxsize=1)
def builds() -> tuple[Build, ...]:
    """All of them, the newest release first, and of one release the newest CUDA first."""
    releases = {row["version"]: row for row in table("torch")["release"]}
    found = [_build(releases[row["torch"]], row) for row in table("torch")["build"]]
    found.sort(key=lambda one: (one.version, one.cuda), reverse=True)
    return tuple(found)


@lru_cache(maxsize=1)
def cpu_builds() -> tuple[Build, ...]:
    """The build without CUDA of every release, the newest first."""
    everywhere: tuple[Wheels, ...] = ("linux", "aarch64", "windows")
    rows = sorted(table("torch")["release"], key=lambda row: Version(row["version"]), reverse=True)
    return tuple(
        Build(row["version"], Version(row["version"]), "cpu", (0, 0), row, {}, dict.fromkeys(everywhere, Listing(())))
        for row in rows
    )


def _build(release: TableRow, row: TableRow) -> Build:
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
    """What is known of each platform's wheel; a platform that has none, or none that the tables know of, is left out.

    A wheel for Windows holds what that for Linux does, but for the PTX, where no list says otherwise (RELEASE.md of
    torch 2.9 and later). A wheel without any list is judged by that of the newest release before it.
    """
    linux = _like(row, "archs")
    yield "linux", linux
    if row.get("windows_wheel", True):
        own = "windows" in row
        yield (
            "windows",
            _like(row, "windows") if own else Listing(tuple(c for c in linux.codes if not c.ptx), linux.like),
        )
    if "aarch64" in row or release["aarch64"] == row["build"]:
        yield "aarch64", _like(row, "aarch64")


def _like(row: TableRow, column: str) -> Listing:
    if column in row:
        return Listing(tuple(archs.codes(row[column])))
    before = [
        one
        for one in table("torch")["build"]
        if one["build"] == row["build"] and column in one and Version(one["torch"]) < Version(row["torch"])
    ]
    newest = max(before, key=lambda one: Version(one["torch"]), default=None)
    return Listing(tuple(archs.codes(newest[column])), newest["torch"]) if newest else Listing((), "none")


@lru_cache(maxsize=64)
def _tags(written: str) -> frozenset[str]:
    return frozenset(written.split())


@lru_cache(maxsize=64)
def _floor(cuda: str, drivers_of: str) -> str:
    return drivers.driver_floor(cuda, drivers_of) if cuda else "0"


@lru_cache(maxsize=8192)
def _runs(build: Build, wheels: Wheels, capability: Capability) -> Runs:
    fitting = [code for code in build.listings[wheels].codes if code.runs_on(capability)]
    if any(not code.ptx for code in fitting):
        return "code"
    return "ptx" if fitting and _known_to(build.cuda_words, f"{capability[0]}.{capability[1]}") else ""


def _known_to(cuda: str, capability: str) -> bool:
    try:
        return cuda_serves(cuda, capability)
    except CannotJudge:
        return False
