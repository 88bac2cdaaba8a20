"""What the interface can have done: callables that the front door hands in, so that it needs no machine and no rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpudoctor.model.diagnosis import Diagnosis

if TYPE_CHECKING:
    from threading import Event as Stop

    from gpudoctor.model.fleet import Fleet
    from gpudoctor.model.measurement import Measurements

Event = tuple[str, str]
"""A source of facts, and what became of it: ``started``, ``done``, ``died`` or ``stopped``."""
Diagnose = Callable[[Callable[[Event], None], Callable[[Diagnosis], None]], Diagnosis]
"""Told of each event and of each diagnosis on the way; gives the last one. Called in a thread, again for each `r`."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is shown, and what can be done from here. What is None cannot be done here, and its key says so.

    Everything may raise `DoctorError`, whose words are shown, and may take its time: it is called in a thread.
    """

    title: str
    """Whom it is about, until a diagnosis says so itself: ``this machine``, a file's name."""
    diagnose: Diagnose
    explain: Callable[[str], str]
    """The page of a rule or a fact, as text."""
    forms: Mapping[str, Callable[[Diagnosis], str]] = field(default_factory=dict)
    """What a report can be saved as, by the ending of its file: ``json``, ``txt``."""
    save: Callable[[str, str], None] | None = None
    """Writes a text to a file of that name."""
    kernels: Callable[[Sequence[str], Callable[[Measurements], None], Stop], Measurements] | None = None
    """Runs the kernels of those ids, all where there are none; tells what it has so far, ends soon once stopped."""
    measured: Callable[[], Measurements | None] | None = None
    """What kernels measured before."""
    cluster: Callable[[], Fleet | None] | None = None
    """What was found on this machine's fleet."""
