"""What goes beside one build of torch: every package that is wanted at a version that fits it and the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from gpudoctor.core.frozen import frozen
from gpudoctor.core.language import and_list, say
from gpudoctor.diagnosis.knowledge import archs
from gpudoctor.diagnosis.knowledge._tables import TableRow, table
from gpudoctor.fixes.solver.builds import Build
from gpudoctor.fixes.solver.machine import Machine, Place, version
from gpudoctor.fixes.solver.requirements import Want, Wants, inside
from gpudoctor.fixes.solver.solution import Package

_FLASH_ATTN = "https://github.com/Dao-AILab/flash-attention/releases/download/v{0}/flash_attn-{0}+{1}-linux_{2}.whl"


@frozen
class Release:
    """One release of a package that fits the build. `pins` are exact versions it requires of other packages."""

    package: Package
    pins: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=1 << 14)
def releases(want: Want, build: Build, place: Place) -> tuple[Release, ...]:
    """Releases of the wanted package that fit build, machine and request, newest first; wheels before source builds."""
    return tuple(_RELEASES_OF[want.name](want, build, place))


def row_fits(row: TableRow, want: Want, place: Place) -> bool:
    """True if the row's version is wanted and it has wheels for this Python, system and C library."""
    return (
        want.takes(row["version"])
        and takes_python(row.get("requires_python", ""), place)
        and (place.wheels in row["machines"].split() if "machines" in row else True)
        and _fits_libc(row, place)
    )


def takes_python(requires: str, place: Place) -> bool:
    """True if ``requires_python`` admits the machine's Python; True if either is not known."""
    return not requires or not place.python or inside(requires, "{}.{}".format(*place.numbers))


def _fits_libc(row: TableRow, place: Place) -> bool:
    """True if the machine's glibc is new enough for the row, or either is not known; False for musl if the row names a
    glibc.
    """
    if "glibc" not in row or place.glibc is None:
        return True
    return place.glibc != "musl" and place.glibc >= tuple(map(int, row["glibc"].split(".")))


def _torch_family_releases(want: Want, build: Build, _place: Place) -> Iterator[Release]:
    """The torchvision, torchaudio or triton that belongs to the torch release, if it is wanted; else nothing."""
    own = build.release.get(want.name)
    if own and (want.takes(own) or want.takes(f"{own}+{build.name}")):
        yield Release(Package(want.name, own, "torch"))


def _xformers_releases(want: Want, build: Build, place: Place) -> Iterator[Release]:
    """xformers releases for this torch and CUDA, newest first, from torch's index or PyPI."""
    for row in newest_first("xformers"):
        fits = row["torch"] == build.torch if "torch" in row else inside(row["needs"], build.torch)
        wheel = build.name in row["builds"].split() if "builds" in row else build.cuda[0] == default_cuda_major(build)
        if fits and wheel and row_fits(row, want, place):
            on_pypi = place.wheels is not None and build.default(place.wheels)
            yield Release(Package("xformers", row["version"], "pypi" if on_pypi or "builds" not in row else "torch"))


def _vllm_releases(want: Want, build: Build, place: Place) -> Iterator[Release]:
    """vllm releases for this torch and CUDA, newest first, each with the packages it pins."""
    for row in newest_first("vllm"):
        if row["torch"] == build.torch and build.cuda[0] == default_cuda_major(build) and row_fits(row, want, place):
            pins = tuple((name, row[name]) for name in ("torchvision", "torchaudio", "xformers") if name in row)
            yield Release(Package("vllm", row["version"]), pins)


def default_cuda_major(build: Build) -> int:
    """CUDA major of the build that PyPI serves for Linux; 0 if that is a CPU build."""
    name = build.release["linux"]
    return int(name[2:-1]) if name.startswith("cu") else 0


def _flash_attn_releases(want: Want, build: Build, place: Place) -> Iterator[Release]:
    """flash-attn releases for this torch, CUDA and Python: wheels of the project's release page, then source builds."""
    minor = "{}.{}".format(*build.version.release)
    cxx11 = build.row.get("cxx11", build.release["cxx11"]) is True
    for row in newest_first("flash_attn"):
        wheel = minor in row["torch"].split() and int(row["wheel"][2:4]) == build.cuda[0]
        python = place.python or row["pythons"].split()[-1]
        has = python in row["pythons"].split() and str(cxx11).upper() in row["abis"].split()
        gpus = (f"{major}.{minor}" for device in place.devices for major, minor in device.capabilities)
        served = wheel and has and all(archs.runs_on(row["archs"], gpu) for gpu in gpus)
        if served and row_fits({"machines": "linux", **row}, want, place):
            name = f"{row['wheel']}torch{minor}cxx11abi{str(cxx11).upper()}-{python}-{python}"
            url = _FLASH_ATTN.format(row["version"], name, "aarch64" if place.wheels == "aarch64" else "x86_64")
            yield Release(Package("flash-attn", row["version"], "wheel", url))
    yield from _source_releases(want, build, place)


def _source_releases(want: Want, build: Build, place: Place) -> Iterator[Release]:
    """Releases of the wanted package that can be compiled with nvcc for this torch and CUDA."""
    for row in table("companions")["source_builds"]:
        fits = inside(row["torch"], build.torch) and inside(row["cuda"], build.cuda_words)
        if row["name"] == want.name and fits and takes_python(row["requires_python"], place):
            yield from (
                Release(Package(want.name, version, compiled=True))
                for version in row["versions"].split()
                if want.takes(version)
            )


def _bitsandbytes_releases(want: Want, build: Build, place: Place) -> Iterator[Release]:
    """bitsandbytes releases for this torch and CUDA: both ends of each range, and versions asked for by name."""
    for row in reversed(table("companions")["bitsandbytes"]):
        cudas = [release.rpartition(".")[0] for release in row["cuda"].split()]
        if build.cuda_words in cudas and inside(row["torch"], build.torch):
            named = [
                release for release in want.exact() if version(row["first"]) <= version(release) <= version(row["last"])
            ]
            for release in sorted({row["first"], row["last"], *named}, key=version, reverse=True):
                if row_fits({**row, "version": release}, want, place):
                    yield Release(Package("bitsandbytes", release))


def _tensorflow_releases(want: Want, build: Build, place: Place) -> Iterator[Release]:
    """tensorflow releases for this CUDA and Python whose NVIDIA wheels agree with torch's."""
    last = version(support("tensorflow")["windows_last"]).release
    for row in newest_first("tensorflow"):
        native = place.wheels != "windows" or version(row["version"]).release[:2] <= last
        same = int(row["cuda"].partition(".")[0]) == build.cuda[0]
        taken = want.takes(row["version"]) and _python_in_ranges(row["python"], place)
        if native and same and taken and nvidia_pins_agree(row.get("needs", {}), build):
            name = "tensorflow[and-cuda]" if "needs" in row and place.wheels != "windows" else "tensorflow"
            yield Release(Package(name, row["version"]))


def _python_in_ranges(written: str, place: Place) -> bool:
    """True if the Python lies in ranges such as ``2.7, 3.5-3.8``, or is not known."""
    if not place.python:
        return True
    for part in written.split(", "):
        first, _, last = part.partition("-")
        ends = [tuple(map(int, end.split("."))) for end in (first, last or first)]
        if ends[0] <= place.numbers <= ends[1]:
            return True
    return False


def _jax_releases(want: Want, build: Build, place: Place) -> Iterator[Release]:
    """jax releases with the plugin of the build's CUDA major; none if ``jax[cudaN]`` asks for another."""
    asked = {int(major) for major in re.findall(r"\[cuda(\d+)", want.text)}
    if asked and asked != {build.cuda[0]}:
        return
    for row in newest_first("jax"):
        if row["cuda_major"] == build.cuda[0] and row_fits(row, want, place) and nvidia_pins_agree(row, build):
            yield Release(Package(f"jax[cuda{build.cuda[0]}]", row["version"]))


def nvidia_pins_agree(needs: Mapping[str, Any], build: Build) -> bool:
    """True if the cuDNN, NCCL and cuBLAS that a package needs include the versions that the build pins."""
    return all(inside(needs[name], have) for name, have in pinned(build).items() if name in needs)


def pinned(build: Build) -> dict[str, str]:
    """Versions of cuDNN, NCCL and cuBLAS that the build pins, as far as known."""
    toolkit: TableRow = next((row for row in table("torch")["toolkit"] if row["cuda"] == build.row.get("toolkit")), {})
    found = {**{name: build.row.get(name) for name in ("cudnn", "nccl")}, "cublas": toolkit.get("cublas")}
    return {name: pin for name, pin in found.items() if pin}


@lru_cache(maxsize=16)
def newest_first(name: str) -> tuple[TableRow, ...]:
    """Table rows of a package, sorted by version, newest first."""
    return tuple(sorted(table("companions")[name], key=lambda row: version(row["version"]), reverse=True))


@lru_cache(maxsize=16)
def support(name: str) -> TableRow:
    """The table's row of what the package needs of the machine; empty if it has none."""
    return next((row for row in table("companions")["support"] if row["name"] == name), {})


_RELEASES_OF: Mapping[str, Callable[[Want, Build, Place], Iterator[Release]]] = {
    "torchvision": _torch_family_releases,
    "torchaudio": _torch_family_releases,
    "triton": _torch_family_releases,
    "xformers": _xformers_releases,
    "vllm": _vllm_releases,
    "flash-attn": _flash_attn_releases,
    "bitsandbytes": _bitsandbytes_releases,
    "tensorflow": _tensorflow_releases,
    "jax": _jax_releases,
}


# ---- One release of each, all of which go together ----


@frozen
class Refused:
    """A wanted package that cannot be provided, and why."""

    want: Want
    because: str


def beside(wants: Wants, build: Build, machine: Machine) -> tuple[Package, ...] | Refused:
    """Packages to install with the build: the newest releases that go together, and wants not in the tables as asked;
    or `Refused`, the first want that cannot be met.
    """
    found: list[tuple[Want, tuple[Release, ...]]] = []
    place = machine.place
    for want in wants.beside:
        if because := unsupported(want.name, build.cuda[0], place):
            return Refused(want, because)
        if not (fitting := releases(want, build, place)):
            return Refused(want, none_fits(want, build, place))
        found.append((want, fitting))
    chosen = _compatible_choice(found, {})
    if chosen is None:
        names = and_list(want.text for want, _ in found)
        why = say("no releases of {names} go together beside torch {torch}", names=names, torch=build.torch)
        return Refused(found[0][0], why)
    others = (Package(want.name, "", asked=want.text) for want in wants.others)
    return (*chosen, *others)


def _compatible_choice(
    options: list[tuple[Want, tuple[Release, ...]]], pins: dict[str, str]
) -> tuple[Package, ...] | None:
    """One release of each package, newest first, such that none violates another's pins; None if there is no such."""
    if not options:
        return ()
    (want, fitting), *rest = options
    for release in fitting:
        if pins.get(want.name, release.package.version) != release.package.version:
            continue
        if (others := _compatible_choice(rest, {**pins, **dict(release.pins)})) is not None:
            return (release.package, *others)
    return None


@lru_cache(maxsize=1 << 12)
def unsupported(name: str, cuda: int, place: Place) -> str:
    """Why a package does not serve the system, GPUs or free-threaded Python; ``""`` if it may. `cuda`: CUDA major."""
    asks = support(name)
    if "systems" in asks and place.wheels not in asks["systems"].split():
        names = {"windows": "Windows", "aarch64": "Arm", "linux": "Linux"}
        system = names.get(place.wheels or "", "") or say("this system")
        return say("{name} has no GPU wheel for {system}", name=name, system=system)
    least = asks.get(f"cc_{cuda}", asks.get("cc", "0.0"))
    floor = tuple(map(int, least.split(".")))
    if older := [
        device.name for device in place.devices if any(capability < floor for capability in device.capabilities)
    ]:
        needs = "{name} needs compute capability {least} or newer: {gpus}"
        return say(needs, name=name, least=least, gpus=", ".join(older))
    if place.python.endswith("t") and not asks.get("free_threaded", True):
        return say("{name} has no wheel for Python without the global lock ({python})", name=name, python=place.python)
    return ""


def none_fits(want: Want, build: Build, place: Place) -> str:
    """Sentence saying why no release of the package fits the build."""
    if want.name in ("torchvision", "torchaudio", "triton"):
        own = build.release.get(want.name)
        sentence = "goes with {name} {own}, not {asked}" if own else "goes with no {name} of the tables"
        return say(sentence, name=want.name, own=own, asked=want.text)
    python = say(" and Python {version}", version="{}.{}".format(*place.numbers)) if place.python else ""
    if want.name in ("tensorflow", "jax"):
        sentence = "no {asked} goes with CUDA {cuda}, its cuDNN and NCCL{python}"
        return say(sentence, asked=want.text, cuda=build.cuda[0], python=python)
    return say("no {asked} of the tables goes with it{python}", asked=want.text, python=python)
