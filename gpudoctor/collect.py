"""Run every probe side by side, each in its fence with a deadline, and put what they said into one snapshot.

A probe is a module of ``gpudoctor/probes`` with ``FACTS`` (what it answers), ``probe(target)`` (a generator of
``(name, fact)`` and ``(group, rows)``), where it is not ``quick`` a ``LEVEL``, and where it need not be waited for once
others say something a ``MOOT``, those facts and their values. What a probe said before it died or ran out of time is
kept; the rest of its facts are unread, because of that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import cast, get_args

from gpudoctor.model.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.model.frozen import field, mutable
from gpudoctor.model.secrets import screened, secret_values
from gpudoctor.model.snapshot import Event, Level, Progress, Snapshot
from gpudoctor.model.snapshot import Target as Subject
from gpudoctor.target import Target

DEADLINE = 8.0
"""Seconds a probe may take where it names none: by ``DEADLINE``, or by a function ``deadline(target)``."""

_HEAD_START = 0.02
"""Seconds that a probe has the interpreter for itself: most are through by then, and side by side they only take turns
at it. Those that wait for a child (``WAITS``) need none.
"""
_RETRY = 0.01
"""Seconds until a probe that found no room for a thread is tried again."""
_SILENT = "the probe did not say"
_ASKED = "still being asked"


@mutable
class _Run:
    """One probe on its way. It ends by itself or is given up, never both: `ending` guards the two."""

    module: ModuleType
    said: list[tuple[str, Fact | Rows]] = field(default_factory=list)
    started: float = 0.0
    seconds: float = 0.0
    trouble: str = _SILENT
    asked: bool = True
    """Not where the level is too low for this probe."""
    thread: threading.Thread | None = None
    ending: threading.Lock = field(default_factory=threading.Lock)
    ended: bool = False
    given_up: bool = False

    @property
    def name(self) -> str:
        return self.module.__name__.rpartition(".")[2]

    @property
    def at_work(self) -> bool:
        return self.thread is not None and not self.ended and not self.given_up


def collect(target: Target, probes: Iterable[ModuleType], progress: Progress = lambda _: None) -> Snapshot:
    """Ask every probe that belongs to the target's level; the others' facts are unread, saying so."""
    return Collection(target, probes, progress).snapshot()


class Collection:
    """Probes on their way: each is started as `probes` gives it, so that the first work while the next are imported."""

    def __init__(self, target: Target, probes: Iterable[ModuleType], progress: Progress = lambda _: None) -> None:
        self.target = target
        self._progress = progress
        self._runs: list[_Run] = []
        target.listener = lambda source, detail: progress(Event(source, "working", detail))
        levels = get_args(Level)
        for module in probes:
            run = _Run(module)
            self._runs.append(run)
            if levels.index(getattr(module, "LEVEL", "quick")) <= levels.index(target.level):
                _start(run, target, progress, self._runs)
                if run.thread and not getattr(module, "WAITS", False):
                    run.thread.join(_HEAD_START)
            else:
                run.trouble, run.asked = f"asked from level {module.LEVEL} on", False

    def snapshot(self) -> Snapshot:
        """What all of them said; waits for each until its deadline."""
        asked = [run for run in self._runs if run.thread]
        for run in sorted(asked, key=lambda run: bool(_moot_where(run))):
            moot = self._moot(run)
            _await(run, self.target, self._progress, moot)
        return self.so_far()

    def so_far(self) -> Snapshot:
        """What they have said by now; the facts of those that are still at it are unread, saying so."""
        runs = sorted(self._runs, key=lambda run: run.name)
        facts, groups = _merge(runs)
        timings = {f"probe.{run.name}": run.seconds * 1000 for run in runs if run.thread}
        target = self.target
        return Snapshot(Subject("local", target.name, target.python, target.level), facts, groups, timings)

    def _moot(self, run: _Run) -> str:
        """Why `run` is not worth waiting for: every fact in its `MOOT` is as it says there; else empty."""
        signs = _moot_where(run)
        said = dict(entry for other in self._runs for entry in tuple(other.said) if entry[0] in signs)
        values = {name: fact.value for name, fact in said.items() if isinstance(fact, Known)}
        so = bool(signs) and values == signs
        return ", ".join(f"{name} is {signs[name]}" for name in sorted(signs)) if so else ""


def _start(run: _Run, target: Target, progress: Progress, others: Sequence[_Run]) -> None:
    def fence() -> None:
        secrets = secret_values(dict(target.environ.items()))
        try:
            for name, entry in cast("Iterator[tuple[str, Fact | Rows]]", run.module.probe(target)):
                if not isinstance(entry, (Known, Absent, Unread) if "." in name else (tuple, Absent, Unread)):
                    raise TypeError(f"{name} is a {type(entry).__name__}, not a fact")
                run.said.append((name, screened(entry, secrets)))
            trouble = ""
        except BaseException as error:  # also SystemExit: nothing that a probe does may end more than itself
            trouble = screened(f"the probe {run.name} died: {type(error).__name__}: {error}"[:300], secrets)
        with run.ending:
            if run.given_up:
                return
            run.ended = True
            run.trouble = trouble or run.trouble
            run.seconds = time.monotonic() - run.started
        progress(Event(run.name, "died" if trouble else "done"))

    progress(Event(run.name, "started"))
    until = time.monotonic() + DEADLINE
    while True:
        run.started = time.monotonic()
        thread = threading.Thread(target=fence, name=f"probe {run.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # a limit of memory or of threads: there is room when another has ended
            if time.monotonic() > until or not any(other.at_work for other in others):
                run.trouble = f"the probe {run.name} was not started: a limit of memory or threads (ulimit -a)"
                progress(Event(run.name, "died"))
                return
            time.sleep(_RETRY)
        else:
            run.thread = thread
            return


def _moot_where(run: _Run) -> Mapping[str, str]:
    signs: Mapping[str, str] = getattr(run.module, "MOOT", {})
    return signs


def _await(run: _Run, target: Target, progress: Progress, moot: str) -> None:
    deadline = 0.0 if moot else _deadline(run.module, target)
    assert run.thread
    run.thread.join(max(0.0, run.started + deadline - time.monotonic()))
    with run.ending:
        if run.ended:
            return
        run.given_up = True
        run.seconds = time.monotonic() - run.started
        run.trouble = f"the probe {run.name} was stopped " + (f"because {moot}" if moot else f"after {deadline:g} s")
    progress(Event(run.name, "stopped"))


def _deadline(module: ModuleType, target: Target) -> float:
    """Seconds for this probe on this machine, from its start."""
    own = getattr(module, "deadline", None)
    return float(own(target) if own else getattr(module, "DEADLINE", DEADLINE))


def _merge(runs: Sequence[_Run]) -> tuple[dict[str, Fact], dict[str, Rows]]:
    facts: dict[str, Fact] = {}
    groups: dict[str, Rows] = {}
    for run in runs:
        for name, entry in tuple(run.said):  # a probe that was given up may still be talking
            if "." in name:
                facts[name] = _surer(facts.get(name), cast(Fact, entry))
            else:
                groups[name] = _joined(groups.get(name), cast(Rows, entry))
    for run in sorted(runs, key=lambda run: run.trouble == _SILENT):  # of two reasons, the one that tells more
        for spec in run.module.FACTS:
            group = spec.name.rpartition(".")[0]
            why = _ASKED if run.at_work else run.trouble
            if spec.group and group not in groups:
                groups[group] = Unread(why, run.asked)
            elif not spec.group and spec.name not in facts and not spec.name.endswith("*"):
                facts[spec.name] = Unread(why, run.asked)
    return facts, groups


def _surer(one: Fact | None, other: Fact) -> Fact:
    """Of two answers to one question: the known one, else the absent one, else the first. Probes go by name."""
    if one is None:
        return other
    rank = (Known, Absent, Unread)
    return other if rank.index(type(other)) < rank.index(type(one)) else one


def _joined(one: Rows | None, other: Rows) -> Rows:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return one + other
    return other if one is None or isinstance(other, tuple) or isinstance(one, Unread) else one
