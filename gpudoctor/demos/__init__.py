"""Recorded machines that ship with the package: each opens in the interface as if one sat before it.

A folder a machine, of which ``machine.json.gz`` is its record; ``index.json`` lists them. ``python -m tests.demos``
makes them from the simulator's machines. Some have ``kernels.json`` and ``cluster.json``, what was measured on them and
on their fleet: ``python -m tests.measured`` makes those.
"""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING

from gpudoctor.model.diagnosis import Diagnosis, Verdict
from gpudoctor.model.errors import UsageError
from gpudoctor.target import Answer
from gpudoctor.target.record import Record
from gpudoctor.target.recorded import Recorded

if TYPE_CHECKING:
    from gpudoctor.model.fleet import Fleet
    from gpudoctor.model.measurement import Measurements
    from gpudoctor.views.tui.work import Event, Work

LONGEST = 1.5
"""Seconds that the answers of a recorded machine take in all: enough to be seen arriving."""
_SECONDS = {"ask_nvml.py": 0.3, "ask_cuda.py": 0.5, "ask_torch.py": 1.3}
_OTHERS = 0.1


@dataclass(frozen=True, slots=True)
class Demo:
    """A recorded machine: what is wrong with it, what one meets there before one looks, and what it is."""

    name: str
    verdict: Verdict
    title: str
    meets: str
    machine: str
    pace: float = 1.0
    """How slowly its answers come: 1 is good to watch, 0 is at once."""

    def record(self) -> Record:
        """All that the machine answered."""
        from gpudoctor.readers import decode
        from gpudoctor.target import record_json

        packed = (resources.files(__name__) / self.name / "machine.json.gz").read_bytes()
        return record_json.parse(decode(packed, self.name))

    def work(self) -> Work:
        """The machine as the interface gets it."""

        from gpudoctor.interactive import work_on

        def diagnoses(progress: Callable[[Event], None]) -> Iterator[Diagnosis]:
            from gpudoctor import doctor

            with _Paced(self.record(), self.pace) as target:
                for diagnosis in doctor.watch(progress=progress, target=target):
                    yield _recorded(diagnosis)

        work = replace(work_on(f"recording: {self.title}", diagnoses), measured=self.measured, cluster=self.cluster)
        return self._with_cure(work)

    def _with_cure(self, work: Work) -> Work:
        """The same with the recorded run of its plan and the recorded answers of the setup screen, if it has them."""
        plan, played = work.plan, self._document("run.json")
        if plan is None or played is None:
            return work
        from gpudoctor.demos import playing
        from gpudoctor.model import stack

        run = playing.from_json(played, self.pace)
        answers = self._document("stacks.json")
        return replace(
            work,
            plan=lambda diagnosis, only: run.plan(plan(diagnosis, only)),
            apply=run.apply,
            undo=run.undo,
            recorded=True,
            stacks=tuple(map(stack.from_json, answers if isinstance(answers, list) else ())),
        )

    def measured(self) -> Measurements | None:
        """What kernels measured on it, where they did."""
        from gpudoctor.model import measurement

        raw = self._document("kernels.json")
        return None if raw is None else measurement.from_json(raw)

    def cluster(self) -> Fleet | None:
        """What the check of its fleet said, where there was one."""
        from gpudoctor.model import fleet

        raw = self._document("cluster.json")
        return None if raw is None else fleet.from_json(raw)

    def _document(self, name: str) -> object:
        file = resources.files(__name__) / self.name / name
        return json.loads(file.read_text("utf-8")) if file.is_file() else None


def every() -> tuple[Demo, ...]:
    """All of them, what most people meet first."""
    listed = json.loads((resources.files(__name__) / "index.json").read_text("utf-8"))
    return tuple(Demo(**entry) for entry in listed)


def named(name: str) -> Demo:
    """The one of that name; raises `UsageError` with the nearest names where there is none."""
    demos = {demo.name: demo for demo in every()}
    if name in demos:
        return demos[name]
    near = difflib.get_close_matches(name.lower(), demos, cutoff=0.5) or [key for key in demos if name.lower() in key]
    there = f"the nearest: {', '.join(near)}" if near else f"there are: {', '.join(demos)}"
    raise UsageError(f"no demo is named {name!r}; {there}")


def show(name: str = "") -> None:
    """The interface on that machine, or on the list of all, until the user leaves."""
    from gpudoctor import interactive

    if name:
        interactive.run(named(name).work())
        return
    from gpudoctor.views.tui.recordings import RecordingsApp

    RecordingsApp(every()).run()


def _recorded(diagnosis: Diagnosis) -> Diagnosis:
    """The same, said to be about a record, as `gpudoctor read` says it."""
    snapshot = diagnosis.snapshot
    return replace(diagnosis, snapshot=replace(snapshot, target=replace(snapshot.target, kind="snapshot")))


class _Paced(Recorded):
    """A record whose programs take their time."""

    def __init__(self, record: Record, pace: float) -> None:
        super().__init__(record)
        self._pace = pace
        self._ends = time.monotonic() + pace * LONGEST

    def run(
        self,
        argv: Sequence[str],
        timeout: float = 5.0,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        limit: int = 1 << 20,
        silence: float | None = None,
    ) -> Answer:
        names = {word.rpartition("/")[2] for word in argv}
        wanted = max((_SECONDS[name] for name in names & _SECONDS.keys()), default=_OTHERS) * self._pace
        time.sleep(max(0.0, min(wanted, self._ends - time.monotonic())))
        return super().run(argv, timeout, env, stdin, limit, silence)
