"""A sound machine as the snapshot that a run of the program on it would give."""

from __future__ import annotations

from gpudoctor.model.snapshot import Snapshot
from tests.generated import gpus, host, software
from tests.generated.draft import Draft
from tests.generated.machine import Machine


def draft_of(machine: Machine) -> Draft:
    """Its facts, still to be changed."""
    draft = Draft()
    gpus.put(draft, machine)
    host.put(draft, machine)
    software.put(draft, machine)
    return draft


def snapshot_of(machine: Machine) -> Snapshot:
    return draft_of(machine).snapshot(str(machine), machine.level)
