"""Which torch other packages ask for by their own versions: a pinned torchvision, xformers or vllm decides it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from packaging.version import Version

from gpudoctor.knowledge import builds
from gpudoctor.knowledge._tables import TableRow, table
from gpudoctor.knowledge.manifests.pip_takes import Place, fits, parsed, pinned, spec_of
from gpudoctor.model.values import CannotJudge, Nothing

BESIDE = ("torchvision", "torchaudio")
OWNED = ("xformers", "vllm")
"""Each release of these is for one release of torch."""
_STRICT = (*BESIDE, *OWNED)
_BRING = """
    accelerate peft lightning pytorch-lightning bitsandbytes timm sentence-transformers torchmetrics ultralytics
    openai-whisper fastai trl torchvision torchaudio xformers vllm
"""
BRING = frozenset(_BRING.split())
"""Packages that depend on torch (their METADATA, 2026-11): it comes with them, whether a line names it or not."""


def torch_of(name: str, spec: str) -> str:
    """The one torch that goes with that package at that version; empty where it leaves a choice or nobody knows."""
    version = pinned(spec).partition("+")[0]
    if name not in _STRICT or not version:
        return ""
    try:
        owner = builds.torch_for(name, version)
    except CannotJudge:
        between = between_torches(name, version)
        return between[0].torch if len(between) == 2 and between[0].torch == between[1].torch else ""
    return "" if isinstance(owner, Nothing) else str(owner)


class Neighbour(NamedTuple):
    """A release that the table has, and the torch that it is for."""

    version: str
    torch: str


def between_torches(name: str, version: str) -> tuple[Neighbour, ...]:
    """The releases before and after one that the table lacks, of a package each release of which is for one torch.

    Two, and the torch of that release stands between theirs, or one where it is older or newer than all.
    """
    wanted = parsed(version)
    rows = table("companions").get(name, ()) if name in OWNED else ()
    told = {row["version"]: str(row["torch"]) for row in rows if "torch" in row}
    if wanted is None or version in {row["version"] for row in rows}:
        return ()
    before = [one for one in told if Version(one) < wanted]
    after = [one for one in told if Version(one) > wanted]
    near = (max(before, key=Version, default=""), min(after, key=Version, default=""))
    return tuple(Neighbour(one, told[one]) for one in near if one)


def torches(name: str, spec: str) -> str:
    """The torches that a release which the table lacks may be for, as a specifier: ``>=2.7.0,<=2.8.0``."""
    version = pinned(spec).partition("+")[0]
    near = between_torches(name, version) if version else ()
    return f">={near[0].torch},<={near[1].torch}" if len(near) == 2 else ""


def newest_beside(name: str, spec: str, torch: str, place: Place) -> str:
    """The newest release of an owned package that the line takes and that is for that torch; empty where none is."""
    for row in reversed(table("companions")[name]):
        if row.get("torch") == builds.base(torch) and spec_of(spec).contains(row["version"]) and _takes(row, place):
            return str(row["version"])
    return ""


def newest_owner(spec: str, torches_asked: Sequence[str], place: Place) -> Neighbour | None:
    """The newest vllm that the line takes whose torch meets what else is asked of torch: pip takes this pair."""
    asked = [spec_of(one) for one in torches_asked]
    for row in reversed(table("companions")["vllm"]):
        fits_torch = all(one.contains(row["torch"]) for one in asked)
        if fits_torch and spec_of(spec).contains(row["version"]) and _takes(row, place):
            return Neighbour(str(row["version"]), str(row["torch"]))
    return None


def _takes(row: TableRow, place: Place) -> bool:
    return spec_of(row.get("requires_python", "")).contains(place.python or place.usual)


def misfits(torch: str, others: Sequence[tuple[str, str]]) -> Iterator[str]:
    """What of `others` (name, specifier) cannot be installed beside that torch, in words."""
    for name, spec in others:
        version = pinned(spec)
        if not version:
            continue
        if name in BESIDE:
            if wrong := builds.misfit(name, version, torch):
                yield wrong
        elif (owner := torch_of(name, spec)) and builds.base(torch) and owner != builds.base(torch):
            yield f"{name} {version} is for torch {owner}"
        elif (span := torches(name, spec)) and (release := builds.base(torch)) and not spec_of(span).contains(release):
            before, after = between_torches(name, version.partition("+")[0])
            yield (
                f"{name} {version} stands between {before.version} for torch {before.torch}"
                f" and {after.version} for torch {after.torch}"
            )


def taken(name: str, spec: str, torch: str, place: Place) -> str:
    """The torchvision or torchaudio that pip takes beside that torch; empty where nobody knows."""
    if version := pinned(spec):
        return version
    local = torch.partition("+")[2]
    row = builds.releases().get(builds.base(torch) or "", {})
    version = row.get(name, "")
    if not version or not spec_of(spec).contains(version) or not fits(row, place):
        return ""
    return f"{version}+{local}" if local else version
