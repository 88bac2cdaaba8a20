"""What takes hosts out of service, in the scheduler's own words. Nothing here runs it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from gpudoctor.fleet.names import folded, ordered
from gpudoctor.model.fleet import Drain

Scheduler = Literal["slurm", "kubernetes", "none"]
_UNSAFE = re.compile(r"[^\w.,:@+-]+")
_LONGEST = 120
"""Characters of a reason: Slurm keeps more, sinfo -R shows the first 20."""


def _slurm(hosts: Sequence[str], reason: str) -> tuple[str, ...]:
    return ("scontrol", "update", f"NodeName={folded(hosts)}", "State=DRAIN", f"Reason={reason}")


def _kubernetes(hosts: Sequence[str], _: str) -> tuple[str, ...]:
    return ("kubectl", "cordon", *hosts)


_COMMANDS: Mapping[Scheduler, Callable[[Sequence[str], str], tuple[str, ...]]] = {
    "slurm": _slurm,
    "kubernetes": _kubernetes,
    "none": lambda *_: (),
}


def drains(reasons: Iterable[tuple[str, str]], scheduler: Scheduler = "none") -> tuple[Drain, ...]:
    """From each bad host and why it is to be taken out (the id of a finding), hosts with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for host, why in reasons:
        by_reason.setdefault(reason(why), []).append(host)
    found = []
    for said, names in by_reason.items():
        hosts = tuple(ordered(names))
        found.append(Drain(hosts, said, _COMMANDS[scheduler](hosts, said)))
    return tuple(found)


def reason(why: str) -> str:
    """``gpudoctor:gpu.fell-off-bus``: without spaces or quotes, which neither a shell nor sinfo would cut."""
    return f"gpudoctor:{_UNSAFE.sub('_', why)}"[:_LONGEST]
