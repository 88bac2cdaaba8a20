"""The smallest change with which something fits, where nothing does.

The kinds of change, the one that costs the least first:

1. another driver: one package of the distribution and a restart; the environment and all that is wished stay;
2. another Python: a new environment, nothing of the machine;
3. another release of torch than the one asked for: what was written for it may need work;
4. without one of the packages asked for;
5. WSL in place of Windows, 6. without one of the GPUs, and 7. a newer C library, which is another distribution.

A driver that the distribution does not ship comes after 4: it takes another repository. Of each kind the smallest
change is named, tried by judging everything again. Where no change of one kind will do, those of two kinds together
are tried, then of three; the cheapest few are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from itertools import chain, combinations, islice

from gpudoctor.core.frozen import frozen, replace
from gpudoctor.core.language import say
from gpudoctor.core.stack import Remedy
from gpudoctor.diagnosis.knowledge._tables import table
from gpudoctor.fixes.solver.builds import builds
from gpudoctor.fixes.solver.fitting_builds import compiles_first, fits, unserved_devices
from gpudoctor.fixes.solver.machine import (
    Machine,
    branches,
    parsed_driver,
    preferred_branch,
    python_numbers_of,
    ships,
    version,
)
from gpudoctor.fixes.solver.requirements import Wants


@frozen
class Case:
    """A machine and the packages wanted on it, as given or as changed."""

    machine: Machine
    wants: Wants
    distribution: str = ""

    @property
    def fits(self) -> bool:
        """True if any build fits the machine and the wants."""
        return fits(self.machine, self.wants)

    def on(self, **changes: object) -> Case:
        """The case with these fields of its machine replaced."""
        return replace(self, machine=replace(self.machine, **changes))  # type: ignore[arg-type]


Predicate = Callable[[Case], bool]
Step = tuple[Case, Remedy]


@frozen
class Kind:
    """One kind of change: when it applies, the case without that bound, and the smallest steps that make `holds`
    true.
    """

    name: str
    applies: Callable[[Case], bool]
    lifted: Callable[[Case], Case]
    steps: Callable[[Case, Predicate], Iterator[Step]]


def _driver_steps(case: Case, holds: Predicate) -> Iterator[Step]:
    """(changed case, remedy) of the smallest driver upgrade that makes `holds` true, else of the newest older branch
    that does; else nothing.
    """
    own = case.machine.driver
    assert own is not None
    floors = sorted({floor for floor in _relevant_floors(case) if not own.reaches(floor)}, key=version)
    least = next((floor for floor in floors if holds(case.on(driver=parsed_driver(_first_driver(floor))))), None)
    if least:
        yield _newer_driver(case, least, holds)
        return
    older = (str(number) for number in branches() if number < own.version.major)
    last = next((name for name in older if holds(case.on(driver=parsed_driver(name)))), None)
    if last:
        names = ", ".join(device.name for device in unserved_devices(case.machine)) or "this"
        text = say("driver {last} or older; {last} is the last branch that serves {gpus}", last=last, gpus=names)
        yield case.on(driver=parsed_driver(last)), Remedy("driver", last, text, last)


def _first_driver(floor: str) -> str:
    """First driver version of a branch: ``570`` becomes ``570.0``; a version is unchanged."""
    return floor if "." in floor else f"{floor}.0"


def _newer_driver(case: Case, least: str, holds: Predicate) -> Step:
    """(changed case, remedy) of a driver from `least` on, preferably of a branch that the distribution ships."""

    def is_enough(branch: str) -> bool:
        """True if a driver of that branch is new enough and makes the case hold."""
        found = parsed_driver(branch)
        return found is not None and found.reaches(_first_driver(least)) and holds(case.on(driver=found))

    chosen = preferred_branch("" if case.machine.drivers_of == "windows" else case.distribution, is_enough)
    ceilings = [ceiling for device in case.machine.devices for ceiling in device.ceilings]
    most = min(ceilings, key=int, default="")
    bound = say("driver {least} to {most}" if most else "driver {least} or newer", least=least, most=most)
    value = chosen.name if chosen else least
    text = say("; ").join((bound, chosen.words)) if chosen and chosen.name != least else bound
    return case.on(driver=parsed_driver(value)), Remedy("driver", value, text, least)


def _relevant_floors(case: Case) -> Iterator[str]:
    """Driver versions from which on more builds run on the case's GPUs."""
    yield from (floor for device in case.machine.devices for floor in device.floors)
    yield from _cuda_floors(case.machine.drivers_of)
    by_ptx = {build.cuda_words for build in builds() if compiles_first(build, case.machine)}
    yield from (row["branch"] for row in table("drivers")["branch"] if row.get("cuda") in by_ptx)


@lru_cache(maxsize=2)
def _cuda_floors(drivers_of: str) -> frozenset[str]:
    """Oldest drivers that each CUDA build in the tables needs; `drivers_of`: ``linux`` or ``windows``."""
    return frozenset(build.floor(drivers_of) for build in builds())


def _python_steps(case: Case, holds: Predicate) -> Iterator[Step]:
    """(changed case, remedy) of the nearest Python that makes `holds` true, older before newer, with the global lock
    before without; else nothing.
    """
    machine = case.machine
    assert machine.wheels is not None
    own, unlocked = machine.python_numbers[1], machine.python.endswith("t")
    tags = {tag for build in builds() for tag in build.tags(machine.wheels)} - {machine.python}

    def distance(tag: str) -> tuple[int, int, bool]:
        """Sort key of a Python tag: minor releases from the machine's, older first, with the global lock first."""
        minor = python_numbers_of(tag)[1]
        return abs(minor - own), minor, tag.endswith("t")

    for tag in sorted((tag for tag in tags if unlocked or not tag.endswith("t")), key=distance):
        if holds(case.on(python=tag)):
            minor = python_numbers_of(tag)[1]
            value = f"3.{minor}{'t' if tag.endswith('t') else ''}"
            bound = "" if minor == own else say(" or older") if minor < own else say(" or newer")
            yield case.on(python=tag), Remedy("python", value, f"Python {value}{bound}", value)
            return


def _torch_steps(case: Case, holds: Predicate) -> Iterator[Step]:
    """(changed case, remedy) of the nearest torch minor that makes `holds` true, newer before older; else nothing."""
    minors = list(dict.fromkeys(build.version.release[:2] for build in reversed(builds())))
    asked = {minors.index(build.version.release[:2]) for build in case.wants.builds}
    near = asked or {len(minors)}

    def distance(minor: tuple[int, ...]) -> tuple[int, int]:
        """Sort key of a minor release: releases from the nearest wanted one, newer first."""
        place = minors.index(minor)
        return min(abs(place - wanted) for wanted in near), -place

    for minor in sorted(minors, key=distance):
        changed = replace(case, wants=replace(case.wants, minor=minor))
        if holds(changed):
            value, place = "{}.{}".format(*minor), minors.index(minor)
            bound = "" if place in near else say(" or older") if place < min(near) else say(" or newer")
            instead = say("{these} instead of {those}", these=f"torch {value}{bound}", those=case.wants.torch.text)
            yield changed, Remedy("torch", value, instead, value)
            return


def _drop_package_steps(case: Case, holds: Predicate) -> Iterator[Step]:
    """(changed case, remedy) for each single wanted package without which `holds` is true."""
    for want in case.wants.beside:
        changed = replace(case, wants=case.wants.without(want.name))
        if holds(changed):
            yield changed, Remedy("wants", want.name, say("without {what}", what=want.text))


def _wsl_steps(case: Case, holds: Predicate) -> Iterator[Step]:
    """(changed case, remedy) of WSL, with Linux wheels, on a Windows machine; nothing if `holds` stays false."""
    changed = case.on(system="Linux", wheels="linux", wsl=True)
    if holds(changed):
        yield changed, Remedy("os", "wsl", say("WSL on this Windows machine"))


def _drop_gpu_steps(case: Case, holds: Predicate) -> Iterator[Step]:
    """(changed case, remedy) for each of the smallest sets of GPU models without which `holds` is true; of 5 to 8
    models at most two are left out, of more one.
    """
    devices = case.machine.devices
    most = len(devices) - 1 if len(devices) <= 4 else 2 if len(devices) <= 8 else 1
    for left_out in range(1, most + 1):
        found = False
        for rest in combinations(devices, len(devices) - left_out):
            changed = case.on(devices=rest)
            if holds(changed):
                found = True
                names = say(" and ").join(gpu.name for gpu in devices if gpu not in rest)
                without = say("without the {gpus}", gpus=names)
                yield changed, Remedy("gpus", "+".join(gpu.name for gpu in rest), without)
        if found:
            return


def _glibc_steps(case: Case, holds: Predicate) -> Iterator[Step]:
    """(changed case, remedy) of the first newer glibc that makes `holds` true, with distributions; else nothing."""
    own = case.machine.glibc
    for row in table("torch")["glibc"]:
        major, _, minor = row["glibc"].partition(".")
        number = int(major), int(minor)
        if (own == "musl" or own is None or own < number) and holds(case.on(glibc=number)):
            sentence = "glibc {version} or newer, as in {systems}"
            if own == "musl":
                sentence = "a distribution with glibc {version} or newer, as in {systems}, instead of musl"
            text = say(sentence, version=row["glibc"], systems=row["distributions"])
            yield case.on(glibc=number), Remedy("libc", f"glibc {row['glibc']}", text, row["glibc"])
            return


KINDS = (
    Kind("driver", lambda case: case.machine.driver is not None, lambda case: case.on(driver=None), _driver_steps),
    Kind(
        "python",
        lambda case: bool(case.machine.python and case.machine.wheels),
        lambda case: case.on(python=""),
        _python_steps,
    ),
    Kind(
        "torch",
        lambda case: bool(case.wants.torch.texts),
        lambda case: replace(case, wants=case.wants.without("torch")),
        _torch_steps,
    ),
    Kind(
        "wants",
        lambda case: bool(case.wants.beside),
        lambda case: replace(case, wants=replace(case.wants, beside=())),
        _drop_package_steps,
    ),
    Kind(
        "os",
        lambda case: case.machine.wheels == "windows",
        lambda case: case.on(system="Linux", wheels="linux", wsl=True),
        _wsl_steps,
    ),
    Kind("gpus", lambda case: len(case.machine.devices) > 1, lambda case: case.on(devices=()), _drop_gpu_steps),
    Kind("libc", lambda case: case.machine.glibc is not None, lambda case: case.on(glibc=None), _glibc_steps),
)
"""In the order of their cost."""


# ---- The smallest of these with which something fits ----

_MOST_CHANGES = 5
"""Changes of one kind each that are named at most; of those that need several kinds, two."""


def smallest(case: Case) -> tuple[Remedy, ...]:
    """Smallest changes with which something fits, cheapest first; empty if up to three kinds together do not help."""
    kinds = [kind for kind in KINDS if kind.applies(case)]
    if not _without_bounds(case, kinds).fits:
        return ()
    for several in (1, 2, 3):
        found = chain.from_iterable(_combined(case, subset) for subset in combinations(kinds, several))
        if named := list(islice(found, _MOST_CHANGES if several == 1 else 2)):
            return tuple(sorted(named, key=lambda remedy: _effort(remedy, case)))
    return ()


def _effort(remedy: Remedy, case: Case) -> int:
    """Sort key of a change: 1 for a driver that the distribution does not ship, 2 for another system, GPUs, C library;
    else 0.
    """
    if remedy.field == "driver":
        return 0 if ships(case.distribution, remedy.value) else 1
    return 2 if remedy.field in ("os", "gpus", "libc") else 0


def _combined(case: Case, kinds: Sequence[Kind]) -> Iterator[Remedy]:
    """Changes of one kind; of several kinds one change of all together, each the smallest that suffices with the
    others. Nothing if they do not suffice.
    """
    first, *rest = kinds
    if not _without_bounds(case, kinds).fits:
        return
    for changed, remedy in first.steps(case, lambda tried: _without_bounds(tried, rest).fits):
        if not rest:
            yield remedy
        elif others := next(_combined(changed, rest), None):
            also = (replace(others, also=()), *others.also)
            yield replace(remedy, text=say("{one}, and {other}", one=remedy.text, other=others.text), also=also)
            return


def _without_bounds(case: Case, kinds: Sequence[Kind]) -> Case:
    """The case with what these kinds of change could change no longer limiting it."""
    return reduce(lambda so_far, kind: kind.lifted(so_far), kinds, case)
