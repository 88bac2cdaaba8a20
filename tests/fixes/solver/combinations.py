"""Random machines and wants, and the solver's answer to each held against the oracle's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from gpudoctor.core.stack import GPU, Wishes
from gpudoctor.diagnosis.pages import toml
from gpudoctor.fixes.solver.solution import Solution
from gpudoctor.fixes.solver.solver import solve
from tests.fixes.solver import oracle
from tests.fixes.solver.oracle import Machine
from tests.fixes.solver.oracle_changes import KINDS
from tests.fixes.solver.oracle_tables import GPUS, numbers

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
