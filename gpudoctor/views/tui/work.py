"""What the interface can have done: callables that the front door hands in, so that it needs no machine and no rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.difference import Difference

Event = tuple[str, str]
"""A source of facts, and what became of it: ``started``, ``done``, ``died`` or ``stopped``."""
Diagnose = Callable[[Callable[[Event], None], Callable[[Diagnosis], None]], Diagnosis]
"""Told of each event and of each diagnosis on the way; gives the last one. Called in a thread, again for each `r`."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of a fact by its name alone."""

    about: str = ""
    """What it means."""
    unit: str = ""
    source: str = ""
    """Which source of facts tells it, by the name that events and timings have."""
    rules: tuple[str, ...] = ()
    """The ids of the rules that read it."""


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
    used_by: Callable[[], Mapping[str, Told]] | None = None
    """Every fact by its name (``gpu.name``; ``env.*`` for any other of ``env``), and which rules read it."""
    open: Callable[[str], Diagnosis] | None = None
    """Diagnoses a file: a pasted report, a saved snapshot or a record."""
    compare: Callable[[Diagnosis, Diagnosis], Difference] | None = None
    """What differs between two machines or two moments."""
