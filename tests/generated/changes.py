"""One thing changed in a sound environment: what it is, where it can be, and the cause that must then come first."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from random import Random

from gpudoctor.core.snapshot import Snapshot
from tests.generated.circumstances import some
from tests.generated.draft import Draft
from tests.generated.machine import Machine, machines
from tests.generated.sound import draft_of

Make = Callable[[Draft, Machine, Random], bool | None]
Fits = Callable[[Machine], bool]
ROOMS = ("changes_driver", "changes_gpu", "changes_session", "changes_software")


@dataclass(frozen=True)
class Change:
    """A change. `make` writes it into the draft, or gives False where this machine does not take it."""

    name: str
    cause: str
    fits: Fits
    make: Make


@dataclass(frozen=True)
class Planted:
    """A changed machine."""

    change: Change
    machine: Machine
    snapshot: Snapshot


_CHANGES: list[Change] = []


def anywhere(_: Machine) -> bool:
    return True


def linux(machine: Machine) -> bool:
    """Where the driver's Linux modules can be seen: neither WSL nor a container."""
    return machine.place in ("bare", "vm")


def live(machine: Machine) -> bool:
    """Where torch was imported."""
    return machine.level == "standard"


def planted(cause: str, fits: Fits = anywhere) -> Callable[[Make], Make]:
    """Marks a function as the change that plants `cause` in machines that fit."""

    def mark(make: Make) -> Make:
        _CHANGES.append(Change(make.__name__, cause, fits, make))
        return make

    return mark


def changes() -> tuple[Change, ...]:
    for room in ROOMS:
        import_module(f"tests.generated.{room}")
    return tuple(_CHANGES)


def broken(seed: int, each: int) -> Iterator[Planted]:
    """Every change in up to `each` different machines, the same for the same seed."""
    for number, change in enumerate(changes()):
        random = Random(f"{seed} {change.name}")
        made = 0
        for tried, machine in enumerate(machines(seed * 1000 + number)):
            if made == each or tried == 6000 + 400 * each:
                break
            if not change.fits(machine):
                continue
            draft = draft_of(machine)
            some(draft, machine, random, plain=True)
            if change.make(draft, machine, random) is not False:
                made += 1
                yield Planted(change, machine, draft.snapshot(f"{change.name}: {machine}", machine.level))
