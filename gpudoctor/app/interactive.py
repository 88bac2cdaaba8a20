"""The interface and its work: what the screens call, made of the functions that the commands call.

This machine, files, a fleet or a demo is a `Work`; what a screen asks of it later (kernels, cures, stacks) is imported
when it is asked, after the first screen is drawn.
"""

from __future__ import annotations

import gc
import io
import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpudoctor.app import output, pipeline
from gpudoctor.core import system
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import say
from gpudoctor.core.snapshot import Progress
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.compare import compare
from gpudoctor.fixes.permissions import journals_folder, run_mode_of_process, with_hindrances
from gpudoctor.views.tui.work import FactInfo, JobLook, JobWatch, Work

if TYPE_CHECKING:
    from gpudoctor.app import live_gpus
    from gpudoctor.app.live_job import Source
    from gpudoctor.core.measurement import Measurements
    from gpudoctor.core.plan import Foreseen, Plan
    from gpudoctor.core.run import Run, Stop
    from gpudoctor.core.sample import Sample
    from gpudoctor.core.snapshot import Snapshot
    from gpudoctor.core.stack import Stack, Wishes
    from gpudoctor.diagnosis.expect import Profile
    from gpudoctor.views.tui.app import DoctorApp


_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")
_GC_THRESHOLD = 1_000
"""Objects made before a search for cycles: unlike a command the interface lives long, and must not grow."""


def run(work: Work) -> Diagnosis | None:
    """Run the interface until the user leaves; the diagnosis shown last, None if the interface itself failed.

    Raises SystemExit(128 + n) where signal n ended it.
    """
    from gpudoctor.views.tui.app import DoctorApp  # with Textual

    return run_app(DoctorApp(work))


def run_app(app: DoctorApp) -> Diagnosis | None:
    """Run this app until the user leaves; the diagnosis shown last, None if the app failed.

    Raises SystemExit(128 + n) where signal n, or the loss of the terminal (SIGHUP), ended it.
    """
    from gpudoctor.views.tui import terminal  # with Textual

    gc.freeze()  # what is imported by now is no garbage, and is not searched for any again and again
    gc.set_threshold(_GC_THRESHOLD, 10, 10)
    with terminal.failsafe_stderr():
        app.run()
    if (code := app.return_code or 0) > 128:
        raise SystemExit(code)
    return None if code else app.diagnosis


def of_this_machine(
    level: str,
    python: str | None,
    rules: Sequence[Path],
    profile: Profile | None = None,
    wait: float | None = None,
) -> Work:
    """Work that diagnoses this machine on each reading, runs kernels and plans on it; held to `profile` if given.

    `level` is quick, standard or deep, `python` the interpreter to examine (None: found), `rules` folders of extra
    pages, `wait` the most seconds that GPUs may take to wake.
    """
    here = _ThisMachine(level, python, rules, profile, wait)
    return replace(
        work_on("this machine", here.diagnoses, rules),
        live=here.live,
        job=here.job,
        kernels=here.kernels,
        judged=here.judged,
        apply=here.apply,
        undo=here.undo,
        unfinished=_unfinished_run,
    )


class _ThisMachine:
    """What only this machine allows: live samples, kernels, and running or undoing a plan."""

    def __init__(
        self, level: str, python: str | None, rules: Sequence[Path], profile: Profile | None, wait: float | None
    ) -> None:
        self._level = level
        self._python = python
        self._rules = rules
        self._profile = profile
        self._wait = wait
        self._samples: live_gpus.Shared | None = None
        self._last_measurements: Measurements | None = None
        """What kernels measured last, all of it: facts of every reading from then on."""

    def diagnoses(self, progress: Progress) -> Iterator[Diagnosis]:
        """Yield a diagnosis whenever a probe has answered; the last is complete. Includes the kernels' measurements."""
        diagnoses = pipeline.watch(
            self._level, self._python, self._rules, progress, expect=self._profile, wait=self._wait
        )
        for diagnosis in diagnoses:
            yield self.judged(diagnosis, self._last_measurements) if self._last_measurements else diagnosis

    def live(self, on_sample: Callable[[Sample], None]) -> Callable[[], None]:
        """Call `on_sample` with each NVML sample, in a thread, until the returned function is called.

        All callers share one child that asks NVML.
        """
        from gpudoctor.app import live_gpus  # with NVML, which the first screen does without

        self._samples = self._samples or live_gpus.Shared()
        return self._samples.watch(on_sample)

    def job(self, on_look: Callable[[JobLook], None]) -> JobWatch:
        """Look at the jobs found on this machine, in a thread; `on_look` gets each look. The watch returned ends it."""
        from gpudoctor.app.live_job import AnyJob, Follower

        return Follower(AnyJob(self._rules, self.live)).watch(on_look)

    def kernels(
        self, names: Sequence[str], on_results: Callable[[Measurements], None], stop: threading.Event
    ) -> Measurements:
        """Run the kernels of these names (none: all) and return the measurements; `on_results` gets results so far.

        Setting `stop` ends it early. Raises `UsageError`, with the reason, where no GPU can run them.
        """
        bench_result = pipeline.bench(names, python=self._python, on_results=on_results, stop=stop)
        if bench_result.because:
            raise UsageError(
                say(
                    "{why}. The checks run without a GPU, too: gpudoctor bench --device cpu",
                    why=bench_result.because,
                )
            )
        return bench_result.found

    def judged(self, diagnosis: Diagnosis, measurements: Measurements) -> Diagnosis:
        """The diagnosis judged again with these measurements as facts, which later readings include, too."""
        self._last_measurements = measurements
        from gpudoctor.kernels import facts  # with all kernels

        snapshot = facts.measured(diagnosis.snapshot, measurements)
        return pipeline.diagnose(snapshot, rulebook.load(self._rules), profile=self._profile)

    def apply(self, plan: Plan, report: Callable[[Run], None], wants: Callable[[], Stop]) -> Run:
        """Run the plan on this machine; `report` gets the run after each event, `wants` says whether to go on.

        Raises UsageError where changes are not allowed.
        """
        demand_changes()
        from gpudoctor.fixes import apply

        return apply.apply(plan, pipeline.run_context(self._level, self._python, self._rules), report, wants)

    def undo(self, run: Run, report: Callable[[Run], None], wants: Callable[[], Stop]) -> Run:
        """Undo a recorded run, in the environment of the Python given at the start, else in the one that the run
        changed; `report` gets the undoing run after each event, `wants` gives whether to go on.

        Raises UsageError where changes are not allowed.
        """
        demand_changes()
        from gpudoctor.fixes import records, undo

        python = self._python or records.python_of(run)
        return undo.undo(run, pipeline.run_context(self._level, python, self._rules), report, wants)


def of_files(
    names: Sequence[str], rules: Sequence[Path], machine: Snapshot | None = None, profile: Profile | None = None
) -> Work:
    """Work that diagnoses reports, snapshots or records of one machine, or a manifest for `machine`."""

    def diagnoses(_: Progress) -> Iterator[Diagnosis]:
        """Yield one diagnosis of all files together; progress is not reported."""
        from gpudoctor.app import reading

        yield reading.diagnose_files(names, rulebook.load(rules), machine, profile)

    return work_on(", ".join(names), diagnoses, rules)


def of_fleet(watch: Callable[[], Iterator[Diagnosis]], rules: Sequence[Path]) -> Work:
    """Work that diagnoses a fleet: `watch` yields diagnoses of the hosts answered so far, the last of all hosts."""

    return replace(work_on("the fleet", lambda _: watch(), rules), stack=None, first="cluster")


def of_job(name: str, source: Source, rules: Sequence[Path], samples: live_gpus.Shared) -> Work:
    """Work that follows a running job, whose screen is shown first; `name` is its title until the first look."""
    from gpudoctor.app.live_job import Follower

    follower = Follower(source)
    work = work_on(name, follower.diagnoses, rules)
    return replace(work, stack=None, first="job", job=follower.watch, live=samples.watch)


def shared(work: Work) -> Work:
    """The same Work with personal data hidden from titles and answers. It runs no kernels, samples no GPUs, and neither
    foresees, applies nor undoes a plan; a job is still followed.
    """
    from gpudoctor.app.redaction import Redactor

    hidden = Redactor()

    def diagnose(progress: Progress, partly: Callable[[Diagnosis], None]) -> Diagnosis:
        """Diagnose with personal data hidden, in partial diagnoses, too."""
        return hidden(work.diagnose(progress, lambda found: partly(hidden(found))))

    def hiding_answer(question: Callable[[_Argument], _Result] | None) -> Callable[[_Argument], _Result] | None:
        """The function with personal data hidden in its result; None stays None."""
        return question and (lambda argument: hidden(question(argument)))

    def hiding_job(follow: Callable[[Callable[[JobLook], None]], JobWatch]) -> Callable[..., JobWatch]:
        """The function that follows a job, with personal data hidden in each look."""

        def followed(on_look: Callable[[JobLook], None]) -> JobWatch:
            """Follow the job with redacted looks."""
            watch = follow(lambda look: on_look(hidden(look)))
            return replace(watch, stacks=lambda row: hidden(list(watch.stacks(row))))

        return followed

    shown = replace(work, live=None, kernels=None, judged=None, apply=None, undo=None, unfinished=None, foreseen=None)
    return replace(
        shown,
        title=hidden([work.title])[0],
        diagnose=diagnose,
        open=hiding_answer(work.open),
        stack=hiding_answer(work.stack),
        hide=None,
        measured=work.measured and (lambda: hidden(work.measured and work.measured())),
        job=work.job and hiding_job(work.job),
    )


def _unfinished_run() -> Run | None:
    """The run of a plan that was cut off on this machine, by its journal; None if there is none or it is unreadable."""
    try:
        from gpudoctor.fixes import records

        return records.unfinished(records.Journals(journals_folder()))
    except UsageError:  # journals of others are none; to run a plan says so
        return None


# ---- What the screens ask of any diagnosis, whatever it is of ----
# Its plan, its stacks, another file, a copy to keep.

Diagnoses = Callable[[Progress], Iterator[Diagnosis]]
"""Is told whom to tell of events; gives a diagnosis whenever there is more, the last is whole."""


def work_on(title: str, diagnoses: Diagnoses, rules: Sequence[Path] = ()) -> Work:
    """Work with everything that can be asked of any diagnosis: explain, save, compare, plan, stacks.

    `title` names what is diagnosed, `rules` are folders of extra rule pages. It has nothing live.
    """
    source = _DiagnosisSource(diagnoses, rules)
    return Work(
        title,
        source.diagnose,
        source.explain,
        forms=_FORMS,
        hide=_without_personal_data,
        save=_save,
        used_by=source.used_by,
        open=source.open_file,
        compare=compare,
        plan=source.plan,
        foreseen=source.foreseen,
        measured=source.measured,
        stack=source.stack,
    )


class _DiagnosisSource:
    """A source of diagnoses, and the latest diagnosis that it gave."""

    def __init__(self, diagnoses: Diagnoses, rules: Sequence[Path]) -> None:
        self._diagnoses = diagnoses
        self._rules = rules
        self._latest: Diagnosis | None = None

    def diagnose(self, progress: Progress, partly: Callable[[Diagnosis], None]) -> Diagnosis:
        """Run a new reading to its end; `partly` gets each diagnosis, the last and complete one is returned."""
        partial_diagnoses = self._diagnoses(progress)
        try:
            for diagnosis in partial_diagnoses:
                self._latest = diagnosis
                partly(diagnosis)
        finally:
            if isinstance(partial_diagnoses, Generator):
                partial_diagnoses.close()  # so that nothing goes on that nobody hears
        assert self._latest, "there is a diagnosis of everything"
        return self._latest

    def measured(self) -> Measurements | None:
        """The kernels' measurements in the latest diagnosis; None before the first, or if it has none."""
        from gpudoctor.kernels.ladder import measurements

        return measurements(self._latest.snapshot) if self._latest else None

    def explain(self, name: str) -> str:
        """The text of `gpudoctor explain NAME`; raises `DoctorError` for an unknown name."""
        from gpudoctor.app.commands.explain import explained

        return explained(name, self._rules)

    def used_by(self) -> Mapping[str, FactInfo]:
        """What is declared of each fact and which rules read it, by fact name."""
        from gpudoctor.app.commands.explain import fact_infos

        return fact_infos(self._rules)

    def open_file(self, name: str) -> Diagnosis:
        """Diagnose a file; raises UsageError for ``-`` (standard input) and DoctorError for what cannot be read."""
        if name == "-":
            raise UsageError(say("standard input is this terminal; give a file's name"))
        from gpudoctor.app import reading

        return reading.diagnose_files([str(Path(name).expanduser())], rulebook.load(self._rules))

    def stack(self, wishes: Wishes) -> Stack:
        """The torch stack that fits these wishes, on the machine diagnosed last or, where wished, elsewhere."""
        from gpudoctor.fixes.solver import environment, stacks

        here = environment.environment_of_snapshot(self._latest.snapshot) if self._latest else environment.ELSEWHERE
        return stacks.stack(wishes, here.elsewhere(wishes.os) if wishes.elsewhere else here)

    def plan(self, diagnosis: Diagnosis, only: Sequence[str]) -> Plan:
        """The plan that fixes this diagnosis, or the findings with the ids `only`; raises UsageError for a fleet."""
        from gpudoctor.fixes import plan

        if diagnosis.snapshot.target.kind == "fleet":
            raise UsageError(
                say("a fleet's hosts are repaired one by one: gpudoctor on the host itself plans what to do there")
            )
        plan_made = plan.plan_for(diagnosis, only, root=system.is_root(), judge=pipeline.judging(self._rules))
        return with_hindrances(plan_made, run_mode_of_process(plan_made, "once"))

    def foreseen(self, diagnosis: Diagnosis, plan: Plan) -> Foreseen:
        """What the rules would say after the plan has run, computed without running it."""
        from gpudoctor.fixes import effects

        return effects.predict(diagnosis, plan, pipeline.judging(self._rules))


def _in_form(form: str, diagnosis: Diagnosis) -> str:
    """The diagnosis in that form, as the commands print it with ``--format``, without colours."""
    from gpudoctor.app.commands.reports import rendered  # with the formats' packages

    return rendered(diagnosis, form, io.StringIO())


_FORMS: Mapping[str, Callable[[Diagnosis], str]] = {
    ending: partial(_in_form, form)
    for ending, form in (("txt", "text"), ("md", "markdown"), ("html", "html"), ("json", "json"))
}
"""What a diagnosis is saved as, by the ending of the file."""


def _without_personal_data(diagnosis: Diagnosis) -> tuple[Diagnosis, str]:
    """The diagnosis with personal data hidden, and a sentence that says what was hidden."""
    from gpudoctor.app.redaction import Redactor

    hide = Redactor()
    return hide(diagnosis), hide.summary


CHANGES = "GPUDOCTOR_SERVE_CHANGES"
"""``yes`` in the environment of a page that ``--serve --allow-changes`` shows."""


def demand_changes() -> None:
    """Raise `UsageError` in a browser, unless it is served with ``--allow-changes``."""
    if system.in_a_browser() and os.environ.get(CHANGES) != "yes":
        raise UsageError(
            say("changes are off in a browser: start it with gpudoctor --serve --allow-changes, or do it in a terminal")
        )


def _save(text: str, name: str) -> None:
    """Write the text to a file; raises UsageError where it cannot be written or the browser may not change anything."""
    demand_changes()
    try:
        output.put(text, name)
    except UsageError as error:  # there is no option here
        raise UsageError(str(error).removeprefix("-o ")) from error
