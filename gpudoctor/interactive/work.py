"""What the screens ask of any diagnosis, whatever it is of: its plan, its stacks, another file, a copy to keep."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.difference import Difference
from gpudoctor.model.errors import UsageError
from gpudoctor.model.snapshot import Progress
from gpudoctor.views.tui.work import Told, Work

if TYPE_CHECKING:
    from gpudoctor.model.foreseen import Foreseen
    from gpudoctor.model.measurement import Measurements
    from gpudoctor.model.plan import Plan
    from gpudoctor.model.stack import Stack, Wishes


Diagnoses = Callable[[Progress], Iterator[Diagnosis]]
"""Is told whom to tell of events; gives a diagnosis whenever there is more, the last is whole."""


def work_on(title: str, diagnoses: Diagnoses, rules: Sequence[Path] = ()) -> Work:
    """What the screens can ask of what is diagnosed so, with a site's own rules."""
    of = _Diagnosed(diagnoses, rules)
    return Work(
        title,
        of.diagnose,
        of.explain,
        forms=_forms(),
        hide=_hidden,
        save=_save,
        used_by=of.used_by,
        open=of.open_file,
        compare=_compare,
        plan=of.plan,
        foreseen=of.foreseen,
        measured=of.measured,
        stack=of.stack,
    )


class _Diagnosed:
    """What is diagnosed, and the latest diagnosis of it."""

    def __init__(self, diagnoses: Diagnoses, rules: Sequence[Path]) -> None:
        self._diagnoses = diagnoses
        self._rules = rules
        self._latest: Diagnosis | None = None

    def diagnose(self, progress: Progress, partly: Callable[[Diagnosis], None]) -> Diagnosis:
        on_the_way = self._diagnoses(progress)
        try:
            for found in on_the_way:
                self._latest = found
                partly(found)
        finally:
            if isinstance(on_the_way, Generator):
                on_the_way.close()  # so that nothing goes on that nobody hears
        assert self._latest, "there is a diagnosis of everything"
        return self._latest

    def measured(self) -> Measurements | None:
        from gpudoctor.kernels import recall

        return recall.measurements(self._latest.snapshot) if self._latest else None

    def explain(self, name: str) -> str:
        from gpudoctor import explaining

        return explaining.explained(name, self._rules)

    def used_by(self) -> Mapping[str, Told]:
        from gpudoctor import explaining

        return explaining.facts_told(self._rules)

    def open_file(self, name: str) -> Diagnosis:
        from gpudoctor import doctor
        from gpudoctor.readers import read_file

        if name == "-":
            raise UsageError("standard input is this terminal; give a file's name")
        path = str(Path(name).expanduser())
        return doctor.read(read_file(path), path, self._rules)

    def stack(self, wishes: Wishes) -> Stack:
        from gpudoctor.setup import environment, stacks

        here = environment.of(self._latest.snapshot) if self._latest else environment.ELSEWHERE
        return stacks.stack(wishes, here.elsewhere(wishes.os) if wishes.elsewhere else here)

    def plan(self, diagnosis: Diagnosis, only: Sequence[str]) -> Plan:
        from gpudoctor import doctor
        from gpudoctor.remedy import allowed, plan

        if diagnosis.snapshot.target.kind == "fleet":
            raise UsageError(
                "a fleet's hosts are repaired one by one: gpudoctor on the host itself plans what to do there"
            )
        made = plan.of(diagnosis, only, root=allowed.is_root(), judge=doctor.judging(self._rules))
        return allowed.hindered(made, allowed.here(made, "once"))

    def foreseen(self, diagnosis: Diagnosis, plan: Plan) -> Foreseen:
        from gpudoctor import doctor
        from gpudoctor.remedy import effects

        return effects.foreseen(diagnosis, plan, doctor.judging(self._rules))


def _compare(here: Diagnosis, other: Diagnosis) -> Difference:
    from gpudoctor import compare

    return compare.compare(here, other)


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


CHANGES = "GPUDOCTOR_SERVE_CHANGES"
"""``yes`` in the environment of a page that ``--serve --allow-changes`` shows."""


def demand_changes() -> None:
    """Raise `UsageError` in a browser, unless whoever serves it has allowed changes of this machine."""
    if "WebDriver" in os.environ.get("TEXTUAL_DRIVER", "") and os.environ.get(CHANGES) != "yes":
        raise UsageError(
            "changes are off in a browser: start it with gpudoctor --serve --allow-changes, or do it in a terminal"
        )


def _save(text: str, name: str) -> None:
    demand_changes()
    from gpudoctor import output

    try:
        output.put(text, name)
    except UsageError as error:  # there is no option here
        raise UsageError(str(error).removeprefix("-o ")) from error
