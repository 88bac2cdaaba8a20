"""Whether torchvision, torchaudio and torchtext belong to the installed torch, by their own METADATA and version.py."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpudoctor.model.fact import Known, Unread
from gpudoctor.model.version import parse
from gpudoctor.probes._libraries.native import Native
from gpudoctor.probes._python.dists import Dist
from gpudoctor.probes._python.requires import meets, requirements, wanted_text
from gpudoctor.probes._python.torch_files import Torch, assignments
from gpudoctor.target import Target

_COMPANIONS = ("torchvision", "torchaudio", "torchtext")


def unmet(target: Target, torch: Torch) -> Iterator[str]:
    """One sentence for each that was built for another torch or another CUDA. Raises `OSError`."""
    for name in _COMPANIONS:
        dist = torch.environment.first(name)
        if dist:
            yield from _other_torch(target, torch, dist)
            yield from _other_cuda(target, torch, dist)


def broken(target: Target, torch: Torch) -> Iterator[str]:
    """One sentence for each whose compiled part wants what this torch does not define. Raises `OSError`."""
    for name in _COMPANIONS:
        dist = torch.environment.first(name)
        found = Native(target, torch, dist).missing_symbols() if dist else None
        if isinstance(found, Unread):
            raise OSError(f"{name}: {found.why}")
        if isinstance(found, Known) and isinstance(found.value, tuple) and found.value:
            yield f"{name} ({found.source}) wants {found.value[0]}"


def cuda_tag(local: str) -> str | None:
    """``12.4`` of a local version ``cu124`` or ``cu12.4``, ``cpu`` of ``cpu``, None of anything else."""
    if local == "cpu":
        return "cpu"
    match = re.fullmatch(r"cu(\d{1,2})\.?(\d)", local)
    return f"{match[1]}.{match[2]}" if match else None


def _other_torch(target: Target, torch: Torch, dist: Dist) -> Iterator[str]:
    for need in requirements(target, torch.site, dist, lambda name: name == "torch"):
        if parse(torch.version) and not meets(torch.version, need):
            yield f"{dist.name} {dist.version} is for torch {wanted_text(need)}"


def _other_cuda(target: Target, torch: Torch, dist: Dist) -> Iterator[str]:
    """torchvision refuses another CUDA major, torchaudio before 2.9 also another minor; the rest has no CUDA code."""
    tag = cuda_tag(_local(target, dist))
    built = torch.said.get("cuda", "")
    if tag is None or dist.name == "torchtext" or not torch.said or "hip" in torch.said or "xpu" in torch.said:
        return
    if dist.name == "torchaudio" and not (built and tag != "cpu"):
        return  # its Python code serves any torch
    if tag == "cpu":
        if built:
            yield f"{dist.name} {dist.version} is a CPU build, torch is built with CUDA {built}"
    elif not built:
        yield f"{dist.name} {dist.version} is for CUDA {tag}, torch is a CPU build"
    else:
        version = parse(dist.version)
        strict = dist.name == "torchaudio" and version is not None and version.release < (2, 9)
        if tag != built if strict else tag.split(".")[0] != built.split(".")[0]:
            yield f"{dist.name} {dist.version} is for CUDA {tag}, torch is built with CUDA {built}"


def _local(target: Target, dist: Dist) -> str:
    """The local part of its version, from its dist-info or else from its own version.py: ``cu121``."""
    if "+" in dist.version:
        return dist.version.partition("+")[2]
    try:
        said = assignments(target.read(f"{dist.folder}/{dist.name}/version.py", 1 << 14))
    except OSError:
        return ""
    return said.get("__version__", "").partition("+")[2]
