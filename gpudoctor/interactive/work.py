"""What the screens ask of any diagnosis, whatever it is of: its plan, its stacks, another file, a copy to keep."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.difference import Difference
from gpudoctor.model.errors import UsageError
from gpudoctor.views.tui.work import Event, Told, Work

if TYPE_CHECKING:
    from gpudoctor.model.foreseen import Foreseen
    from gpudoctor.model.measurement import Measurements
    from gpudoctor.model.plan import Plan
    from gpudoctor.model.stack import Stack, Wishes


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
