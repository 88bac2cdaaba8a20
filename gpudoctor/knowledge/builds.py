"""torch releases, their CUDA builds, and what belongs beside them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from gpudoctor.knowledge._tables import TableRow, dotted, lookup, release, table, text, version
from gpudoctor.knowledge.archs import runs_on
from gpudoctor.knowledge.toolchain import cuda_serves
from gpudoctor.model.pattern import pattern
from gpudoctor.model.values import NOTHING, CannotJudge

_LOCAL = pattern(r"\+(?:(cu)(\d{2,3})|(rocm)([\d.]+)|(cpu|xpu))(?=$|[^0-9A-Za-z])")
_WITH_TORCH = ("torchvision", "torchaudio", "triton")
_PINNED = ("torchvision", "torchaudio")
_LISTS = ("archs", "windows", "aarch64")


class Flavor(NamedTuple):
    """What the local part of a torch version says: ``+cu124`` is cuda and 12.4."""

    name: str
    toolkit: str


def flavor_of(torch: str) -> Flavor | None:
    """The build in the version's local part; None where it says none."""
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
    """Rows of torch releases by version: ``2.4.0``. The earliest name no build for Arm."""
    early = ({**row, "aarch64": ""} for row in table("torch")["early"])
    return {row["version"]: row for row in (*early, *table("torch")["release"])}


@lru_cache(maxsize=1)
def _builds() -> Mapping[tuple[str, str], TableRow]:
    return {(row["torch"], row["build"]): row for row in table("torch")["build"]}


def rows() -> tuple[TableRow, ...]:
    """Every build of every release that the table has."""
    return tuple(_builds().values())


def base(torch: str) -> str | None:
    """The release that a torch version names: 2.4.0 of ``2.4.0+cu121`` and ``2.4``; None for nightlies, own builds."""
    written = torch.partition("+")[0].strip()
    return next((name for name in (written, f"{written}.0") if name in releases()), None)


def build(torch: str, cuda: str) -> TableRow | None:
    """The row of that release's build for that CUDA; None where the table has none."""
    numbers = version(cuda, "CUDA version").release
    wanted = base(torch)
    return _builds().get((wanted, f"cu{numbers[0]}{numbers[1] if len(numbers) > 1 else 0}")) if wanted else None


@lookup
def torch_default(torch: object, machine: object = "x86_64") -> str:
    """The build that a plain ``pip install torch==`` of that release gives on Linux: ``cu121`` for 2.4.0."""
    wanted = base(text(torch, "torch version"))
    if wanted is None:
        raise CannotJudge("torch build", f"the table has no torch {torch}")
    tag = str(releases()[wanted]["aarch64" if machine == "aarch64" else "linux"])
    if not tag:
        raise CannotJudge("torch build", f"torch {wanted} has no wheel for Arm")
    return tag


@lookup
def torch_archs(torch: object, cuda: object) -> object:
    """The architectures compiled into the Linux x86_64 wheel of that torch for that CUDA."""
    row = build(text(torch, "torch version"), text(cuda, "CUDA version"))
    if row is None or "archs" not in row:
        raise CannotJudge("torch architectures", f"the table has no torch {torch} for CUDA {cuda}")
    return tuple(row["archs"].split())


@lookup
def release_serves(torch: object, compute_capability: object) -> bool:
    """Whether any build of that torch release holds machine code for that GPU: none of 2.5.1 does for 12.0."""
    wanted = base(text(torch, "torch version"))
    if wanted is None:
        raise CannotJudge("torch builds", f"the table has no torch {str(torch)[:40]}")
    row = releases()[wanted]
    if "newest" in row:
        return cuda_serves(row["newest"], compute_capability)
    lists = [
        one[column] for one in table("torch")["build"] if one["torch"] == wanted for column in _LISTS if column in one
    ]
    if not lists:
        raise CannotJudge("torch builds", f"the table does not know what the builds of {wanted} hold")
    binary = (" ".join(code for code in archs.split() if code.startswith("sm_")) for archs in lists)
    return any(runs_on(archs, compute_capability) for archs in binary)


@lookup
def torch_for(companion: object, companion_version: object) -> object:
    """The torch that a release of another package belongs to: ``2.4.0`` for torchvision 0.19.0.

    It knows torchvision, torchaudio, triton, xformers and vllm. Absent where that release accepts more than one torch.
    """
    name, wanted = text(companion, "package").lower(), _public(companion_version)
    if name in _WITH_TORCH:
        rows = [row for row in releases().values() if row.get(name) == wanted]
        owners = [row["version"] if name not in row.get("loose", "") else "" for row in rows]
    elif name in ("xformers", "vllm"):
        owners = [row.get("torch", "") for row in table("companions")[name] if row["version"] == wanted]
    else:
        raise CannotJudge(f"torch for {name[:40]}", "the table does not follow this package")
    if not owners:
        raise CannotJudge(f"torch for {name} {wanted}", "the table has no such release")
    return owners[0] if len(owners) == 1 and owners[0] else NOTHING


@lookup
def companion_for(torch: object, companion: object) -> str:
    """The torchvision, torchaudio or triton that belongs to that torch: ``0.19.0`` for 2.4.0 and torchvision."""
    name, wanted = text(companion, "package").lower(), base(text(torch, "torch version"))
    row = releases().get(wanted or "", {})
    if name not in _WITH_TORCH or name not in row:
        raise CannotJudge(f"{name[:40]} for torch {str(torch)[:40]}", "the table has no such pair")
    return str(row[name])


@lru_cache(maxsize=1)
def _oldest() -> Mapping[tuple[str, tuple[int, int]], tuple[int, int]]:
    """The oldest torch x.y that a companion x.y goes with."""
    pairs = sorted(
        (
            (release(row["version"], "torch"), (name, release(row[name], name)))
            for row in releases().values()
            for name in _PINNED
            if name in row
        ),
        reverse=True,
    )
    return {companion: torch for torch, companion in pairs}


@lru_cache(maxsize=1)
def _minors() -> Mapping[tuple[str, tuple[int, int]], tuple[int, int]]:
    """Which torch x.y a companion x.y belongs to, for those of which every release pins its torch."""
    paired = [
        ((name, release(row[name], name)), release(row["version"], "torch"), name in row.get("loose", ""))
        for row in releases().values()
        for name in _PINNED
        if name in row
    ]
    loose = {companion for companion, _, takes_others in paired if takes_others}
    return {companion: torch for companion, torch, _ in paired if companion not in loose}


def misfit(name: str, companion: str, torch: str) -> str | None:
    """What is wrong with that torchvision or torchaudio beside that torch; None where they fit or nobody knows.

    They fit when they belong to the same torch x.y: the patch releases of one x.y take each other.
    """
    try:
        owner = _minors().get((name, release(companion, name)))
        oldest = _oldest().get((name, release(companion, name)))
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
    return _public(torch)


def _public(value: object) -> str:
    """The version without its local part: 0.19.0 of 0.19.0+cu121."""
    return text(value, "version").partition("+")[0]


@lookup
def bitsandbytes_has(bitsandbytes: object, cuda: object) -> bool:
    """Whether that bitsandbytes ships a native library for that CUDA."""
    wanted = version(bitsandbytes, "bitsandbytes version")
    for row in table("companions")["bitsandbytes"]:
        if version(row["first"], "first") <= wanted <= version(row["last"], "last"):
            return release(cuda, "CUDA version") in [release(one, "CUDA version") for one in row["cuda"].split()]
    raise CannotJudge("bitsandbytes", f"the table has no release {str(bitsandbytes)[:40]} ")


def default_cuda(torch: str, machine: str) -> str | None:
    """The CUDA of the release's default Linux wheel; None where that is a CPU build or the release is unknown."""
    wanted = base(torch)
    row = releases().get(wanted or "")
    if row is None:
        return None
    tag: str = row["aarch64" if machine == "aarch64" else "linux"]
    return dotted((int(tag[2:-1]), int(tag[-1]))) if tag.startswith("cu") else None
