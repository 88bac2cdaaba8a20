"""How far the tables reach: what of a snapshot is newer than every row, and which tables are older than they may be.

Rows are right as of their table's `checked` date, and good for twelve months from then. What came out later is judged
by rule (binary compatibility, minor-version compatibility, the nearest row). That is said, and never part of a verdict.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from gpudoctor.knowledge._filling import known
from gpudoctor.knowledge._tables import table
from gpudoctor.knowledge.archs import capability
from gpudoctor.model import version as versions
from gpudoctor.model.fact import Known
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.values import CannotJudge

GOOD_FOR = "12 months"
_WINDOWS_SPAN = 4
"""Windows drivers of one branch bear its number and the next few: 572 is of branch 570."""

_SERIES = re.compile(r"GeForce RTX (\d0)[5-9]0\b")

Numbers = tuple[int, ...]


class Newer(NamedTuple):
    """A fact that no row of its table reaches, of that row of its group; `says` names it as a person does."""

    fact: str
    row: int | None
    says: str
    table: str


def newer(snapshot: Snapshot) -> tuple[Newer, ...]:
    """Every torch, driver, CUDA, Python and GPU of the snapshot that is newer than the tables know."""
    found = []
    for fact, says, name, reaches in _SUBJECTS:
        value = known(snapshot, fact)
        if value and _beyond(value, reaches(snapshot)):
            found.append(Newer(fact, None, f"{says} {value}", name))
    if newer_driver(snapshot):
        implied = snapshot.get("driver.cuda_version")
        if isinstance(implied, Known) and implied.source.startswith("table drivers"):
            found.append(Newer("driver.cuda_version", None, "", "drivers"))
    return (*found, *_gpus(snapshot))


def newer_driver(snapshot: Snapshot) -> bool:
    """Whether the driver is of a branch that came out after the newest in the table."""
    version = known(snapshot, "driver.version")
    return version is not None and _beyond(version, _branch_reached(snapshot))


def _gpus(snapshot: Snapshot) -> Iterator[Newer]:
    rows = snapshot.rows("gpu")
    for place, row in enumerate(rows if isinstance(rows, tuple) else ()):
        state, name = row.get("compute_capability"), row.get("name")
        model = str(name.value) if isinstance(name, Known) else ""
        if isinstance(state, Known):
            if _new_generation(state.value):
                says = f"GPU {model + ' ' if model else ''}(compute capability {state.value})"
                yield Newer("gpu.compute_capability", place, says, "gpus")
        elif (series := _SERIES.search(model)) and int(series[1]) > _newest_series():
            yield Newer("gpu.name", place, f"GPU {model}", "gpus")


def _new_generation(compute_capability: object) -> bool:
    """Whether the table lacks the generation: it has every one up to its date."""
    try:
        return capability(compute_capability) not in _generations()
    except CannotJudge:
        return False


def _beyond(value: str, newest: Numbers) -> bool:
    """Whether the version is above `newest`; of a build between releases its public part counts."""
    parsed = versions.parse(value.partition("+")[0])
    if parsed is None:
        return False
    numbers = parsed.release[: len(newest)]
    return numbers > newest and max(numbers) < 10**4


def _numbers(text: str) -> Numbers:
    return tuple(int(part) for part in text.split("."))


@lru_cache(maxsize=1)
def _generations() -> frozenset[Numbers]:
    return frozenset(_numbers(row["cc"]) for row in table("gpus")["generation"])


@lru_cache(maxsize=1)
def _newest_series() -> int:
    return max(int(series[1]) for row in table("gpus")["gpu"] if (series := _SERIES.search(row["name"])))


@lru_cache(maxsize=1)
def _newest_torch() -> Numbers:
    return max(_numbers(row["version"]) for row in table("torch")["release"])


@lru_cache(maxsize=1)
def _newest_python() -> Numbers:
    tags = {
        tag.removeprefix("cp").removesuffix("t") for row in table("torch")["release"] for tag in row["pythons"].split()
    }
    return max((int(tag[0]), int(tag[1:])) for tag in tags)


@lru_cache(maxsize=1)
def _newest_branch() -> int:
    return max(int(row["branch"]) for row in table("drivers")["branch"])


@lru_cache(maxsize=1)
def _newest_cuda() -> Numbers:
    rows = [*table("drivers")["branch"], *table("drivers")["toolkit"]]
    return max(_numbers(row["cuda"])[:2] for row in rows if "cuda" in row)


@lru_cache(maxsize=1)
def _newest_nvcc() -> Numbers:
    return max(_numbers(row["cuda"]) for row in table("compilers")["nvcc"])


def _branch_reached(snapshot: Snapshot) -> Numbers:
    windows = known(snapshot, "host.platform") == "windows" or known(snapshot, "host.wsl")
    return (_newest_branch() + (_WINDOWS_SPAN if windows else 0),)


_SUBJECTS: tuple[tuple[str, str, str, Callable[[Snapshot], Numbers]], ...] = (
    ("torch.version", "torch", "torch", lambda _: _newest_torch()),
    ("driver.version", "driver", "drivers", _branch_reached),
    ("torch.cuda", "CUDA", "drivers", lambda _: _newest_cuda()),
    ("cuda_driver.version", "CUDA", "drivers", lambda _: _newest_cuda()),
    ("driver.cuda_version", "CUDA", "drivers", lambda _: _newest_cuda()),
    ("cuda.nvcc_version", "nvcc", "compilers", lambda _: _newest_nvcc()),
    ("python.version", "Python", "torch", lambda _: _newest_python()),
)
_USED_FOR = {"torch.version": "torch", "driver.version": "drivers", "cuda.nvcc_version": "compilers"}
_USED_FOR_ROWS = {"gpu": "gpus", "xid": "xid"}


def checked(name: str) -> str:
    """The day that the table's rows were last compared with their sources: 2026-11-21."""
    return str(table(name)["checked"])


def expired(snapshot: Snapshot, today: str) -> tuple[str, ...]:
    """The tables that speak of something in the snapshot and were checked more than twelve months before `today`."""
    used = [name for fact, name in _USED_FOR.items() if known(snapshot, fact)]
    used += [name for group, name in _USED_FOR_ROWS.items() if isinstance(rows := snapshot.rows(group), tuple) and rows]
    return tuple(name for name in used if today > _a_year_after(checked(name)))


def _a_year_after(day: str) -> str:
    return f"{int(day[:4]) + 1}{day[4:]}"
