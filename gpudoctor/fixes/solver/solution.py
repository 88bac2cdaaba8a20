"""What the solver answers: the torch stacks that fit a machine, why those, and what is true once one is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, cast

from gpudoctor.core.fact import Json
from gpudoctor.core.frozen import field, frozen
from gpudoctor.core.stack import Need, Reason, Remedy, Wishes
from gpudoctor.diagnosis.knowledge import builds
from gpudoctor.fixes.solver.environment import Environment

Origin = Literal["torch", "pypi", "wheel"]
"""Where a package comes from: torch's index of that CUDA build, the Python package index, or one wheel by its URL."""


@frozen
class Package:
    """One pinned package and where it comes from; `url` is set for a single wheel.
    `asked` is the requirement as given, for packages not in the tables; `version` is then ``""``. `compiled`: it must
    be built with nvcc of the stack's CUDA major.
    """

    name: str
    version: str
    origin: Origin = "pypi"
    url: str = ""
    asked: str = ""
    compiled: bool = False

    @property
    def requirement(self) -> str:
        """Requirement, as it was asked or without torch's local version: ``torchvision==0.29.1``."""
        return self.asked or f"{self.name}=={self.version}"


@frozen
class Candidate:
    """One build of one torch release with the packages beside it; torch is the first of `packages`.
    `cuda` is ``12.6``, or ``""`` for a CPU build. `default`: PyPI itself serves this build. `libraries` are versions of
    CUDA, cuDNN and NCCL.
    """

    torch: str
    build: str
    cuda: str
    packages: tuple[Package, ...]
    default: bool = False
    libraries: tuple[tuple[str, str], ...] = ()

    @property
    def compiled(self) -> bool:
        """True if any of the packages must be compiled with nvcc."""
        return any(package.compiled for package in self.packages)


@frozen
class Solution:
    """The answer to wishes. `ranked` is every stack that fits, the best first; where it is empty, `smallest` says
    what would have to change, the cheapest first.

    `reasons` are those that a person wants: the choice, its nearest alternatives, and what was rejected before it.
    `needs` are what the best asks of the machine, `remarks` what was assumed or left unjudged, `sources` where the
    facts are from. `offers` has for fields of the wishes the values that one may ask for.
    """

    wishes: Wishes
    ranked: tuple[Candidate, ...] = ()
    heading: str = ""
    """What the reasons are about: ``torch 2.9 comes for CUDA 12.6, 12.8 and 13.0``."""
    reasons: tuple[Reason, ...] = ()
    needs: tuple[Need, ...] = ()
    smallest: tuple[Remedy, ...] = ()
    remarks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    offers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def best(self) -> Candidate | None:
        """The best stack that fits; None if nothing fits."""
        return self.ranked[0] if self.ranked else None


# ---- What an environment's facts are once a candidate is installed ----
# What a plan's steps make true.

_NONE_LEFT = ("torch.companions_unmet", "torch.companions_broken", "torch.pins_unmet", "torch.few_archs")


def facts_once_installed(candidate: Candidate, environment: Environment, wishes: Wishes) -> Iterator[tuple[str, Json]]:
    """(fact name, value) of what is true once the candidate is installed in the environment; a value that is not there
    is ``{"absent": reason}``. With conda torch's version is left out, since conda-forge's newest build is not known in
    advance. Of the wishes only system and architecture count, for torch.archs.
    """
    if environment.tool != "conda":
        yield "torch.version", f"{candidate.torch}+{candidate.build}"
    yield "torch.flavor", "cuda" if candidate.cuda else "cpu"
    yield "torch.cuda", candidate.cuda or {"absent": "a CPU build"}
    yield "torch.hip", {"absent": "no ROCm build"}
    if archs := _compiled_archs(candidate, "windows" if wishes.os == "windows" else wishes.arch):
        yield "torch.archs", cast(Json, archs)
    yield from ((name, []) for name in _NONE_LEFT)
    if environment.new:
        yield "python.path", environment.target
        yield "python.environment", "venv"
        yield "python.externally_managed", False


def _compiled_archs(candidate: Candidate, machine: str) -> list[str]:
    """Architectures compiled into the wheel (``sm_90``, ``compute_90``) by the tables; empty for a CPU build, or if not
    known.

    `machine` is ``x86_64``, ``aarch64`` or ``windows``; the last two, where no list of their own is known, get that of
    x86_64, for Windows without PTX.
    """
    row = builds.build(candidate.torch, candidate.cuda) if candidate.cuda else None
    own = (row or {}).get(machine) if machine in ("windows", "aarch64") else ""
    listed = str(own or (row or {}).get("archs", "")).split()
    return [code for code in listed if own or machine != "windows" or not code.startswith("compute_")]
