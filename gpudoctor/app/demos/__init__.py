"""Recorded machines that ship with the package: each opens in the interface as if one sat before it.

A folder a machine: ``machine.json.gz`` is its record; the others are what else there is of it: its GPUs at work, what
kernels measured, its fleet, the run that cured it. ``python -m tests.demos`` makes all but kernels and fleet anew.
A job or a run is ``document.json.gz`` instead: the facts that ``gpudoctor job`` or ``run`` saw of one, judged anew each
time. ``python -m tests.demo_jobs`` records it.
"""

from __future__ import annotations

import difflib
import gzip
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from gpudoctor.app import interactive, pipeline
from gpudoctor.core import fleet, measurement, sample, shipped
from gpudoctor.core.diagnosis import Diagnosis, verdict_of
from gpudoctor.core.diagnosis import from_json as diagnosis_from_json
from gpudoctor.core.errors import DocumentError, UsageError
from gpudoctor.core.fact import Reason, text_of, texts_of
from gpudoctor.core.language import say
from gpudoctor.core.plan import Change, Plan, PlanStep
from gpudoctor.core.run import Began, Ended, Event, Judged, Printed, Run, State
from gpudoctor.core.sample import GPU, Sample
from gpudoctor.core.snapshot import Progress
from gpudoctor.diagnosis import rulebook
from gpudoctor.fixes import records
from gpudoctor.fixes.steps.engine import Tell, Wants
from gpudoctor.target import Answer, Watch
from gpudoctor.target.record import Record, from_json
from gpudoctor.target.recorded import Recorded
from gpudoctor.views import job
from gpudoctor.views._terminal import PLAIN, Style
from gpudoctor.views.tui.work import JobLook, JobWatch, RecordedMachine, Work

LONGEST_SECONDS = 1.5
"""Seconds that the answers of a recorded machine take in all: enough to be seen arriving."""
_SECONDS = {"ask_nvml.py": 0.3, "ask_cuda.py": 0.5, "ask_torch.py": 1.3}
_OTHER_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Demo(RecordedMachine):
    """A recorded machine that ships."""

    pace: float = 1.0
    """How slowly its answers come: 1 is good to watch, 0 is at once."""

    def record(self) -> Record:
        """The record of everything that the demo's machine answered, for a replay."""
        return from_json(self._document("machine.json.gz"))

    def diagnosis(self, rules: Sequence[Path] = (), expect: str | None = None) -> Diagnosis:
        """Diagnose the recorded machine, job or run without delays, with a site's own pages and a profile, if given."""
        if self._is_document:
            return self._of_document(rules, expect)
        with Recorded(self.record()) as target:
            return _as_snapshot(pipeline.check(target.level, rules=rules, target=target, expect=expect))

    def work(self) -> Work:
        """The machine as `Work` for the interface; its programs' answers arrive with delays, all within
        `LONGEST_SECONDS` x `pace` seconds.
        """

        def diagnoses(progress: Progress) -> Iterator[Diagnosis]:
            """Yield a diagnosis whenever a probe of the recorded machine has answered; of a job or run its only one."""
            if self._is_document:
                yield self._of_document()
                return
            with _PacedRecord(self.record(), self.pace) as target:
                for diagnosis in pipeline.watch(progress=progress, target=target):
                    yield _as_snapshot(diagnosis)

        return self._with_recordings(replace(interactive.work_on(f"recording: {self.title}", diagnoses), recorded=True))

    def _follow(self, on_look: Callable[[JobLook], None]) -> JobWatch:
        """Pass the recorded job to `on_look` once; the `JobWatch` returned has its stacks and does nothing else."""
        on_look(JobLook(self._of_document(), read_at=time.time(), local=False))
        return JobWatch(
            read=lambda: None,
            turn=lambda: None,
            rest=lambda _: None,
            stacks=lambda row: [(text_of(row.get("place")), texts_of(row.get("stack")))],
            stop=lambda: None,
        )

    @property
    def _is_document(self) -> bool:
        """Whether the demo is a recorded job or run, and not a machine."""
        return (self._folder / "document.json.gz").exists()

    def _of_document(self, rules: Sequence[Path] = (), expect: str | None = None) -> Diagnosis:
        """The recorded job or run, judged anew by today's rules and those in the folders `rules`; raises `UsageError`
        where a profile (`expect`) is given.

        Rules unjudged because a fact was not asked for in the recording are not listed; the verdict is unknown only if
        the recorded one was.
        """
        if expect:
            raise UsageError(say("demo {name}: a job or a run is not held to a profile", name=self.name))
        recorded = diagnosis_from_json(self._document("document.json.gz"))
        judged = pipeline.diagnose(recorded.snapshot, rulebook.load(rules))
        unjudged = tuple(entry for entry in judged.unjudged if entry.reason is not Reason.NOT_ASKED)
        verdict = verdict_of(judged.findings, known=recorded.verdict != "unknown")
        return _as_snapshot(replace(judged, unjudged=unjudged, verdict=verdict))

    def _with_recordings(self, work: Work) -> Work:
        """The work with the job, live samples, measurements, fleet and fix run that were recorded, if any."""
        files = {entry.name for entry in self._folder.iterdir()}
        if self._is_document and self._of_document().snapshot.known("job.ranks"):
            work = replace(work, job=self._follow, first="job", stack=None)
        if "live.json.gz" in files:
            work = replace(work, live=lambda on_sample: live_from_json(self._document("live.json.gz")).play(on_sample))
        if "kernels.json.gz" in files:
            work = replace(work, measured=lambda: measurement.from_json(self._document("kernels.json.gz")))
        if "cluster.json.gz" in files:
            work = replace(work, cluster=lambda: fleet.from_json(self._document("cluster.json.gz")))
        if "run.json" in files and (plan := work.plan):
            run = run_from_json(self._document("run.json"), self.pace)
            work = replace(work, apply=run.apply, undo=run.undo, plan=lambda *asked: run.plan(plan(*asked)))
        return work

    @property
    def _folder(self) -> Path:
        """The folder with the files of this demo."""
        return shipped.folder("app/demos") / self.name

    def _document(self, name: str) -> Any:
        """A JSON file of this demo, parsed; ``.gz`` is decompressed."""
        raw = (self._folder / name).read_bytes()
        return json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)


def every() -> tuple[Demo, ...]:
    """All demos that ship, the most common problems first."""
    listed = json.loads(shipped.text("app/demos/index.json"))
    return tuple(Demo(**entry) for entry in listed)


def named(name: str) -> Demo:
    """The demo of that name; raises `UsageError` with similar names if there is none."""
    demos = {demo.name: demo for demo in every()}
    if name in demos:
        return demos[name]
    near = difflib.get_close_matches(name.lower(), demos, cutoff=0.5) or [key for key in demos if name.lower() in key]
    there = say("the nearest: {names}" if near else "available: {names}", names=", ".join(near or demos))
    raise UsageError(say("no demo is named {name}; {there}", name=repr(name), there=there))


def own_report(diagnosis: Diagnosis, style: Style = PLAIN) -> str:
    """The report of a recorded job or run, as its command prints it; empty for a machine's."""
    if diagnosis.snapshot.known("job.ranks"):
        return job.render(diagnosis, style)
    return job.render_account(diagnosis, style) if diagnosis.snapshot.known("run.command") else ""


def show(name: str = "") -> None:
    """Run the interface on that demo, or for an empty name on the list of all, until the user leaves."""
    if name:
        interactive.run(named(name).work())
        return
    from gpudoctor.views.tui.recordings import RecordingsApp  # with Textual

    interactive.run_app(RecordingsApp(every()))


def _as_snapshot(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with its target's kind set to ``snapshot``, as `gpudoctor read` gives it."""
    snapshot = diagnosis.snapshot
    return replace(diagnosis, snapshot=replace(snapshot, target=replace(snapshot.target, kind="snapshot")))


class _PacedRecord(Recorded):
    """A recorded machine whose programs take time, `LONGEST_SECONDS` x `pace` seconds in all."""

    def __init__(self, record: Record, pace: float) -> None:
        super().__init__(record)
        self._pace = pace
        self._ends = time.monotonic() + pace * LONGEST_SECONDS

    def run(
        self,
        argv: Sequence[str],
        timeout: float = 5.0,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        limit: int = 1 << 20,
        silence: float | None = None,
        watch: Watch | None = None,
    ) -> Answer:
        """The recorded answer to a command, after a delay like that of the real one; all delays have a common limit."""
        names = {os.path.basename(word) for word in argv}  # noqa: PTH119 - texts
        wanted = max((_SECONDS[name] for name in names & _SECONDS.keys()), default=_OTHER_SECONDS) * self._pace
        time.sleep(max(0.0, min(wanted, self._ends - time.monotonic())))
        return super().run(argv, timeout, env, stdin, limit, silence, watch)


# ---- What is played: live samples and a run ----

RUN_SCHEMA = "gpudoctor-recorded-run/1"
_LOOK_SECONDS = 0.1
"""Seconds between two looks at what the user wants."""


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """A recorded step: what it printed and when, in seconds from its start, and how it ended."""

    argv: tuple[str, ...] = ()
    verify: str = ""
    seconds: float = 0.0
    status: int = 0
    prints: tuple[tuple[float, str], ...] = ()
    changes: tuple[Change, ...] = ()

    def of(self, step: PlanStep) -> bool:
        """True if this is the record of that step of a plan: the same command or check."""
        return (self.argv, self.verify) == (step.argv, step.verify) and bool(self.argv or self.verify)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded run, and the run that undid it. `pace` 0 plays both without waiting."""

    steps: tuple[PlayedStep, ...]
    back: tuple[PlayedStep, ...] = ()
    before: tuple[str, ...] = ()
    downloads_mib: float | None = None
    pace: float = 1.0

    def plan(self, plan: Plan) -> Plan:
        """The plan with recorded downloads and changes; steps that were not recorded are marked as not runnable. A plan
        without any recorded step is returned unchanged.
        """
        if not any(played.of(step) for played in self.steps for step in plan.steps):
            return plan
        return replace(
            plan,
            before=self.before,
            downloads_mib=self.downloads_mib,
            steps=tuple(map(self._with_recorded_changes, plan.steps)),
        )

    def _with_recorded_changes(self, step: PlanStep) -> PlanStep:
        """The step, runnable, with its recorded changes (its own ones where it failed in the recording); not runnable
        if it was not recorded.
        """
        played = next((played for played in self.steps if played.of(step)), None)
        if not played:
            return replace(step, hindrance="not in the recording")
        return replace(step, hindrance="", changes=step.changes if played.status else played.changes)

    def apply(self, plan: Plan, report: Tell, wants: Wants) -> Run:
        """Play the plan's chosen steps and return the run; `report` gets it after each event, `wants` may stop it."""
        return self._play(plan, self.steps, report, wants)

    def undo(self, run: Run, report: Tell, wants: Wants) -> Run:
        """Play the recorded run that undid `run`, and return it; `report` gets it after each event.

        `wants` may stop it.
        """
        steps = tuple(
            PlanStep(str(number), f"{played.argv[2]} {played.argv[3]}", played.argv, changes=played.changes)
            for number, played in enumerate(self.back, 1)
        )
        back = Plan(f"undo {run.plan.title}", run.plan.machine, steps, environment=run.plan.environment)
        return self._play(back, self.back, report, wants, undoes=run.id)

    def _play(self, plan: Plan, record: tuple[PlayedStep, ...], report: Tell, wants: Wants, undoes: str = "") -> Run:
        """Play the plan's steps from `record` until one fails, is not recorded, or the user stops; the finished run.

        `report` gets the run after each event. A check fails while a step that was to change something is not done.
        """
        run = Run.of(plan, time.strftime("%Y%m%d-%H%M%S", time.gmtime()), records.now(), undoes=undoes)

        def apply_event(event: Event) -> None:
            """Apply the event to the run, and report it."""
            nonlocal run
            run = run.after(event)
            report(run)

        for step in run.plan.chosen:
            played = next((played for played in record if played.of(step)), None)
            if played is None or wants() != "go on":
                break
            apply_event(Began(step.id))
            completed = self._prints(step, played, apply_event, wants)
            state: State = "stopped" if not completed else "failed" if played.status else "done"
            if completed and step.verify:
                ran = zip(run.plan.steps, run.steps, strict=True)
                done = [other for other, how in ran if how.state == "done"]
                planned = [item for item in record if item.changes and any(map(item.of, run.plan.steps))]
                still_found = not all(any(map(item.of, done)) for item in planned)
                apply_event(Judged(step.id, step.verify, still_found))
                state = "failed" if still_found else "done"
            changed = tuple(
                f"{change.name} {change.before or 'not installed'} → {change.after or 'removed'}"
                for change in (played.changes if state != "stopped" else ())
            )
            apply_event(Ended(step.id, state, played.seconds, played.status if step.argv else None, changed))
            if state != "done":
                break
        return run.ended()

    def _prints(self, step: PlanStep, played: PlayedStep, apply_event: Callable[[Event], None], wants: Wants) -> bool:
        """Wait and print as the step did when it was recorded; False if the user stopped it at once."""
        began = time.monotonic()
        for moment, text in (*played.prints, (played.seconds, "")):
            while (left := began + moment * self.pace - time.monotonic()) > 0:
                if wants() == "now":
                    return False
                time.sleep(min(left, _LOOK_SECONDS))
            if text:
                apply_event(Printed(step.id, text))
        return True


def run_from_json(raw: object, pace: float = 1.0) -> Recording:
    """A recorded run from its parsed JSON; raises `DocumentError` if it is malformed."""
    try:
        document = cast("Mapping[str, Any]", raw)
        if document["schema"] != RUN_SCHEMA:
            raise DocumentError(
                say(
                    "schema {theirs} is not {ours}",
                    theirs=repr(str(document["schema"])[:40]),
                    ours=RUN_SCHEMA,
                )
            )
        return Recording(
            steps=tuple(_step_from_json(item) for item in document["steps"]),
            back=tuple(_step_from_json(item) for item in document.get("back", ())),
            before=tuple(document.get("before", ())),
            downloads_mib=document.get("downloads_mib"),
            pace=pace,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DocumentError(
            say("not a whole recorded run: {name} {error}", name=type(error).__name__, error=error)
        ) from error


def _step_from_json(raw: Mapping[str, Any]) -> PlayedStep:
    """A recorded step from its parsed JSON; raises KeyError, TypeError or ValueError if it is malformed."""
    return PlayedStep(
        argv=tuple(raw.get("argv", ())),
        verify=raw.get("verify", ""),
        seconds=float(raw["seconds"]),
        status=int(raw.get("status", 0)),
        prints=tuple((float(moment), str(text)) for moment, text in raw.get("prints", ())),
        changes=tuple(Change(*change) for change in raw.get("changes", ())),
    )


# ---- The GPUs of a recorded machine at work ----
# What lies before it is opened at once, then on in the record's own time.

LIVE_SCHEMA = "gpudoctor-recorded-live/1"


@dataclass(frozen=True, slots=True)
class RecordedGpus:
    """Recorded GPU samples: for each changing field a row a moment, with one value for each GPU.

    Moments are `every` seconds apart; after the last one, those from number `again` on are repeated.
    """

    gpus: tuple[GPU, ...]
    series: Mapping[str, Sequence[Sequence[float | None]]]
    every: float
    again: int

    def __len__(self) -> int:
        return min(map(len, self.series.values()))

    def at(self, number: int) -> Sample:
        """The sample of the GPUs at moment `number`, from 0; after the last moment the recording's end repeats."""
        count = len(self)
        place = number if number < count else self.again + (number - count) % (count - self.again)
        gpus = []
        for row, gpu in enumerate(self.gpus):
            numbers: dict[str, Any] = {name: rows[place][row] for name, rows in self.series.items()}
            gpus.append(gpu if gpu.error else replace(gpu, **numbers))
        return Sample(number * self.every, tuple(gpus))

    def play(self, on_sample: Callable[[Sample], None]) -> Callable[[], None]:
        """Call `on_sample` in a thread with all recorded samples at once, then in real time without end.

        Returns the function that ends it.
        """
        ended = threading.Event()

        def run() -> None:
            """Pass all samples on, waiting only after the recorded ones."""
            number = 0
            while not ended.is_set():
                on_sample(self.at(number))
                number += 1
                if number >= len(self):
                    ended.wait(self.every)

        threading.Thread(target=run, name="recorded GPUs", daemon=True).start()
        return ended.set


def live_from_json(raw: object) -> RecordedGpus:
    """Recorded GPU samples from their parsed JSON; raises `DocumentError` if it is malformed."""
    try:
        document = cast("Mapping[str, Any]", raw)
        if document["schema"] != LIVE_SCHEMA:
            raise DocumentError(
                say(
                    "schema {theirs} is not {ours}",
                    theirs=repr(str(document["schema"])[:40]),
                    ours=LIVE_SCHEMA,
                )
            )
        gpus = sample.from_json(document["first"]).gpus
        series = {str(name): rows for name, rows in document["series"].items() if name in sample.NUMBERS}
        watched = RecordedGpus(gpus, series, float(document["every"]), int(document["again"]))
        if not series or not 0 <= watched.again < len(watched) or watched.every <= 0:
            raise ValueError("nothing to play again")
        if any(len(row) != len(gpus) for rows in series.values() for row in rows):
            raise ValueError(f"a moment that is not of {len(gpus)} GPUs")
        return watched
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DocumentError(
            say("not a whole record of GPUs at work: {name} {error}", name=type(error).__name__, error=error)
        ) from error
