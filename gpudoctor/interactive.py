"""The interface and its work: what the screens call, made of the functions that the commands call."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.difference import Difference
from gpudoctor.model.errors import UsageError
from gpudoctor.model.sample import Sample
from gpudoctor.views.tui import terminal
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.work import Event, Told, Work

if TYPE_CHECKING:
    from gpudoctor.model.measurement import Measurements
    from gpudoctor.model.plan import Plan

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


def of_this_machine(level: str, python: str | None, rules: Sequence[Path]) -> Work:
    """This machine, read when the interface asks for it."""

    session: list[Measurements] = []
    """What kernels measured last, all of it: facts of every reading from then on."""

    def diagnoses(progress: Callable[[Event], None]) -> Iterator[Diagnosis]:
        from gpudoctor import doctor

        for diagnosis in doctor.watch(level, python, rules, progress):
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
        return doctor.diagnose(bench.measured(diagnosis.snapshot, found), rulebook.load(rules))

    return replace(work_on("this machine", diagnoses, rules), live=live, kernels=kernels, judged=judged)


def of_files(names: Sequence[str], rules: Sequence[Path]) -> Work:
    """Pasted reports, snapshots or records of one machine."""

    def diagnoses(_: Callable[[Event], None]) -> Iterator[Diagnosis]:
        from gpudoctor import doctor, rulebook
        from gpudoctor.readers import read_file, together

        book = rulebook.load(rules)
        texts = [(read_file(name), name) for name in names]
        if len(texts) == 1:
            yield doctor.judged(*texts[0], book)
        else:
            yield doctor.diagnose(together([doctor.snapshot_of(text, name) for text, name in texts]), book)

    return work_on(", ".join(names), diagnoses, rules)


def of_fleet(watch: Callable[[], Iterator[Diagnosis]], rules: Sequence[Path]) -> Work:
    """A fleet, asked anew for each reading; a diagnosis of those heard so far now and then, the last is of all."""

    def diagnoses(_: Callable[[Event], None]) -> Iterator[Diagnosis]:
        yield from watch()

    return replace(work_on("the fleet", diagnoses, rules), first="cluster")


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

    def compare(here: Diagnosis, other: Diagnosis) -> Difference:
        from gpudoctor import compare

        return compare.compare(here, other)

    return Work(
        title,
        diagnose,
        explain,
        forms=_forms(),
        save=_save,
        used_by=used_by,
        open=open_file,
        compare=compare,
        plan=_plan,
        measured=measured,
    )


def _plan(diagnosis: Diagnosis, only: Sequence[str]) -> Plan:
    from gpudoctor.remedy import plan

    if diagnosis.snapshot.target.kind == "fleet":
        raise UsageError("a fleet's hosts are repaired one by one: gpudoctor on the host itself plans what to do there")
    return plan.of(diagnosis, only, root=hasattr(os, "geteuid") and os.geteuid() == 0)


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
        from gpudoctor.views import html

        return html.render(diagnosis)

    return {"txt": text, "md": markdown, "html": html, "json": json}


def _save(text: str, name: str) -> None:
    from gpudoctor import output

    try:
        output.put(text, name)
    except UsageError as error:  # there is no option here
        raise UsageError(str(error).removeprefix("-o ")) from error
