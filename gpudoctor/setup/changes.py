"""The kinds of change that can make something fit, each with its alternatives from the smallest on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import combinations

from gpudoctor.knowledge._tables import table
from gpudoctor.language import say
from gpudoctor.model.frozen import frozen, replace
from gpudoctor.model.stack import Remedy
from gpudoctor.setup.builds import builds
from gpudoctor.setup.checks import compiles_first, strangers
from gpudoctor.setup.distributions import preferred
from gpudoctor.setup.driver import branches, driver
from gpudoctor.setup.judging import fits
from gpudoctor.setup.machine import Machine, numbers_of
from gpudoctor.setup.specifiers import version
from gpudoctor.setup.wants import Wants


@frozen
class Case:
    """A machine and what is wanted on it, as it is or as changed."""

    machine: Machine
    wants: Wants
    distribution: str = ""

    @property
    def fits(self) -> bool:
        """Whether anything does."""
        return fits(self.machine, self.wants)

    def on(self, **changes: object) -> Case:
        """On a changed machine."""
        return replace(self, machine=replace(self.machine, **changes))  # type: ignore[arg-type]


Does = Callable[[Case], bool]
Step = tuple[Case, Remedy]


@frozen
class Kind:
    """One kind of change: where it comes into question, the case with that bound lifted, and the smallest steps.

    `steps` yields what is smallest among the changes for which the given predicate holds: one, or several equal ones.
    """

    name: str
    applies: Callable[[Case], bool]
    lifted: Callable[[Case], Case]
    steps: Callable[[Case, Does], Iterator[Step]]


def _drivers(case: Case, does: Does) -> Iterator[Step]:
    """A newer driver; where none will do, an older one."""
    own = case.machine.driver
    assert own is not None
    floors = sorted({floor for floor in _floors(case) if not own.reaches(floor)}, key=version)
    least = next((floor for floor in floors if does(case.on(driver=driver(_first(floor))))), None)
    if least:
        yield _newer_driver(case, least, does)
        return
    older = (str(one) for one in branches() if one < own.version.major)
    last = next((one for one in older if does(case.on(driver=driver(one)))), None)
    if last:
        names = ", ".join(one.name for one in strangers(case.machine)) or "this"
        text = say("driver {last} or older; {last} is the last branch that serves {gpus}", last=last, gpus=names)
        yield case.on(driver=driver(last)), Remedy("driver", last, text, last)


def _first(floor: str) -> str:
    """Where a floor is a branch, the first driver of it."""
    return floor if "." in floor else f"{floor}.0"


def _newer_driver(case: Case, least: str, does: Does) -> Step:
    def do(branch: str) -> bool:
        found = driver(branch)
        return found is not None and found.reaches(_first(least)) and does(case.on(driver=found))

    chosen = preferred("" if case.machine.drivers_of == "windows" else case.distribution, do)
    ceilings = [ceiling for one in case.machine.devices for ceiling in one.ceilings]
    most = min(ceilings, key=int, default="")
    bound = say("driver {least} to {most}" if most else "driver {least} or newer", least=least, most=most)
    value = chosen.name if chosen else least
    text = say("; ").join((bound, chosen.words)) if chosen and chosen.name != least else bound
    return case.on(driver=driver(value)), Remedy("driver", value, text, least)


def _floors(case: Case) -> Iterator[str]:
    """Every driver from which on something changes for these GPUs."""
    yield from (floor for one in case.machine.devices for floor in one.floors)
    yield from _of_cudas(case.machine.drivers_of)
    by_ptx = {build.cuda_words for build in builds() if compiles_first(build, case.machine)}
    yield from (row["branch"] for row in table("drivers")["branch"] if row.get("cuda") in by_ptx)


@lru_cache(maxsize=2)
def _of_cudas(drivers_of: str) -> frozenset[str]:
    return frozenset(build.floor(drivers_of) for build in builds())


def _pythons(case: Case, does: Does) -> Iterator[Step]:
    """The nearest Python, an older one before a newer one; one with the lock comes before one without."""
    machine = case.machine
    assert machine.wheels is not None
    own, unlocked = machine.python_numbers[1], machine.python.endswith("t")
    tags = {tag for build in builds() for tag in build.tags(machine.wheels)} - {machine.python}

    def distance(tag: str) -> tuple[int, int, bool]:
        minor = numbers_of(tag)[1]
        return abs(minor - own), minor, tag.endswith("t")

    for tag in sorted((tag for tag in tags if unlocked or not tag.endswith("t")), key=distance):
        if does(case.on(python=tag)):
            minor = numbers_of(tag)[1]
            value = f"3.{minor}{'t' if tag.endswith('t') else ''}"
            bound = "" if minor == own else say(" or older") if minor < own else say(" or newer")
            yield case.on(python=tag), Remedy("python", value, f"Python {value}{bound}", value)
            return


def _torches(case: Case, does: Does) -> Iterator[Step]:
    """The torch x.y nearest to what was asked for, a newer one before an older one."""
    minors = list(dict.fromkeys(build.version.release[:2] for build in reversed(builds())))
    asked = {minors.index(build.version.release[:2]) for build in case.wants.builds}
    near = asked or {len(minors)}

    def distance(minor: tuple[int, ...]) -> tuple[int, int]:
        place = minors.index(minor)
        return min(abs(place - one) for one in near), -place

    for minor in sorted(minors, key=distance):
        changed = replace(case, wants=replace(case.wants, minor=minor))
        if does(changed):
            value, place = "{}.{}".format(*minor), minors.index(minor)
            bound = "" if place in near else say(" or older") if place < min(near) else say(" or newer")
            instead = say("{these} instead of {those}", these=f"torch {value}{bound}", those=case.wants.torch.text)
            yield changed, Remedy("torch", value, instead, value)
            return


def _without_wants(case: Case, does: Does) -> Iterator[Step]:
    """Without one of the packages."""
    for want in case.wants.beside:
        changed = replace(case, wants=case.wants.without(want.name))
        if does(changed):
            yield changed, Remedy("wants", want.name, say("without {what}", what=want.text))


def _wsl(case: Case, does: Does) -> Iterator[Step]:
    """The Linux wheels on the same machine, under WSL."""
    changed = case.on(system="Linux", wheels="linux", wsl=True)
    if does(changed):
        yield changed, Remedy("os", "wsl", say("WSL on this Windows machine"))


def _without_gpus(case: Case, does: Does) -> Iterator[Step]:
    """Without as few models of GPU as will do; of many models, which no machine has, one or two at most."""
    devices = case.machine.devices
    most = len(devices) - 1 if len(devices) <= 4 else 2 if len(devices) <= 8 else 1
    for left_out in range(1, most + 1):
        found = False
        for rest in combinations(devices, len(devices) - left_out):
            changed = case.on(devices=rest)
            if does(changed):
                found = True
                names = say(" and ").join(one.name for one in devices if one not in rest)
                without = say("without the {gpus}", gpus=names)
                yield changed, Remedy("gpus", "+".join(one.name for one in rest), without)
        if found:
            return


def _libcs(case: Case, does: Does) -> Iterator[Step]:
    """A distribution with a newer glibc."""
    own = case.machine.glibc
    for row in table("torch")["glibc"]:
        major, _, minor = row["glibc"].partition(".")
        number = int(major), int(minor)
        if (own == "musl" or own is None or own < number) and does(case.on(glibc=number)):
            text = f"glibc {row['glibc']} or newer, as in {row['distributions']}"
            text = f"a distribution with {text}, instead of musl" if own == "musl" else text
            yield case.on(glibc=number), Remedy("libc", f"glibc {row['glibc']}", text, row["glibc"])
            return


KINDS = (
    Kind("driver", lambda case: case.machine.driver is not None, lambda case: case.on(driver=None), _drivers),
    Kind(
        "python",
        lambda case: bool(case.machine.python and case.machine.wheels),
        lambda case: case.on(python=""),
        _pythons,
    ),
    Kind(
        "torch",
        lambda case: bool(case.wants.torch.texts),
        lambda case: replace(case, wants=case.wants.without("torch")),
        _torches,
    ),
    Kind(
        "wants",
        lambda case: bool(case.wants.beside),
        lambda case: replace(case, wants=replace(case.wants, beside=())),
        _without_wants,
    ),
    Kind(
        "os",
        lambda case: case.machine.wheels == "windows",
        lambda case: case.on(system="Linux", wheels="linux", wsl=True),
        _wsl,
    ),
    Kind("gpus", lambda case: len(case.machine.devices) > 1, lambda case: case.on(devices=()), _without_gpus),
    Kind("libc", lambda case: case.machine.glibc is not None, lambda case: case.on(glibc=None), _libcs),
)
"""In the order of their cost; see `gpudoctor.setup.smallest`."""
