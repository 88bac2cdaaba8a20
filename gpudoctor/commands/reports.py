"""A machine, a paste or a file, judged, saved or compared: ``check``, ``read``, ``snapshot``, ``record``."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from gpudoctor.commands.exits import BROKEN, SOUND, UNKNOWN, exit_code
from gpudoctor.commands.sharing import shared
from gpudoctor.model.errors import UsageError
from gpudoctor.model.frozen import replace

if TYPE_CHECKING:
    import argparse

    from gpudoctor.model.diagnosis import Diagnosis
    from gpudoctor.model.snapshot import Snapshot

_WHOLE = {"html": "page", "junit": "document", "prometheus": "machine's metrics"}
"""Forms of which several cannot stand one after the other."""


def check(options: argparse.Namespace) -> int:
    from gpudoctor import doctor, output
    from gpudoctor.views.progress import progress_on

    output.check(options.out)
    began = time.monotonic()
    with progress_on(sys.stderr) as progress:
        diagnosis = doctor.check(
            options.level, options.python, options.rules, progress, expect=options.expect, wait=options.wait
        )
    seconds, diagnosis = time.monotonic() - began, shared(diagnosis, options)
    output.put(rendered(diagnosis, options.format, stream_of(options.out), options.strict, seconds), options.out)
    return exit_code(diagnosis, options.strict)


def read(options: argparse.Namespace) -> int:
    from gpudoctor import doctor, output, rulebook
    from gpudoctor.readers import together

    if options.tui:
        return _read_shown(options)
    if options.format in _WHOLE and len(options.files) > 1 and not options.together:
        raise UsageError(f"--format {options.format} gives one {_WHOLE[options.format]}: give one file, or --together")
    output.check(options.out)
    book, profile = rulebook.load(options.rules), doctor.expected(options.expect)
    texts, machine = _texts_in(options.files), machine_of(options.machine)
    if options.together:
        snapshot = together([doctor.snapshot_of(text, name) for name, text in texts])
        diagnoses = [doctor.diagnose(doctor.on_machine(snapshot, machine), book, profile=profile)]
    else:
        diagnoses = [doctor.judged(text, name, book, machine, profile) for name, text in texts]
    diagnoses, stream = shared(diagnoses, options), stream_of(options.out)
    reports = [rendered(diagnosis, options.format, stream, options.strict) for diagnosis in diagnoses]
    output.put(("\n" if options.format == "json" else "\n\n").join(reports), options.out)
    codes = {exit_code(diagnosis, options.strict) for diagnosis in diagnoses}
    return next(code for code in (BROKEN, UNKNOWN, SOUND) if code in codes)


def recorded(options: argparse.Namespace) -> int:
    """The report of a machine that ships."""
    from gpudoctor import demos, output

    output.check(options.out)
    diagnosis = shared(demos.named(options.name).diagnosis(options.rules, options.expect), options)
    output.put(rendered(diagnosis, options.format, stream_of(options.out), options.strict), options.out)
    return exit_code(diagnosis, options.strict)


def _read_shown(options: argparse.Namespace) -> int:
    from gpudoctor.commands.screens import demand_interface, shown

    demand_interface()
    from gpudoctor import doctor, interactive

    if options.out:
        raise UsageError("-o does not go with --tui: leave one of them out")
    if len(options.files) > 1 and not options.together:
        raise UsageError("--tui shows one machine: give one file, or --together")
    profile = doctor.expected(options.expect)
    work = interactive.of_files(options.files, options.rules, machine_of(options.machine), profile)
    return shown(work, options)


def snapshots_in(names: Sequence[str]) -> list[Snapshot]:
    """The facts of each file."""
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
        snapshot = doctor.look(options.level, options.python, progress, wait=options.wait)
    output.put(document.facts(shared(snapshot, options), __version__), options.out)
    return SOUND


def record(options: argparse.Namespace) -> int:
    from gpudoctor import output, recorder
    from gpudoctor.views.progress import progress_on

    output.check(options.out)
    with progress_on(sys.stderr) as progress:
        text = recorder.record(options.level, options.python, progress)
    output.put(text, options.out)
    return SOUND


def stream_of(out: str | None) -> TextIO:
    """Whom a text is for: a file gets no colour."""
    return sys.stdout if out is None or out == "-" else io.StringIO()


def rendered(
    diagnosis: Diagnosis, form: str | None, stream: TextIO, strict: bool = False, seconds: float | None = None
) -> str:
    """It in that form, by default as text for that stream; `seconds`: how long it took."""
    if form == "junit":
        from gpudoctor.views import junit

        return junit.render(diagnosis, strict)
    if form == "prometheus":
        from gpudoctor.views import prometheus

        return prometheus.render(diagnosis, time.time(), seconds)
    if form == "json":
        from gpudoctor.views import document

        return document.render(diagnosis)
    if form == "markdown":
        from gpudoctor.views import markdown

        return markdown.render(diagnosis)
    if form == "html":
        from gpudoctor.kernels.recall import measurements
        from gpudoctor.views import html

        return html.render(diagnosis, measurements(diagnosis.snapshot))
    from gpudoctor.views._terminal import style_of

    if diagnosis.fleet and diagnosis.snapshot.target.kind == "fleet":
        from gpudoctor.views import fleet

        return fleet.render(diagnosis, diagnosis.fleet, style_of(stream))
    from gpudoctor.views import text

    return text.render(diagnosis, style_of(stream))


# ---- The machine that ``--for`` names ----
# Described in words, or ``here``, this one.

HERE = "here"
_OF_THE_MACHINE = ("driver", "gpu", "host", "nvml", "pci")
"""Topics of facts that are the machine's, whatever is installed on it."""
_USUAL = {"host.platform": "linux", "host.arch": "x86_64"}
"""What a machine is that is described without a word of it."""


def machine_of(words: str) -> Snapshot | None:
    """The facts of the machine that the words describe; none for no words. Raises `UsageError` for a word it is not."""
    if not words:
        return None
    return _here() if words.strip() == HERE else _described(words)


def _described(words: str) -> Snapshot:
    from gpudoctor.model.fact import Known
    from gpudoctor.model.stack import GRANTED
    from gpudoctor.setup import described

    snapshot = described.snapshot_of(described.described(words))
    usual = {name: Known(value, GRANTED) for name, value in _USUAL.items()}
    return replace(snapshot, facts={**usual, **snapshot.facts})


def _here() -> Snapshot:
    """This machine as far as a manifest's packages do not change it: its GPUs, its driver, its system, its Python."""
    from gpudoctor import doctor

    snapshot = doctor.look("quick")
    facts = {
        name: fact
        for name, fact in snapshot.facts.items()
        if name.partition(".")[0] in _OF_THE_MACHINE or name == "python.version"
    }
    groups = {name: rows for name, rows in snapshot.groups.items() if name in _OF_THE_MACHINE}
    return replace(snapshot, facts=facts, groups=groups, target=replace(snapshot.target, name="this machine"))
