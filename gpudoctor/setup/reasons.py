"""Why that stack and no other, in few sentences: the choice, what fits too, and what was rejected before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpudoctor.language import say
from gpudoctor.model.stack import Reason
from gpudoctor.setup.builds import Build
from gpudoctor.setup.checks import glibc_of, lacking, quarrelling, strangers
from gpudoctor.setup.companions import Refused
from gpudoctor.setup.judging import Fit, Rejected
from gpudoctor.setup.machine import Device, Machine, module

_ALTERNATIVES = 4
_REJECTIONS = 6


def reasons(
    ranked: Sequence[Fit], rejected: Sequence[Rejected], machine: Machine, torch: str = ""
) -> tuple[Reason, ...]:
    """The choice first, then its nearest alternatives, then rejections of what is as new or newer, grouped.

    `torch` is the release that was asked for, ``2.9``.
    """
    told = [*_strangers(machine), *_quarrel(machine)]
    if told:
        rejected = [one for one in rejected if one.by == "code"]
    if ranked:
        told.append(Reason(ranked[0].build.label, "chosen", _chosen(ranked, machine, torch)))
        told += [Reason(fit.build.label, "fits", _fits(fit, ranked[0], machine)) for fit in _nearest(ranked)]
        newest = ranked[0].build.version
        rejected = [one for one in rejected if one.build.version >= newest]
    else:  # what only a package stands in the way of is nearest to fitting
        rejected = sorted(rejected, key=lambda one: not isinstance(one.by, Refused))
    told += list(_grouped([one for one in rejected if one.by != "generation"], machine))
    return tuple(told)


def _nearest(ranked: Sequence[Fit]) -> Iterator[Fit]:
    """The other builds of the chosen release, then the best of each torch x.y after it, a few in all."""
    best = ranked[0]
    seen = {(best.build.version.release[:2], best.compiled)}
    others = [fit for fit in ranked[1:] if fit.build.torch == best.build.torch and fit.compiled == best.compiled]
    for fit in ranked[1:]:
        if (kind := (fit.build.version.release[:2], fit.compiled)) not in seen:
            seen.add(kind)
            others.append(fit)
    yield from others[:_ALTERNATIVES]


def _chosen(ranked: Sequence[Fit], machine: Machine, torch: str) -> str:
    fit = ranked[0]
    newest = fit.build.version == max(other.build.version for other in ranked)
    fits = say("a build of torch {version} that fits", version=torch) if torch else say("the newest release that fits")
    what = fits if newest else say("the newest release with a wheel of everything")
    parts = [what, *_merits(fit, machine)]
    if fit.default:
        parts.append(say("the package index gives this build by itself"))
    return say("; ").join(parts)


def _merits(fit: Fit, machine: Machine) -> Iterator[str]:
    """How far it can be relied on."""
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
    yield from _by_hand(fit)


def _by_hand(fit: Fit) -> Iterator[str]:
    """What nobody has built for it."""
    if names := [package.name for package in fit.packages if package.compiled]:
        yield say("{names} must be compiled with nvcc {major}", names=", ".join(names), major=fit.build.cuda[0])


def _fits(fit: Fit, best: Fit, machine: Machine) -> str:
    if fit.compiled and not best.compiled:
        return say("; ").join((say("fits too"), *_by_hand(fit)))
    if fit.build.torch != best.build.torch:
        return say("fits too, an older release")
    if (fit.full, bool(fit.like), fit.jit) != (best.full, bool(best.like), best.jit):
        return say("; ").join((say("fits too"), *_merits(fit, machine)))
    if best.default:
        return say("fits too; needs the index of its CUDA")
    return say("fits too, with CUDA {cuda}", cuda=fit.build.cuda_words)


def _strangers(machine: Machine) -> Iterator[Reason]:
    """The GPUs that the driver does not serve: then no build runs."""
    own = machine.driver
    for one in strangers(machine) if own else ():
        assert own is not None
        old = [floor for floor in one.floors if not own.reaches(floor)]
        cause = f"{old[0]} is the first branch that serves it" if old else f"{min(one.ceilings)} is the last that does"
        yield Reason(f"driver {own.written}", "rejected", f"does not serve {named(one)}: {cause}")


def _quarrel(machine: Machine) -> Iterator[Reason]:
    """GPUs of which no kernel module drives all."""
    apart = quarrelling(machine)
    if apart:
        needs = {"required": "open", "unsupported": "proprietary"}
        words = (f"{one.name} the {needs[module(one.capabilities[0])]} ones" for one in apart)
        said = f"only one kind of kernel modules can be loaded: {', '.join(words)}"
        yield Reason("these GPUs together", "rejected", said)


def named(one: Device) -> str:
    """``RTX 5090 (compute capability 12.0)``."""
    several = say(" or ").join(f"{major}.{minor}" for major, minor in one.capabilities)
    return say("{gpu} (compute capability {number})", gpu=one.name, number=several) if several else one.name


def _grouped(rejected: Sequence[Rejected], machine: Machine) -> Iterator[Reason]:
    """One sentence for all builds that were rejected for the same reason, those with the newest first."""
    groups: dict[str, list[Build]] = {}
    for one in rejected:
        groups.setdefault(because(one, machine), []).append(one.build)
    for sentence, several in list(groups.items())[:_REJECTIONS]:
        yield Reason(_builds(several), "rejected", sentence)


def _builds(several: Sequence[Build]) -> str:
    """``2.9.0 to 2.15.0, cu130 and cu132``, of builds that come newest first; many as ``CUDA 10.1 to 12.6``."""
    cudas = sorted({build.cuda: build for build in several}.values(), key=lambda build: build.cuda)
    names = say(" and ").join(build.name for build in cudas)
    if len(cudas) > 2:
        names = say("CUDA {least} to {most}", least=cudas[0].cuda_words, most=cudas[-1].cuda_words)
    newest, oldest = several[0].torch, several[-1].torch
    if newest == oldest:
        return f"{newest} {names}"
    return say("{oldest} to {newest}, {builds}", oldest=oldest, newest=newest, builds=names)


def because(one: Rejected, machine: Machine) -> str:
    """Why a build was rejected, in a sentence with its numbers."""
    build, by = one.build, one.by
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
        return _no_code(build, machine)
    written = machine.driver.written if machine.driver else ""
    return say("needs driver {floor}; this machine runs {own}", floor=build.floor(machine.drivers_of), own=written)


_WHEELS = {"linux": "Linux", "aarch64": "Linux on Arm", "windows": "Windows"}


def _no_code(build: Build, machine: Machine) -> str:
    without = lacking(build, machine)
    wheels = machine.wheels
    assert wheels is not None
    lacked = {one for device in without for one in device.capabilities if build.runs(wheels, one) != "code"}
    names = " or ".join(f"sm_{major}{minor}" for major, minor in sorted(lacked))
    ptx = any(build.runs(wheels, one) == "ptx" for one in lacked)
    no_code = "has no {archs} code, only PTX, which this driver does not compile: {gpus}"
    said = no_code if ptx else "has no {archs} code: {gpus}"
    return say(said, archs=names, gpus=", ".join(device.name for device in without))
