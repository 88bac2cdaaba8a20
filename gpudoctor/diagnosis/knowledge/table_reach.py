"""How far the tables reach: what of a snapshot is newer than every row, and which tables are older than they may be.

Rows are right as of their table's `checked` date, and good for twelve months from then. What came out later is judged
by rule (binary compatibility, minor-version compatibility, the nearest row). That is said, and never part of a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from gpudoctor.core import versions
from gpudoctor.core.fact import known, listed, text_of
from gpudoctor.core.pattern import pattern
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.values import CannotJudge
from gpudoctor.diagnosis import page_cache
from gpudoctor.diagnosis.knowledge.archs import capability

GOOD_FOR = "12 months"
_WINDOWS_SPAN = 4
"""Windows drivers of one branch bear its number and the next few: 572 is of branch 570."""

_LONGEST_VALUE = 60
"""Characters of a value that are looked at and said."""

_SERIES = pattern(r"GeForce RTX (\d0)[5-9]0\b")

Numbers = tuple[int, ...]


class BeyondTables(NamedTuple):
    """A fact newer than every row of its table; `row` is its row (None: of the machine), `says` its name for people."""

    fact: str
    row: int | None
    says: str
    table: str


def facts_beyond_tables(snapshot: Snapshot) -> tuple[BeyondTables, ...]:
    """Every torch, driver, CUDA, nvcc, Python and GPU of the snapshot that is newer than its table."""
    beyond = []
    for fact, says, name, kind in _SUBJECTS:
        value = snapshot.text(fact)
        if value and (newer_driver(snapshot) if kind == "branch" else _is_beyond(value, _shipped_reach()[kind])):
            beyond.append(BeyondTables(fact, None, f"{says} {value[:_LONGEST_VALUE]}", name))
    return (*beyond, *_gpus_beyond_tables(snapshot))


def newer_driver(snapshot: Snapshot) -> bool:
    """Whether the driver's branch is above the table's newest (on Windows and WSL: by over 4); False if unknown."""
    version = snapshot.text("driver.version")
    windows = snapshot.text("host.platform") == "windows" or snapshot.text("host.wsl")
    return bool(version) and _is_beyond(version, [_shipped_reach()["branch"][0] + (_WINDOWS_SPAN if windows else 0)])


def _gpus_beyond_tables(snapshot: Snapshot) -> Iterator[BeyondTables]:
    """The GPUs whose generation or GeForce series is newer than the tables."""
    for place, row in enumerate(listed(snapshot.rows("gpu"))):
        model = text_of(row.get("name"))[:_LONGEST_VALUE]
        if state := known(row.get("compute_capability")):
            if _is_new_generation(state.value):
                says = f"GPU {model + ' ' if model else ''}(compute capability {state.value})"
                yield BeyondTables("gpu.compute_capability", place, says, "gpus")
        elif (series := _SERIES.search(model)) and int(series[1]) > _shipped_reach()["series"]:
            yield BeyondTables("gpu.name", place, f"GPU {model}", "gpus")


def _is_new_generation(compute_capability: object) -> bool:
    """Whether the table lacks that compute capability, older ones too; False for what is none."""
    try:
        return capability(compute_capability) not in map(tuple, _shipped_reach()["generations"])
    except CannotJudge:
        return False


def _is_beyond(value: str, newest: Sequence[int]) -> bool:
    """Whether the version is above `newest`, compared by as many numbers; False for what is no version."""
    parsed = versions.parse(value.partition("+")[0][:_LONGEST_VALUE])
    if parsed is None:
        return False
    numbers = parsed.release[: len(newest)]
    return numbers > tuple(newest) and max(numbers) < 10**4


def version_numbers(text: str) -> Numbers:
    """A dotted version as integers; raises `ValueError` for anything else."""
    return tuple(int(part) for part in text.split("."))


def reach_of(folder: Path) -> dict[str, Any]:
    """How far the tables in that folder reach: the newest ``torch``, ``python``, ``branch``, ``cuda``, ``nvcc``,
    ``series`` of GeForce, all ``generations`` (compute capabilities), and the date on which each table was ``checked``.

    Compiled like the tables, so that a report within them loads nothing else.
    """
    raw = {path.stem: page_cache.toml(path) for path in folder.glob("*.toml")}
    releases, nvcc, drivers = raw["torch"]["release"], raw["compilers"]["nvcc"], raw["drivers"]
    tags = [tag.removeprefix("cp").removesuffix("t") for row in releases for tag in row["pythons"].split()]
    series = (_SERIES.search(row["name"]) for row in raw["gpus"]["gpu"])
    return {
        "checked": {name: content["checked"] for name, content in raw.items()},
        "torch": max(version_numbers(row["version"]) for row in releases),
        "python": max((int(tag[0]), int(tag[1:])) for tag in tags),
        "branch": max((int(row["branch"]),) for row in drivers["branch"]),
        "cuda": max(
            version_numbers(row["cuda"])[:2] for row in drivers["branch"] + drivers["toolkit"] if "cuda" in row
        ),
        "nvcc": max(version_numbers(row["cuda"]) for row in nvcc),
        "series": max(int(match[1]) for match in series if match),
        "generations": sorted(version_numbers(row["cc"]) for row in raw["gpus"]["generation"]),
    }


@cache
def _shipped_reach() -> Mapping[str, Any]:
    """How far the shipped tables reach, as `reach_of` gives it, from a compiled copy where there is one; cached."""
    reach: Mapping[str, Any] = page_cache.compiled(None, "tables/tables-reach", reach_of)
    return reach


_SUBJECTS = (
    ("torch.version", "torch", "torch", "torch"),
    ("driver.version", "driver", "drivers", "branch"),
    ("torch.cuda", "CUDA", "drivers", "cuda"),
    ("cuda_driver.version", "CUDA", "drivers", "cuda"),
    ("driver.cuda_version", "CUDA", "drivers", "cuda"),
    ("cuda.nvcc_version", "nvcc", "compilers", "nvcc"),
    ("python.version", "Python", "torch", "python"),
)
"""Fact, what a person calls it, its table, and what of the reach it is held against."""
_USED_FOR = {"torch.version": "torch", "driver.version": "drivers", "cuda.nvcc_version": "compilers"}
_USED_FOR_ROWS = {"gpu": "gpus", "xid": "xid"}


def date_checked(name: str) -> str:
    """The day that the rows of that table were last compared with their sources: ``2026-11-21``."""
    return str(_shipped_reach()["checked"][name])


def expired_tables(snapshot: Snapshot, today: str) -> tuple[str, ...]:
    """Names of tables used for facts of the snapshot that were checked more than a year before `today` (2026-11-21)."""
    used = [name for fact, name in _USED_FOR.items() if snapshot.text(fact)]
    used += [name for group, name in _USED_FOR_ROWS.items() if isinstance(rows := snapshot.rows(group), tuple) and rows]
    return tuple(name for name in used if today > _a_year_after(date_checked(name)))


def _a_year_after(day: str) -> str:
    """The same day of the next year, as ISO text."""
    return f"{int(day[:4]) + 1}{day[4:]}"
