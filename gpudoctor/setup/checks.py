"""What a build asks of a machine, one check each: the builds that pass it there.

Nothing is ruled out by what is not known of the machine: `gpudoctor.setup.machine.assumed` says what was not judged.
Of several thousand questions in one solution most are the same, so that each check keeps its answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Literal

from gpudoctor.knowledge.archs import Capability
from gpudoctor.setup.builds import Build, Runs, builds, cpu_builds
from gpudoctor.setup.driver import Driver
from gpudoctor.setup.machine import Device, Glibc, Machine, Wheels, module

Check = Literal["wheel", "code", "python", "libc", "driver"]
Passing = frozenset[Build]


@lru_cache(maxsize=1)
def every() -> Passing:
    """All builds, those without CUDA too."""
    return frozenset((*builds(), *cpu_builds()))


@lru_cache(maxsize=8)
def with_wheel(wheels: Wheels | None) -> Passing:
    """Those that have a wheel for the system at all."""
    return frozenset(build for build in every() if wheels in build.listings and wheels and build.tags(wheels))


@lru_cache(maxsize=256)
def with_python(wheels: Wheels | None, tag: str) -> Passing:
    """Those that have one for this Python."""
    return frozenset(build for build in every() if not tag or not wheels or tag in build.tags(wheels))


@lru_cache(maxsize=64)
def with_libc(glibc: Glibc) -> Passing:
    """Those whose wheels run on this C library; none of torch is for musl."""
    if glibc == "musl":
        return frozenset()
    return frozenset(build for build in every() if glibc is None or glibc >= glibc_of(build))


def glibc_of(build: Build) -> tuple[int, int]:
    """The oldest glibc that its wheels for Linux run on."""
    major, _, minor = build.release["glibc"].partition(".")
    return int(major), int(minor)


def with_code(machine: Machine) -> Passing:
    """Those in which every GPU finds code of its own, or PTX that the driver compiles."""
    by_code, by_ptx = _served(machine.wheels, machine.devices)
    return by_code | {build for build in by_ptx if _compiles(build, machine)} if by_ptx else by_code


def _served(wheels: Wheels | None, devices: tuple[Device, ...]) -> tuple[Passing, Passing]:
    """The builds that serve all these GPUs by machine code, and those that serve some through PTX alone."""
    by_code = by_either = every()
    for one in {each for device in devices for each in device.capabilities}:
        code, either = _serving(wheels, one)
        by_code, by_either = by_code & code, by_either & either
    return by_code, by_either - by_code


@lru_cache(maxsize=256)
def _serving(wheels: Wheels | None, one: Capability) -> tuple[Passing, Passing]:
    """The builds that serve this GPU by machine code, and by machine code or PTX; those without CUDA pass."""
    ways = {build: build.runs(wheels, one) if _has_code(build, wheels) and wheels else "code" for build in every()}
    by_code = frozenset(build for build, way in ways.items() if way == "code")
    return by_code, by_code | {build for build, way in ways.items() if way == "ptx"}


def _has_code(build: Build, wheels: Wheels | None) -> bool:
    return wheels is not None and wheels in build.listings and bool(build.cuda[0])


def _ways(build: Build, wheels: Wheels | None, devices: tuple[Device, ...]) -> set[Runs]:
    if wheels is None or not _has_code(build, wheels):
        return set()
    return {build.runs(wheels, each) for one in devices for each in one.capabilities}


def _compiles(build: Build, machine: Machine) -> bool:
    """Whether the driver compiles PTX of the build's CUDA: minor-version compatibility does not cover PTX."""
    return machine.driver is None or machine.driver.serves_fully(build.cuda)


def lacking(build: Build, machine: Machine) -> tuple[Device, ...]:
    """The GPUs that find neither in it."""
    enough = {"code", "ptx"} if _compiles(build, machine) else {"code"}
    return tuple(one for one in machine.devices if not _ways(build, machine.wheels, (one,)) <= enough)


def compiles_first(build: Build, machine: Machine) -> bool:
    """Whether some GPU runs it only through PTX, which the driver compiles when it is first used."""
    return "ptx" in _ways(build, machine.wheels, machine.devices)


@lru_cache(maxsize=512)
def with_driver(driver: Driver | None, drivers_of: str) -> Passing:
    """Those whose CUDA the driver runs; which GPUs the driver serves is `strangers`' matter."""
    if driver is None:
        return every()
    return frozenset(build for build in every() if not build.cuda[0] or driver.reaches(build.floor(drivers_of)))


def strangers(machine: Machine) -> tuple[Device, ...]:
    """The GPUs that the driver does not serve, because it is too old for their generation or too new.

    No build is taken to run on a machine that has one: it asked for all its GPUs.
    """
    own = machine.driver
    if own is None:
        return ()
    return tuple(
        one
        for one in machine.devices
        if not all(map(own.reaches, one.floors)) or not all(map(own.within, one.ceilings))
    )


def quarrelling(machine: Machine) -> tuple[Device, ...]:
    """The GPUs of which some need the open kernel modules and others the proprietary ones: Linux loads one kind."""
    if machine.system != "Linux" or machine.wsl:
        return ()
    kinds = {one: {module(each) for each in one.capabilities} for one in machine.devices}
    apart = [one for one, modules in kinds.items() if modules in ({"required"}, {"unsupported"})]
    return tuple(apart) if len({frozenset(kinds[one]) for one in apart}) > 1 else ()


CHECKS: Mapping[Check, Callable[[Machine], Passing]] = {
    "wheel": lambda machine: with_wheel(machine.wheels),
    "code": with_code,
    "python": lambda machine: with_python(machine.wheels, machine.python),
    "libc": lambda machine: with_libc(machine.glibc),
    "driver": lambda machine: with_driver(machine.driver, machine.drivers_of),
}
"""In the order in which they are told: what no change to the machine mends comes first."""
