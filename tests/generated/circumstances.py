"""Harmless things that sound machines have: each would be a false alarm if a rule took it for a fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from random import Random

from tests.generated.draft import Draft
from tests.generated.machine import Machine

Make = Callable[[Draft, Machine, Random], None]
Fits = Callable[[Machine], bool]


@dataclass(frozen=True)
class Circumstance:
    """Something harmless, where it can be, and the warnings that it justifies."""

    name: str
    fits: Fits
    make: Make
    warns: frozenset[str]


ROOMS = ("harmless_host", "harmless_software")
CIRCUMSTANCES: list[Circumstance] = []


def harmless(fits: Fits = lambda _: True, warns: str = "") -> Callable[[Make], Make]:
    """Marks a function that writes something harmless into a draft; `warns`: ids of warnings that are right."""

    def mark(make: Make) -> Make:
        CIRCUMSTANCES.append(Circumstance(make.__name__, fits, make, frozenset(warns.split())))
        return make

    return mark


def own_host(machine: Machine) -> bool:
    return machine.place in ("bare", "vm")


def several(machine: Machine) -> bool:
    return machine.count > 1 and not machine.mig


def live(draft: Draft) -> bool:
    return bool(draft.value("live.import_outcome") == "ok")


def fewer(draft: Draft, kept: list[int]) -> None:
    """CUDA and torch see only those GPUs."""
    for group in ("cuda_device", "live_gpu"):
        if rows := draft.each(group):
            draft.groups[group] = [rows[index] for index in kept]
    draft.tell("libcuda", {"cuda_driver.count": len(kept), "cuda_driver.masked": False})
    if live(draft):
        draft.tell("torch", {"live.device_count": len(kept)})


def some(draft: Draft, machine: Machine, random: Random, plain: bool = False) -> tuple[Circumstance, ...]:
    """Writes up to three harmless things into the draft and says which; `plain` leaves out those of `CROWD`."""
    for room in ROOMS:
        import_module(f"tests.generated.{room}")
    fitting = [one for one in CIRCUMSTANCES if one.fits(machine) and not (plain and one.name in CROWD)]
    chosen = random.sample(fitting, min(len(fitting), random.randrange(4)))
    made: list[Circumstance] = []
    for one in sorted(chosen, key=lambda one: one.name):
        if not made or not {one.name, *(other.name for other in made)} & CROWD or one.name not in CROWD:
            one.make(draft, machine, random)
            made.append(one)
    return tuple(made)


CROWD = frozenset(
    {
        "some_devices_visible",
        "a_scheduler_gave_some_of_the_gpus",
        "one_gpu_given_to_a_virtual_machine",
        "a_mig_device_named",
        "a_narrow_slot",
        "another_model_beside",
        "no_torch_in_the_systems_python",
        "torch_of_a_vendor",
    }
)
"""Of these a machine has one at most: they tell the same facts."""
