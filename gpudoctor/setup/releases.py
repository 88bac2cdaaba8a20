"""The releases of each followed package that go with one build of torch on one machine, the newest first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from gpudoctor.knowledge import archs
from gpudoctor.knowledge._tables import TableRow, table
from gpudoctor.model.frozen import frozen
from gpudoctor.setup.builds import Build
from gpudoctor.setup.candidate import Package
from gpudoctor.setup.machine import Place
from gpudoctor.setup.specifiers import inside, version
from gpudoctor.setup.wants import Want

_FLASH_ATTN = "https://github.com/Dao-AILab/flash-attention/releases/download/v{0}/flash_attn-{0}+{1}-linux_{2}.whl"


@frozen
class Release:
    """One release that goes with the build. `pins` are the versions of others that it insists on."""

    package: Package
    pins: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=1 << 14)
def releases(want: Want, build: Build, place: Place) -> tuple[Release, ...]:
    """Those that the want takes too; a wheel counts before what must be compiled."""
    return tuple(_FOLLOWED[want.name](want, build, place))


def on_row(row: TableRow, want: Want, place: Place) -> bool:
    """Whether a table's row is of a version that is wanted, and has wheels for this Python, system and C library."""
    return (
        want.takes(row["version"])
        and takes_python(row.get("requires_python", ""), place)
        and _on_system(row, place)
        and _on_libc(row, place)
    )


def takes_python(requires: str, place: Place) -> bool:
    """Whether that ``requires_python`` takes the machine's Python; an unknown one counts as taken."""
    return not requires or not place.python or inside(requires, "{}.{}".format(*place.numbers))


def _on_system(row: TableRow, place: Place) -> bool:
    return place.wheels in row["machines"].split() if "machines" in row else True


def _on_libc(row: TableRow, place: Place) -> bool:
    if "glibc" not in row or place.glibc is None:
        return True
    return place.glibc != "musl" and place.glibc >= tuple(map(int, row["glibc"].split(".")))


def _with_torch(want: Want, build: Build, _place: Place) -> Iterator[Release]:
    """torchvision, torchaudio, triton: the one that belongs to the release of torch."""
    own = build.release.get(want.name)
    if own and (want.takes(own) or want.takes(f"{own}+{build.name}")):
        yield Release(Package(want.name, own, "torch"))


def _xformers(want: Want, build: Build, place: Place) -> Iterator[Release]:
    for row in newest_first("xformers"):
        fits = row["torch"] == build.torch if "torch" in row else inside(row["needs"], build.torch)
        wheel = build.name in row["builds"].split() if "builds" in row else build.cuda[0] == usual_cuda(build)
        if fits and wheel and on_row(row, want, place):
            on_pypi = place.wheels is not None and build.default(place.wheels)
            yield Release(Package("xformers", row["version"], "pypi" if on_pypi or "builds" not in row else "torch"))


def _vllm(want: Want, build: Build, place: Place) -> Iterator[Release]:
    for row in newest_first("vllm"):
        if row["torch"] == build.torch and build.cuda[0] == usual_cuda(build) and on_row(row, want, place):
            pins = tuple((name, row[name]) for name in ("torchvision", "torchaudio", "xformers") if name in row)
            yield Release(Package("vllm", row["version"]), pins)


def usual_cuda(build: Build) -> int:
    """The CUDA major of the build that the package index gives for Linux: what its other wheels are compiled for."""
    name = build.release["linux"]
    return int(name[2:-1]) if name.startswith("cu") else 0


def _flash_attn(want: Want, build: Build, place: Place) -> Iterator[Release]:
    minor = "{}.{}".format(*build.version.release)
    cxx11 = build.row.get("cxx11", build.release["cxx11"]) is True
    for row in newest_first("flash_attn"):
        wheel = minor in row["torch"].split() and int(row["wheel"][2:4]) == build.cuda[0]
        python = place.python or row["pythons"].split()[-1]
        has = python in row["pythons"].split() and str(cxx11).upper() in row["abis"].split()
        if wheel and has and _has_code(row, place) and on_row({"machines": "linux", **row}, want, place):
            name = f"{row['wheel']}torch{minor}cxx11abi{str(cxx11).upper()}-{python}-{python}"
            url = _FLASH_ATTN.format(row["version"], name, "aarch64" if place.wheels == "aarch64" else "x86_64")
            yield Release(Package("flash-attn", row["version"], "wheel", url))
    yield from _compiled(want, build, place)


def _has_code(row: TableRow, place: Place) -> bool:
    return all(archs.runs_on(row["archs"], f"{a}.{b}") for one in place.devices for a, b in one.capabilities)


def _compiled(want: Want, build: Build, place: Place) -> Iterator[Release]:
    """What nvcc can make of its source."""
    for row in table("companions")["source_builds"]:
        fits = inside(row["torch"], build.torch) and inside(row["cuda"], build.cuda_words)
        if row["name"] == want.name and fits and takes_python(row["requires_python"], place):
            yield from (
                Release(Package(want.name, one, compiled=True)) for one in row["versions"].split() if want.takes(one)
            )


def _bitsandbytes(want: Want, build: Build, place: Place) -> Iterator[Release]:
    for row in reversed(table("companions")["bitsandbytes"]):
        cudas = [one.rpartition(".")[0] for one in row["cuda"].split()]
        if build.cuda_words in cudas and inside(row["torch"], build.torch):
            named = [one for one in want.exact() if version(row["first"]) <= version(one) <= version(row["last"])]
            for one in sorted({row["first"], row["last"], *named}, key=version, reverse=True):
                if on_row({**row, "version": one}, want, place):
                    yield Release(Package("bitsandbytes", one))


def _tensorflow(want: Want, build: Build, place: Place) -> Iterator[Release]:
    last = version(support("tensorflow")["windows_last"]).release
    for row in newest_first("tensorflow"):
        native = place.wheels != "windows" or version(row["version"]).release[:2] <= last
        same = int(row["cuda"].partition(".")[0]) == build.cuda[0]
        taken = want.takes(row["version"]) and _in_ranges(row["python"], place)
        if native and same and taken and agrees(row.get("needs", {}), build):
            name = "tensorflow[and-cuda]" if "needs" in row and place.wheels != "windows" else "tensorflow"
            yield Release(Package(name, row["version"]))


def _in_ranges(written: str, place: Place) -> bool:
    """Whether the Python lies in ``2.7, 3.5-3.8``."""
    if not place.python:
        return True
    for part in written.split(", "):
        first, _, last = part.partition("-")
        ends = [tuple(map(int, one.split("."))) for one in (first, last or first)]
        if ends[0] <= place.numbers <= ends[1]:
            return True
    return False


def _jax(want: Want, build: Build, place: Place) -> Iterator[Release]:
    """The plugin of the build's CUDA major; ``jax[cuda12]`` asks for one of them."""
    asked = {int(major) for major in re.findall(r"\[cuda(\d+)", want.text)}
    if asked and asked != {build.cuda[0]}:
        return
    for row in newest_first("jax"):
        if row["cuda_major"] == build.cuda[0] and on_row(row, want, place) and agrees(row, build):
            yield Release(Package(f"jax[cuda{build.cuda[0]}]", row["version"]))


def agrees(needs: Mapping[str, Any], build: Build) -> bool:
    """Whether the versions of NVIDIA's wheels that a package asks for are those that this build of torch pins."""
    return all(inside(needs[name], have) for name, have in pinned(build).items() if name in needs)


def pinned(build: Build) -> dict[str, str]:
    """The cuDNN, NCCL and cuBLAS that the build pins, as far as the tables have them."""
    toolkit: TableRow = next((row for row in table("torch")["toolkit"] if row["cuda"] == build.row.get("toolkit")), {})
    found = {**{name: build.row.get(name) for name in ("cudnn", "nccl")}, "cublas": toolkit.get("cublas")}
    return {name: pin for name, pin in found.items() if pin}


@lru_cache(maxsize=16)
def newest_first(name: str) -> tuple[TableRow, ...]:
    """The rows of that package, by version."""
    return tuple(sorted(table("companions")[name], key=lambda row: version(row["version"]), reverse=True))


@lru_cache(maxsize=16)
def support(name: str) -> TableRow:
    """What the package asks of every machine; empty where the tables say nothing."""
    return next((row for row in table("companions")["support"] if row["name"] == name), {})


_FOLLOWED: Mapping[str, Callable[[Want, Build, Place], Iterator[Release]]] = {
    "torchvision": _with_torch,
    "torchaudio": _with_torch,
    "triton": _with_torch,
    "xformers": _xformers,
    "vllm": _vllm,
    "flash-attn": _flash_attn,
    "bitsandbytes": _bitsandbytes,
    "tensorflow": _tensorflow,
    "jax": _jax,
}
