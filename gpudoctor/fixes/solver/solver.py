"""Which torch stack fits a machine: every build of every release against its GPUs, driver, Python and C library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from itertools import combinations

from packaging.version import Version

from gpudoctor.core.language import and_list, say
from gpudoctor.core.stack import Need, Reason, Wishes
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.fixes.solver.builds import Build, builds
from gpudoctor.fixes.solver.companions import Refused
from gpudoctor.fixes.solver.fitting_builds import (
    Fit,
    Rejected,
    conflicting_modules,
    fits,
    fitting,
    glibc_of,
    judge_builds,
    unserved_by_build,
    unserved_devices,
)
from gpudoctor.fixes.solver.machine import (
    Device,
    Machine,
    assumption_notes,
    branches,
    kernel_module_kind,
    machine_of,
    python_numbers_of,
)
from gpudoctor.fixes.solver.requirements import ANY_TORCH, FOLLOWED, Want, Wants, wants_of
from gpudoctor.fixes.solver.smallest_change import Case, smallest
from gpudoctor.fixes.solver.solution import Candidate, Package, Solution


def solve(wishes: Wishes) -> Solution:
    """Stacks of torch that fit the wishes, best first, or what would have to change; from the tables alone, no index is
    asked. An invalid requirement raises `UsageError`.
    """
    machine = machine_of(wishes)
    wants = wants_of(wishes, machine)
    verdicts = list(judge_builds(machine, wants))
    ranked = sorted((verdict for verdict in verdicts if isinstance(verdict, Fit)), key=lambda fit: fit.rank)
    rejected = [verdict for verdict in verdicts if isinstance(verdict, Rejected)]
    at_odds = () if ranked else conflicts(wants)
    explained = reasons(ranked, [] if at_odds else rejected, machine, wishes.torch)
    return Solution(
        wishes=wishes,
        ranked=tuple(_candidate(fit, machine) for fit in ranked),
        heading=_heading(wants),
        reasons=(*at_odds, *explained),
        needs=tuple(_needs(ranked[0], machine)) if ranked else (),
        smallest=() if ranked else smallest(Case(machine, wants, wishes.distribution)),
        remarks=tuple(_remarks(wishes, machine, wants, ranked[0] if ranked else None)),
        sources=sources(),
        offers=available_choices(),
    )


def _candidate(fit: Fit, machine: Machine) -> Candidate:
    """Candidate of a fitting build: torch, the packages beside it, its pinned CUDA, cuDNN and (not on Windows) NCCL."""
    build = fit.build
    row = build.row
    pins = {"CUDA": row.get("toolkit", build.cuda_words), "cuDNN": row.get("cudnn"), "NCCL": row.get("nccl")}
    if machine.wheels == "windows":
        pins.pop("NCCL")
    return Candidate(
        torch=build.torch,
        build=build.name,
        cuda=build.cuda_words,
        packages=(Package("torch", build.torch, "torch"), *fit.packages),
        default=fit.default,
        libraries=tuple((name, version) for name, version in pins.items() if version),
    )


def _heading(wants: Wants) -> str:
    """Sentence on the builds considered: ``torch==2.9.* comes for CUDA 12.6, 12.8 and 13.0``, or that there are
    none.
    """
    taken = wants.builds
    asked = wants.torch.text or "torch"
    if not taken:
        return say("The tables have no CUDA build of {asked}", asked=asked)
    words = [f"{major}.{minor}" for major, minor in sorted({build.cuda for build in taken})]
    if len(words) > 4:
        sentence = "{count} builds of torch {first} to {last}, for CUDA {least} to {most}"
        bounds = {"first": taken[-1].torch, "last": taken[0].torch, "least": words[0], "most": words[-1]}
        return say(sentence, count=len(taken), **bounds)
    return say("{asked} comes for CUDA {versions}", asked=asked, versions=and_list(words))


def _needs(best: Fit, machine: Machine) -> Iterator[Need]:
    """What the best build needs of the machine's driver, GPUs, Python and C library; all of it is met."""
    build = best.build
    own = machine.driver.written if machine.driver else ""
    if build.cuda[0]:
        bounds = [build.floor(machine.drivers_of), *(floor for gpu in machine.devices for floor in gpu.floors)]
        least = max(bounds, key=lambda bound: [int(part) for part in bound.split(".")])
        last = min((int(gpu) for device in machine.devices for gpu in device.ceilings), default=0)
        names = [f"CUDA {build.cuda_words}"] if least == bounds[0] else []
        names += [gpu.name for gpu in machine.devices if least in gpu.floors or str(last) in gpu.ceilings]
        needed = say("{least} to {most}" if last else "{least} or newer", least=least, most=last)
        yield Need("driver", needed, own, True, say(" and ").join(names))
        for gpu in machine.devices:
            yield Need("code", say("for {gpu}", gpu=device_phrase(gpu)), "", True)
    if machine.wheels:
        tags = sorted(python_numbers_of(tag) for tag in build.tags(machine.wheels) if not tag.endswith("t"))
        python = "{}.{}".format(*machine.python_numbers) if machine.python else ""
        yield Need(
            "Python",
            say("{least} to {most}", least="{}.{}".format(*tags[0]), most="{}.{}".format(*tags[-1])),
            python,
            True,
        )
    if machine.system == "Linux":
        libc = "glibc {}.{}".format(*machine.glibc) if isinstance(machine.glibc, tuple) else ""
        yield Need("libc", say("{least} or newer", least="glibc {}.{}".format(*glibc_of(build))), libc, True)


def _remarks(wishes: Wishes, machine: Machine, wants: Wants, best: Fit | None) -> Iterator[str]:
    """Sentences on what was assumed about the machine or not judged of the wishes."""
    if machine.bare:
        yield say("No GPU and no driver is known here: these are builds without CUDA.")
    else:
        yield from assumption_notes(wishes, machine)
    old = any(capability < (5, 0) for device in machine.devices for capability in device.capabilities)
    if old and best and int(best.build.row.get("cudnn", "0").split(".")[0]) >= 9:  # cuDNN's release notes, 9.0.0
        sentence = (
            "cuDNN 9 serves no GPU before compute capability 5.0: convolutions may need torch 2.3.1, with cuDNN 8."
        )
        yield say(sentence)
    for want in wants.others:
        sentence = "{asked} is kept as it is: the tables do not follow it, so whether it fits was not judged."
        kept = say(sentence, asked=want.text)
        near = get_close_matches(want.name, ("torch", *FOLLOWED), 1, 0.8)
        yield say("{sentence} Did you mean {name}?", sentence=kept, name=near[0]) if near else kept


def sources() -> tuple[str, ...]:
    """Where the tables' facts come from, as phrases, each with the date checked."""
    about = {
        "torch": "wheels of torch: file names, METADATA, build scripts, code measured in them",
        "companions": "METADATA and release pages of the other packages",
        "drivers": "NVIDIA's release notes and driver tables",
        "gpus": "NVIDIA's lists of GPUs and of the drivers that serve them",
    }
    return tuple(say("{what} ({date})", what=say(words), date=table(name)["checked"]) for name, words in about.items())


@lru_cache(maxsize=1)
def available_choices() -> Mapping[str, tuple[str, ...]]:
    """Values that can be asked for, by field of the wishes: torch, extras, driver, python, os, arch."""
    minors = dict.fromkeys("{}.{}".format(*build.version.release) for build in builds())
    pythons = sorted({python_numbers_of(tag) for build in builds() for tag in build.tags("linux")})
    return {
        "torch": tuple(minors),
        "extras": tuple(name for name in ("torchvision", "torchaudio", "triton", *FOLLOWED[4:], "vllm")),
        "driver": tuple(str(branch) for branch in branches() if branch >= 450 and branch != 540),
        "python": tuple(f"{major}.{minor}" for major, minor in reversed(pythons) if minor >= 8),
        "os": ("linux", "windows", "wsl"),
        "arch": ("x86_64", "aarch64"),
    }


# ---- Wants that no machine could meet ----
# Which two exclude each other, or the one that the tables have nothing for.

_ANY_LINUX = Machine("Linux", "linux", None, (), "", None)
_ANY_WINDOWS = Machine("Windows", "windows", None, (), "", None)


def conflicts(wants: Wants) -> tuple[Reason, ...]:
    """Smallest sets of wants that no machine could meet (``torch==2.5 and vllm>=0.12``), and why; all of them if no set
    of up to three is to blame, none if all can be met together.
    """
    every = ([wants.torch] if wants.torch.texts else []) + list(wants.beside)
    if _can_be_met(every):
        return ()
    for several in (1, 2, 3):
        found = tuple(_conflict(subset) for subset in combinations(every, several) if not _can_be_met(subset))
        if found:
            return found
    return (Reason(and_list(want.text for want in every), "rejected", say("no releases of these go together")),)


def _can_be_met(subset: Sequence[Want]) -> bool:
    """True if some build fits these wants together on an otherwise unlimited Linux or Windows machine."""
    torch = next((want for want in subset if want.name == "torch"), ANY_TORCH)
    wants = Wants(torch, tuple(want for want in subset if want.name != "torch"))
    return fits(_ANY_LINUX, wants) or fits(_ANY_WINDOWS, wants)


def _conflict(subset: tuple[Want, ...]) -> Reason:
    """Why no machine can meet this set of wants: they exclude each other, or the tables lack such a release."""
    name = and_list(want.text for want in subset)
    if len(subset) > 1:
        return Reason(name, "rejected", say("; ").join((say("exclude each other"), *_matching_torch(subset))))
    want = subset[0]
    if not any(want.takes(version) for version in _versions(want)) and len(want.texts) > 1:
        return Reason(name, "rejected", say("exclude each other"))
    newest = _versions(want)[0]
    checked = table("torch" if want.name == "torch" else "companions")["checked"]
    none = "the tables have no such release; the newest is {newest} (checked {checked})"
    return Reason(name, "rejected", say(none, newest=newest, checked=checked))


def _matching_torch(subset: tuple[Want, ...]) -> Iterator[str]:
    """A sentence with up to three torch releases that the one want beside torch goes with on Linux.

    Nothing for several or none, where torch is not among the wants, or where no release fits.
    """
    other = [want for want in subset if want.name != "torch"]
    if len(other) == len(subset) or len(other) != 1:
        return
    found = dict.fromkeys(fit.build.torch for fit in fitting(_ANY_LINUX, Wants(ANY_TORCH, tuple(other))))
    if found:
        some = ", ".join(list(found)[:3])
        sentence = "{asked} goes with torch {some} and others" if len(found) > 3 else "{asked} goes with torch {some}"
        yield say(sentence, asked=other[0].text, some=some)


def _versions(want: Want) -> list[str]:
    """Versions of the want's package in the tables, newest first."""
    if want.name == "torch":
        return list(dict.fromkeys(build.torch for build in builds()))
    if want.name in ("torchvision", "torchaudio", "triton"):
        found = [build.release[want.name] for build in builds() if want.name in build.release]
        return list(dict.fromkeys(found))
    rows = table("companions")[want.name.replace("-", "_")]
    return sorted((row.get("version") or row["last"] for row in rows), key=Version, reverse=True)


# ---- Why that stack ----

_MOST_ALTERNATIVES = 4
_MOST_REJECTIONS = 6


def reasons(
    ranked: Sequence[Fit], rejected: Sequence[Rejected], machine: Machine, torch: str = ""
) -> tuple[Reason, ...]:
    """Reasons in order: GPUs that cannot be served, the choice, nearest alternatives, and grouped rejections (of builds
    no older than the choice, or of all without one). `torch` is the release asked for, ``2.9``, or ``""``.
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
    """Other builds of the chosen release, then the best of each other minor release, at most 4 in all."""
    best = ranked[0]
    seen = {(best.build.version.release[:2], best.compiled)}
    others = [fit for fit in ranked[1:] if fit.build.torch == best.build.torch and fit.compiled == best.compiled]
    for fit in ranked[1:]:
        if (kind := (fit.build.version.release[:2], fit.compiled)) not in seen:
            seen.add(kind)
            others.append(fit)
    yield from others[:_MOST_ALTERNATIVES]


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
    """Phrases on how far a build can be relied on: driver, untested code, PTX, what must be compiled."""
    build, own = fit.build, machine.driver
    if own and build.cuda[0]:
        whole = "driver {driver} serves CUDA {cuda} in full"
        minor = "driver {driver} serves CUDA {cuda} by minor-version compatibility"
        yield say(whole if fit.full else minor, driver=own.written, cuda=build.cuda_words)
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
    """A rejection of the driver for each GPU that it does not serve; none if the driver is not known."""
    own = machine.driver
    for device in unserved_devices(machine) if own else ():
        assert own is not None
        old = [floor for floor in device.floors if not own.reaches(floor)]
        cause = (
            say("{branch} is the first branch that serves it", branch=old[0])
            if old
            else say("{branch} is the last that does", branch=min(device.ceilings))
        )
        because = say("does not serve {gpu}: {cause}", gpu=device_phrase(device), cause=cause)
        yield Reason(say("driver {version}", version=own.written), "rejected", because)


def _module_conflict(machine: Machine) -> Iterator[Reason]:
    """A rejection if some of the GPUs need open kernel modules and others proprietary ones."""
    apart = conflicting_modules(machine)
    if apart:
        needs = {"required": "open", "unsupported": "proprietary"}
        kinds = (f"{device.name} ({needs[kernel_module_kind(device.capabilities[0])]})" for device in apart)
        reason = say("only one kind of kernel modules can be loaded: {names}", names=", ".join(kinds))
        yield Reason(say("these GPUs together"), "rejected", reason)


def device_phrase(device: Device) -> str:
    """GPU with its compute capability, if known: ``RTX 5090 (compute capability 12.0)``."""
    several = say(" or ").join(f"{major}.{minor}" for major, minor in device.capabilities)
    return say("{gpu} (compute capability {number})", gpu=device.name, number=several) if several else device.name


def _grouped_rejections(rejected: Sequence[Rejected], machine: Machine) -> Iterator[Reason]:
    """A Reason for each reason of rejection, the first 6, with the range of builds that it holds for."""
    groups: dict[str, list[Build]] = {}
    for rejection in rejected:
        groups.setdefault(rejection_reason(rejection, machine), []).append(rejection.build)
    for sentence, several in list(groups.items())[:_MOST_REJECTIONS]:
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
    """Why a build was rejected, as words that follow its name: ``needs glibc 2.28 or newer, not musl``."""
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
        return say("needs glibc {needed} or newer, not {own}", needed=needed, own=own)
    if by == "code":
        return _no_code_reason(build, machine)
    written = machine.driver.written if machine.driver else ""
    return say("needs driver {floor} or newer, not {own}", floor=build.floor(machine.drivers_of), own=written)


_WHEELS = {"linux": "Linux", "aarch64": "Linux on Arm", "windows": "Windows"}


def _no_code_reason(build: Build, machine: Machine) -> str:
    """Phrase naming the architectures for which the build has no code, and the machine's GPUs of these."""
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
