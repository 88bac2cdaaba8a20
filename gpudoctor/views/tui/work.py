"""What the interface can have done: callables that the front door hands in, so that it needs no machine and no rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.sample import Sample

Event = tuple[str, str]
"""A source of facts, and what became of it: ``started``, ``done``, ``died`` or ``stopped``."""
Diagnose = Callable[[Callable[[Event], None], Callable[[Diagnosis], None]], Diagnosis]
"""Told of each event and of each diagnosis on the way; gives the last one. Called in a thread, again for each `r`."""

Live = Callable[[Callable[[Sample], None]], Callable[[], None]]
"""Tells of the GPUs again and again, from a thread of its own, until what it returns is called."""


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
    live: Live | None = None
    """The GPUs as they are now, twice a second; None where there is only what was read once."""
