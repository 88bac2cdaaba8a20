"""The rules of what runs where, stated a second time and tried by brute force over the tables as they are written.

Nothing of the solver or of the knowledge room is called: an error there must not be repeated here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.fixes.solver import oracle_beside as beside
from tests.fixes.solver.oracle_tables import (
    BUILDS,
    COMPILERS,
    DRIVERS,
    GPUS,
    RELEASES,
    TORCH,
    Numbers,
    Place,
    Row,
    how,
    inside,
    numbers,
    tag,
)


@dataclass(frozen=True)
class Machine:
    """A machine in plain texts; empty is not known. `gpus` are names with compute capabilities, () where unknown."""

    gpus: tuple[tuple[str, Numbers], ...]
    driver: str
    python: str
    os: str
    arch: str
    libc: str

    @cached_property
    def column(self) -> str:
        """Whose wheels it takes; empty where there are none."""
        if self.os == "windows":
            return "windows" if self.arch in ("x86_64", "") else ""
        return {"x86_64": "linux", "": "linux", "aarch64": "aarch64"}.get(self.arch, "")

    @property
    def floors(self) -> str:
        """The column of driver versions that count."""
        return "windows" if self.os in ("windows", "wsl") else "linux"

    @cached_property
    def capabilities(self) -> tuple[Numbers, ...]:
        """Those that are known."""
        return tuple(dict.fromkeys(capability for _, capability in self.gpus if capability))

    @cached_property
    def place(self) -> Place:
        """What counts for packages beside torch."""
        return Place(self.column, self.python, self.libc if self.os != "windows" else "", self.capabilities)


@cache
def branch(major: int) -> int:
    """The nearest branch of the tables at or below that number, twelve away at most; 0 where there is none."""
    near = [int(row["branch"]) for row in DRIVERS["branch"] if 0 <= major - int(row["branch"]) <= 12]
    return max(near, default=0)


@cache
def reaches(driver: str, floor: str) -> bool:
    """Whether a driver is at least that one; a bare number is the newest driver of its branch."""
    own, other = branch(numbers(driver)[0]), branch(numbers(floor)[0])
    if "." not in driver and own and other:
        return own >= other
    width = max(len(numbers(driver)), len(numbers(floor)))
    have, least = ((*numbers(one), *[0] * width)[:width] for one in (driver, floor))
    return have >= least


@cache
def cuda_floor(cuda: str, column: str) -> str:
    """The oldest driver for a CUDA: that of its family, or from CUDA 10 back that of the toolkit itself."""
    own = [row[column] for row in DRIVERS["toolkit"] if numbers(row["cuda"])[:2] == numbers(cuda) and column in row]
    for family in DRIVERS["family"]:
        if family["major"] == numbers(cuda)[0]:
            return str(min([family[column], *own[-1:]], key=numbers))
    return str(own[-1])


@cache
def newest_cuda(driver: str) -> Numbers:
    """The newest CUDA that a driver serves in full; empty where the tables do not say."""
    major = numbers(driver)[0]
    cudas = [row.get("cuda", "") for row in DRIVERS["branch"] if int(row["branch"]) == branch(major)]
    if not cudas and major > max(int(one["branch"]) for one in DRIVERS["branch"]):
        return (99, 0)
    return numbers(cudas[0]) if cudas and cudas[0] else ()


def driver_takes_gpus(machine: Machine) -> bool:
    """Whether the driver's branch serves every generation, and one kind of kernel modules drives them all."""
    kinds = set()
    for row in GPUS["generation"]:
        if numbers(row["cc"]) not in machine.capabilities or row.get("soc"):
            continue
        kinds.add(row.get("module"))
        if machine.driver and "floor" in row and not reaches(machine.driver, row["floor"]):
            return False
        if machine.driver and "ceiling" in row:
            major = numbers(machine.driver)[0]
            if (branch(major) or major) > int(row["ceiling"]):
                return False
    return machine.os != "linux" or not {"required", "unsupported"} <= kinds


@cache
def listed(torch: str, build: str, column: str) -> str | None:
    """The code in a wheel as the tables have it, or as the newest release before it has it; None: no such wheel."""
    row = next(row for row in TORCH["build"] if (row["torch"], row["build"]) == (torch, build))
    if column == "windows":
        if row.get("windows_wheel") is False:
            return None
        if "windows" in row:
            return str(row["windows"])
        linux = listed(torch, build, "linux") or ""
        return " ".join(code for code in linux.split() if code.startswith("sm"))
    if column == "aarch64" and "aarch64" not in row and RELEASES[torch]["aarch64"] != build:
        return None
    key = "archs" if column == "linux" else column
    same = [one for one in TORCH["build"] if one["build"] == build and key in one]
    older = [one for one in same if numbers(one["torch"]) <= numbers(torch)]
    return str(max(older, key=lambda one: numbers(one["torch"]))[key])


@cache
def own_list(torch: str, build: str, column: str) -> bool:
    """Whether that code stands on the build's own row."""
    row = next(row for row in TORCH["build"] if (row["torch"], row["build"]) == (torch, build))
    return {"linux": "archs" in row, "aarch64": "aarch64" in row, "windows": "windows" in row or "archs" in row}[column]


@cache
def cuda_knows(cuda: str, capability: Numbers) -> bool:
    """Whether the compiler of that CUDA makes any machine code that runs on the GPU."""
    row = next(row for row in COMPILERS["nvcc"] if row["cuda"] == cuda)
    plain = re.sub(r"\w+[af]\b", "", row["targets"]).replace("sm_101", "sm_110")
    return how(" ".join(plain.split()), capability) == "sm"


@cache
def served(torch: str, build: str, cuda: str, column: str, capability: Numbers) -> str:
    """How a build serves a GPU: ``sm``, ``compute``, or not at all."""
    way = how(listed(torch, build, column) or "", capability)
    return "" if way == "compute" and not cuda_knows(cuda, capability) else way


@cache
def tags(torch: str, column: str) -> list[str]:
    """The Pythons that a release has wheels for."""
    row = RELEASES[torch]
    return list(row.get(f"{column}_pythons", row["pythons"]).split())


def torch_fits(row: Row, machine: Machine, place: Place) -> bool:
    """Whether a build of torch runs on the machine, whatever goes beside it."""
    torch, build, cuda = row["torch"], row["build"], row["cuda"]
    if not place.column or listed(torch, build, place.column) is None or not tags(torch, place.column):
        return False
    if place.python and tag(place.python) not in tags(torch, place.column):
        return False
    if place.libc and (place.libc == "musl" or numbers(place.libc) < numbers(RELEASES[torch]["glibc"])):
        return False
    if machine.driver and not reaches(machine.driver, cuda_floor(cuda, machine.floors)):
        return False
    ways = {served(torch, build, cuda, place.column, capability) for capability in place.capabilities}
    jits = not machine.driver or newest_cuda(machine.driver) >= numbers(cuda)
    return "" not in ways and ("compute" not in ways or jits)


@dataclass(frozen=True)
class Found:
    """A build that fits, with versions beside it."""

    torch: str
    build: str
    beside: tuple[tuple[str, str], ...]
    compiled: bool


@cache
def specifiers(wants: tuple[str, ...]) -> dict[str, SpecifierSet]:
    """What is wanted of each package."""
    found: dict[str, SpecifierSet] = {}
    for text in wants:
        requirement = Requirement(text)
        found[requirement.name] = found.get(requirement.name, SpecifierSet()) & requirement.specifier
    return found


def everything(machine: Machine, wants: Iterable[str]) -> Iterator[Found]:
    """All that fits."""
    asked = {name: str(specifier) for name, specifier in specifiers(tuple(wants)).items()}
    torch, place = asked.pop("torch", ""), machine.place
    if driver_takes_gpus(machine):
        for row in of_version(torch):
            if torch_fits(row, machine, place):
                yield from best_beside(row, place, asked)


@cache
def of_version(torch: str) -> list[Row]:
    """The builds that a specifier of torch takes."""
    return [row for row in BUILDS if inside(torch, f"{row['torch']}+{row['build']}")]


def best_beside(row: Row, place: Place, asked: Mapping[str, str]) -> Iterator[Found]:
    """The build with the newest versions beside it: of the packages in their order, ready wheels first."""
    names = [name for name in beside.ORDER if name in asked]
    choices = [
        [one for one in beside.released(name, row["torch"], row["build"], place) if inside(asked[name], one[0])]
        for name in names
    ]
    good = [several for several in product(*choices) if beside.agree(dict(zip(names, several, strict=True)))]
    if good:
        best = max(good, key=lambda several: [(not compiled, Version(version)) for version, compiled in several])
        found = tuple((name, version) for name, (version, _) in zip(names, best, strict=True))
        yield Found(row["torch"], row["build"], found, any(compiled for _, compiled in best))


def best(machine: Machine, wants: Iterable[str]) -> tuple[Found | None, set[tuple[str, str]]]:
    """The best of all that fits, and which builds do."""
    found = list(everything(machine, wants))
    rows = {(row["torch"], row["build"]): row for row in BUILDS}

    def merit(one: Found) -> tuple[Any, ...]:
        row = rows[one.torch, one.build]
        column, cuda, release = machine.column, numbers(row["cuda"]), RELEASES[one.torch]
        ways = [served(one.torch, one.build, row["cuda"], column, each) for each in machine.capabilities]
        return (
            not one.compiled,
            numbers(one.torch),
            not machine.gpus or own_list(one.torch, one.build, column),
            "compute" not in ways,
            cuda[0] >= int(release["linux"][2:-1]),
            not machine.driver or newest_cuda(machine.driver) >= cuda,
            column != "windows" and release[column] == one.build,
            cuda,
        )

    return max(found, key=merit, default=None), {(one.torch, one.build) for one in found}
