"""What the interface can have done, and how far that is.

Callables that `app` hands in, so that it needs no machine and no rule; threads that nobody waits for, in which
they are called (Textual's own thread workers are waited for when the program ends: a probe that never returns would
keep the terminal); and the sources of a reading, each with its state and its time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from gpudoctor.core.diagnosis import Diagnosis, Verdict
from gpudoctor.core.errors import DoctorError
from gpudoctor.core.snapshot import Event, Progress
from gpudoctor.views._terminal import one_line

if TYPE_CHECKING:
    from textual.app import App

    from gpudoctor.core.difference import Difference
    from gpudoctor.core.fact import Row
    from gpudoctor.core.fleet import Fleet
    from gpudoctor.core.measurement import Measurements
    from gpudoctor.core.plan import Foreseen, Plan
    from gpudoctor.core.run import Run, Stop
    from gpudoctor.core.sample import Sample
    from gpudoctor.core.stack import Stack, Wishes


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
class FactInfo:
    """What is declared of a fact, by its name alone."""

    about: str = ""
    unit: str = ""
    source: str = ""
    """The source of the fact, by the name that events and timings have."""
    rules: tuple[str, ...] = ()
    """The ids of the rules that read it."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is shown, and what can be done from here; what is None cannot be done here, and its key says so.

    Everything may raise `DoctorError`, whose message is shown, and may take its time: it is called in a thread.
    """

    title: str
    """Title before the first diagnosis: ``this machine``, a file's name."""
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
    used_by: Callable[[], Mapping[str, FactInfo]] | None = None
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
    job: Callable[[Callable[[JobLook], None]], JobWatch] | None = None
    """Looks at a running job, and tells what it sees."""
    first: str = ""
    """The screen that it opens with, by its name; by default the diagnosis."""


@dataclass(frozen=True, slots=True)
class JobLook:
    """A running job as it is now; without a diagnosis `trouble` says why nothing is known of one.

    The diagnosis has the rows ``rank``, and findings once the stacks were read. Moments are of the Unix clock, 0 for
    what has not been. `also` names other jobs that could be looked at, `every` is the pause between two looks.
    """

    diagnosis: Diagnosis | None = None
    trouble: str = ""
    read_at: float = 0.0
    """When the stacks were read."""
    reading: bool = False
    """Whether they are being read."""
    ended_at: float = 0.0
    """When it was seen that no process of it is left."""
    exit: str = ""
    """How the process that was named ended, where that was seen: ``exit code 3``, ``SIGKILL``."""
    also: tuple[str, ...] = ()
    local: bool = True
    """Whether its ranks are on this machine, so that its GPUs are those of the job."""
    every: float = 1.0


@dataclass(frozen=True, slots=True)
class JobWatch:
    """The controls of the thread that reads a running job again and again."""

    read: Callable[[], None]
    """Read the stacks now."""
    turn: Callable[[], None]
    """Look at the next job, where there are several."""
    rest: Callable[[bool], None]
    """Pause the thread (True) or let it go on (False)."""
    stacks: Callable[[Row], Sequence[tuple[str, Sequence[str]]]]
    """A heading and the functions, the innermost first, for each thread of that rank and of its workers; takes time."""
    stop: Callable[[], None]
    """End the thread."""


@dataclass(frozen=True, slots=True)
class RecordedMachine:
    """A recorded machine: the verdict, what is wrong, the symptom that a user meets first, and its hardware."""

    name: str
    verdict: Verdict
    title: str
    meets: str
    machine: str

    def work(self) -> Work:
        """The machine as `Work` for the interface; raises NotImplementedError unless a subclass defines it."""
        raise NotImplementedError


# ---- In threads ----

T = TypeVar("T")


def run_in_thread(app: App[Any], name: str, work: Callable[[], T], then: Callable[[T | BaseException], None]) -> None:
    """Call `work` in a daemon thread, then `then` in the interface's thread with its result or exception; if the app
    has ended by then, nothing.
    """

    def run() -> None:
        """Call `work`, and have `then` called with its result or exception."""
        try:
            answer: T | BaseException = work()
        except BaseException as error:  # whatever it is, it is shown, and ends nothing
            answer = error
        call_in_app(app, lambda: then(answer))

    threading.Thread(target=run, name=name, daemon=True).start()


def call_in_app(app: App[Any], function: Callable[[], None]) -> None:
    """Call `function` in the interface's thread, from any thread, without waiting; nothing if the app has ended."""
    with contextlib.suppress(RuntimeError):
        app.call_later(function)


def error_text(error: BaseException) -> str:
    """The error on one line: only the message of a `DoctorError`, else also the type: ``ValueError: ...``."""
    return one_line(str(error) if isinstance(error, DoctorError) else f"{type(error).__name__}: {error}")


# ---- How far the reading of a machine is ----


@dataclass(frozen=True, slots=True)
class Source:
    """A source of facts, its state as in `Event`: `seconds` it took once it has ended, `detail` while it runs."""

    state: str
    since: float
    seconds: float = 0.0
    detail: str = ""

    @property
    def asked(self) -> bool:
        """True while the source is still being asked for its facts."""
        return self.state in {"started", "working"}


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading of the machine, in progress or ended; `since` is its start on the monotonic clock, in seconds."""

    since: float = field(default_factory=time.monotonic)
    sources: Mapping[str, Source] = field(default_factory=dict)
    over: bool = False
    seconds: float = 0.0
    trouble: str = ""
    """Why there is no diagnosis: what a person reads."""

    def after(self, event: Event) -> Reading:
        """A copy of the reading with the event's source in its new state."""
        now = time.monotonic()
        before = self.sources.get(event.source)
        since = before.since if before and event.state != "started" else now
        asked = event.state in {"started", "working"}
        source = Source(event.state, since, 0.0 if asked else now - since, event.detail)
        return replace(self, sources={**self.sources, event.source: source})

    def ended(self, trouble: str = "") -> Reading:
        """A copy of the reading as over; `trouble` says why there is no diagnosis."""
        return replace(self, over=True, seconds=time.monotonic() - self.since, trouble=trouble)

    @property
    def done(self) -> int:
        """Number of the reading's sources that are no longer asked."""
        return sum(not source.asked for source in self.sources.values())
