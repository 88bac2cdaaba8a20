"""The tables as they are written, and the few words in which the oracle reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from packaging.specifiers import SpecifierSet

from gpudoctor.diagnosis.pages import home, toml

Row = Mapping[str, Any]
Numbers = tuple[int, ...]
TORCH, BESIDE, DRIVERS, GPUS, COMPILERS = (
    toml(home() / "tables" / f"{name}.toml") for name in ("torch", "companions", "drivers", "gpus", "compilers")
)
RELEASES: dict[str, Row] = {row["version"]: row for row in TORCH["release"]}
ON_CHIP = {(5, 3), (6, 2), (7, 2), (8, 7)}


class Place(NamedTuple):
    """The wheels, the Python, the C library and the GPUs of a machine."""

    column: str
    python: str
    libc: str
    capabilities: tuple[Numbers, ...]


@cache
def numbers(text: str) -> Numbers:
    """(12, 8) of ``12.8``."""
    return tuple(int(part) for part in text.split("."))


BUILDS: list[Row] = sorted(TORCH["build"], key=lambda row: (numbers(row["torch"]), numbers(row["cuda"])), reverse=True)


@cache
def inside(specifier: str, version: str) -> bool:
    """Whether the version is one of those."""
    return SpecifierSet(specifier).contains(version, prereleases=True)


@cache
def tag(python: str) -> str:
    """``cp313t`` of ``3.13t``."""
    bare = python.rstrip("t").split(".")
    return f"cp{bare[0]}{bare[1]}{'t' if python.endswith('t') else ''}" if python else ""


@cache
def minor_of(python: str) -> Numbers:
    """(3, 12) of ``3.12.4``."""
    return numbers(".".join(python.rstrip("t").split(".")[:2]))


@cache
def how(codes: str, capability: Numbers) -> str:
    """``sm`` where machine code in the list runs on the GPU, ``compute`` where only PTX would; else empty."""
    best = ""
    for code in codes.split():
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)", code)
        assert match
        made = int(match[2]), int(match[3])
        same_chip = made == capability or not {made, capability} & ON_CHIP
        if match[1] == "sm" and made[0] == capability[0] and made <= capability and same_chip:
            return "sm"
        if match[1] == "compute" and made <= capability:
            best = "compute"
    return best
