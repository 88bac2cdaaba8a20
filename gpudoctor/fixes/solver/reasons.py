"""Why that stack and no other, in few sentences: the choice, what fits too, and what was rejected before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.core.language import say
from gpudoctor.core.stack import Reason
from gpudoctor.fixes.solver.builds import Build
from gpudoctor.fixes.solver.companions import Refused
from gpudoctor.fixes.solver.judging import (
    Fit,
    Rejected,
    conflicting_modules,
    glibc_of,
    unserved_by_build,
    unserved_devices,
)
from gpudoctor.fixes.solver.machine import Device, Machine, kernel_module_kind

_ALTERNATIVES = 4
_REJECTIONS = 6


def reasons(
    ranked: Sequence[Fit], rejected: Sequence[Rejected], machine: Machine, torch: str = ""
) -> tuple[Reason, ...]:
    """Reasons in order: the choice, nearest alternatives, and grouped rejections of builds as new or newer.
    `torch` is the release asked for, ``2.9``, or ``""``.
    """
    explained = [*_unserved_reasons(machine), *_module_conflict(machine)]
    if explained:
        rejected = [rejection for rejection in rejected if rejection.by == "code"]
    if ranked:
        explained.append(Reason(ranked[0].build.label, "chosen", _why_chosen(ranked, machine, torch)))
        explained += [
            Reason(fit.build.label, "fits", _why_it_fits(fit, ranked[0], machine)) for fit in _nearest(ranked)
        ]
        newest = ranked[0].build.version
        rejected = [rejection for rejection in rejected if rejection.build.version >= newest]
    else:  # what only a package stands in the way of is nearest to fitting
        rejected = sorted(rejected, key=lambda rejection: not isinstance(rejection.by, Refused))
    explained += list(
        _grouped_rejections([rejection for rejection in rejected if rejection.by != "generation"], machine)
    )
    return tuple(explained)


def _nearest(ranked: Sequence[Fit]) -> Iterator[Fit]:
    """Other builds of the chosen release, then the best of each other minor release, at most `_ALTERNATIVES`."""
    best = ranked[0]
    seen = {(best.build.version.release[:2], best.compiled)}
    others = [fit for fit in ranked[1:] if fit.build.torch == best.build.torch and fit.compiled == best.compiled]
    for fit in ranked[1:]:
        if (kind := (fit.build.version.release[:2], fit.compiled)) not in seen:
            seen.add(kind)
            others.append(fit)
    yield from others[:_ALTERNATIVES]


def _why_chosen(ranked: Sequence[Fit], machine: Machine, torch: str) -> str:
    """Sentence saying why the first of the ranked builds was chosen."""
    fit = ranked[0]
    newest = fit.build.version == max(other.build.version for other in ranked)
    fits = say("a build of torch {version} that fits", version=torch) if torch else say("the newest release that fits")
    what = fits if newest else say("the newest release with a wheel of everything")
    parts = [what, *_merits(fit, machine)]
    if fit.default:
        parts.append(say("the package index gives this build by itself"))
    return say("; ").join(parts)


def _merits(fit: Fit, machine: Machine) -> Iterator[str]:
    """Phrases on how far a build can be relied on."""
    build, own = fit.build, machine.driver
    if own and build.cuda[0]:
        whole = "driver {driver} serves CUDA {cuda} in full"
        minor = "driver {driver} serves CUDA {cuda} as any driver from {floor} on does"
        floor = build.floor(machine.drivers_of)
        yield say(whole if fit.full else minor, driver=own.written, cuda=build.cuda_words, floor=floor)
    if fit.like:
        yield say("what its wheel holds is not in the tables, it was judged by that of {like}", like=fit.like)
    if fit.jit:
        yield say("a GPU runs it through PTX, which the driver compiles at the first start")
    yield from _compile_note(fit)


def _compile_note(fit: Fit) -> Iterator[str]:
    """Phrase naming packages that must be compiled; nothing if there are none."""
    if names := [package.name for package in fit.packages if package.compiled]:
        yield say("{names} must be compiled with nvcc {major}", names=", ".join(names), major=fit.build.cuda[0])


def _why_it_fits(fit: Fit, best: Fit, machine: Machine) -> str:
    """Sentence comparing an alternative with the best build."""
    if fit.compiled and not best.compiled:
        return say("; ").join((say("fits too"), *_compile_note(fit)))
    if fit.build.torch != best.build.torch:
        return say("fits too, an older release")
    if (fit.full, bool(fit.like), fit.jit) != (best.full, bool(best.like), best.jit):
        return say("; ").join((say("fits too"), *_merits(fit, machine)))
    if best.default:
        return say("fits too; needs the index of its CUDA")
    return say("fits too, with CUDA {cuda}", cuda=fit.build.cuda_words)


def _unserved_reasons(machine: Machine) -> Iterator[Reason]:
    """A rejection for each GPU that the driver does not serve."""
    own = machine.driver
    for device in unserved_devices(machine) if own else ():
        assert own is not None
        old = [floor for floor in device.floors if not own.reaches(floor)]
        cause = (
            f"{old[0]} is the first branch that serves it" if old else f"{min(device.ceilings)} is the last that does"
        )
        yield Reason(f"driver {own.written}", "rejected", f"does not serve {device_phrase(device)}: {cause}")


def _module_conflict(machine: Machine) -> Iterator[Reason]:
    """A rejection if the GPUs need different kinds of kernel modules."""
    apart = conflicting_modules(machine)
    if apart:
        needs = {"required": "open", "unsupported": "proprietary"}
        words = (f"{device.name} the {needs[kernel_module_kind(device.capabilities[0])]} ones" for device in apart)
        reason = f"only one kind of kernel modules can be loaded: {', '.join(words)}"
        yield Reason("these GPUs together", "rejected", reason)


def device_phrase(device: Device) -> str:
    """Device with its compute capability: ``RTX 5090 (compute capability 12.0)``."""
    several = say(" or ").join(f"{major}.{minor}" for major, minor in device.capabilities)
    return say("{gpu} (compute capability {number})", gpu=device.name, number=several) if several else device.name


def _grouped_rejections(rejected: Sequence[Rejected], machine: Machine) -> Iterator[Reason]:
    """One Reason for all builds rejected for the same reason, at most `_REJECTIONS`."""
    groups: dict[str, list[Build]] = {}
    for rejection in rejected:
        groups.setdefault(rejection_reason(rejection, machine), []).append(rejection.build)
    for sentence, several in list(groups.items())[:_REJECTIONS]:
        yield Reason(_build_range(several), "rejected", sentence)


def _build_range(several: Sequence[Build]) -> str:
    """Range of builds given newest first: ``2.9.0 to 2.15.0, cu130 and cu132``."""
    cudas = sorted({build.cuda: build for build in several}.values(), key=lambda build: build.cuda)
    names = say(" and ").join(build.name for build in cudas)
    if len(cudas) > 2:
        names = say("CUDA {least} to {most}", least=cudas[0].cuda_words, most=cudas[-1].cuda_words)
    newest, oldest = several[0].torch, several[-1].torch
    if newest == oldest:
        return f"{newest} {names}"
    return say("{oldest} to {newest}, {builds}", oldest=oldest, newest=newest, builds=names)


def rejection_reason(rejection: Rejected, machine: Machine) -> str:
    """Why a build was rejected, as words that follow its name: ``needs glibc 2.28; this machine has musl``."""
    build, by = rejection.build, rejection.by
    if isinstance(by, Refused):
        return by.because
    if by == "wheel":
        return say(
            "has no wheel for {what}", what=machine.system if machine.wheels is None else _WHEELS[machine.wheels]
        )
    if by == "python":
        python = "Python {}.{}{}".format(*machine.python_numbers, "t" * machine.python.endswith("t"))
        return say("has no wheel for {what}", what=python)
    if by == "libc":
        own = "musl" if machine.glibc in ("musl", None) else "glibc {}.{}".format(*machine.glibc)
        needed = "{}.{}".format(*glibc_of(build))
        return say("needs glibc {needed}; this machine has {own}", needed=needed, own=own)
    if by == "code":
        return _no_code_reason(build, machine)
    written = machine.driver.written if machine.driver else ""
    return say("needs driver {floor}; this machine runs {own}", floor=build.floor(machine.drivers_of), own=written)


_WHEELS = {"linux": "Linux", "aarch64": "Linux on Arm", "windows": "Windows"}


def _no_code_reason(build: Build, machine: Machine) -> str:
    """Sentence naming the architectures the build lacks, and the GPUs."""
    without = unserved_by_build(build, machine)
    wheels = machine.wheels
    assert wheels is not None
    lacked = {
        capability
        for device in without
        for capability in device.capabilities
        if build.runs(wheels, capability) != "code"
    }
    names = " or ".join(f"sm_{major}{minor}" for major, minor in sorted(lacked))
    ptx = any(build.runs(wheels, capability) == "ptx" for capability in lacked)
    no_code = "has no {archs} code, only PTX, which this driver does not compile: {gpus}"
    template = no_code if ptx else "has no {archs} code: {gpus}"
    return say(template, archs=names, gpus=", ".join(device.name for device in without))
