"""Which build of torch conda takes: as its lines name it, for what they leave open is decided on the machine.

conda-forge's torch is a CUDA build where the machine that installs has a driver (the virtual package __cuda), and a CPU
build elsewhere. The channel pytorch had its last release with 2.5.1; pytorch-cuda names its CUDA.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from packaging.version import Version

from gpudoctor.knowledge import builds
from gpudoctor.knowledge._tables import table
from gpudoctor.knowledge.manifests.pip_takes import Place, fits, pinned, spec_of

_LAST_OF_CHANNEL = "2.5.1"
_CUDA_OF = ("pytorch-cuda", "cuda-version", "cudatoolkit")
_BUILD = re.compile(r"cuda_?(\d{2})\.?(\d)")


class Conda(NamedTuple):
    """Release, flavor (cuda, cpu) and CUDA; each empty where the lines do not settle it. `why` says what does."""

    torch: str
    flavor: str
    cuda: str
    why: str


def conda_torch(spec: str, build: str, channels: Sequence[str], beside: Mapping[str, str], place: Place) -> Conda:
    """What the line for torch and those `beside` it (name, specifier) settle."""
    named = [(name, cuda) for name in _CUDA_OF if (cuda := _release(beside.get(name, "")))]
    flavor, cuda, why = "", "", ""
    if "cpu" in build or "cpuonly" in beside:
        flavor, why = "cpu", f"build {build}" if "cpu" in build else "cpuonly"
    elif "cuda" in build or named:
        flavor, why = "cuda", f"build {build}" if "cuda" in build else f"{named[0][0]} {named[0][1]}"
        told = _BUILD.search(build)
        cuda = f"{told[1]}.{told[2]}" if told else named[0][1] if named else ""
    return Conda(_torch(spec, cuda, channels, place), flavor, cuda, why)


def _release(spec: str) -> str:
    """12.4 of ``==12.4.*``."""
    match = re.fullmatch(r"===?(\d+\.\d+)(?:\.[\d*.]+)?", spec)
    return match[1] if match else ""


def _torch(spec: str, cuda: str, channels: Sequence[str], place: Place) -> str:
    """The release; where the line leaves a choice, that of the channel pytorch, whose releases are all known."""
    if version := pinned(spec):
        return version
    if not channels or channels[0] not in ("pytorch", "pytorch-lts") or not cuda or not place.python:
        return ""
    tag = f"cu{cuda.replace('.', '')}"
    held = {row["torch"] for row in table("torch")["build"] if row["build"] == tag}
    found = [
        version
        for version, row in builds.releases().items()
        if version in held and fits(row, place) and spec_of(spec).contains(version)
    ]
    return max((one for one in found if Version(one) <= Version(_LAST_OF_CHANNEL)), key=Version, default="")
