"""One module per source of facts, named after it; all run side by side, each with a deadline, into one snapshot.

Modules that begin with ``_`` are parts that several probes share; ``children`` are scripts that run in other processes.

A probe is a module of ``gpudoctor/probes`` with ``FACTS`` (what it answers), ``probe(target)`` (a generator of
``(name, fact)`` and ``(group, rows)``), where it is not ``quick`` a ``LEVEL``, and where it need not be waited for once
others say something a ``MOOT``, those facts and their values. ``ONLY`` names the one system that has such facts, they
are absent on others; ``NOT_YET`` one on which they are not read. What a probe said before it died or ran out of time is
kept; the rest of its facts are unread, because of that. A probe that is not run is not imported where a build has
compiled what all declare (`declared`).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar, cast, get_args

from gpudoctor.core import shipped, system
from gpudoctor.core.fact import Absent, Fact, Known, Reason, Rows, Unread
from gpudoctor.core.frozen import field, frozen, mutable
from gpudoctor.core.secrets import secret_values
from gpudoctor.core.snapshot import Event, Level, Progress, Snapshot
from gpudoctor.core.snapshot import Target as Subject
from gpudoctor.core.texts import screened
from gpudoctor.target import Target, system_paths

T = TypeVar("T")
DEADLINE = 8.0
"""Seconds a probe may take where it names none: by ``DEADLINE``, or by a function ``deadline(target)``."""

_HEAD_START_SECONDS = 0.02
"""Seconds that a probe has the interpreter for itself: most are through by then, and side by side they only take turns
at it. Those that wait for a child (``WAITS``) need none.
"""
_RETRY_SECONDS = 0.01
"""Seconds until a probe that found no room for a thread is tried again."""
_SILENT = "the probe did not say"
_ASKED = "still being asked"


@frozen
class Declaration:
    """What a probe's module declares, as far as it must be known of one that is not run."""

    name: str
    answers: Sequence[str]
    """The facts and groups that it is to answer, as a snapshot names them: ``driver.version``, ``gpu``."""
    only: str = ""
    not_yet: str = ""
    level: str = "quick"


DECLARATIONS = "rules/probes.json"
"""The file of an installed package that holds what `compiled_declarations` gives."""


def declared(first: Sequence[str] = ()) -> Iterator[Declaration]:
    """What each probe declares, those named in `first` first; a checkout, which has it not compiled, imports them."""
    compiled = shipped.data(DECLARATIONS)
    if compiled is None:
        return map(_declaration_of, shipped.modules_of(sys.modules[__name__], first))
    found = (Declaration(*entry) for entry in json.loads(compiled))
    return iter(sorted(found, key=lambda probe: first.index(probe.name) if probe.name in first else len(first)))


def compiled_declarations() -> list[list[object]]:
    """What all probes declare, by name, each as the arguments of `Declaration`; imports every probe."""
    found = map(_declaration_of, shipped.modules_of(sys.modules[__name__]))
    return [[probe.name, list(probe.answers), probe.only, probe.not_yet, probe.level] for probe in found]


def _declaration_of(module: ModuleType) -> Declaration:
    """What the module declares; wildcards such as ``env.*`` need no answer."""
    names = (spec.name.rpartition(".")[0] if spec.group else spec.name for spec in module.FACTS)
    return Declaration(
        module.__name__.rpartition(".")[2],
        tuple(dict.fromkeys(name for name in names if not name.endswith("*"))),
        getattr(module, "ONLY", ""),
        getattr(module, "NOT_YET", ""),
        getattr(module, "LEVEL", "quick"),
    )


@mutable
class _ProbeRun:
    """One probe's run. It ends by itself or is given up, never both; the lock `ending` guards that."""

    declared: Declaration
    module: Any = None
    """None where the probe is not run."""
    results: list[tuple[str, Fact | Rows]] = field(default_factory=list)
    started: float = 0.0
    seconds: float = 0.0
    trouble: str = _SILENT
    reason: Reason = Reason.NOT_STATED
    asked: bool = True
    """Not where the level is too low for this probe."""
    absent: bool = False
    """Its facts are of another system."""
    thread: threading.Thread | None = None
    ending: threading.Lock = field(default_factory=threading.Lock)
    ended: bool = False
    given_up: bool = False

    @property
    def name(self) -> str:
        """The probe's name, the last part of its module's: ``nvml``."""
        return self.declared.name

    @property
    def running(self) -> bool:
        """True from the probe's start until it ended or was given up."""
        return self.thread is not None and not self.ended and not self.given_up


def collect(
    target: Target, probes: Iterable[Declaration | ModuleType], progress: Progress = lambda _: None
) -> Snapshot:
    """Run all probes of the target's level, wait for each until its deadline, and return the snapshot.

    Facts of probes for a higher level are unread, those of probes for another system absent, with the reason.
    """
    return Collection(target, probes, progress).snapshot()


class Collection:
    """Probes running in threads; each starts as soon as the iterable gives it, while the next is imported."""

    def __init__(
        self, target: Target, probes: Iterable[Declaration | ModuleType], progress: Progress = lambda _: None
    ) -> None:
        """Starts each probe of the target's system and level; the facts of the others will be absent or unread."""
        self.target = target
        self._progress = progress
        self._runs: list[_ProbeRun] = []
        target.listener = lambda source, detail: progress(Event(source, "working", detail))
        levels = get_args(Level)
        for probe in probes:
            declared = probe if isinstance(probe, Declaration) else _declaration_of(probe)
            run = _ProbeRun(declared)
            self._runs.append(run)
            if declared.only not in {"", target.system}:
                run.trouble, run.absent = f"only {declared.only.capitalize()} has it", True
            elif declared.not_yet == target.system:
                run.trouble, run.reason = f"not read on {target.system.capitalize()} yet", Reason.UNSPECIFIED
            elif levels.index(declared.level) <= levels.index(target.level):
                run.module = probe if isinstance(probe, ModuleType) else import_module(f"{__name__}.{probe.name}")
                _start(run, target, progress, self._runs)
                if run.thread and not getattr(run.module, "WAITS", False):
                    run.thread.join(_HEAD_START_SECONDS)
            else:
                run.trouble, run.asked = f"asked from level {declared.level} on", False
                run.reason = Reason.needs(declared.level)

    @property
    def running(self) -> bool:
        """True while a probe is running."""
        return any(run.running for run in self._runs)

    def snapshot(self) -> Snapshot:
        """Wait for each probe until its deadline, and return the snapshot; a probe that takes longer is given up."""
        asked = [run for run in self._runs if run.thread]
        for run in sorted(asked, key=lambda run: bool(_moot_conditions(run))):
            moot = self._moot_reason(run)
            _await(run, self.target, self._progress, moot)
        return self.so_far()

    def so_far(self) -> Snapshot:
        """The snapshot of what the probes have yielded by now, without waiting; facts of running probes are unread."""
        runs = sorted(self._runs, key=lambda run: run.name)
        facts, groups = _merge(runs)
        timings = {f"probe.{run.name}": run.seconds * 1000 for run in runs if run.thread}
        target = self.target
        return Snapshot(
            Subject("local", target.name, _displayed(target.python, target), target.level), facts, groups, timings
        )

    def _moot_reason(self, run: _ProbeRun) -> str:
        """Why this probe need not be waited for: all facts in its module's `MOOT` have the values there; else empty."""
        conditions = _moot_conditions(run)
        results = dict(entry for other in self._runs for entry in tuple(other.results) if entry[0] in conditions)
        values = {name: fact.value for name, fact in results.items() if isinstance(fact, Known)}
        so = bool(conditions) and values == conditions
        return ", ".join(f"{name} is {conditions[name]}" for name in sorted(conditions)) if so else ""


def _displayed(entry: T, target: Target) -> T:
    """The fact, rows or text, on Windows with its paths written with backslashes."""
    return system_paths.with_native_paths(entry) if target.system == "windows" else entry


def _start(run: _ProbeRun, target: Target, progress: Progress, others: Sequence[_ProbeRun]) -> None:
    """Start the probe's thread; retries while the system has no room for a thread and another probe still runs.

    If there is none within `DEADLINE`, the run's trouble says so and its `thread` stays None.
    """

    def run_contained() -> None:
        """Run the probe, store its results without secrets, and report its end.

        Any exception is recorded as the probe's trouble, and what a probe that was given up still does is ignored.
        """
        secrets = secret_values(dict(target.environ.items()))
        try:
            for name, entry in cast("Iterator[tuple[str, Fact | Rows]]", module.probe(target)):
                if not isinstance(entry, (Known, Absent, Unread) if "." in name else (tuple, Absent, Unread)):
                    raise TypeError(f"{name} is a {type(entry).__name__}, not a fact")
                run.results.append((name, _displayed(screened(entry, secrets), target)))
            trouble = ""
        except BaseException as error:  # also SystemExit: nothing that a probe does may end more than itself
            trouble = screened(f"the probe {run.name} died: {type(error).__name__}: {error}"[:300], secrets)
        with run.ending:
            if run.given_up:
                return
            run.ended = True
            if trouble:
                run.trouble, run.reason = trouble, Reason.CRASHED
            run.seconds = time.monotonic() - run.started
        progress(Event(run.name, "died" if trouble else "done"))

    module = run.module
    progress(Event(run.name, "started"))
    until = time.monotonic() + DEADLINE
    while True:
        run.started = time.monotonic()
        thread = threading.Thread(target=run_contained, name=f"probe {run.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # a limit of memory or of threads: there is room when another has ended
            if time.monotonic() > until or not any(other.running for other in others):
                run.trouble = f"the probe {run.name} was not started: a limit of memory or threads (ulimit -a)"
                run.reason = Reason.FAILED
                progress(Event(run.name, "died"))
                return
            time.sleep(_RETRY_SECONDS)
        else:
            run.thread = thread
            return


def _moot_conditions(run: _ProbeRun) -> Mapping[str, str]:
    """The module's `MOOT`: fact names and the values that make the probe moot; empty if it has none."""
    conditions: Mapping[str, str] = getattr(run.module, "MOOT", {})
    return conditions


def _await(run: _ProbeRun, target: Target, progress: Progress, moot: str) -> None:
    """Wait for the probe until its deadline, or not at all if it is `moot` (the reason); then give it up."""
    deadline = 0.0 if moot else _deadline(run.module, target)
    assert run.thread
    system.join_until(run.thread, run.started + deadline)
    with run.ending:
        if run.ended:
            return
        run.given_up = True
        run.seconds = time.monotonic() - run.started
        run.trouble = f"the probe {run.name} was stopped " + (f"because {moot}" if moot else f"after {deadline:g} s")
        run.reason = Reason.TIMED_OUT
    progress(Event(run.name, "stopped"))


def _deadline(module: ModuleType, target: Target) -> float:
    """Seconds that this probe may take from its start: its `deadline(target)`, its `DEADLINE`, or the default."""
    module_deadline = getattr(module, "deadline", None)
    return float(module_deadline(target) if module_deadline else getattr(module, "DEADLINE", DEADLINE))


def _merge(runs: Sequence[_ProbeRun]) -> tuple[dict[str, Fact], dict[str, Rows]]:
    """Facts by name and rows by group of all probes.

    What a probe declares and did not yield is unread, with its trouble; pending while it runs. It is absent if it is of
    another system, or left out if it is named after that (``windows.tdr_off``).
    """
    facts: dict[str, Fact] = {}
    groups: dict[str, Rows] = {}
    for run in runs:
        for name, entry in tuple(run.results):  # a probe that was given up may still be talking
            if "." in name:
                facts[name] = _more_certain(facts.get(name), cast(Fact, entry))
            else:
                groups[name] = _join_rows(groups.get(name), cast(Rows, entry))
    for run in sorted(runs, key=lambda run: run.trouble == _SILENT):  # of two reasons, the one that tells more
        unread: Absent | Unread = Unread(run.trouble, run.asked, run.reason)
        if run.absent:
            unread = Absent(run.trouble)
        elif run.running:
            unread = Unread(_ASKED, run.asked, Reason.PENDING)
        for name in run.declared.answers:
            if "." not in name:
                groups.setdefault(name, unread)
            elif not (run.absent and name.startswith(f"{run.declared.only}.")):
                facts.setdefault(name, unread)
    return facts, groups


def _more_certain(first: Fact | None, second: Fact) -> Fact:
    """The more certain of two facts of one name: known before absent before unread; the first of equals."""
    if first is None:
        return second
    rank = (Known, Absent, Unread)
    return second if rank.index(type(second)) < rank.index(type(first)) else first


def _join_rows(first: Rows | None, second: Rows) -> Rows:
    """Rows of two probes for one group, joined; if only one has rows, these, else an absent group before an unread."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        return first + second
    return second if first is None or isinstance(second, tuple) or isinstance(first, Unread) else first
