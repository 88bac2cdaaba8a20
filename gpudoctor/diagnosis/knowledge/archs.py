"""Which compiled code runs on which GPU, and what each nvcc takes: GPUs it compiles for, host compilers.

Machine code of sm_XY runs on compute capability X.Z with Z >= Y. Systems on chip (5.3, 6.2, 7.2, 8.7) run only code of
their own. Code with the suffix ``a`` runs on exactly that capability, with ``f`` inside its family. PTX compute_XY
runs, compiled by the driver, on every capability from X.Y on, unless it carries a suffix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from gpudoctor.core.pattern import pattern
from gpudoctor.core.values import NOTHING, CannotJudge, Nothing
from gpudoctor.diagnosis.knowledge._tables import TableRow, dotted, lookup, release, table, text

Capability = tuple[int, int]

_ARCH = pattern(r"(sm|compute|lto)_?(\d{2,3})([af]?)")
_DOTTED = pattern(r"(\d{1,2})\.(\d)([af]?)(\+ptx)?")
_JOINED = pattern(r"(?:sm_?|compute_?)?(\d{1,2})(\d)[af]?")
_ON_CHIP = frozenset({(5, 3), (6, 2), (7, 2), (8, 7)})
_RENAMED = {(10, 1): (11, 0)}
"""Thor was sm_101 in CUDA 12.8 and 12.9 and is sm_110 since 13.0."""


class Code(NamedTuple):
    """One compiled architecture: compute capability, PTX or machine code, suffix (``a``, ``f`` or empty)."""

    capability: Capability
    ptx: bool
    suffix: str

    def runs_on(self, gpu: Capability) -> bool:
        """Whether a GPU of that compute capability runs it: PTX on it and all newer ones, machine code on it and newer
        ones of its major.

        With suffix ``a`` on exactly that one, with ``f`` also PTX inside the major only; systems on chip run only their
        own machine code.
        """
        if self.suffix == "a":
            return self.capability == gpu
        if self.suffix == "f" or not self.ptx:
            inside = self.capability[0] == gpu[0] and self.capability <= gpu
            own = self.capability == gpu or not (_ON_CHIP & {self.capability, gpu})
            return inside and (own or self.ptx)
        return self.capability <= gpu


def capability(value: object) -> Capability:
    """The two numbers of a compute capability written ``8.6``, ``86`` or ``sm_86``; raises `CannotJudge`.

    10.1 (Thor in CUDA 12) is given as 11.0, its present number.
    """
    written = text(value, "compute capability").lower()
    match = _DOTTED.fullmatch(written) or _JOINED.fullmatch(written)
    if not match:
        raise CannotJudge("compute capability", f"{written[:40]!r} is none")
    numbers = int(match[1]), int(match[2])
    return _RENAMED.get(numbers, numbers)


@lru_cache(maxsize=256)
def codes_of_entry(arch: str) -> tuple[Code, ...]:
    """The code of one entry of an architecture list (``sm_86``, ``compute_86``, ``8.6``): two for ``8.6+PTX``.

    Empty for what is none of NVIDIA's.
    """
    written = arch.strip().lower()
    if match := _ARCH.fullmatch(written):
        return (Code(capability(match[2]), match[1] != "sm", match[3]),)
    if match := _DOTTED.fullmatch(written):
        machine = Code(capability(f"{match[1]}.{match[2]}"), False, match[3])
        return (machine, machine._replace(ptx=True)) if match[4] else (machine,)
    return ()


def codes_of_list(archs: object) -> list[Code]:
    """The code of every architecture in a list or a text such as ``sm_80 sm_90``.

    Raises `CannotJudge` for an empty list or an unknown entry.
    """
    if isinstance(archs, str):
        archs = re.split(r"[\s,;]+", archs.strip())
    if not isinstance(archs, Iterable) or isinstance(archs, (bytes, Nothing)):
        raise CannotJudge("architectures", "not a list")
    names = [str(arch) for arch in archs if str(arch).strip()]
    if not names:
        raise CannotJudge("architectures", "the list is empty")
    found = [each for name in names for each in codes_of_entry(name)]
    unknown = [name for name in names if not codes_of_entry(name)]
    if unknown:
        raise CannotJudge("architectures", f"{unknown[0][:40]!r} is no NVIDIA architecture")
    return found


@lookup
def runs_on(archs: object, compute_capability: object) -> bool:
    """Whether code for these architectures runs on a GPU of that compute capability: sm_80 runs on 8.6."""
    gpu = capability(compute_capability)
    return any(arch.runs_on(gpu) for arch in codes_of_list(archs))


@lookup
def arch_too_new(archs: object, compute_capability: object) -> bool:
    """Whether the GPU cannot run any of these architectures and is newer than all of them."""
    gpu, built = capability(compute_capability), codes_of_list(archs)
    return gpu > max(code.capability for code in built) and not any(code.runs_on(gpu) for code in built)


@lookup
def arch_too_old(archs: object, compute_capability: object) -> bool:
    """Whether the GPU cannot run any of these architectures and is older than all of them."""
    gpu, built = capability(compute_capability), codes_of_list(archs)
    return gpu < min(code.capability for code in built) and not any(code.runs_on(gpu) for code in built)


@lookup
def needs_jit(archs: object, compute_capability: object) -> bool:
    """Whether the GPU runs these architectures only through PTX, which the driver compiles at the first start."""
    gpu, built = capability(compute_capability), codes_of_list(archs)
    return any(code.runs_on(gpu) for code in built) and not any(code.runs_on(gpu) for code in built if not code.ptx)


# ---- What each nvcc takes ----


@lru_cache(maxsize=64)
def _targets(wanted: tuple[int, int]) -> frozenset[Capability]:
    """Compute capabilities that the nvcc of that (major, minor) compiles for; cached.

    Of one newer than the table, but of its newest major, those of its newest row; raises `CannotJudge` for others that
    the table lacks.
    """
    return frozenset(code.capability for code in codes_of_list(_row_of_nvcc(wanted)["targets"]))


def _row_of_nvcc(wanted: tuple[int, int]) -> TableRow:
    """The row of that nvcc (major, minor); raises `CannotJudge` where the table has none.

    For one newer than all rows, but of the newest major, the newest row, with ``newer`` set to True.
    """
    rows = {release(row["cuda"], "nvcc"): row for row in table("compilers")["nvcc"]}
    newest = max(rows)
    if wanted in rows:
        found: TableRow = rows[wanted]
        return found
    if wanted[0] == newest[0] and wanted > newest:
        return {**rows[newest], "newer": True}
    raise CannotJudge("nvcc", f"the table has no nvcc {dotted(wanted)}")


@lookup
def nvcc_knows(nvcc: object, compute_capability: object) -> bool:
    """Whether that nvcc compiles for that compute capability itself; one that does not may still make PTX for it.

    Raises `CannotJudge` for an nvcc that the table lacks; for a newer one of its newest major only where the newest row
    would say no.
    """
    wanted, gpu = release(nvcc, "nvcc version"), capability(compute_capability)
    known = gpu in _targets(wanted)
    if not known and "newer" in _row_of_nvcc(wanted):
        raise CannotJudge("nvcc", f"the table ends before nvcc {dotted(wanted)}")
    return known


@lookup
def nvcc_dropped(nvcc: object, compute_capability: object) -> bool:
    """Whether that nvcc dropped this compute capability, older than all it compiles for.

    One newer than the table, but of its newest major, is judged by its newest row; raises `CannotJudge` for others that
    the table lacks.
    """
    wanted, gpu = release(nvcc, "nvcc version"), capability(compute_capability)
    return gpu not in _targets(wanted) and gpu < min(_targets(wanted))


@lookup
def cuda_serves(cuda: object, compute_capability: object) -> bool:
    """Whether any machine code that this CUDA can make runs on that GPU: the most that a build of it can hold.

    CUDA 11.7 serves 8.9 (sm_86 code runs there), CUDA 12.6 does not serve 12.0, CUDA 13.0 not 7.0. Raises `CannotJudge`
    for a CUDA that the table lacks; for a newer one of its newest major only where the newest row would say no.
    """
    gpu = capability(compute_capability)
    wanted = release(cuda, "CUDA version")
    serves = any(code.runs_on(gpu) for code in codes_of_list(_row_of_nvcc(wanted)["targets"]))
    if not serves and "newer" in _row_of_nvcc(wanted):
        raise CannotJudge("CUDA", f"the table ends before CUDA {dotted(wanted)}")
    return serves


@lookup
def nvcc_for(compute_capability: object) -> str:
    """The first CUDA toolkit whose nvcc compiles for that compute capability: ``12.8`` for 12.0; else `CannotJudge`."""
    gpu = capability(compute_capability)
    for row in table("compilers")["nvcc"]:
        if gpu in _targets(release(row["cuda"], "nvcc")):
            return str(row["cuda"])
    raise CannotJudge("nvcc", f"no nvcc of the table compiles for {dotted(gpu)}")


def _newest_compiler(nvcc: object, column: str) -> object:
    """A column (gcc_max, clang_max) of that nvcc's row, `NOTHING` without one; `CannotJudge` beyond the table."""
    wanted = release(nvcc, "nvcc version")
    row = _row_of_nvcc(wanted)
    if "newer" in row:
        raise CannotJudge("nvcc", f"the table ends before nvcc {dotted(wanted)}")
    return row.get(column, NOTHING)


@lookup
def gcc_max(nvcc: object) -> object:
    """The newest GCC major that this nvcc accepts: 13 for 12.4; raises `CannotJudge` beyond the table."""
    return _newest_compiler(nvcc, "gcc_max")


@lookup
def clang_max(nvcc: object) -> object:
    """The newest clang major that this nvcc accepts; absent where the table does not say, `CannotJudge` beyond it."""
    return _newest_compiler(nvcc, "clang_max")
