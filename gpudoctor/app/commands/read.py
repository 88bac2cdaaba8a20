"""``read``: pasted reports, logs, saved files and manifests, diagnosed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gpudoctor.app import output, pipeline, reading
from gpudoctor.app.commands.reports import machine_of, rendered, shared, stream_of
from gpudoctor.app.output import BROKEN, SOUND, UNKNOWN, exit_code
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import say
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis import rulebook
from gpudoctor.readers import merge_snapshots, read_file

_WHOLE = {"html": "page", "junit": "document", "prometheus": "machine's metrics"}
"""Forms of which several cannot stand one after the other."""


def read(options: argparse.Namespace) -> int:
    """``gpudoctor read``: diagnose files or standard input; 1 if one is broken, else 3 if one has no verdict, else 0.

    Raises `UsageError` for options that do not go together, `DocumentError` for a file that cannot be read.
    """
    if options.tui:
        return _read_in_interface(options)
    if options.format in _WHOLE and len(options.files) > 1 and not options.together:
        raise UsageError(
            say(
                "--format {format} gives one {whole}: give one file, or --together",
                format=options.format,
                whole=_WHOLE[options.format],
            )
        )
    output.check(options.out)
    book, profile = rulebook.load(options.rules), pipeline.expected(options.expect)
    texts, machine = texts_in(options.files), machine_of(options.machine)
    if options.together:
        snapshot = merge_snapshots([reading.snapshot_of(text, name) for name, text in texts])
        diagnoses = [pipeline.diagnose(reading.on_machine(snapshot, machine), book, profile=profile)]
    else:
        diagnoses = [reading.diagnose_text(text, name, book, machine, profile) for name, text in texts]
    diagnoses, stream = shared(diagnoses, options), stream_of(options.out)
    reports = [rendered(diagnosis, options.format, stream, options.strict) for diagnosis in diagnoses]
    output.put(("\n" if options.format == "json" else "\n\n").join(reports), options.out)
    codes = {exit_code(diagnosis, options.strict) for diagnosis in diagnoses}
    return next(code for code in (BROKEN, UNKNOWN, SOUND) if code in codes)


def _read_in_interface(options: argparse.Namespace) -> int:
    """Open the interface on the files; raises UsageError for options that do not go with it."""
    from gpudoctor.app.commands import interface

    interface.demand_interface()
    if options.out:
        raise UsageError(say("-o does not go with --tui: leave one of them out"))
    if len(options.files) > 1 and not options.together:
        raise UsageError(say("--tui shows one machine: give one file, or --together"))
    profile = pipeline.expected(options.expect)
    return interface.open_files(options, machine_of(options.machine), profile)


def snapshots_in(names: Sequence[str]) -> list[Snapshot]:
    """The facts of each file, in order; raises `DocumentError` for a file that cannot be read."""
    return [reading.snapshot_of(text, name) for name, text in texts_in(names)]


def texts_in(names: Sequence[str]) -> list[tuple[str, str]]:
    """Name and text of each file, all read at once; ``-`` is standard input, UsageError if given twice."""
    if names.count("-") > 1:
        raise UsageError(say("-: standard input can be read only once"))
    return [(name, read_file(name)) for name in names]
