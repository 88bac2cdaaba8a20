"""The machine as the solver sees it: the wheels it takes, its GPUs and their generations, and what was assumed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from gpudoctor.knowledge import gpu_names, gpus
from gpudoctor.knowledge.archs import Capability, capability
from gpudoctor.model.frozen import frozen
from gpudoctor.model.pattern import pattern
from gpudoctor.model.stack import GPU, Wishes
from gpudoctor.model.values import CannotJudge
from gpudoctor.setup.driver import Driver, driver

Wheels = Literal["linux", "aarch64", "windows"]
"""Which wheels a machine takes: Linux x86_64, Linux on Arm, or Windows x86_64. WSL takes those of Linux."""
Glibc = tuple[int, int] | Literal["musl"] | None
"""A C library: glibc's version, or musl; None where it is not known."""
_ARCHES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
_PYTHON = pattern(r"(\d+)\.(\d+)(?:\.\w+)*?(t?)(?:\+.*)?")
_GLIBC = pattern(r"(?:glibc[ -]?)?(\d+)\.(\d+).*")


@frozen
class Device:
    """One model of GPU. `capabilities` are those that its name may stand for, all of which must be served; none where
    nothing is known of it. `first` is the oldest driver known to list the name.
    """

    name: str
    capabilities: tuple[Capability, ...]
    first: str = ""

    @property
    def floors(self) -> tuple[str, ...]:
        """The first driver branch of each of its generations, where the tables know it."""
        return tuple(filter(None, (generation(one)[0] for one in self.capabilities)))

    @property
    def ceilings(self) -> tuple[str, ...]:
        """The last driver branch that serves each of its generations, where support has ended."""
        return tuple(filter(None, (generation(one)[1] for one in self.capabilities)))


class Place(NamedTuple):
    """What counts of a machine for the packages beside torch."""

    wheels: Wheels | None
    python: str
    glibc: Glibc
    devices: tuple[Device, ...]

    @property
    def numbers(self) -> tuple[int, int]:
        """(3, 12) of ``cp312``."""
        return numbers_of(self.python)


@frozen
class Machine:
    """What decides which wheels run. None, empty and 0 are not known, and rule nothing out.

    `wheels` is None where torch has no CUDA wheels at all for the system, and `system` then names that. `python` is a
    tag, ``cp312`` or ``cp313t``; `glibc` the C library's version, or ``musl``.
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
        """Whose driver versions count: ``windows`` (in WSL, too) or ``linux``."""
        return "windows" if self.wsl or self.wheels == "windows" else "linux"

    @property
    def place(self) -> Place:
        """What counts for the packages beside torch: the driver does not."""
        return Place(self.wheels, self.python, self.glibc, self.devices)

    @property
    def python_numbers(self) -> tuple[int, int]:
        """(3, 12) of ``cp312``; (0, 0) where it is not known."""
        return numbers_of(self.python)


@lru_cache(maxsize=64)
def generation(one: Capability) -> tuple[str, str]:
    """Floor and ceiling of the drivers that serve a compute capability; empty where there is none or nobody knows."""

    def asked(bound: object) -> str:
        return bound if isinstance(bound, str) else ""

    number = f"{one[0]}.{one[1]}"
    try:
        return asked(gpus.gpu_floor(number)), asked(gpus.gpu_ceiling(number))
    except CannotJudge:
        return "", ""


@lru_cache(maxsize=64)
def module(one: Capability) -> str:
    """Whether the open kernel modules are ``required``, ``unsupported`` or ``either`` for it; empty: nobody knows."""
    try:
        return str(gpus.open_module(f"{one[0]}.{one[1]}"))
    except CannotJudge:
        return ""


@lru_cache(maxsize=256)
def device(gpu: GPU) -> Device:
    """What a GPU's name and compute capability say of it; what was read counts before what the name says."""
    found = gpu_names.candidates(gpu.name)
    firsts = {one.first for one in found}
    first = firsts.pop() if len(firsts) == 1 else ""
    own = gpu.compute_capability or (gpu.name if re.fullmatch(r"sm_?\d{2,3}[af]?|\d{1,2}\.\d", gpu.name) else "")
    try:
        return Device(gpu.name, (capability(own),), first)
    except CannotJudge:
        several = sorted({capability(one.compute_capability) for one in found})
        return Device(gpu.name, tuple(several), first)


def machine_of(wishes: Wishes) -> Machine:
    """The machine of these wishes."""
    system, wsl = _system(wishes)
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
        driver=driver(wishes.driver),
        devices=tuple(dict.fromkeys(map(device, wishes.gpus))),
        python=python_tag(wishes.python),
        glibc=_libc(wishes.libc) if system == "Linux" else None,
        wsl=wsl,
        bare=not wishes.gpus and not wishes.driver,
    )


def python_tag(written: str) -> str:
    """``cp312`` of ``3.12.3``, ``cp313t`` of ``3.13t``; empty where it is no version."""
    match = _PYTHON.fullmatch(written.strip())
    return f"cp{match[1]}{match[2]}{match[3]}" if match else ""


def numbers_of(tag: str) -> tuple[int, int]:
    """(3, 13) of ``cp313t``; (0, 0) of an empty one."""
    digits = tag.removeprefix("cp").removesuffix("t")
    return (int(digits[0]), int(digits[1:])) if digits else (0, 0)


def _system(wishes: Wishes) -> tuple[str, bool]:
    written = wishes.os.lower()
    if written.startswith("wsl"):
        return "Linux", True
    if written in ("macos", "darwin"):
        return "macOS", False
    return ("Windows" if written.startswith("win") else "Linux"), False


def _libc(written: str) -> Glibc:
    if "musl" in written.lower():
        return "musl"
    match = _GLIBC.fullmatch(written.strip().lower())
    return (int(match[1]), int(match[2])) if match else None


def assumed(wishes: Wishes, machine: Machine) -> Iterator[str]:
    """What is not known of the machine, and what was taken for it."""
    if not wishes.gpus:
        yield "No GPU is known here, so it was not judged whether the builds hold code for one."
    for one in machine.devices:
        yield from _of_device(one, machine)
    if machine.driver is None:
        yield "The driver is not known, so no build was ruled out for it."
    elif machine.driver.future:
        yield f"Driver {machine.driver.written} is newer than the tables; it was taken to serve every CUDA of theirs."
    elif machine.driver.cuda is None:
        yield f"The tables do not say which CUDA driver {machine.driver.written} serves in full."
    if not machine.python:
        yield "Python's version is not known, so no build was ruled out for it."
    if machine.glibc is None and machine.system == "Linux" and wishes.elsewhere:
        yield "The C library was taken to be glibc, new enough for every wheel."


def _near(name: str) -> str:
    from gpudoctor.knowledge.entries import near_gpus

    near = near_gpus(name[:60])[:3]
    return f" (near it: {', '.join(near)})" if near else ""


def _listed(name: str) -> bool:
    from gpudoctor.knowledge.entries import gpu_is_listed

    return gpu_is_listed(name)


def _of_device(one: Device, machine: Machine) -> Iterator[str]:
    if not one.capabilities:
        near = _near(one.name)
        yield f"The tables do not know the GPU {one.name[:60]!r}{near}; give its compute capability, as in gpu=sm_120."
        return
    if gpu_names.candidates(one.name) and not _listed(one.name):
        took = " or ".join(f"{major}.{minor}" for major, minor in one.capabilities)
        yield f"No {one.name} is in the tables{_near(one.name)}; its name was taken for compute capability {took}."
    if len(one.capabilities) > 1:
        several = " or ".join(f"{major}.{minor}" for major, minor in one.capabilities)
        yield f"{one.name} may be of compute capability {several}; what is offered serves each."
    for major, minor in one.capabilities:
        try:
            gpus.gpu_floor(f"{major}.{minor}")
        except CannotJudge as why:
            yield f"{one.name}: which drivers serve it was not judged, {why.why}."
            if gpus.on_chip(f"{major}.{minor}"):
                yield "Systems on chip take NVIDIA's own wheels for JetPack, which the tables do not follow."
    own = machine.driver if machine.drivers_of == "linux" else None
    if one.first and own and not own.reaches(one.first) and all(map(own.reaches, one.floors)):
        yield f"The first driver known to list {one.name} is {one.first}; {own.written} may not know it."
