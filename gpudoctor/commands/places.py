"""The machine that ``--for`` names: described in words, or ``here``, this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpudoctor.model.frozen import replace

if TYPE_CHECKING:
    from gpudoctor.model.snapshot import Snapshot

HERE = "here"
_OF_THE_MACHINE = ("driver", "gpu", "host", "nvml", "pci")
"""Topics of facts that are the machine's, whatever is installed on it."""
_USUAL = {"host.platform": "linux", "host.arch": "x86_64"}
"""What a machine is that is described without a word of it."""


def machine_of(words: str) -> Snapshot | None:
    """The facts of the machine that the words describe; none for no words. Raises `UsageError` for a word it is not."""
    if not words:
        return None
    return _here() if words.strip() == HERE else _described(words)


def _described(words: str) -> Snapshot:
    from gpudoctor.model.fact import Known
    from gpudoctor.model.stack import GRANTED
    from gpudoctor.setup import described

    snapshot = described.snapshot_of(described.described(words))
    usual = {name: Known(value, GRANTED) for name, value in _USUAL.items()}
    return replace(snapshot, facts={**usual, **snapshot.facts})


def _here() -> Snapshot:
    """This machine as far as a manifest's packages do not change it: its GPUs, its driver, its system, its Python."""
    from gpudoctor import doctor

    snapshot = doctor.look("quick")
    facts = {
        name: fact
        for name, fact in snapshot.facts.items()
        if name.partition(".")[0] in _OF_THE_MACHINE or name == "python.version"
    }
    groups = {name: rows for name, rows in snapshot.groups.items() if name in _OF_THE_MACHINE}
    return replace(snapshot, facts=facts, groups=groups, target=replace(snapshot.target, name="this machine"))
