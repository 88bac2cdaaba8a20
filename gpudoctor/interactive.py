"""The interface and its work: what the screens call, made of the functions that the commands call."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.difference import Difference
from gpudoctor.model.errors import UsageError
from gpudoctor.model.sample import Sample
from gpudoctor.views.tui import terminal
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.work import Event, Told, Work

if TYPE_CHECKING:
    from gpudoctor.expect import Profile
    from gpudoctor.model.foreseen import Foreseen
    from gpudoctor.model.measurement import Measurements
    from gpudoctor.model.plan import Plan
    from gpudoctor.model.run import Run, Stop
    from gpudoctor.model.snapshot import Snapshot
    from gpudoctor.model.stack import Stack, Wishes

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


def of_this_machine(level: str, python: str | None, rules: Sequence[Path], profile: Profile | None = None) -> Work:
    """This machine, read when the interface asks for it, and held to the profile where there is one."""

    session: list[Measurements] = []
    """What kernels measured last, all of it: facts of every reading from then on."""

    def diagnoses(progress: Callable[[Event], None]) -> Iterator[Diagnosis]:
        from gpudoctor import doctor

        for diagnosis in doctor.watch(level, python, rules, progress, expect=profile):
            yield judged(diagnosis, session[0]) if session else diagnosis

    def live(hear: Callable[[Sample], None]) -> Callable[[], None]:
        from gpudoctor.live import watch

        return watch(hear)

    def kernels(names: Sequence[str], tell: Callable[[Measurements], None], stop: threading.Event) -> Measurements:
        from gpudoctor import doctor

        made = doctor.bench(names, python=python, tell=tell, stop=stop)
        if made.because:
            raise UsageError(f"{made.because}. The checks run without a GPU, too: gpudoctor bench --device cpu")
        return made.found

    def judged(diagnosis: Diagnosis, found: Measurements) -> Diagnosis:
        from gpudoctor import bench, doctor, rulebook

        session[:] = [found]
        return doctor.diagnose(bench.measured(diagnosis.snapshot, found), rulebook.load(rules), profile=profile)

    def apply(plan: Plan, tell: Callable[[Run], None], wants: Callable[[], Stop]) -> Run:
        from gpudoctor import doctor
        from gpudoctor.remedy import apply

        return apply.apply(plan, doctor.site(level, python, rules), tell, wants)

    def undo(run: Run, tell: Callable[[Run], None], wants: Callable[[], Stop]) -> Run:
        from gpudoctor import doctor
        from gpudoctor.remedy import undo
        from gpudoctor.remedy.records import history

        return undo.undo(run, doctor.site(level, python or history.python_of(run), rules), tell, wants)

    return replace(
        work_on("this machine", diagnoses, rules),
        live=live,
        kernels=kernels,
        judged=judged,
        apply=apply,
        undo=undo,
        unfinished=_unfinished,
    )


def of_files(
    names: Sequence[str], rules: Sequence[Path], machine: Snapshot | None = None, profile: Profile | None = None
) -> Work:
    """Pasted reports, snapshots or records of one machine; manifests, for the `machine` that they are meant for."""

    def diagnoses(_: Callable[[Event], None]) -> Iterator[Diagnosis]:
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

    def diagnoses(_: Callable[[Event], None]) -> Iterator[Diagnosis]:
        yield from watch()

    return replace(work_on("the fleet", diagnoses, rules), stack=None, first="cluster")


def shared(work: Work) -> Work:
    """The same as another person may see it; it changes nothing, for what is hidden cannot be run."""
    from gpudoctor.hiding import Sharing

    hidden = Sharing()

    def diagnose(progress: Callable[[Event], None], partly: Callable[[Diagnosis], None]) -> Diagnosis:
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


def work_on(
    title: str, diagnoses: Callable[[Callable[[Event], None]], Iterator[Diagnosis]], rules: Sequence[Path] = ()
) -> Work:
    """`diagnoses` is told whom to tell of events; it gives a diagnosis whenever there is more, the last is whole."""

    latest: list[Diagnosis] = []

    def diagnose(progress: Callable[[Event], None], partly: Callable[[Diagnosis], None]) -> Diagnosis:
        on_the_way = diagnoses(progress)
        try:
            for found in on_the_way:
                latest[:] = [found]
                partly(found)
        finally:
            if isinstance(on_the_way, Generator):
                on_the_way.close()  # so that nothing goes on that nobody hears
        assert latest, "there is a diagnosis of everything"
        return latest[0]

    def measured() -> Measurements | None:
        from gpudoctor.kernels import recall

        return recall.measurements(latest[0].snapshot) if latest else None

    def explain(name: str) -> str:
        from gpudoctor import explaining

        return explaining.explained(name, rules)

    def used_by() -> Mapping[str, Told]:
        from gpudoctor import explaining

        return explaining.facts_told(rules)

    def open_file(name: str) -> Diagnosis:
        from gpudoctor import doctor
        from gpudoctor.readers import read_file

        if name == "-":
            raise UsageError("standard input is this terminal; give a file's name")
        path = str(Path(name).expanduser())
        return doctor.read(read_file(path), path, rules)

    def stack(wishes: Wishes) -> Stack:
        from gpudoctor.setup import environment, stacks

        here = environment.of(latest[0].snapshot) if latest else environment.ELSEWHERE
        return stacks.stack(wishes, here.elsewhere(wishes.os) if wishes.elsewhere else here)

    def foreseen(diagnosis: Diagnosis, plan: Plan) -> Foreseen:
        from gpudoctor import doctor
        from gpudoctor.remedy import effects

        return effects.foreseen(diagnosis, plan, doctor.judging(rules))

    def compare(here: Diagnosis, other: Diagnosis) -> Difference:
        from gpudoctor import compare

        return compare.compare(here, other)

    return Work(
        title,
        diagnose,
        explain,
        forms=_forms(),
        hide=_hidden,
        save=_save,
        used_by=used_by,
        open=open_file,
        compare=compare,
        plan=lambda diagnosis, only: _plan(diagnosis, only, rules),
        foreseen=foreseen,
        measured=measured,
        stack=stack,
    )


def _plan(diagnosis: Diagnosis, only: Sequence[str], rules: Sequence[Path]) -> Plan:
    from gpudoctor import doctor
    from gpudoctor.remedy import allowed, plan

    if diagnosis.snapshot.target.kind == "fleet":
        raise UsageError("a fleet's hosts are repaired one by one: gpudoctor on the host itself plans what to do there")
    made = plan.of(diagnosis, only, root=allowed.is_root(), judge=doctor.judging(rules))
    return allowed.hindered(made, allowed.here(made, "once"))


def _unfinished() -> Run | None:
    from gpudoctor.remedy.records import history
    from gpudoctor.remedy.records.journal import Journals
    from gpudoctor.remedy.site import state_folder

    return history.unfinished(Journals(state_folder()))


def _forms() -> dict[str, Callable[[Diagnosis], str]]:
    def text(diagnosis: Diagnosis) -> str:
        from gpudoctor.views import text

        return text.render(diagnosis)

    def json(diagnosis: Diagnosis) -> str:
        from gpudoctor.views import document

        return document.render(diagnosis)

    def markdown(diagnosis: Diagnosis) -> str:
        from gpudoctor.views import markdown

        return markdown.render(diagnosis)

    def html(diagnosis: Diagnosis) -> str:
        from gpudoctor.kernels.recall import measurements
        from gpudoctor.views import html

        return html.render(diagnosis, measurements(diagnosis.snapshot))

    return {"txt": text, "md": markdown, "html": html, "json": json}


def _hidden(diagnosis: Diagnosis) -> tuple[Diagnosis, str]:
    from gpudoctor.hiding import Sharing

    hide = Sharing()
    return hide(diagnosis), hide.told


def _save(text: str, name: str) -> None:
    from gpudoctor import output

    try:
        output.put(text, name)
    except UsageError as error:  # there is no option here
        raise UsageError(str(error).removeprefix("-o ")) from error
