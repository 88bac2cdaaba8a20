"""What the interface can have done: callables that the front door hands in, so that it needs no machine and no rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gpudoctor.model.diagnosis import Diagnosis, Verdict
from gpudoctor.model.snapshot import Progress

if TYPE_CHECKING:
    import threading

    from gpudoctor.model.difference import Difference
    from gpudoctor.model.fleet import Fleet
    from gpudoctor.model.foreseen import Foreseen
    from gpudoctor.model.measurement import Measurements
    from gpudoctor.model.plan import Plan
    from gpudoctor.model.run import Run, Stop
    from gpudoctor.model.sample import Sample
    from gpudoctor.model.stack import Stack, Wishes

Diagnose = Callable[[Progress, Callable[[Diagnosis], None]], Diagnosis]
"""Told of each event and of each diagnosis on the way; gives the last one. Called in a thread, again for each `r`."""
Apply = Callable[["Plan", Callable[["Run"], None], Callable[[], "Stop"]], "Run"]
"""Runs the chosen steps of a plan, in order, in this thread; gives the run at its end, whatever that is.

It is told what the user wants by the last argument, which it asks before each step and a few times a second during one:
``after this step`` lets the step come to its end, ``now`` ends its command. The run is written to its journal *before*
each step begins, with that step as running, and again when it is over: whatever ends the program in between, the record
names the step that may be half done. After that the run is told, as often as there is something new; a step that fails
or a rule that still finds something ends it. It raises `DoctorError` for what keeps it from beginning, nothing after.
"""
Undo = Callable[["Run", Callable[["Run"], None], Callable[[], "Stop"]], "Run"]
"""Takes that run back, by the rules of `Apply`; its run has a plan of its own and names the one that it undoes."""
Live = Callable[[Callable[["Sample"], None]], Callable[[], None]]
"""Tells of the GPUs again and again, from a thread of its own, until what it returns is called."""


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
    hide: Callable[[Diagnosis], tuple[Diagnosis, str]] | None = None
    """The diagnosis as others may see it, and how much was hidden, in words; none where all is hidden already."""
    save: Callable[[str, str], None] | None = None
    """Writes a text to a file of that name."""
    plan: Callable[[Diagnosis, Sequence[str]], Plan] | None = None
    """The plan that cures the findings of those ids, or every cause where none is named; quick, and called in place."""
    foreseen: Callable[[Diagnosis, Plan], Foreseen] | None = None
    """What the rules would say with the chosen steps done; quick, and called in place."""
    apply: Apply | None = None
    undo: Undo | None = None
    unfinished: Callable[[], Run | None] | None = None
    """The last run on this machine, where something ended it from outside; quick, and called in place."""
    recorded: bool = False
    """Whether it is a recording: `live`, `apply` and `undo` play it, which changes nothing; the screens say so."""
    stack: Callable[[Wishes], Stack] | None = None
    """What fits those wishes; called in a thread."""
    used_by: Callable[[], Mapping[str, Told]] | None = None
    """Every fact by its name (``gpu.name``; ``env.*`` for any other of ``env``), and which rules read it."""
    open: Callable[[str], Diagnosis] | None = None
    """Diagnoses a file: a pasted report, a saved snapshot or a record."""
    compare: Callable[[Diagnosis, Diagnosis], Difference] | None = None
    """What differs between two machines or two moments."""
    live: Live | None = None
    """The GPUs as they are now, twice a second; None where there is only what was read once."""
    kernels: Callable[[Sequence[str], Callable[[Measurements], None], threading.Event], Measurements] | None = None
    """Runs the kernels of those ids, all where there are none; tells what it has so far, ends soon once stopped."""
    measured: Callable[[], Measurements | None] | None = None
    """What kernels measured before; asked again whenever there is a new diagnosis."""
    judged: Callable[[Diagnosis, Measurements], Diagnosis] | None = None
    """The diagnosis anew, with what was measured among its facts."""
    cluster: Callable[[], Fleet | None] | None = None
    """What was found on this machine's fleet."""
    first: str = ""
    """The screen that it opens with, by its name; by default the diagnosis."""


class Choice(Protocol):
    """A recorded machine: what is wrong with it, what one meets there before one looks, and what it is."""

    @property
    def name(self) -> str: ...
    @property
    def verdict(self) -> Verdict: ...
    @property
    def title(self) -> str: ...
    @property
    def meets(self) -> str: ...
    @property
    def machine(self) -> str: ...

    def work(self) -> Work:
        """The machine as the interface gets it."""
