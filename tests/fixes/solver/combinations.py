"""Random machines and wants, and the solver's answer to each held against the oracle's."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from random import Random

from gpudoctor.core.stack import GPU, Wishes
from gpudoctor.diagnosis.page_cache import toml
from gpudoctor.fixes.solver.solution import Solution
from gpudoctor.fixes.solver.solver import solve
from tests.fixes.solver import oracle
from tests.fixes.solver.oracle import (
    BUILDS,
    DRIVERS,
    GPUS,
    TORCH,
    Machine,
    everything,
    inside,
    minor_of,
    numbers,
    reaches,
    specifiers,
)


def _does(machine: Machine, wants: tuple[str, ...]) -> bool:
    return next(everything(machine, wants), None) is not None


def _drivers(machine: Machine, wants: tuple[str, ...]) -> list[str]:
    if not machine.driver or not _does(replace(machine, driver=""), wants):
        return []
    rows = (*DRIVERS["toolkit"], *DRIVERS["family"])
    every = {row[machine.floors] for row in rows if machine.floors in row}
    every |= {f"{row['branch']}.0" for row in DRIVERS["branch"]}
    every |= {f"{row['floor']}.0" for row in GPUS["generation"] if "floor" in row}
    newer = sorted((one for one in every if not reaches(machine.driver, one)), key=numbers)
    for one in newer:
        if _does(replace(machine, driver=one), wants):
            return [one.removesuffix(".0")]
    own = numbers(machine.driver)[0]
    older = sorted((int(row["branch"]) for row in DRIVERS["branch"] if int(row["branch"]) < own), reverse=True)
    return [str(one) for one in older if _does(replace(machine, driver=str(one)), wants)][:1]


def _pythons(machine: Machine, wants: tuple[str, ...]) -> list[str]:
    if not machine.python or not _does(replace(machine, python=""), wants):
        return []
    own = minor_of(machine.python)[1]
    free = machine.python.endswith("t")
    every = [f"3.{minor}{free_threaded}" for minor in range(6, 16) for free_threaded in ("", "t")[: 1 + free]]
    every.sort(key=lambda one: (abs(minor_of(one)[1] - own), minor_of(one), one.endswith("t")))
    return [one for one in every if one != machine.python and _does(replace(machine, python=one), wants)][:1]


def _torches(machine: Machine, wants: tuple[str, ...]) -> list[str]:
    torch = [want for want in wants if want.startswith("torch") and not want.startswith(("torchv", "torcha"))]
    if not torch:
        return []
    rest = tuple(want for want in wants if want not in torch)
    minors = list(dict.fromkeys(".".join(row["torch"].split(".")[:2]) for row in reversed(BUILDS)))
    specifier = str(specifiers(tuple(torch))["torch"])
    asked = {
        minors.index(".".join(row["torch"].split(".")[:2]))
        for row in BUILDS
        if inside(specifier, f"{row['torch']}+{row['build']}")
    } or {len(minors)}
    good = [place for place, one in enumerate(minors) if _does(machine, (f"torch=={one}.*", *rest))]
    near = min((min(abs(place - one) for one in asked) for place in good), default=0)
    return [minors[place] for place in reversed(good) if min(abs(place - one) for one in asked) == near][:1]


def _wants(machine: Machine, wants: tuple[str, ...]) -> list[str]:
    names = {name for name in specifiers(wants) if name != "torch"}
    return [name for name in names if _does(machine, tuple(w for w in wants if name not in specifiers((w,))))]


def _gpus(machine: Machine, wants: tuple[str, ...]) -> list[str]:
    for kept in range(len(machine.gpus) - 1, 0, -1):
        several = [rest for rest in combinations(machine.gpus, kept) if _does(replace(machine, gpus=rest), wants)]
        if several:
            return ["+".join(name for name, _ in rest) for rest in several]
    return []


def _libcs(machine: Machine, wants: tuple[str, ...]) -> list[str]:
    if not machine.libc:
        return []
    every = [row["glibc"] for row in TORCH["glibc"]]
    newer = [one for one in every if machine.libc == "musl" or numbers(one) > numbers(machine.libc)]
    return [one for one in newer if _does(replace(machine, libc=one), wants)][:1]


def _systems(machine: Machine, wants: tuple[str, ...]) -> list[str]:
    return ["wsl"] if machine.os == "windows" and _does(replace(machine, os="wsl"), wants) else []


KINDS: Mapping[str, Callable[[Machine, tuple[str, ...]], list[str]]] = {
    "driver": _drivers,
    "python": _pythons,
    "torch": _torches,
    "wants": _wants,
    "os": _systems,
    "gpus": _gpus,
    "libc": _libcs,
}
"""For each kind of change the bounds that it may name: the smallest that helps, or several that are equally small."""


NAMES = [(row["name"], numbers(row["cc"])) for row in GPUS["gpu"]]
POOLS = toml(Path(__file__).with_name("pools.toml"))


@dataclass(frozen=True)
class Combination:
    """A machine and what is wanted on it."""

    machine: Machine
    wants: tuple[str, ...]

    @property
    def wishes(self) -> Wishes:
        """As the solver takes them."""
        machine = self.machine
        libc = machine.libc if machine.libc in ("", "musl") else f"glibc {machine.libc}"
        gpus = tuple(GPU(name) for name, _ in machine.gpus)
        return Wishes(gpus, machine.driver, machine.python, machine.os, machine.arch, libc=libc, wants=self.wants)


def some(random: Random) -> Combination:
    """One combination: half the time of what is usual, else of all that there may be, unknown things among it."""
    usual = random.random() < 0.5
    system = random.choices(("linux", "windows", "wsl"), (7, 2, 1))[0]
    arch = random.choices(("x86_64", "aarch64", ""), (16, 3, 1))[0]
    gpus = random.choices(NAMES, k=random.choices((1, 2, 3), (1, 0, 0) if usual else (6, 3, 1))[0])
    if random.random() < 0.03:
        gpus.append(("Frobnicator 9000", ()))
    drivers = POOLS["drivers" if system == "linux" else "windows"]
    machine = Machine(
        gpus=tuple(dict.fromkeys(gpus)),
        driver="" if random.random() < 0.05 else random.choice(drivers[len(drivers) // 2 :] if usual else drivers),
        python="" if random.random() < 0.05 else random.choice(POOLS["pythons"][1:10] if usual else POOLS["pythons"]),
        os=system,
        arch=arch if system != "windows" else "x86_64",
        libc="" if usual or system == "windows" else random.choice(POOLS["libcs"]),
    )
    torches = random.sample(POOLS["torches"], random.choices((0, 1, 2), (7, 3, 0) if usual else (5, 5, 1))[0])
    others = random.sample(POOLS["others"], random.choices((0, 1, 2, 3), (6, 4, 2, 0) if usual else (4, 4, 3, 1))[0])
    return Combination(machine, (*torches, *others))


def differences(combination: Combination, changes: bool = True) -> Iterator[str]:
    """What the two say differently of it, and changes that are not what they are said to be."""
    solution = solve(combination.wishes)
    best, fitting = oracle.best(combination.machine, combination.wants)
    ours = {(one.torch, one.build) for one in solution.ranked}
    if ours != fitting:
        yield f"fits: only the solver {sorted(ours - fitting)[:4]}, only the oracle {sorted(fitting - ours)[:4]}"
        return
    if best and solution.best:
        beside = tuple((one.name.partition("[")[0], one.version) for one in solution.best.packages[1:])
        mine = (solution.best.torch, solution.best.build, beside, solution.best.compiled)
        if mine != (best.torch, best.build, best.beside, best.compiled):
            yield f"best: the solver {mine}, the oracle {best}"
    elif changes and not best:
        yield from _of_changes(combination, solution)


def _of_changes(combination: Combination, solution: Solution) -> Iterator[str]:
    """Whether each smallest change helps and nothing smaller of its kind does; and that none is missing."""
    single = {kind: smallest(combination.machine, combination.wants) for kind, smallest in KINDS.items()}
    possible = {kind for kind, several in single.items() if several}
    for remedy in solution.smallest:
        changed = solution.wishes.remedied(remedy)
        if not solve(changed).best:
            yield f"{remedy.text!r} does not help"
        if not remedy.also and remedy.field in KINDS and (remedy.least or remedy.value) not in single[remedy.field]:
            yield f"{remedy.text!r} ({remedy.least or remedy.value}) is not the smallest: {single[remedy.field][:4]}"
    named = {remedy.field for remedy in solution.smallest if not remedy.also}
    if possible - named and len(solution.smallest) < 5:
        yield f"no change of {sorted(possible - named)} is named: {[single[kind][:3] for kind in possible - named]}"
    if not possible and any(not remedy.also for remedy in solution.smallest):
        yield f"no single change helps, yet one is named: {[remedy.text for remedy in solution.smallest]}"


def trial(seed: int, count: int, changes: int = 1) -> list[str]:
    """That many combinations of one seed; every difference with what it was found on.

    Of those that nothing fits, the smallest changes of every `changes`-th are tried: that takes the longest.
    """
    random = Random(seed)
    found = []
    for number in range(count):
        combination = some(random)
        several = differences(combination, number % changes == 0)
        found += [f"{difference}\n    {combination}" for difference in several]
    return found
