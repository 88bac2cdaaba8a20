"""torch releases, their CUDA builds, what belongs beside them, and the nvidia wheels that they pin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from gpudoctor.core.fact import Row, text_of
from gpudoctor.core.pattern import pattern
from gpudoctor.core.values import NOTHING, CannotJudge
from gpudoctor.diagnosis.knowledge._tables import TableRow, dotted, lookup, release, table, text, version
from gpudoctor.diagnosis.knowledge.archs import cuda_serves, runs_on

_LOCAL = pattern(r"\+(?:(cu)(\d{2,3})|(rocm)([\d.]+)|(cpu|xpu))(?=$|[^0-9A-Za-z])")
WITH_TORCH = ("torchvision", "torchaudio", "triton")
"""Companions that stand on the row of the torch release that they belong to."""
_PINNED = ("torchvision", "torchaudio")
_LISTS = ("archs", "windows", "aarch64")


class Flavor(NamedTuple):
    """The build named by a torch version's local part: ``+cu124`` is cuda with toolkit 12.4."""

    name: str
    toolkit: str


def flavor_of(torch: str) -> Flavor | None:
    """The build in a version's local part (``+cu124``, ``+rocm6.2``, ``+cpu``, ``+xpu``); None without one of these."""
    match = _LOCAL.search(torch)
    if not match:
        return None
    if match[1]:
        return Flavor("cuda", f"{match[2][:-1]}.{match[2][-1]}")
    if match[3]:
        return Flavor("rocm", match[4].strip("."))
    return Flavor(match[5], "")


@lru_cache(maxsize=1)
def releases() -> Mapping[str, TableRow]:
    """Rows of all torch releases by version, the earliest with an empty ``aarch64`` (no build for Arm); cached."""
    early = ({**row, "aarch64": ""} for row in table("torch")["early"])
    return {row["version"]: row for row in (*early, *table("torch")["release"])}


@lru_cache(maxsize=1)
def _builds() -> Mapping[tuple[str, str], TableRow]:
    """Rows of torch builds by (release, build tag): ``("2.4.0", "cu121")``; cached."""
    return {(row["torch"], row["build"]): row for row in table("torch")["build"]}


def all_builds() -> tuple[TableRow, ...]:
    """Rows of every build of every release in the table."""
    return tuple(_builds().values())


def base(torch: str) -> str | None:
    """The release in the tables that a torch version names: 2.4.0 of ``2.4.0+cu121`` and ``2.4``; None for any other,
    such as nightlies and releases newer than the tables.
    """
    written = torch.partition("+")[0].strip()
    return next((name for name in (written, f"{written}.0") if name in releases()), None)


def build(torch: str, cuda: str) -> TableRow | None:
    """The row of that release's build for that CUDA; None where the table has none.

    Raises `CannotJudge` where `cuda` is no version.
    """
    numbers = version(cuda, "CUDA version").release
    wanted = base(torch)
    return _builds().get((wanted, f"cu{numbers[0]}{numbers[1] if len(numbers) > 1 else 0}")) if wanted else None


@lookup
def torch_default(torch: object, machine: object = "x86_64") -> str:
    """The tag of the build that a plain ``pip install torch==`` of that release gives on Linux: ``cu121`` for 2.4.0;
    ``cpu`` where that has no CUDA.

    Raises `CannotJudge` for a release that the table lacks, or, where `machine` is ``aarch64``, one without a wheel for
    it.
    """
    wanted = base(text(torch, "torch version"))
    if wanted is None:
        raise CannotJudge("torch build", f"the table has no torch {torch}")
    tag = str(releases()[wanted]["aarch64" if machine == "aarch64" else "linux"])
    if not tag:
        raise CannotJudge("torch build", f"torch {wanted} has no wheel for Arm")
    return tag


@lookup
def torch_archs(torch: object, cuda: object) -> object:
    """The architectures compiled into the Linux x86_64 wheel of that torch for that CUDA: ``("sm_80", "sm_90")``.

    Raises `CannotJudge` where the table has none.
    """
    row = build(text(torch, "torch version"), text(cuda, "CUDA version"))
    if row is None or "archs" not in row:
        raise CannotJudge("torch architectures", f"the table has no torch {torch} for CUDA {cuda}")
    return tuple(row["archs"].split())


@lookup
def release_serves(torch: object, compute_capability: object) -> bool:
    """Whether any build of that torch release holds machine code for that GPU: none of 2.5.1 does for 12.0.

    Raises `CannotJudge` where the table lacks the release, or what its builds hold.
    """
    wanted = base(text(torch, "torch version"))
    if wanted is None:
        raise CannotJudge("torch builds", f"the table has no torch {str(torch)[:40]}")
    row = releases()[wanted]
    if "newest" in row:
        return cuda_serves(row["newest"], compute_capability)
    if (serves := _builds_serve("torch", wanted, compute_capability)) is None:
        raise CannotJudge("torch builds", f"the table does not know what the builds of {wanted} hold")
    return serves


@lookup
def cuda_build_serves(cuda: object, compute_capability: object) -> bool:
    """Whether the build for that CUDA of any torch release holds machine code for that GPU: none of 12.8 for 6.0.

    Raises `CannotJudge` where the table has no such build.
    """
    wanted = ".".join(map(str, release(cuda, "CUDA version")))
    if (serves := _builds_serve("cuda", wanted, compute_capability)) is None:
        raise CannotJudge("torch builds", f"the table has no build for CUDA {wanted}")
    return serves


def _builds_serve(column: str, wanted: str, compute_capability: object) -> bool | None:
    """Whether a build with that value in the column holds machine code for the GPU; None where no list is known."""
    builds = [row for row in table("torch")["build"] if row[column] == wanted]
    lists = [row[archs] for row in builds for archs in _LISTS if archs in row]
    binary = (" ".join(code for code in archs.split() if code.startswith("sm_")) for archs in lists)
    return any(runs_on(archs, compute_capability) for archs in binary) if lists else None


@lookup
def torch_for(companion: object, companion_version: object) -> object:
    """The torch that a release of another package belongs to: ``2.4.0`` for torchvision 0.19.0.

    Of torchvision, torchaudio, triton, xformers and vllm. Absent where that release accepts more than one torch; raises
    `CannotJudge` for another package or a release that the tables do not list.
    """
    name, wanted = text(companion, "package").lower(), torch_release(companion_version)
    if name in WITH_TORCH:
        rows = [row for row in releases().values() if row.get(name) == wanted]
        owners = [row["version"] if name not in row.get("loose", "").split() else "" for row in rows]
    elif name in ("xformers", "vllm"):
        owners = [row.get("torch", "") for row in table("companions")[name] if row["version"] == wanted]
    else:
        raise CannotJudge(f"torch for {name[:40]}", "the table does not follow this package")
    if not owners:
        raise CannotJudge(f"torch for {name} {wanted}", "the table has no such release")
    return owners[0] if len(owners) == 1 and owners[0] else NOTHING


@lookup
def companion_for(torch: object, companion: object) -> str:
    """The torchvision, torchaudio or triton that belongs to that torch: ``0.19.0`` for 2.4.0 and torchvision.

    Raises `CannotJudge` for another package or a torch that the table lacks.
    """
    name, wanted = text(companion, "package").lower(), base(text(torch, "torch version"))
    row = releases().get(wanted or "", {})
    if name not in WITH_TORCH or name not in row:
        raise CannotJudge(f"{name[:40]} for torch {str(torch)[:40]}", "the table has no such pair")
    return str(row[name])


_Minor = tuple[int, int]
_Companion = tuple[str, _Minor]


@lru_cache(maxsize=1)
def _torch_pairs() -> tuple[tuple[_Minor, _Companion, bool], ...]:
    """(torch x.y, (companion, its x.y), whether the companion takes other torches) of each release; newest first."""
    pairs = (
        (release(row["version"], "torch"), (name, release(row[name], name)), name in row.get("loose", "").split())
        for row in releases().values()
        for name in _PINNED
        if name in row
    )
    return tuple(sorted(pairs, reverse=True))


@lru_cache(maxsize=1)
def _oldest_torch() -> Mapping[_Companion, _Minor]:
    """By (companion, its x.y), the oldest torch x.y with which one of its releases goes."""
    return {companion: torch for torch, companion, _ in _torch_pairs()}


@lru_cache(maxsize=1)
def _owning_torch() -> Mapping[_Companion, _Minor]:
    """By (companion, its x.y), the torch x.y it belongs to; only companions whose every release pins its torch."""
    loose = {companion for _, companion, takes_others in _torch_pairs() if takes_others}
    return {companion: torch for companion, torch in _oldest_torch().items() if companion not in loose}


def misfit(name: str, companion: str, torch: str) -> str | None:
    """Why that torchvision or torchaudio does not fit that torch, in words; None where they fit or it is unknown.

    They fit when they belong to the same torch x.y (a release that takes other torches: to this or an older one), and
    their builds (cpu, cuda and its major) do not differ.
    """
    try:
        owner = _owning_torch().get((name, release(companion, name)))
        oldest = _oldest_torch().get((name, release(companion, name)))
        own = release(torch, "torch version")
    except CannotJudge:
        return None
    if owner and owner != own:
        return f"{name} {companion} is for torch {dotted(owner)}"
    if not owner and oldest and own < oldest:
        return f"{name} {companion} is for torch {dotted(oldest)} or newer"
    ours, theirs = flavor_of(companion), flavor_of(torch)
    if ours and theirs and ours.name != theirs.name:
        return f"{name} {companion} is a {ours.name} build, torch {torch} a {theirs.name} build"
    if ours and theirs and ours.toolkit.partition(".")[0] != theirs.toolkit.partition(".")[0]:
        return f"{name} {companion} is for CUDA {ours.toolkit}, torch {torch} for CUDA {theirs.toolkit}"
    return None


@lookup
def torch_release(torch: object) -> str:
    """The version without its local part: ``2.4.0`` of 2.4.0+cu121 (which compares as newer than 2.4.0)."""
    return text(torch, "version").partition("+")[0]


@lookup
def bitsandbytes_has(bitsandbytes: object, cuda: object) -> bool:
    """Whether that bitsandbytes ships a native library for that CUDA; raises `CannotJudge` for a release unknown."""
    wanted = version(bitsandbytes, "bitsandbytes version")
    for row in table("companions")["bitsandbytes"]:
        if version(row["first"], "first") <= wanted <= version(row["last"], "last"):
            return release(cuda, "CUDA version") in [release(listed, "CUDA version") for listed in row["cuda"].split()]
    raise CannotJudge("bitsandbytes", f"the table has no release {str(bitsandbytes)[:40]} ")


def default_cuda(torch: str, machine: str) -> str | None:
    """The CUDA of the release's default Linux wheel; None where that is a CPU build, or the release or its wheel for
    Arm (`machine` ``aarch64``) is not in the table.
    """
    wanted = base(torch)
    row = releases().get(wanted or "")
    if row is None:
        return None
    tag: str = row["aarch64" if machine == "aarch64" else "linux"]
    return dotted((int(tag[2:-1]), int(tag[-1]))) if tag.startswith("cu") else None


# ---- A package list, and its nvidia wheels against those that a torch release pins ----

_PINNED_WHEELS = {"nvidia-cudnn-cu": "cudnn", "nvidia-nccl-cu": "nccl"}


def packages_of(rows: Iterable[Row]) -> Iterator[tuple[str, str]]:
    """Name and version of each row of ``package`` that has both."""
    for row in rows:
        name, version = text_of(row.get("name")), text_of(row.get("version"))
        if name and version:
            yield name, version


def unmet_pins(torch: str, cuda: str, packages: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """(wheel, version pinned, version listed) of each listed cuDNN and NCCL wheel of that CUDA that differs.

    Nothing for a torch that the table lacks.
    """
    row = build(torch, cuda)
    if row is None:
        return
    major = cuda.partition(".")[0]
    for name, listed in packages:
        column = next((column for stem, column in _PINNED_WHEELS.items() if name == stem + major), None)
        wanted = row.get(column) if column else None
        if wanted and listed[:1].isdigit() and not listed.startswith(wanted):
            yield name, wanted, listed
