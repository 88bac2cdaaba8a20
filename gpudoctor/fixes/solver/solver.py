"""Which torch stack fits a machine: every build of every release against its GPUs, driver, Python and C library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from packaging.version import Version

from gpudoctor.core.language import say
from gpudoctor.core.stack import Need, Reason, Wishes
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.fixes.solver.builds import builds
from gpudoctor.fixes.solver.changes import Case, smallest
from gpudoctor.fixes.solver.driver import branches
from gpudoctor.fixes.solver.judging import Fit, Rejected, fits, fitting, glibc_of, judge_builds
from gpudoctor.fixes.solver.machine import Machine, assumption_notes, machine_of, python_numbers_of
from gpudoctor.fixes.solver.reasons import device_phrase, reasons
from gpudoctor.fixes.solver.solution import Candidate, Package, Solution
from gpudoctor.fixes.solver.wants import ANY_TORCH, FOLLOWED, Want, Wants, wants_of


def solve(wishes: Wishes) -> Solution:
    """Solution for the wishes from the tables alone; an invalid requirement raises `UsageError`."""
    machine = machine_of(wishes)
    wants = wants_of(wishes, machine)
    verdicts = list(judge_builds(machine, wants))
    ranked = sorted((verdict for verdict in verdicts if isinstance(verdict, Fit)), key=lambda fit: fit.rank)
    rejected = [verdict for verdict in verdicts if isinstance(verdict, Rejected)]
    at_odds = () if ranked else conflicts(wants)
    explained = reasons(ranked, [] if at_odds else rejected, machine, wishes.torch)
    return Solution(
        wishes=wishes,
        ranked=tuple(map(_candidate, ranked)),
        heading=_heading(wants),
        reasons=(*(Reason(verdict.candidate, "rejected", verdict.because) for verdict in at_odds), *explained),
        needs=tuple(_needs(ranked[0], machine)) if ranked else (),
        smallest=() if ranked else smallest(Case(machine, wants, wishes.distribution)),
        remarks=tuple(_remarks(wishes, machine, wants, ranked[0] if ranked else None)),
        sources=sources(),
        offers=available_choices(),
    )


def _candidate(fit: Fit) -> Candidate:
    """Candidate of a Fit: torch with the packages beside it, and its pinned CUDA, cuDNN and NCCL."""
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
    """Sentence on which builds were considered: ``torch==2.9.* comes for CUDA 12.6, 12.8, 12.9 and 13.0``."""
    taken = wants.builds
    asked = wants.torch.text or "torch"
    if not taken:
        return f"The tables have no CUDA build of {asked}"
    words = [f"{major}.{minor}" for major, minor in sorted({build.cuda for build in taken})]
    if len(words) > 4:
        return f"{len(taken)} builds of torch {taken[-1].torch} to {taken[0].torch}, for CUDA {words[0]} to {words[-1]}"
    return f"{asked} comes for CUDA {', '.join(words[:-1])}{' and ' if words[1:] else ''}{words[-1]}"


def _needs(best: Fit, machine: Machine) -> Iterator[Need]:
    """The best build's requirements on the machine, all of them met."""
    build = best.build
    own = machine.driver.written if machine.driver else ""
    if build.cuda[0]:
        bounds = [build.floor(machine.drivers_of), *(floor for gpu in machine.devices for floor in gpu.floors)]
        least = max(bounds, key=lambda bound: [int(part) for part in bound.split(".")])
        last = min((int(gpu) for device in machine.devices for gpu in device.ceilings), default=0)
        yield Need(
            "driver", say("{least} to {most}" if last else "{least} or newer", least=least, most=last), own, True
        )
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


def _has_gpu_before_cudnn_9(machine: Machine) -> bool:
    """True if a GPU is below compute capability 5.0, which cuDNN 9 dropped (its 9.0.0 release notes)."""
    return any(capability < (5, 0) for device in machine.devices for capability in device.capabilities)


def _remarks(wishes: Wishes, machine: Machine, wants: Wants, best: Fit | None) -> Iterator[str]:
    """Sentences on what was assumed or not judged."""
    if machine.bare:
        yield say("No GPU and no driver is known here: these are builds without CUDA.")
    else:
        yield from assumption_notes(wishes, machine)
    if best and best.build.row.get("cudnn", "0").split(".")[0] >= "9" and _has_gpu_before_cudnn_9(machine):
        yield "cuDNN 9 serves no GPU before compute capability 5.0: convolutions may need torch 2.3.1, with cuDNN 8."
    for want in wants.others:
        kept = f"{want.text} is kept as it is: the tables do not follow it, so whether it fits was not judged."
        yield f"{kept} Did you mean {near}?" if (near := _similar_name(want.name)) else kept


def _similar_name(name: str) -> str:
    """Known package with a similar name, for a hint about a typing error; ``""`` if there is none."""
    return next(iter(get_close_matches(name, ("torch", *FOLLOWED), 1, 0.8)), "")


@lru_cache(maxsize=1)
def sources() -> tuple[str, ...]:
    """Where the tables' facts come from, each with the date checked."""
    about = {
        "torch": "wheels of torch: file names, METADATA, build scripts, code measured in them",
        "companions": "METADATA and release pages of the other packages",
        "drivers": "NVIDIA's release notes and driver tables",
        "gpus": "NVIDIA's lists of GPUs and of the drivers that serve them",
    }
    return tuple(f"{words} ({table(name)['checked']})" for name, words in about.items())


@lru_cache(maxsize=1)
def available_choices() -> Mapping[str, tuple[str, ...]]:
    """Values that can be asked for, by field of the wishes."""
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


class Conflict(NamedTuple):
    """Wants that exclude each other (``torch==2.5 and vllm>=0.12``), and why."""

    candidate: str
    because: str


def conflicts(wants: Wants) -> tuple[Conflict, ...]:
    """Smallest sets of wants that no machine could meet; empty if all can be met together."""
    if _is_met(wants.torch, wants.beside):
        return ()
    every = ([wants.torch] if wants.torch.texts else []) + list(wants.beside)
    for several in (1, 2, 3):
        found = tuple(_conflict(subset) for subset in combinations(every, several) if not _can_be_met(subset))
        if found:
            return found
    return (Conflict(" and ".join(want.text for want in every), "no releases of these go together"),)


def _can_be_met(subset: tuple[Want, ...]) -> bool:
    """True if these wants can be met together on any machine."""
    torch = next((want for want in subset if want.name == "torch"), ANY_TORCH)
    return _is_met(torch, tuple(want for want in subset if want.name != "torch"))


def _is_met(torch: Want, beside: tuple[Want, ...]) -> bool:
    """True if some build fits on an otherwise unlimited Linux or Windows machine."""
    wants = Wants(torch, beside)
    return fits(_ANY_LINUX, wants) or fits(_ANY_WINDOWS, wants)


def _conflict(subset: tuple[Want, ...]) -> Conflict:
    """Conflict of a set of wants, with its explanation."""
    name = " and ".join(want.text for want in subset)
    if len(subset) > 1:
        return Conflict(name, "; ".join(("exclude each other", *_matching_torch(subset))))
    want = subset[0]
    if not any(want.takes(version) for version in _versions(want)) and len(want.texts) > 1:
        return Conflict(name, "exclude each other")
    newest = _versions(want)[0]
    checked = table("torch" if want.name == "torch" else "companions")["checked"]
    return Conflict(name, f"the tables have no such release; the newest is {newest} (checked {checked})")


def _matching_torch(subset: tuple[Want, ...]) -> Iterator[str]:
    """For torch and one other want: a sentence naming the torch releases that the other goes with."""
    other = [want for want in subset if want.name != "torch"]
    if len(other) == len(subset) or len(other) != 1:
        return
    found = dict.fromkeys(fit.build.torch for fit in fitting(_ANY_LINUX, Wants(ANY_TORCH, tuple(other))))
    if found:
        some = ", ".join(list(found)[:3])
        yield f"{other[0].text} goes with torch {some}{' and others' if len(found) > 3 else ''}"


def _versions(want: Want) -> list[str]:
    """Versions of a package in the tables, newest first."""
    if want.name == "torch":
        return list(dict.fromkeys(build.torch for build in builds()))
    if want.name in ("torchvision", "torchaudio", "triton"):
        found = [build.release[want.name] for build in builds() if want.name in build.release]
        return list(dict.fromkeys(found))
    rows = table("companions")[want.name.replace("-", "_")]
    return sorted((row.get("version") or row["last"] for row in rows), key=Version, reverse=True)
