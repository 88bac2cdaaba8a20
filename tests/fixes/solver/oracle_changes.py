"""The oracle's smallest changes: of each kind the first that helps, by trying all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations

from tests.fixes.solver.oracle import Machine, everything, reaches, specifiers
from tests.fixes.solver.oracle_tables import BUILDS, DRIVERS, GPUS, TORCH, inside, minor_of, numbers


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
