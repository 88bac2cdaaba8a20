"""What a container image brings, by its name: torch, CUDA, Python and the C library."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudoctor.knowledge._tables import table

_REFERENCE = re.compile(r"(?:docker\.io/)?(?:library/)?([a-z0-9][\w./:-]*?)(?::([\w][\w.+-]*))?(?:@sha256:[0-9a-f]+)?")
_PYTORCH = re.compile(r"(\d+\.\d+(?:\.\d+)?)-cuda(\d+\.\d+)")
_CUDA = re.compile(r"(\d+\.\d+)(?:\.\d+)?-(?:cudnn\d*-)?(base|runtime|devel)?")
_NGC = re.compile(r"(\d\d\.\d\d)-py3")


_LIFTED = {"12": "470", "13": "535"}
"""The oldest driver branch that the compatibility libraries of each CUDA lift, on data-center GPUs."""


class Image(NamedTuple):
    """Empty where the name does not tell. `python` is the distribution's own where `own_python` is false."""

    torch: str = ""
    cuda: str = ""
    python: str = ""
    own_python: bool = False
    glibc: str = ""
    for_gpus: bool = False
    requires: str = ""
    """What NVIDIA_REQUIRE_CUDA is in it."""
    compat: bool = False
    """Whether it brings the compatibility libraries of its CUDA."""


def image_of(reference: str) -> Image:
    """What the image of that name brings; nothing for a name that says nothing, or holds a variable."""
    match = _REFERENCE.fullmatch(reference.strip())
    if not match:
        return Image()
    name, tag = match[1], match[2] or ""
    found = _of_distribution(tag, name)._replace(for_gpus=_for_gpus(name, tag))
    if name == "pytorch/pytorch" and (torch := _PYTORCH.match(tag)):
        return found._replace(torch=f"{torch[1]}+cu{torch[2].replace('.', '')}", cuda=torch[2], python="", glibc="")
    if name in ("nvidia/cuda", "nvcr.io/nvidia/cuda") and (cuda := _CUDA.match(tag)):
        return found._replace(cuda=cuda[1], requires=_requires(cuda[1]), compat=True)
    if name == "nvcr.io/nvidia/pytorch" and (release := _NGC.match(tag)):
        row = next((row for row in table("images")["ngc"] if row["release"] == release[1]), None)
        if row:
            brought = {"torch": row["torch"], "cuda": row["cuda"], "python": row["python"]}
            return found._replace(**brought, own_python=True, compat=True)
    if name == "python" and (python := re.match(r"3\.\d+", tag)):
        return found._replace(python=python[0], own_python=True)
    return found


def _of_distribution(tag: str, name: str) -> Image:
    """The Python and the C library of the distribution that name or tag end in."""
    words = tag.split("-")
    for row in table("images")["distribution"]:
        names = row["tags"].split()
        own = name.rpartition("/")[2] == row["image"] and tag == row["release"]
        if own or any(word in names for word in words):
            return Image(python=row["python"], glibc=row["glibc"])
    return Image()


def _for_gpus(name: str, tag: str) -> bool:
    rows = table("images")["made_for_gpus"]
    return any(name.startswith(row["image"]) and row.get("tag", "") in tag for row in rows)


def _requires(cuda: str) -> str:
    """What NVIDIA's images ask for: their CUDA, or an older driver of a data-center GPU (forward compatibility)."""
    older = _LIFTED.get(cuda.partition(".")[0])
    return f"cuda>={cuda}" + (f" brand=tesla,driver>={older}" if older else "")
