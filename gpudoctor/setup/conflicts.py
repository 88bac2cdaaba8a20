"""Wants that no machine could meet: which two exclude each other, or the one that the tables have nothing for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from packaging.version import Version

from gpudoctor.knowledge._tables import table
from gpudoctor.setup.builds import builds
from gpudoctor.setup.judging import fits, fitting
from gpudoctor.setup.machine import Machine
from gpudoctor.setup.wants import ANY_TORCH, Want, Wants

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
