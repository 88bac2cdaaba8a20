"""A machine, a paste or a file, judged, saved or compared: ``check``, ``read``, ``snapshot``, ``diff``, ``record``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from gpudoctor.commands.exits import BROKEN, DIFFERENT, SOUND, UNKNOWN, exit_code
from gpudoctor.model.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from gpudoctor.model.diagnosis import Diagnosis
    from gpudoctor.model.snapshot import Snapshot


def check(options: argparse.Namespace) -> int:
    from gpudoctor import doctor
    from gpudoctor.views.progress import progress_on

    with progress_on(sys.stderr) as progress:
        diagnosis = doctor.check(options.level, options.python, options.rules, progress)
    print(rendered(diagnosis, options.format, sys.stdout))
    return exit_code(diagnosis, options.strict)


def read(options: argparse.Namespace) -> int:
    from gpudoctor import doctor, rulebook
    from gpudoctor.readers import together

    if options.tui:
        return _read_shown(options)
    if options.format == "html" and len(options.files) > 1 and not options.together:
        raise UsageError("--format html gives one page: give one file, or --together")
    book = rulebook.load(options.rules)
    if options.together:
        diagnoses = [doctor.diagnose(together(_snapshots_in(options.files)), book)]
    else:
        diagnoses = [doctor.judged(text, name, book) for name, text in _texts_in(options.files)]
    codes = []
    for number, diagnosis in enumerate(diagnoses):
        if number and options.format != "json":
            print()
        print(rendered(diagnosis, options.format, sys.stdout))
        codes.append(exit_code(diagnosis, options.strict))
    return next(code for code in (BROKEN, UNKNOWN, SOUND) if code in codes)


def _read_shown(options: argparse.Namespace) -> int:
    from gpudoctor import interactive
    from gpudoctor.commands.screens import shown

    if len(options.files) > 1 and not options.together:
        raise UsageError("--tui shows one machine: give one file, or --together")
    return shown(interactive.of_files(options.files, options.rules), options.strict)


def _snapshots_in(names: Sequence[str]) -> list[Snapshot]:
    from gpudoctor import doctor

    return [doctor.snapshot_of(text, name) for name, text in _texts_in(names)]


def _texts_in(names: Sequence[str]) -> list[tuple[str, str]]:
    """All of them, before anything is printed."""
    from gpudoctor.readers import read_file

    if names.count("-") > 1:
        raise UsageError("-: standard input can be read only once")
    return [(name, read_file(name)) for name in names]


def snapshot(options: argparse.Namespace) -> int:
    from gpudoctor import doctor, output
    from gpudoctor.version import __version__
    from gpudoctor.views import document
    from gpudoctor.views.progress import progress_on

    output.check(options.out)  # before minutes are spent on what cannot be kept
    with progress_on(sys.stderr) as progress:
        snapshot = doctor.look(options.level, options.python, progress)
    output.put(document.facts(snapshot, __version__), options.out)
    return SOUND


def diff(options: argparse.Namespace) -> int:
    from gpudoctor import doctor, rulebook
    from gpudoctor.compare import compare
    from gpudoctor.views import diff
    from gpudoctor.views._terminal import style_of

    book = rulebook.load(options.rules)
    a, b = (doctor.diagnose(snapshot, book) for snapshot in _snapshots_in([options.a, options.b]))
    difference = compare(a, b)
    if options.json:
        print(diff.document(difference))
    else:
        print(diff.render(difference, (options.a, options.b), style_of(sys.stdout)))
    return SOUND if difference.equal else DIFFERENT


def record(options: argparse.Namespace) -> int:
    from gpudoctor import output, recorder
    from gpudoctor.views.progress import progress_on

    output.check(options.out)
    with progress_on(sys.stderr) as progress:
        text = recorder.record(options.level, options.python, progress)
    output.put(text, options.out)
    return SOUND


def rendered(diagnosis: Diagnosis, form: str | None, stream: TextIO) -> str:
    """It in that form, by default as text for that stream."""
    if form == "json":
        from gpudoctor.views import document

        return document.render(diagnosis)
    if form == "markdown":
        from gpudoctor.views import markdown

        return markdown.render(diagnosis)
    if form == "html":
        from gpudoctor.views import html

        return html.render(diagnosis)
    from gpudoctor.views._terminal import style_of

    if diagnosis.fleet and diagnosis.snapshot.target.kind == "fleet":
        from gpudoctor.views import fleet

        return fleet.render(diagnosis, diagnosis.fleet, style_of(stream))
    from gpudoctor.views import text

    return text.render(diagnosis, style_of(stream))
