"""``soak``: an idle machine worked hard for minutes, and judged."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

from gpudoctor.app import output, pipeline
from gpudoctor.app.commands.reports import rendered, shared, stream_of
from gpudoctor.app.output import exit_code, stopping
from gpudoctor.core import system
from gpudoctor.core.diagnosis import Note
from gpudoctor.core.frozen import replace
from gpudoctor.core.language import say
from gpudoctor.views.progress import measuring_on

if TYPE_CHECKING:
    import argparse

    from gpudoctor.core.diagnosis import Diagnosis
    from gpudoctor.core.measurement import Measurements

_WHOLE = "Worked hard for {seconds} s; rounds of kernels: {rounds}."
_CUT_SHORT = "{signal} ended it after {seconds} of {planned} s: what was measured until then is judged."


def soak(options: argparse.Namespace) -> int:
    """``gpudoctor soak``: work the machine, and print or write the report; the verdict's exit code, or 128 + signal.

    A signal ends at once what runs on the GPUs; the report follows. Before anything runs there, it ends the program.
    """
    output.check(options.out)
    begun, stop = threading.Event(), threading.Event()
    with (
        measuring_on(sys.stderr) as on_results,
        stopping(stop, lambda: not begun.is_set(), system.ENDING_SIGNALS) as received,
    ):

        def on_measurements(measurements: Measurements) -> None:
            """Note that kernels run, and pass on what they have measured."""
            begun.set()
            on_results(measurements)

        diagnosis = pipeline.soak(
            60 * options.minutes,
            options.device,
            options.python,
            options.rules,
            on_measurements,
            stop,
            lambda: signal.Signals(received[0]).name if received else "",
        )
    report = shared(_with_note(diagnosis), options)
    output.put(rendered(report, options.format, stream_of(options.out), options.strict), options.out)
    return 128 + received[0] if received else exit_code(diagnosis, options.strict)


def _with_note(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with a note on how long the machine was worked, and what ended it before its time."""
    snapshot = diagnosis.snapshot
    words = {name: f"{snapshot.number(f'soak.{name}'):.0f}" for name in ("seconds", "rounds")}
    ended_by = snapshot.text("soak.ended_by")
    planned = f"{snapshot.number('soak.planned_seconds'):.0f}"
    text = say(_CUT_SHORT, signal=ended_by, planned=planned, **words) if ended_by else say(_WHOLE, **words)
    return replace(diagnosis, notes=(*diagnosis.notes, Note(("soak.seconds",), text)))
