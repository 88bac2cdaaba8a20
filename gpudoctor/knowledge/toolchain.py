"""What each nvcc takes: host compilers, and the GPUs it can compile for."""

from __future__ import annotations

from functools import lru_cache

from gpudoctor.knowledge._tables import TableRow, dotted, lookup, release, table
from gpudoctor.knowledge.archs import Capability, capability, codes
from gpudoctor.model.values import NOTHING, CannotJudge


@lru_cache(maxsize=64)
def _targets(wanted: tuple[int, int]) -> frozenset[Capability]:
    return frozenset(one.capability for one in codes(_row(wanted)["targets"]))


def _row(wanted: tuple[int, int]) -> TableRow:
    """The row of that nvcc, or the newest of its major release where it is newer than the table."""
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
    """Whether that nvcc compiles for that compute capability itself; one that does not may still make PTX for it."""
    wanted, gpu = release(nvcc, "nvcc version"), capability(compute_capability)
    known = gpu in _targets(wanted)
    if not known and "newer" in _row(wanted):
        raise CannotJudge("nvcc", f"the table ends before nvcc {dotted(wanted)}")
    return known


@lookup
def nvcc_dropped(nvcc: object, compute_capability: object) -> bool:
    """Whether that nvcc no longer compiles for that compute capability, because it is too old."""
    wanted, gpu = release(nvcc, "nvcc version"), capability(compute_capability)
    return gpu not in _targets(wanted) and gpu < min(_targets(wanted))


@lookup
def cuda_serves(cuda: object, compute_capability: object) -> bool:
    """Whether any machine code that this CUDA can make runs on that GPU: the most that a build of it can hold.

    CUDA 11.7 serves 8.9 (sm_86 code runs there), CUDA 12.6 does not serve 12.0, CUDA 13.0 not 7.0.
    """
    gpu = capability(compute_capability)
    wanted = release(cuda, "CUDA version")
    serves = any(one.runs_on(gpu) for one in codes(_row(wanted)["targets"]))
    if not serves and "newer" in _row(wanted):
        raise CannotJudge("CUDA", f"the table ends before CUDA {dotted(wanted)}")
    return serves


@lookup
def nvcc_for(compute_capability: object) -> str:
    """The first CUDA toolkit whose nvcc compiles for that compute capability: ``12.8`` for 12.0."""
    gpu = capability(compute_capability)
    for row in table("compilers")["nvcc"]:
        if gpu in _targets(release(row["cuda"], "nvcc")):
            return str(row["cuda"])
    raise CannotJudge("nvcc", f"no nvcc of the table compiles for {dotted(gpu)}")


def _limit(nvcc: object, column: str) -> object:
    wanted = release(nvcc, "nvcc version")
    row = _row(wanted)
    if "newer" in row:
        raise CannotJudge("nvcc", f"the table ends before nvcc {dotted(wanted)}")
    return row.get(column, NOTHING)


@lookup
def gcc_max(nvcc: object) -> object:
    """The newest GCC major that this nvcc accepts: 13 for 12.4."""
    return _limit(nvcc, "gcc_max")


@lookup
def clang_max(nvcc: object) -> object:
    """The newest clang major that this nvcc accepts; absent where the table does not say."""
    return _limit(nvcc, "clang_max")
