"""How far the tables reach: what of a snapshot is newer than every row, and which tables are older than they may be.

Rows are right as of their table's `checked` date, and good for twelve months from then. What came out later is judged
by rule (binary compatibility, minor-version compatibility, the nearest row). That is said, and never part of a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from gpudoctor import pages
from gpudoctor.knowledge._filling import known
from gpudoctor.knowledge.archs import capability
from gpudoctor.model import version as versions
from gpudoctor.model.fact import Known, listed
from gpudoctor.model.pattern import pattern
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.model.values import CannotJudge

GOOD_FOR = "12 months"
_WINDOWS_SPAN = 4
"""Windows drivers of one branch bear its number and the next few: 572 is of branch 570."""

_LONGEST = 60
"""Characters of a value that are looked at and said."""

_SERIES = pattern(r"GeForce RTX (\d0)[5-9]0\b")

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
    for fact, says, name, kind in _SUBJECTS:
        value = known(snapshot, fact)
        if value and (newer_driver(snapshot) if kind == "branch" else _beyond(value, _reach()[kind])):
            found.append(Newer(fact, None, f"{says} {value[:_LONGEST]}", name))
    if newer_driver(snapshot):
        implied = snapshot.get("driver.cuda_version")
        if isinstance(implied, Known) and implied.source.startswith("table drivers"):
            found.append(Newer("driver.cuda_version", None, "", "drivers"))
    return (*found, *_gpus(snapshot))


def newer_driver(snapshot: Snapshot) -> bool:
    """Whether the driver is of a branch that came out after the newest in the table."""
    version = known(snapshot, "driver.version")
    windows = known(snapshot, "host.platform") == "windows" or known(snapshot, "host.wsl")
    return version is not None and _beyond(version, [_reach()["branch"][0] + (_WINDOWS_SPAN if windows else 0)])


def _gpus(snapshot: Snapshot) -> Iterator[Newer]:
    rows = snapshot.rows("gpu")
    for place, row in enumerate(listed(rows)):
        state, name = row.get("compute_capability"), row.get("name")
        model = str(name.value)[:_LONGEST] if isinstance(name, Known) else ""
        if isinstance(state, Known):
            if _new_generation(state.value):
                says = f"GPU {model + ' ' if model else ''}(compute capability {state.value})"
                yield Newer("gpu.compute_capability", place, says, "gpus")
        elif (series := _SERIES.search(model)) and int(series[1]) > _reach()["series"]:
            yield Newer("gpu.name", place, f"GPU {model}", "gpus")


def _new_generation(compute_capability: object) -> bool:
    """Whether the table lacks the generation: it has every one up to its date."""
    try:
        return capability(compute_capability) not in map(tuple, _reach()["generations"])
    except CannotJudge:
        return False


def _beyond(value: str, newest: Sequence[int]) -> bool:
    """Whether the version is above `newest`; of a build between releases its public part counts."""
    parsed = versions.parse(value.partition("+")[0][:_LONGEST])
    if parsed is None:
        return False
    numbers = parsed.release[: len(newest)]
    return numbers > tuple(newest) and max(numbers) < 10**4


def _numbers(text: str) -> Numbers:
    return tuple(int(part) for part in text.split("."))


def reach_of(folder: Path) -> dict[str, Any]:
    """How far the tables in that folder reach: the newest of each kind, and the day each table was checked.

    Compiled like the tables themselves, so that a report which stays within them loads nothing else.
    """
    raw = {path.stem: pages.toml(path) for path in folder.glob("*.toml")}
    releases, nvcc, drivers = raw["torch"]["release"], raw["compilers"]["nvcc"], raw["drivers"]
    tags = [tag.removeprefix("cp").removesuffix("t") for row in releases for tag in row["pythons"].split()]
    series = (_SERIES.search(row["name"]) for row in raw["gpus"]["gpu"])
    return {
        "checked": {name: content["checked"] for name, content in raw.items()},
        "torch": max(_numbers(row["version"]) for row in releases),
        "python": max((int(tag[0]), int(tag[1:])) for tag in tags),
        "branch": max((int(row["branch"]),) for row in drivers["branch"]),
        "cuda": max(_numbers(row["cuda"])[:2] for row in drivers["branch"] + drivers["toolkit"] if "cuda" in row),
        "nvcc": max(_numbers(row["cuda"]) for row in nvcc),
        "series": max(int(match[1]) for match in series if match),
        "generations": sorted(_numbers(row["cc"]) for row in raw["gpus"]["generation"]),
    }


@cache
def _reach() -> Mapping[str, Any]:
    found: Mapping[str, Any] = pages.compiled(None, "tables/tables-reach", reach_of)
    return found


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


def checked(name: str) -> str:
    """The day that the table's rows were last compared with their sources: 2026-11-21."""
    return str(_reach()["checked"][name])


def expired(snapshot: Snapshot, today: str) -> tuple[str, ...]:
    """The tables that speak of something in the snapshot and were checked more than twelve months before `today`."""
    used = [name for fact, name in _USED_FOR.items() if known(snapshot, fact)]
    used += [name for group, name in _USED_FOR_ROWS.items() if isinstance(rows := snapshot.rows(group), tuple) and rows]
    return tuple(name for name in used if today > _a_year_after(checked(name)))


def _a_year_after(day: str) -> str:
    return f"{int(day[:4]) + 1}{day[4:]}"
