"""Every build against one machine and what is wanted on it: which fit, what goes beside them, why others do not.

What a build asks of a machine is one check each: the builds that pass it there. Nothing is ruled out by what is not
known of the machine: `machine.assumption_notes` says what was not judged. Of several thousand questions in one solution
most are the same, so that each check keeps its answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Literal

from gpudoctor.core.frozen import frozen
from gpudoctor.diagnosis.knowledge.archs import Capability
from gpudoctor.fixes.solver.builds import Build, Runs, builds, cpu_builds
from gpudoctor.fixes.solver.companions import Refused, beside, default_cuda_major
from gpudoctor.fixes.solver.machine import Device, Driver, Glibc, Machine, Wheels, kernel_module_kind
from gpudoctor.fixes.solver.requirements import Wants, builds_taken
from gpudoctor.fixes.solver.solution import Package

Check = Literal["wheel", "code", "python", "libc", "driver"]
Passing = frozenset[Build]


@lru_cache(maxsize=1)
def all_builds() -> Passing:
    """All builds, CPU builds included."""
    return frozenset((*builds(), *cpu_builds()))


@lru_cache(maxsize=8)
def with_wheel(wheels: Wheels | None) -> Passing:
    """Builds of torch that have a wheel for the platform; none if `wheels` is None."""
    return frozenset(build for build in all_builds() if wheels in build.listings and wheels and build.tags(wheels))


@lru_cache(maxsize=256)
def with_python(wheels: Wheels | None, tag: str) -> Passing:
    """Builds that have a wheel for this Python tag; all if tag or platform is not known."""
    return frozenset(build for build in all_builds() if not tag or not wheels or tag in build.tags(wheels))


@lru_cache(maxsize=64)
def with_libc(glibc: Glibc) -> Passing:
    """Builds whose wheels run on this C library: none for musl, all if None (not known)."""
    if glibc == "musl":
        return frozenset()
    return frozenset(build for build in all_builds() if glibc is None or glibc >= glibc_of(build))


def glibc_of(build: Build) -> tuple[int, int]:
    """Oldest glibc that the build's Linux wheels run on, as (2, 28)."""
    major, _, minor = build.row.get("glibc", build.release["glibc"]).partition(".")
    return int(major), int(minor)


def with_code(machine: Machine) -> Passing:
    """Builds that run on every GPU of the machine, by machine code or PTX that its driver compiles; also CPU builds and
    those without a wheel for the platform.
    """
    by_code, by_ptx = _serving_all(machine.wheels, machine.devices)
    return by_code | {build for build in by_ptx if _driver_compiles_ptx(build, machine)} if by_ptx else by_code


def _serving_all(wheels: Wheels | None, devices: tuple[Device, ...]) -> tuple[Passing, Passing]:
    """(builds that serve all these GPUs by machine code, builds that need PTX for some): all and none without a known
    GPU, or if `wheels` is None.
    """
    by_code = by_either = all_builds()
    for capability in {each for device in devices for each in device.capabilities}:
        code, either = _serving_capability(wheels, capability)
        by_code, by_either = by_code & code, by_either & either
    return by_code, by_either - by_code


@lru_cache(maxsize=256)
def _serving_capability(wheels: Wheels | None, capability: Capability) -> tuple[Passing, Passing]:
    """(builds with machine code for the capability, builds with machine code or PTX); CPU builds and those without a
    wheel for the platform are in both.
    """
    ways = {
        build: build.runs(wheels, capability) if _has_cuda_wheel(build, wheels) and wheels else "code"
        for build in all_builds()
    }
    by_code = frozenset(build for build, way in ways.items() if way == "code")
    return by_code, by_code | {build for build, way in ways.items() if way == "ptx"}


def _has_cuda_wheel(build: Build, wheels: Wheels | None) -> bool:
    """True if the build has CUDA and a wheel for the platform."""
    return wheels is not None and wheels in build.listings and bool(build.cuda[0])


def _run_modes(build: Build, wheels: Wheels | None, devices: tuple[Device, ...]) -> set[Runs]:
    """How the build runs on each of the GPUs, as a set of ``code``, ``ptx`` and ``""`` (not at all); empty for a CPU
    build, without a wheel for the platform, or a known GPU.
    """
    if wheels is None or not _has_cuda_wheel(build, wheels):
        return set()
    return {build.runs(wheels, capability) for device in devices for capability in device.capabilities}


def _driver_compiles_ptx(build: Build, machine: Machine) -> bool:
    """True if the driver serves the build's CUDA in full, so that it compiles its PTX, or is not known."""
    return machine.driver is None or machine.driver.serves_fully(build.cuda)


def unserved_by_build(build: Build, machine: Machine) -> tuple[Device, ...]:
    """GPUs of the machine for which the build has neither machine code nor PTX that the driver compiles."""
    enough = {"code", "ptx"} if _driver_compiles_ptx(build, machine) else {"code"}
    return tuple(device for device in machine.devices if not _run_modes(build, machine.wheels, (device,)) <= enough)


def compiles_first(build: Build, machine: Machine) -> bool:
    """True if some GPU of the machine runs the build only through PTX, compiled at first use."""
    return "ptx" in _run_modes(build, machine.wheels, machine.devices)


@lru_cache(maxsize=512)
def with_driver(driver: Driver | None, drivers_of: str) -> Passing:
    """Builds whose CUDA the driver runs, and CPU builds; all if the driver is not known."""
    if driver is None:
        return all_builds()
    return frozenset(build for build in all_builds() if not build.cuda[0] or driver.reaches(build.floor(drivers_of)))


def unserved_devices(machine: Machine) -> tuple[Device, ...]:
    """GPUs that the machine's driver does not serve, being too old or too new for them; none if it is not known."""
    own = machine.driver
    if own is None:
        return ()
    return tuple(
        device
        for device in machine.devices
        if not all(map(own.reaches, device.floors)) or not all(map(own.within, device.ceilings))
    )


def conflicting_modules(machine: Machine) -> tuple[Device, ...]:
    """GPUs of which some need open and others proprietary kernel modules; none if they agree, or in WSL or Windows."""
    if machine.system != "Linux" or machine.wsl:
        return ()
    kinds = {
        device: {kernel_module_kind(capability) for capability in device.capabilities} for device in machine.devices
    }
    apart = [device for device, modules in kinds.items() if modules in ({"required"}, {"unsupported"})]
    return tuple(apart) if len({frozenset(kinds[device]) for device in apart}) > 1 else ()


CHECKS: Mapping[Check, Callable[[Machine], Passing]] = {
    "wheel": lambda machine: with_wheel(machine.wheels),
    "code": with_code,
    "python": lambda machine: with_python(machine.wheels, machine.python),
    "libc": lambda machine: with_libc(machine.glibc),
    "driver": lambda machine: with_driver(machine.driver, machine.drivers_of),
}
"""In the order in which they are told: what no change to the machine mends comes first."""


# ---- All checks together ----


@frozen(slots=False)
class Fit:
    """A build that runs on the machine, with the packages installed beside it."""

    build: Build
    machine: Machine
    packages: tuple[Package, ...]

    @cached_property
    def compiled(self) -> bool:
        """True if any of the packages must be compiled with nvcc."""
        return any(package.compiled for package in self.packages)

    @cached_property
    def like(self) -> str:
        """Release whose list of architectures was used for the build; ``""`` if its own is known, or no GPU is."""
        wheels = self.machine.wheels
        return self.build.listings[wheels].like if wheels and self.machine.devices else ""

    @cached_property
    def default(self) -> bool:
        """True if PyPI itself serves this build for the machine's platform."""
        return self.machine.wheels is not None and self.build.default(self.machine.wheels)

    @cached_property
    def full(self) -> bool:
        """True if the driver serves the build's CUDA without minor-version compatibility, or is not known."""
        return self.machine.driver is None or self.machine.driver.serves_fully(self.build.cuda)

    @cached_property
    def jit(self) -> bool:
        """True if some GPU runs the build only through PTX, compiled at first use."""
        return compiles_first(self.build, self.machine)

    @property
    def rank(self) -> tuple[object, ...]:
        """Sort key, best first: nothing to compile, newest release, then the most reliable build of it.
        Reliable means: known code, no PTX, CUDA major not behind PyPI's, fully served by the driver, served by PyPI;
        then the newest CUDA.
        """
        release = tuple(-number for number in self.build.version.release)
        cuda = tuple(-number for number in self.build.cuda)
        behind = self.build.cuda[0] < default_cuda_major(self.build)
        return self.compiled, release, bool(self.like), self.jit, behind, not self.full, not self.default, cuda


@frozen
class Rejected:
    """A build that does not run, and the first check that it failed."""

    build: Build
    by: Check | Literal["generation"] | Refused


def candidate_builds(machine: Machine, wants: Wants) -> tuple[Build, ...]:
    """Builds that the want for torch takes; CPU builds if neither GPU nor driver is known."""
    return builds_taken(wants.torch.specifier, wants.minor, True) if machine.bare else wants.builds


def fits(machine: Machine, wants: Wants) -> bool:
    """True if any build fits machine and wants, together with all packages beside it."""
    return next(fitting(machine, wants), None) is not None


def fitting(machine: Machine, wants: Wants) -> Iterator[Fit]:
    """Builds that pass all checks and have all packages beside them, newest release first."""
    good = frozenset.intersection(*(passing(machine) for passing in CHECKS.values()))
    alien = unserved_devices(machine) or conflicting_modules(machine)
    for build in candidate_builds(machine, wants):
        if build in good and not (alien and build.cuda[0]):
            packages = beside(wants, build, machine)
            if not isinstance(packages, Refused):
                yield Fit(build, machine, packages)


def judge_builds(machine: Machine, wants: Wants) -> Iterator[Fit | Rejected]:
    """Every candidate build: a Fit, or a Rejected with the first check that it failed."""
    alien = unserved_devices(machine) or conflicting_modules(machine)
    checks = [(name, passing(machine)) for name, passing in CHECKS.items()]
    for build in candidate_builds(machine, wants):
        failed = next((name for name, good in checks if build not in good), None)
        if failed or (alien and build.cuda[0]):
            yield Rejected(build, failed or "generation")
            continue
        packages = beside(wants, build, machine)
        yield Rejected(build, packages) if isinstance(packages, Refused) else Fit(build, machine, packages)
