"""What conda is asked for: ``pytorch=2.5.1``, ``conda-forge::pytorch=*=*cuda*``, ``pytorch >=2.4,<3``.

Conda's match specifications: docs.conda.io, Package match specifications (read 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpudoctor.readers.files._asked import Asked, normal

_SPEC = re.compile(r"(?:([\w./:-]{1,100})::)?([A-Za-z_][\w.-]{0,80})\s*(?:\[[^\]]{0,200}\])?\s*([<>=!~ ].{0,100}|)$")
_PYTORCH = {"pytorch": "torch", "pytorch-gpu": "torch", "pytorch-cpu": "torch", "libtorch": "libtorch"}


def asked(text: str, channels: Sequence[str]) -> Asked | None:
    """The package that a line of ``dependencies`` or a word of ``conda install`` names; none for what is no such."""
    match = _SPEC.fullmatch(text.strip().strip("\"'"))
    if not match:
        return None
    channel, name, rest = match.groups()
    rest = rest.strip()
    build = ""
    if parts := re.fullmatch(r"=?\s*([^=<>!~,\s]+)\s*[= ]\s*([^=<>!~,\s]+)", rest):
        rest, build = (f"={parts[1]}" if parts[1] else ""), parts[2]
    return package(name, rest, build, [channel, *channels] if channel else channels)


def package(name: str, version: str, build: str, channels: Sequence[str]) -> Asked:
    """It with conda's version written as pip writes it: =2.5 takes every 2.5."""
    kind = build or {"pytorch-gpu": "*cuda*", "pytorch-cpu": "*cpu*"}.get(name, "")
    first, *more = [*channels, ""]
    plain = _PYTORCH.get(name, normal(name))
    return Asked(plain, _pip(version), build=kind, index=first, more=tuple(filter(None, more)), installer="conda")


def _pip(version: str) -> str:
    version = version.replace(" ", "")
    if version in ("", "*", "=*"):
        return ""
    if re.fullmatch(r"={0,2}\d[\w.]*\*?", version):
        number = version.lstrip("=").rstrip("*").rstrip(".")
        return (
            f"=={number}"
            if version.startswith("==") or (number.count(".") > 1 and "*" not in version)
            else f"=={number}.*"
        )
    return version
