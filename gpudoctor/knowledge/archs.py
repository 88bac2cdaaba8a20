"""Which compiled code runs on which GPU: binary compatibility inside a major architecture, and PTX beyond it.

Machine code of sm_XY runs on compute capability X.Z with Z >= Y. Systems on chip (5.3, 6.2, 7.2, 8.7) run only code of
their own. Code with the suffix ``a`` runs on exactly that capability, with ``f`` inside its family. PTX compute_XY
runs, compiled by the driver, on every capability from X.Y on, unless it carries a suffix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from gpudoctor.knowledge._tables import lookup, text
from gpudoctor.model.pattern import pattern
from gpudoctor.model.values import CannotJudge, Nothing

Capability = tuple[int, int]

_ARCH = pattern(r"(sm|compute|lto)_?(\d{2,3})([af]?)")
_DOTTED = pattern(r"(\d{1,2})\.(\d)([af]?)(\+ptx)?")
_JOINED = pattern(r"(?:sm_?|compute_?)?(\d{1,2})(\d)[af]?")
_ON_CHIP = frozenset({(5, 3), (6, 2), (7, 2), (8, 7)})
_RENAMED = {(10, 1): (11, 0)}
"""Thor was sm_101 in CUDA 12.8 and 12.9 and is sm_110 since 13.0."""


class Code(NamedTuple):
    """One architecture that something was compiled for."""

    capability: Capability
    ptx: bool
    suffix: str

    def runs_on(self, gpu: Capability) -> bool:
        """Whether a GPU of that compute capability runs it."""
        if self.suffix == "a":
            return self.capability == gpu
        if self.suffix == "f" or not self.ptx:
            inside = self.capability[0] == gpu[0] and self.capability <= gpu
            own = self.capability == gpu or not (_ON_CHIP & {self.capability, gpu})
            return inside and (own or self.ptx)
        return self.capability <= gpu


def capability(value: object) -> Capability:
    """The two numbers of a compute capability written ``8.6``, ``86`` or ``sm_86``; raises `CannotJudge`."""
    written = text(value, "compute capability").lower()
    match = _DOTTED.fullmatch(written) or _JOINED.fullmatch(written)
    if not match:
        raise CannotJudge("compute capability", f"{written[:40]!r} is none")
    numbers = int(match[1]), int(match[2])
    return _RENAMED.get(numbers, numbers)


@lru_cache(maxsize=256)
def code(arch: str) -> tuple[Code, ...]:
    """What an entry of an architecture list stands for: none where it is not NVIDIA's, two for ``8.6+PTX``."""
    written = arch.strip().lower()
    if match := _ARCH.fullmatch(written):
        return (Code(capability(match[2]), match[1] != "sm", match[3]),)
    if match := _DOTTED.fullmatch(written):
        machine = Code(capability(f"{match[1]}.{match[2]}"), False, match[3])
        return (machine, machine._replace(ptx=True)) if match[4] else (machine,)
    return ()


def codes(archs: object) -> list[Code]:
    """Every architecture in a list, or in a text such as ``sm_80 sm_90``; raises `CannotJudge` where one is unknown."""
    if isinstance(archs, str):
        archs = re.split(r"[\s,;]+", archs.strip())
    if not isinstance(archs, Iterable) or isinstance(archs, (bytes, Nothing)):
        raise CannotJudge("architectures", "not a list")
    names = [str(arch) for arch in archs if str(arch).strip()]
    if not names:
        raise CannotJudge("architectures", "the list is empty")
    found = [one for name in names for one in code(name)]
    unknown = [name for name in names if not code(name)]
    if unknown:
        raise CannotJudge("architectures", f"{unknown[0][:40]!r} is no NVIDIA architecture")
    return found


@lookup
def runs_on(archs: object, compute_capability: object) -> bool:
    """Whether code for these architectures runs on a GPU of that compute capability: sm_80 runs on 8.6."""
    gpu = capability(compute_capability)
    return any(one.runs_on(gpu) for one in codes(archs))


@lookup
def arch_too_new(archs: object, compute_capability: object) -> bool:
    """Whether the GPU cannot run any of these architectures and is newer than all of them."""
    gpu, built = capability(compute_capability), codes(archs)
    return gpu > max(one.capability for one in built) and not any(one.runs_on(gpu) for one in built)


@lookup
def arch_too_old(archs: object, compute_capability: object) -> bool:
    """Whether the GPU cannot run any of these architectures and is older than all of them."""
    gpu, built = capability(compute_capability), codes(archs)
    return gpu < min(one.capability for one in built) and not any(one.runs_on(gpu) for one in built)


@lookup
def needs_jit(archs: object, compute_capability: object) -> bool:
    """Whether the GPU runs these architectures only through PTX, which the driver compiles at the first start."""
    gpu, built = capability(compute_capability), codes(archs)
    return any(one.runs_on(gpu) for one in built) and not any(one.runs_on(gpu) for one in built if not one.ptx)
