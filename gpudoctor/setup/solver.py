"""Which torch stack fits a machine: every build of every release against its GPUs, driver, Python and C library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from packaging.version import Version

from gpudoctor.knowledge._tables import table
from gpudoctor.language import say
from gpudoctor.model.stack import Need, Reason, Wishes
from gpudoctor.setup.builds import builds
from gpudoctor.setup.candidate import Candidate, Package
from gpudoctor.setup.changes import Case
from gpudoctor.setup.checks import glibc_of
from gpudoctor.setup.driver import branches
from gpudoctor.setup.judging import Fit, Rejected, fits, fitting, judged
from gpudoctor.setup.machine import Machine, assumed, machine_of, numbers_of
from gpudoctor.setup.reasons import named, reasons
from gpudoctor.setup.smallest import smallest
from gpudoctor.setup.solution import Solution
from gpudoctor.setup.wants import ANY_TORCH, FOLLOWED, Want, Wants, wants_of


def solved(wishes: Wishes) -> Solution:
    """What fits these wishes, from the tables alone; raises `UsageError` for a requirement that is none."""
    machine = machine_of(wishes)
    wants = wants_of(wishes, machine)
    verdicts = list(judged(machine, wants))
    ranked = sorted((one for one in verdicts if isinstance(one, Fit)), key=lambda fit: fit.rank)
    rejected = [one for one in verdicts if isinstance(one, Rejected)]
    at_odds = () if ranked else conflicts(wants)
    told = reasons(ranked, [] if at_odds else rejected, machine, wishes.torch)
    return Solution(
        wishes=wishes,
        ranked=tuple(map(_candidate, ranked)),
        heading=_heading(wants),
        reasons=(*(Reason(one.candidate, "rejected", one.because) for one in at_odds), *told),
        needs=tuple(_needs(ranked[0], machine)) if ranked else (),
        smallest=() if ranked else smallest(Case(machine, wants, wishes.distribution)),
        remarks=tuple(_remarks(wishes, machine, wants, ranked[0] if ranked else None)),
        sources=sources(),
        offers=offers(),
    )


def _candidate(fit: Fit) -> Candidate:
    build = fit.build
    row = build.row
    pins = {"CUDA": row.get("toolkit", build.cuda_words), "cuDNN": row.get("cudnn"), "NCCL": row.get("nccl")}
    return Candidate(
        torch=build.torch,
        build=build.name,
        cuda=build.cuda_words,
        packages=(Package("torch", build.torch, "torch"), *fit.packages),
        default=fit.default,
        libraries=tuple((name, version) for name, version in pins.items() if version),
    )


def _heading(wants: Wants) -> str:
    """What was judged: ``torch==2.9.* comes for CUDA 12.6, 12.8, 12.9 and 13.0``; of many releases only the ends."""
    taken = wants.builds
    asked = wants.torch.text or "torch"
    if not taken:
        return f"The tables have no CUDA build of {asked}"
    words = [f"{major}.{minor}" for major, minor in sorted({build.cuda for build in taken})]
    if len(words) > 4:
        return f"{len(taken)} builds of torch {taken[-1].torch} to {taken[0].torch}, for CUDA {words[0]} to {words[-1]}"
    return f"{asked} comes for CUDA {', '.join(words[:-1])}{' and ' if words[1:] else ''}{words[-1]}"


def _needs(best: Fit, machine: Machine) -> Iterator[Need]:
    """What the best asks, all of it met."""
    build = best.build
    own = machine.driver.written if machine.driver else ""
    if build.cuda[0]:
        bounds = [build.floor(machine.drivers_of), *(floor for one in machine.devices for floor in one.floors)]
        least = max(bounds, key=lambda bound: [int(part) for part in bound.split(".")])
        last = min((int(one) for device in machine.devices for one in device.ceilings), default=0)
        yield Need(
            "driver", say("{least} to {most}" if last else "{least} or newer", least=least, most=last), own, True
        )
        for one in machine.devices:
            yield Need("code", say("for {gpu}", gpu=named(one)), "", True)
    if machine.wheels:
        tags = sorted(numbers_of(tag) for tag in build.tags(machine.wheels) if not tag.endswith("t"))
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


def _before_cudnn_9(machine: Machine) -> bool:
    """Whether it has a GPU that cuDNN 9 dropped (cuDNN 9.0.0 release notes)."""
    return any(capability < (5, 0) for one in machine.devices for capability in one.capabilities)


def _remarks(wishes: Wishes, machine: Machine, wants: Wants, best: Fit | None) -> Iterator[str]:
    if machine.bare:
        yield say("No GPU and no driver is known here: these are builds without CUDA.")
    else:
        yield from assumed(wishes, machine)
    if best and best.build.row.get("cudnn", "0").split(".")[0] >= "9" and _before_cudnn_9(machine):
        yield "cuDNN 9 serves no GPU before compute capability 5.0: convolutions may need torch 2.3.1, with cuDNN 8."
    for want in wants.others:
        kept = f"{want.text} is kept as it is: the tables do not follow it, so whether it fits was not judged."
        yield f"{kept} Did you mean {near}?" if (near := _meant(want.name)) else kept


def _meant(name: str) -> str:
    """The package that is spelt almost so; an installer fetches whatever has the name that was typed."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, ("torch", *FOLLOWED), 1, 0.8)), "")


@lru_cache(maxsize=1)
def sources() -> tuple[str, ...]:
    """Where the facts are from."""
    about = {
        "torch": "wheels of torch: file names, METADATA, build scripts, code measured in them",
        "companions": "METADATA and release pages of the other packages",
        "drivers": "NVIDIA's release notes and driver tables",
        "gpus": "NVIDIA's lists of GPUs and of the drivers that serve them",
    }
    return tuple(f"{words} ({table(name)['checked']})" for name, words in about.items())


@lru_cache(maxsize=1)
def offers() -> Mapping[str, tuple[str, ...]]:
    """What one may ask for, by field of the wishes."""
    minors = dict.fromkeys("{}.{}".format(*build.version.release) for build in builds())
    pythons = sorted({numbers_of(tag) for build in builds() for tag in build.tags("linux")})
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


class Conflict(NamedTuple):
    """What is at odds, and how: ``torch==2.5 and vllm>=0.12``."""

    candidate: str
    because: str


def conflicts(wants: Wants) -> tuple[Conflict, ...]:
    """The smallest sets of wants that nothing in the tables meets, whatever the machine."""
    if _met(wants.torch, wants.beside):
        return ()
    every = ([wants.torch] if wants.torch.texts else []) + list(wants.beside)
    for several in (1, 2, 3):
        found = tuple(_named(subset) for subset in combinations(every, several) if not _meets(subset))
        if found:
            return found
    return (Conflict(" and ".join(want.text for want in every), "no releases of these go together"),)


def _meets(subset: tuple[Want, ...]) -> bool:
    torch = next((want for want in subset if want.name == "torch"), ANY_TORCH)
    return _met(torch, tuple(want for want in subset if want.name != "torch"))


def _met(torch: Want, beside: tuple[Want, ...]) -> bool:
    wants = Wants(torch, beside)
    return fits(_ANY_LINUX, wants) or fits(_ANY_WINDOWS, wants)


def _named(subset: tuple[Want, ...]) -> Conflict:
    name = " and ".join(want.text for want in subset)
    if len(subset) > 1:
        return Conflict(name, "; ".join(("exclude each other", *_belongs(subset))))
    want = subset[0]
    if not any(want.takes(version) for version in _versions(want)) and len(want.texts) > 1:
        return Conflict(name, "exclude each other")
    newest = _versions(want)[0]
    checked = table("torch" if want.name == "torch" else "companions")["checked"]
    return Conflict(name, f"the tables have no such release; the newest is {newest} (checked {checked})")


def _belongs(subset: tuple[Want, ...]) -> Iterator[str]:
    """For two of which one is torch: the torch that the other would need."""
    other = [want for want in subset if want.name != "torch"]
    if len(other) == len(subset) or len(other) != 1:
        return
    found = dict.fromkeys(fit.build.torch for fit in fitting(_ANY_LINUX, Wants(ANY_TORCH, tuple(other))))
    if found:
        some = ", ".join(list(found)[:3])
        yield f"{other[0].text} goes with torch {some}{' and others' if len(found) > 3 else ''}"


def _versions(want: Want) -> list[str]:
    """The versions of a package that the tables have, the newest first."""
    if want.name == "torch":
        return list(dict.fromkeys(build.torch for build in builds()))
    if want.name in ("torchvision", "torchaudio", "triton"):
        found = [build.release[want.name] for build in builds() if want.name in build.release]
        return list(dict.fromkeys(found))
    rows = table("companions")[want.name.replace("-", "_")]
    return sorted((row.get("version") or row["last"] for row in rows), key=Version, reverse=True)
