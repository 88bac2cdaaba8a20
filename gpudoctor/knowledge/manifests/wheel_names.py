"""For which Python and platform a wheel is, by its name (packaging.python.org, binary distribution format)."""

from __future__ import annotations

import re

from gpudoctor.knowledge.manifests.pip_takes import Place

_TAGS = re.compile(r"[^/\\]*?-(?P<python>cp3\d+)-(?P<abi>\w+)-(?P<platform>[\w.]+)\.whl")
_SYSTEMS = {"linux": ("linux", "manylinux"), "windows": ("win",), "macos": ("macosx",)}
_MACHINES = {"x86_64": ("x86_64", "amd64"), "aarch64": ("aarch64", "arm64")}


def misplaced(url: str, place: Place) -> str:
    """Why pip refuses that wheel there; empty where it takes it, or nobody can say."""
    file = re.split(r"[#?]", url, maxsplit=1)[0].replace("\\", "/").rpartition("/")[2]
    match = _TAGS.fullmatch(file)
    if not match:
        return ""
    python = f"3.{match['python'][3:]}"
    there = ".".join(place.python.split(".")[:2])
    if there and there != python and match["abi"] != "abi3":
        return f"the wheel that the line names is for Python {python}, and there is {there}"
    platform = match["platform"]
    if place.platform and not platform.startswith(_SYSTEMS.get(place.platform, ("",))):
        return f"the wheel that the line names is for {platform}, and there is {place.platform}"
    if place.machine in _MACHINES and not platform.endswith(_MACHINES[place.machine]):
        return f"the wheel that the line names is for {platform}, and there is {place.machine}"
    return ""
