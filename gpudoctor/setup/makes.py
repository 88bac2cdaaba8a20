"""What an environment's facts are once a candidate is installed: what a plan's steps make true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from gpudoctor.knowledge import builds
from gpudoctor.model.fact import Json
from gpudoctor.setup.candidate import Candidate
from gpudoctor.setup.environment import Environment

Makes = tuple[tuple[str, Json], ...]
_NONE_LEFT = ("torch.companions_unmet", "torch.companions_broken", "torch.pins_unmet", "torch.few_archs")
_COLUMNS = {"windows": "windows", "aarch64": "aarch64"}


def installed(candidate: Candidate, environment: Environment, machine: str = "x86_64") -> Makes:
    """Facts of torch by name; `machine` is ``x86_64``, ``aarch64`` or ``windows``, whose wheels hold other code.

    conda-forge's builds are its own: of which release the newest is there nobody knows before.
    """
    return tuple(_installed(candidate, environment, machine))


def _installed(candidate: Candidate, environment: Environment, machine: str) -> Iterator[tuple[str, Json]]:
    if environment.tool != "conda":
        yield "torch.version", f"{candidate.torch}+{candidate.build}"
    yield "torch.flavor", "cuda" if candidate.cuda else "cpu"
    yield "torch.cuda", candidate.cuda or {"absent": "a CPU build"}
    yield "torch.hip", {"absent": "no ROCm build"}
    if archs := _archs(candidate, machine):
        yield "torch.archs", cast(Json, archs)
    yield from ((name, []) for name in _NONE_LEFT)
    if environment.new:
        yield "python.path", environment.target
        yield "python.environment", "venv"
        yield "python.externally_managed", False


def _archs(candidate: Candidate, machine: str) -> list[str]:
    row = builds.build(candidate.torch, candidate.cuda) if candidate.cuda else None
    column = _COLUMNS.get(machine, "archs")
    return str((row or {}).get(column) or (row or {}).get("archs", "")).split()
