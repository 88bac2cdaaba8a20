"""A sound machine as the snapshot that a run of the program on it would give."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from gpudoctor.core.snapshot import Snapshot
from tests.generated import gpus, host, software
from tests.generated.circumstances import Circumstance, some
from tests.generated.draft import Draft
from tests.generated.machine import Machine, machines


@dataclass(frozen=True)
class Sound:
    """A sound environment, and the harmless things about it."""

    machine: Machine
    circumstances: tuple[Circumstance, ...]
    snapshot: Snapshot

    @property
    def warns(self) -> frozenset[str]:
        """Ids of the warnings that its circumstances justify."""
        return frozenset[str]().union(*(one.warns for one in self.circumstances))

    def __str__(self) -> str:
        return f"{self.machine}; {', '.join(one.name for one in self.circumstances) or 'nothing special'}"


def draft_of(machine: Machine) -> Draft:
    """Its facts, still to be changed."""
    draft = Draft()
    gpus.put(draft, machine)
    host.put(draft, machine)
    software.put(draft, machine)
    return draft


def sound(seed: int) -> Iterator[Sound]:
    """Sound environments without end, the same for the same seed; every other one has harmless oddities."""
    random = Random(f"circumstances {seed}")
    for machine in machines(seed):
        draft = draft_of(machine)
        odd = some(draft, machine, random)
        yield Sound(machine, odd, draft.snapshot(str(machine), machine.level))
