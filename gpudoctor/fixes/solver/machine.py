"""The machine as the solver sees it: the wheels it takes, its GPUs and their generations, and what was assumed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from packaging.version import Version

from gpudoctor.core.frozen import frozen
from gpudoctor.core.language import phrase, say
from gpudoctor.core.pattern import pattern
from gpudoctor.core.stack import GPU, Wishes
from gpudoctor.core.values import CannotJudge
from gpudoctor.core.versions import parse
from gpudoctor.diagnosis.knowledge import drivers, gpus
from gpudoctor.diagnosis.knowledge._tables import TableRow, table
from gpudoctor.diagnosis.knowledge.archs import Capability, capability
from gpudoctor.diagnosis.knowledge.explain_tables import gpu_is_listed, near_gpus


@lru_cache(maxsize=1 << 12)
def version(written: str) -> Version:
    """Version of a text, cached; raises `InvalidVersion`."""
    return Version(written)


# ---- Its driver: compared by version, or by branch where only that was said; future ones, too ----


@frozen
class Driver:
    """A driver by version (``570.124.06``), or by branch (``570``: its newest).
    `branch` is 0 if unknown to the tables; `cuda` is None if they do not tell which CUDA it fully serves. `future`:
    newer than every branch of the tables.
    """

    written: str
    version: Version
    branch: int
    cuda: tuple[int, int] | None
    future: bool

    @property
    def whole_branch(self) -> bool:
        """True if only a branch of drivers is given (``570``), which then stands for its newest one."""
        return len(self.version.release) == 1

    def reaches(self, floor: str) -> bool:
        """True if the driver is at least the version `floor`; a bare branch reaches every version of that branch."""
        if self.whole_branch and self.branch and (other := branch(floor)):
            return self.branch >= other
        return self.version >= version(floor)

    def within(self, ceiling: str) -> bool:
        """True if the driver's branch is at most `ceiling`; False for a driver newer than the tables."""
        return not self.future and (self.branch or self.version.major) <= int(ceiling)

    def serves_fully(self, cuda: tuple[int, int]) -> bool:
        """True if the driver serves that CUDA without minor-version compatibility, or is newer than the tables."""
        return self.future or (self.cuda is not None and self.cuda >= cuda)


@lru_cache(maxsize=512)
def parsed_driver(written: str) -> Driver | None:
    """Driver of a version (``570.124.06``) or branch (``570``); None if the text is no version."""
    number = parse(written)
    if number is None:
        return None
    own = branch(str(number))
    newest = max(branches())
    try:
        major, _, minor = drivers.driver_cuda(written).partition(".")
        cuda = int(major), int(minor)
    except CannotJudge:
        cuda = None
    return Driver(written, number, own, cuda, not own and number.major > newest)


@lru_cache(maxsize=512)
def branch(written: str) -> int:
    """Branch number of a driver version, 525 for ``527.41``; 0 if the tables have none."""
    try:
        return int(drivers.driver_branch(written))
    except CannotJudge:
        return 0


def newest_of(written: str, drivers_of: str) -> str:
    """Newest driver named by the tables for a bare branch, ``580.95.05`` for ``580``; any other text unchanged.
    `drivers_of`: ``linux`` or ``windows``.
    """
    own = parsed_driver(written)
    if own is None or not own.whole_branch or not own.branch:
        return written
    rows = (*table("drivers")["toolkit"], *table("drivers")["family"])
    named = (row[drivers_of] for row in rows if drivers_of in row)
    return max((release for release in named if branch(release) == own.branch), key=version, default=written)


@lru_cache(maxsize=1)
def branches() -> tuple[int, ...]:
    """All driver branches in the tables, newest first."""
    return tuple(int(row["branch"]) for row in table("drivers")["branch"])


# ---- Which branch to name where several would do ----

_LIKE = {"rocky": "rhel", "almalinux": "rhel", "ol": "rhel", "centos": "rhel", "redhat": "rhel"}


@frozen
class Branch:
    """A driver branch, and the distribution that ships it (``""``: none known)."""

    name: str
    shipped_by: str = ""

    @property
    def words(self) -> str:
        """Reason for choosing the driver branch: ``Ubuntu 24.04 ships 580``."""
        if self.shipped_by:
            return say("{system} ships {branch}", system=self.shipped_by, branch=self.name)
        return say("{branch} is the long-term branch", branch=self.name)


def preferred_branch(distribution: str, suits: Callable[[str], bool]) -> Branch | None:
    """First branch for which `suits` is true, of those the distribution ships, else of the long-term ones; None if it
    is true for none of these.
    """
    for row in _shipped_rows(distribution):
        if found := next((branch for branch in row["branches"].split() if suits(branch)), None):
            return Branch(found, row.get("from") or f"{row['distribution'].capitalize()} {row['release']}".strip())
    found = next((branch for branch in long_term_branches() if suits(branch)), None)
    return Branch(found) if found else None


def long_term_branches() -> tuple[str, ...]:
    """NVIDIA's long-term driver branches, newest first."""
    return tuple(row["branch"] for row in table("drivers")["branch"] if row.get("kind") == "long-term")


def ships(distribution: str, name: str) -> bool:
    """True if the distribution (``ubuntu 24.04``) ships that driver branch, or is unknown to the tables."""
    rows = list(_shipped_rows(distribution))
    return not rows or any(name in row["branches"].split() for row in rows)


def _shipped_rows(distribution: str) -> Iterator[TableRow]:
    """Rows of the driver branches that a distribution (``ubuntu 24.04``) ships, by the tables; RHEL's for its
    rebuilds.
    """
    name, _, release = distribution.lower().partition(" ")
    for row in table("drivers")["shipped"]:
        same = row["release"] in ("", release) or release.startswith(f"{row['release']}.")  # 9.4 is of 9
        if row["distribution"] == _LIKE.get(name, name) and same:
            yield row


# ---- The machine ----

Wheels = Literal["linux", "aarch64", "windows"]
"""Which wheels a machine takes: Linux x86_64, Linux on Arm, or Windows x86_64. WSL takes those of Linux."""
Glibc = tuple[int, int] | Literal["musl"] | None
"""A C library: glibc's version, or musl; None where it is not known."""
_ARCHES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
_PYTHON = pattern(r"(\d+)\.(\d+)(?:\.\w+)*?(t?)(?:\+.*)?")
_GLIBC = pattern(r"(?:glibc[ -]?)?(\d+)\.(\d+).*")


@frozen
class Device:
    """One GPU model. `capabilities` are all that its name may stand for, empty if unknown; each must be served.
    `first` is the oldest driver known to list the name.
    """

    name: str
    capabilities: tuple[Capability, ...]
    first: str = ""

    @property
    def floors(self) -> tuple[str, ...]:
        """Oldest driver branch for each of its compute capabilities, where known."""
        return tuple(filter(None, (generation(capability)[0] for capability in self.capabilities)))

    @property
    def ceilings(self) -> tuple[str, ...]:
        """Last driver branch for each of its compute capabilities, where support has ended."""
        return tuple(filter(None, (generation(capability)[1] for capability in self.capabilities)))


class Place(NamedTuple):
    """The properties of a machine that matter for packages beside torch."""

    wheels: Wheels | None
    python: str
    glibc: Glibc
    devices: tuple[Device, ...]

    @property
    def numbers(self) -> tuple[int, int]:
        """Python version as (3, 12); (0, 0) if not known."""
        return python_numbers_of(self.python)


@frozen
class Machine:
    """The properties that decide which wheels run. None, ``""`` and 0 mean unknown, and exclude nothing.
    `wheels` is None if torch has no CUDA wheels for `system`. `python` is a tag such as ``cp313t``; `glibc` a version
    or ``musl``.
    """

    system: str
    wheels: Wheels | None
    driver: Driver | None
    devices: tuple[Device, ...]
    python: str
    glibc: Glibc
    wsl: bool = False
    bare: bool = False
    """Whether neither a GPU nor a driver is known: such a machine is taken to have none."""

    @property
    def drivers_of(self) -> str:
        """Whose driver versions apply: ``windows`` (also in WSL) or ``linux``."""
        return "windows" if self.wsl or self.wheels == "windows" else "linux"

    @property
    def place(self) -> Place:
        """Wheels, Python, C library and GPUs: what matters for packages beside torch."""
        return Place(self.wheels, self.python, self.glibc, self.devices)

    @property
    def python_numbers(self) -> tuple[int, int]:
        """Python version as (3, 12); (0, 0) if not known."""
        return python_numbers_of(self.python)


@lru_cache(maxsize=64)
def generation(capability: Capability) -> tuple[str, str]:
    """(first, last) driver branch that serves a compute capability; ``""`` where unlimited or unknown."""
    number = f"{capability[0]}.{capability[1]}"
    try:
        first, last = gpus.gpu_floor(number), gpus.gpu_ceiling(number)
    except CannotJudge:
        return "", ""
    return first if isinstance(first, str) else "", last if isinstance(last, str) else ""


@lru_cache(maxsize=64)
def kernel_module_kind(capability: Capability) -> str:
    """Whether a GPU needs the open kernel modules: ``required``, ``unsupported``, ``either``; ``""`` if not known."""
    try:
        return str(gpus.open_module(f"{capability[0]}.{capability[1]}"))
    except CannotJudge:
        return ""


@lru_cache(maxsize=256)
def device(gpu: GPU) -> Device:
    """Device of a GPU: its compute capability if read or its name is one (``sm_90``), else all that its name may stand
    for.
    """
    found = gpus.candidate_gpus(gpu.name)
    firsts = {candidate.first for candidate in found}
    first = firsts.pop() if len(firsts) == 1 else ""
    own = gpu.compute_capability or (gpu.name if re.fullmatch(r"sm_?\d{2,3}[af]?|\d{1,2}\.\d", gpu.name) else "")
    try:
        return Device(gpu.name, (capability(own),), first)
    except CannotJudge:
        several = sorted({capability(candidate.compute_capability) for candidate in found})
        return Device(gpu.name, tuple(several), first)


def machine_of(wishes: Wishes) -> Machine:
    """Machine described by the wishes; what they leave open is None, ``""`` or empty, the architecture x86_64."""
    system, wsl = _system_and_wsl(wishes)
    arch = _ARCHES.get(wishes.arch.lower(), wishes.arch.lower()) or "x86_64"
    kinds: dict[tuple[str, str], Wheels] = {
        ("Linux", "x86_64"): "linux",
        ("Linux", "aarch64"): "aarch64",
        ("Windows", "x86_64"): "windows",
    }
    wheels = kinds.get((system, arch))
    return Machine(
        system=system if wheels else f"{system} on {arch}",
        wheels=wheels,
        driver=parsed_driver(wishes.driver),
        devices=tuple(dict.fromkeys(map(device, wishes.gpus))),
        python=python_tag(wishes.python),
        glibc=_parsed_libc(wishes.libc) or _libc_of(wishes.distribution) if system == "Linux" else None,
        wsl=wsl,
        bare=not wishes.gpus and not wishes.driver,
    )


def python_tag(written: str) -> str:
    """Tag of a Python version: ``cp312`` for ``3.12.3``, ``cp313t`` for ``3.13t``; ``""`` if it is no version."""
    match = _PYTHON.fullmatch(written.strip())
    return f"cp{match[1]}{match[2]}{match[3]}" if match else ""


def python_numbers_of(tag: str) -> tuple[int, int]:
    """(3, 13) for the tag ``cp313t``; (0, 0) for an empty one."""
    digits = tag.removeprefix("cp").removesuffix("t")
    return (int(digits[0]), int(digits[1:])) if digits else (0, 0)


def _system_and_wsl(wishes: Wishes) -> tuple[str, bool]:
    """(``Linux``, ``Windows`` or ``macOS``, whether it is WSL) of the wishes; by default Linux."""
    written = wishes.os.lower()
    if written.startswith("wsl"):
        return "Linux", True
    if written in ("macos", "darwin"):
        return "macOS", False
    return ("Windows" if written.startswith("win") else "Linux"), False


def _parsed_libc(written: str) -> Glibc:
    """C library from its text: (2, 31), ``musl``, or None if not understood."""
    if "musl" in written.lower():
        return "musl"
    match = _GLIBC.fullmatch(written.strip().lower())
    return (int(match[1]), int(match[2])) if match else None


def _libc_of(distribution: str) -> Glibc:
    """C library of a distribution (``ubuntu 18.04``) by the tables, RHEL's for its rebuilds; None if not in them."""
    name, _, release = distribution.lower().partition(" ")
    own = _LIKE.get(name, name)
    for row in table("torch")["glibc"]:
        for listed in row["distributions"].lower().split(", "):
            if f"{own} {release}.".startswith(f"{listed}."):
                return _parsed_libc(row["glibc"])
    return None


def assumption_notes(wishes: Wishes, machine: Machine) -> Iterator[str]:
    """Sentences saying what the wishes leave unknown of the machine, and what was assumed instead."""
    if not wishes.gpus:
        yield say("No GPU is known here, so it was not judged whether the builds hold code for one.")
    for device in machine.devices:
        yield from _assumed_of_device(device, machine)
    if machine.driver is None:
        yield say("The driver is not known, so no build was ruled out for it.")
    elif machine.driver.future:
        sentence = "Driver {driver} is newer than the tables; it was taken to serve every CUDA of theirs."
        yield say(sentence, driver=machine.driver.written)
    elif machine.driver.cuda is None:
        yield say("The tables do not say which CUDA driver {driver} serves in full.", driver=machine.driver.written)
    if not machine.python:
        yield say("Python's version is not known, so no build was ruled out for it.")
    if machine.glibc is None and machine.system == "Linux" and wishes.elsewhere:
        yield say("The C library was taken to be glibc, new enough for every wheel.")


def near_phrase(name: str) -> str:
    """`` (near it: A, B, C)`` naming similar GPUs; ``""`` if there are none."""
    near = near_gpus(name[:60])[:3]
    return say(" (near it: {names})", names=", ".join(near)) if near else ""


def _assumed_of_device(gpu: Device, machine: Machine) -> Iterator[str]:
    """Sentences on what is not known of one GPU, and what was assumed instead."""
    if not gpu.capabilities:
        near = near_phrase(gpu.name)
        sentence = "The tables do not know the GPU {gpu}{near}; give its compute capability, as in gpu=sm_120."
        yield say(sentence, gpu=repr(gpu.name[:60]), near=near)
        return
    if gpus.candidate_gpus(gpu.name) and not gpu_is_listed(gpu.name):
        took = say(" or ").join(f"{major}.{minor}" for major, minor in gpu.capabilities)
        sentence = "No {gpu} is in the tables{near}; its name was taken for compute capability {took}."
        yield say(sentence, gpu=gpu.name, near=near_phrase(gpu.name), took=took)
    if len(gpu.capabilities) > 1:
        several = say(" or ").join(f"{major}.{minor}" for major, minor in gpu.capabilities)
        sentence = "{gpu} may be of compute capability {several}; what is offered serves each."
        yield say(sentence, gpu=gpu.name, several=several)
    for major, minor in gpu.capabilities:
        try:
            gpus.gpu_floor(f"{major}.{minor}")
        except CannotJudge as why:
            yield say("{gpu}: which drivers serve it was not judged, {why}.", gpu=gpu.name, why=phrase(why.why))
            if gpus.is_system_on_chip(f"{major}.{minor}"):
                yield say("Systems on chip take NVIDIA's own wheels for JetPack, which the tables do not follow.")
    own = machine.driver if machine.drivers_of == "linux" else None
    if gpu.first and own and not own.reaches(gpu.first) and all(map(own.reaches, gpu.floors)):
        sentence = "The first driver known to list {gpu} is {first}; {driver} may not know it."
        yield say(sentence, gpu=gpu.name, first=gpu.first, driver=own.written)
