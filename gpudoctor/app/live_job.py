"""A running job for the interface: looked at in a thread of its own, about once a second, until nobody wants it.

Of this machine its processes are looked at each second and its stacks each ten; of many machines each is asked anew
after half a minute, for that starts a program on all of them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gpudoctor.app import live_gpus
from gpudoctor.cluster.running_job.following import Following
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import DoctorError, UsageError
from gpudoctor.core.fact import Row, Unread, number_of, texts_of
from gpudoctor.core.language import phrase, say
from gpudoctor.core.sample import Sample
from gpudoctor.core.snapshot import Event, Progress
from gpudoctor.probes._job.members import Job, find_jobs, read_job
from gpudoctor.probes._job.stacks import Stacks
from gpudoctor.views.tui.work import JobLook, JobWatch, Live

_LOOK_SECONDS = 1.0
_STACKS_SECONDS = 10.0
"""Seconds between two readings of the stacks: py-spy does not stop the program, but costs processor time itself."""
_SEARCH_SECONDS = 3.0
_HOSTS_SECONDS = 30.0
OnLook = Callable[[JobLook], None]
NO_JOB = "none here: no ranks of a launcher, no Python program on a GPU"


class Source:
    """A job to look at: one of this machine, one on many machines, or any that is found."""

    every = _LOOK_SECONDS

    def look(self, read: bool) -> JobLook:
        """The job as it is now; with `read` a reading of its stacks is begun first. May raise `DoctorError`.

        Abstract: raises NotImplementedError here.
        """
        raise NotImplementedError

    def turn(self) -> None:
        """Choose the next job for the following looks; does nothing for a source of one job."""

    def stacks(self, row: Row) -> Sequence[tuple[str, Sequence[str]]]:
        """(heading, functions) of each thread of the rank in `row`; by default its main thread's, as last read.

        Empty where they were not read.
        """
        frames = texts_of(row.get("stack"))
        return [("its main thread, when the stacks were read", frames)] if frames else []

    def stop(self) -> None:
        """End what the source has started; by default nothing."""


class OfThisMachine(Source):
    """A job of this machine, found by `find` from its known process ids; `UsageError` if there is none."""

    def __init__(
        self,
        find: Callable[[Sequence[int]], Job | Unread],
        rules: Sequence[Path] = (),
        samples: Live | None = None,
    ) -> None:
        found = find(())
        if isinstance(found, Unread):
            raise UsageError(say("job: {why}", why=phrase(found.why)))
        if not found.ranks:
            raise UsageError(say("job: no process of this machine was started so"))
        self._name = f"job of process {found.root}" if found.root else "job"
        self._following = Following(self._name, found, find, rules)
        self._samples: deque[Sample] = deque(maxlen=1)
        self._end: Callable[[], None] = lambda: None
        if samples and live_gpus.has_gpus():
            self._samples.append(Sample(None, trouble="it has not answered yet"))
            self._end = samples(self._samples.append)
        self._ended_at = 0.0
        self._due = 0.0

    def look(self, read: bool) -> JobLook:
        """The job as it is now; a reading of its stacks begins with `read`, or ten seconds after the last."""
        read = read or (time.monotonic() >= self._due and not self._ended_at)
        if read:
            self._due = time.monotonic() + _STACKS_SECONDS
        look = self._following.look(next(iter(self._samples), None), read)
        self._ended_at = (self._ended_at or time.time()) if look.ended else 0.0
        return JobLook(look.diagnosis, "", look.read_at, look.reading, self._ended_at, look.exit)

    def stacks(self, row: Row) -> Sequence[tuple[str, Sequence[str]]]:
        """Threads of the rank and its Python child processes as they are now; the last known ones if it has ended."""
        found = self._following.stacks(int(number_of(row.get("pid")) or 0))
        entries: list[tuple[str, Sequence[str]]] = []
        for member, stacks in found:
            who = f"{member.name} (pid {member.pid})"
            if isinstance(stacks, Unread):
                entries.append((f"{who}: not read: {stacks.why}", ()))
            else:
                entries += _threads(who, stacks)
        return entries or super().stacks(row)

    def stop(self) -> None:
        """End the child that samples NVML, if one was started."""
        self._end()


def _threads(who: str, stacks: Stacks) -> Iterator[tuple[str, Sequence[str]]]:
    """Heading and functions of each thread, the one that does the job's work first."""
    acting = stacks.acting
    for one in sorted(stacks.threads, key=lambda thread: thread is not acting):
        label = one.name or ("MainThread" if one.thread == stacks.main else f"thread {one.thread}")
        yield f"{who}, {label}", [f"{frame.name} ({frame.file}:{frame.line})" for frame in one.frames]


class OfManyMachines(Source):
    """A job on many machines; `ask` queries all of them, which takes seconds."""

    every = _HOSTS_SECONDS

    def __init__(self, ask: Callable[[], Diagnosis]) -> None:
        self._ask = ask

    def look(self, read: bool) -> JobLook:  # noqa: ARG002 - each look reads them
        """Ask all machines, which takes seconds, and return the job as it is now; `read` changes nothing."""
        diagnosis = self._ask()
        return JobLook(diagnosis, read_at=time.time(), local=False, every=self.every)


class AnyJob(Source):
    """The jobs that are found on this machine, one at a time; `rules` are folders of extra pages."""

    every = _SEARCH_SECONDS

    def __init__(self, rules: Sequence[Path] = (), samples: Live | None = None) -> None:
        self._rules = rules
        self._live = samples
        self._source: OfThisMachine | None = None
        self._root = 0
        self._also: tuple[str, ...] = ()
        self._turned = False
        self._searched = 0.0
        self._samples: deque[Sample] = deque(maxlen=1)
        self._end = samples(self._samples.append) if samples and live_gpus.has_gpus() else (lambda: None)

    def look(self, read: bool) -> JobLook:
        """The chosen job as it is now, also one that has ended; a look without diagnosis where no job is found.

        Searches for jobs first if none is chosen, `turn` was called, or the last search is 30 s ago.
        """
        if self._source is None or self._turned or time.monotonic() - self._searched > _HOSTS_SECONDS:
            self._search()
        if self._source is None:
            return JobLook(trouble=NO_JOB, every=self.every)
        look = self._source.look(read)
        return JobLook(look.diagnosis, "", look.read_at, look.reading, look.ended_at, look.exit, self._also)

    def _search(self) -> None:
        """Find the jobs of this machine and choose the first; once one is chosen, another only if `turn` was called."""
        self._searched = time.monotonic()
        users = {process.pid for sample in self._samples for gpu in sample.gpus for process in gpu.processes or ()}
        jobs = find_jobs(users)
        roots = [job.root for job in jobs]
        at = roots.index(self._root) if self._root in roots else -1
        if jobs and (self._turned or self._source is None):
            chosen = jobs[(at + 1) % len(jobs)] if self._turned else jobs[0]
            if self._source is None or chosen.root != self._root:
                if self._source:
                    self._source.stop()
                self._source, self._root = None, chosen.root
                with contextlib.suppress(UsageError):  # it has just ended
                    self._source = OfThisMachine(lambda known: read_job([chosen.root, *known]), self._rules, self._live)
        self._turned = False
        others = [job for job in jobs if job.root != self._root]
        self._also = tuple(f"process {job.root}, {job.members[job.root].name}" for job in others)

    def turn(self) -> None:
        """Choose the next job, in the order in which they are found, at the next look."""
        self._turned = True

    def stacks(self, row: Row) -> Sequence[tuple[str, Sequence[str]]]:
        """Stacks of a rank of the chosen job, as they are now; empty where no job is chosen."""
        return self._source.stacks(row) if self._source else []

    def stop(self) -> None:
        """End NVML's sampling and, if a job is chosen, its source."""
        self._end()
        if self._source:
            self._source.stop()


class Follower:
    """Looks at the source in a daemon thread, and passes each look to all watchers."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._listeners: list[OnLook] = []
        self._news = threading.Condition()
        self._last: JobLook | None = None
        self._wake = threading.Event()
        self._stopped = self._resting = self._wants_stacks = False
        threading.Thread(target=self._run, name="job", daemon=True).start()

    def watch(self, on_look: OnLook) -> JobWatch:
        """Call `on_look` with the last look, if any, and each one from now on.

        Stopping the returned watch ends the following for all watchers.
        """
        self._listeners.append(on_look)
        if self._last:
            on_look(self._last)
        return JobWatch(self._read, self._turn, self._rest, self._source.stacks, self._stop)

    def diagnoses(self, progress: Progress) -> Iterator[Diagnosis]:
        """Yield one diagnosis, after a new reading of the stacks or, of a job that has ended, the last one.

        Raises `UsageError`, with the reason, if the look failed or there is no job.
        """
        progress(Event("job", "started", "the stacks of the ranks"))
        with self._news:
            before = self._last.read_at if self._last else 0.0
            self._read()
            while not (self._last and (self._last.trouble or self._last.ended_at or self._last.read_at > before)):
                self._news.wait()
            last = self._last
        progress(Event("job", "done"))
        if last.diagnosis is None:
            raise UsageError(last.trouble)
        yield last.diagnosis

    def _run(self) -> None:
        """Thread body: look at the job repeatedly; while paused, only until a requested reading of the stacks is done.

        When stopped, it stops the source.
        """
        pause: float | None = None
        while not self._stopped:
            if not self._resting or self._wants_stacks or (self._last and self._last.reading):
                look = self._look()
                pause = look.every
                with self._news:
                    self._last = look
                    self._news.notify_all()
                for listener in self._listeners:
                    listener(look)
            idle = self._resting and not (self._last and self._last.reading)
            self._wake.wait(None if idle else pause)
            self._wake.clear()
        self._source.stop()

    def _look(self) -> JobLook:
        """The source's next look; if it fails, a look with the reason as `trouble`."""
        read, self._wants_stacks = self._wants_stacks, False
        try:
            return self._source.look(read)
        except DoctorError as error:
            return JobLook(trouble=str(error), every=self._source.every)
        except Exception as error:  # shown; the next look may do better
            return JobLook(trouble=f"{type(error).__name__}: {error}", every=self._source.every)

    def _read(self) -> None:
        """Have the thread look at once, with a new reading of the stacks."""
        self._wants_stacks = True
        self._wake.set()

    def _turn(self) -> None:
        """Have the thread look at the next job at once."""
        self._source.turn()
        self._wake.set()

    def _rest(self, rests: bool) -> None:
        """Pause (True) or resume (False) looking at the job."""
        self._resting = rests
        self._wake.set()

    def _stop(self) -> None:
        """Have the thread that looks at the job end, which then stops the source."""
        self._stopped = True
        self._wake.set()
