"""The interface and its work: what the screens call, made of the functions that the commands call."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpudoctor.interactive.work import demand_changes, work_on
from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.errors import UsageError
from gpudoctor.model.sample import Sample
from gpudoctor.model.snapshot import Progress
from gpudoctor.views.tui import terminal
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.work import Work

if TYPE_CHECKING:
    from gpudoctor.expect import Profile
    from gpudoctor.model.measurement import Measurements
    from gpudoctor.model.plan import Plan
    from gpudoctor.model.run import Run, Stop
    from gpudoctor.model.snapshot import Snapshot

_Asked = TypeVar("_Asked")
_Told = TypeVar("_Told")
_GARBAGE = 1_000
"""Objects made before a search for cycles: unlike a command the interface lives long, and must not grow."""


def run(work: Work) -> Diagnosis | None:
    """Show it until the user leaves; the diagnosis that was shown last, none where the interface itself failed."""
    return run_app(DoctorApp(work))


def run_app(app: DoctorApp) -> Diagnosis | None:
    """The same with an app of one's own. Exits with 128 + n where signal n, or the loss of the terminal, ended it."""
    gc.freeze()  # what is imported by now is no garbage, and is not searched for any again and again
    gc.set_threshold(_GARBAGE, 10, 10)
    with terminal.unbroken():
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
    """This machine, read when the interface asks for it, and held to the profile where there is one."""
    here = _Here(level, python, rules, profile, wait)
    return replace(
        work_on("this machine", here.diagnoses, rules),
        live=here.live,
        kernels=here.kernels,
        judged=here.judged,
        apply=here.apply,
        undo=here.undo,
        unfinished=_unfinished,
    )


class _Here:
    """What only the machine at which one sits can be asked, and what may be done to it."""

    def __init__(
        self, level: str, python: str | None, rules: Sequence[Path], profile: Profile | None, wait: float | None
    ) -> None:
        self._level = level
        self._python = python
        self._rules = rules
        self._profile = profile
        self._wait = wait
        self._measured: Measurements | None = None
        """What kernels measured last, all of it: facts of every reading from then on."""

    def diagnoses(self, progress: Progress) -> Iterator[Diagnosis]:
        from gpudoctor import doctor

        watched = doctor.watch(self._level, self._python, self._rules, progress, expect=self._profile, wait=self._wait)
        for diagnosis in watched:
            yield self.judged(diagnosis, self._measured) if self._measured else diagnosis

    def live(self, hear: Callable[[Sample], None]) -> Callable[[], None]:
        from gpudoctor.live import watch

        return watch(hear)

    def kernels(
        self, names: Sequence[str], tell: Callable[[Measurements], None], stop: threading.Event
    ) -> Measurements:
        from gpudoctor.doctor import benching

        made = benching.bench(names, python=self._python, tell=tell, stop=stop)
        if made.because:
            raise UsageError(f"{made.because}. The checks run without a GPU, too: gpudoctor bench --device cpu")
        return made.found

    def judged(self, diagnosis: Diagnosis, found: Measurements) -> Diagnosis:
        from gpudoctor import bench, doctor, rulebook

        self._measured = found
        snapshot = bench.measured(diagnosis.snapshot, found)
        return doctor.diagnose(snapshot, rulebook.load(self._rules), profile=self._profile)

    def apply(self, plan: Plan, tell: Callable[[Run], None], wants: Callable[[], Stop]) -> Run:
        demand_changes()
        from gpudoctor import doctor
        from gpudoctor.remedy import apply

        return apply.apply(plan, doctor.site(self._level, self._python, self._rules), tell, wants)

    def undo(self, run: Run, tell: Callable[[Run], None], wants: Callable[[], Stop]) -> Run:
        demand_changes()
        from gpudoctor import doctor
        from gpudoctor.remedy import undo
        from gpudoctor.remedy.records import history

        python = self._python or history.python_of(run)
        return undo.undo(run, doctor.site(self._level, python, self._rules), tell, wants)


def of_files(
    names: Sequence[str], rules: Sequence[Path], machine: Snapshot | None = None, profile: Profile | None = None
) -> Work:
    """Pasted reports, snapshots or records of one machine; manifests, for the `machine` that they are meant for."""

    def diagnoses(_: Progress) -> Iterator[Diagnosis]:
        from gpudoctor import doctor, rulebook
        from gpudoctor.readers import read_file, together

        book = rulebook.load(rules)
        texts = [(read_file(name), name) for name in names]
        if len(texts) == 1:
            yield doctor.judged(*texts[0], book, machine, profile)
        else:
            whole = together([doctor.snapshot_of(text, name) for text, name in texts])
            yield doctor.diagnose(doctor.on_machine(whole, machine), book, profile=profile)

    return work_on(", ".join(names), diagnoses, rules)


def of_fleet(watch: Callable[[], Iterator[Diagnosis]], rules: Sequence[Path]) -> Work:
    """A fleet, asked anew for each reading; a diagnosis of those heard so far now and then, the last is of all."""

    def diagnoses(_: Progress) -> Iterator[Diagnosis]:
        yield from watch()

    return replace(work_on("the fleet", diagnoses, rules), stack=None, first="cluster")


def shared(work: Work) -> Work:
    """The same as another person may see it; it changes nothing, for what is hidden cannot be run."""
    from gpudoctor.hiding import Sharing

    hidden = Sharing()

    def diagnose(progress: Progress, partly: Callable[[Diagnosis], None]) -> Diagnosis:
        return hidden(work.diagnose(progress, lambda found: partly(hidden(found))))

    def of(ask: Callable[[_Asked], _Told] | None) -> Callable[[_Asked], _Told] | None:
        return ask and (lambda asked: hidden(ask(asked)))

    can = replace(work, live=None, kernels=None, judged=None, apply=None, undo=None, unfinished=None, foreseen=None)
    return replace(
        can,
        title=hidden([work.title])[0],
        diagnose=diagnose,
        open=of(work.open),
        stack=of(work.stack),
        hide=None,
        measured=work.measured and (lambda: hidden(work.measured and work.measured())),
    )


def _unfinished() -> Run | None:
    from gpudoctor.remedy.records import history
    from gpudoctor.remedy.records.journal import Journals
    from gpudoctor.remedy.site import state_folder

    try:
        return history.unfinished(Journals(state_folder()))
    except UsageError:  # journals of others are none; to run a plan says so
        return None
