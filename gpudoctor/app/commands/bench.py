"""Kernels run on this machine: ``bench`` measures, ``soak`` works an idle one hard for minutes."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpudoctor.app import output, pipeline
from gpudoctor.app.commands.reports import rendered, shared, stream_of
from gpudoctor.app.output import INTERRUPTED, OF_VERDICT, SOUND, exit_code, stopping
from gpudoctor.core import system
from gpudoctor.core.diagnosis import Note
from gpudoctor.core.frozen import replace
from gpudoctor.core.language import say
from gpudoctor.kernels import specs
from gpudoctor.views import bench as view
from gpudoctor.views._terminal import style_of
from gpudoctor.views.progress import measuring_on

if TYPE_CHECKING:
    import argparse

    from gpudoctor.core.measurement import Measurements


def bench(options: argparse.Namespace) -> int:
    """``gpudoctor bench``: run kernels, or list them, and print; the verdict's exit code, 130 after Ctrl-C."""
    if options.list:
        print(view.kernel_list([spec.kernel for spec in specs.select_kernels(options.kernel)]))
        return SOUND
    with _measuring() as (on_results, stop, _):
        result = pipeline.bench(options.kernel, options.device, options.python, on_results, stop)
    result = shared(result, options)
    print(view.document(result) if options.json else view.render(result, style_of(sys.stdout)))
    return INTERRUPTED if stop.is_set() else OF_VERDICT[result.verdict]


@contextmanager
def _measuring(
    signals: Sequence[int] = (),
) -> Iterator[tuple[Callable[[Measurements], None], threading.Event, list[int]]]:
    """Context with a callback that shows results, an event to stop, and the list that gets the signal's number.

    Ctrl-C or one of the signals sets the event once there are results; before that it ends the program.
    """
    begun, stop = threading.Event(), threading.Event()
    with measuring_on(sys.stderr) as show, stopping(stop, lambda: not begun.is_set(), signals) as received:

        def on_results(measurements: Measurements) -> None:
            """Note that there are results, and show them."""
            begun.set()
            show(measurements)

        yield on_results, stop, received


# ---- ``soak`` ----

_WHOLE = "Worked hard for {seconds} s; rounds of kernels: {rounds}."
_CUT_SHORT = "{signal} ended it after {seconds} of {planned} s: what was measured until then is judged."


def soak(options: argparse.Namespace) -> int:
    """``gpudoctor soak``: work the machine, and print or write the report; the verdict's exit code, or 128 + signal.

    A signal ends at once what runs on the GPUs; the report follows. Before anything runs there, it ends the program.
    """
    output.check(options.out)
    with _measuring(system.ENDING_SIGNALS) as (on_results, stop, received):
        diagnosis = pipeline.soak(
            60 * options.minutes,
            options.device,
            options.python,
            options.rules,
            on_results,
            stop,
            lambda: signal.Signals(received[0]).name if received else "",
        )
    snapshot = diagnosis.snapshot
    words = {name: f"{snapshot.number(f'soak.{name}'):.0f}" for name in ("seconds", "rounds")}
    ended_by = snapshot.text("soak.ended_by")
    planned = f"{snapshot.number('soak.planned_seconds'):.0f}"
    text = say(_CUT_SHORT, signal=ended_by, planned=planned, **words) if ended_by else say(_WHOLE, **words)
    report = shared(replace(diagnosis, notes=(*diagnosis.notes, Note(("soak.seconds",), text))), options)
    output.put(rendered(report, options.format, stream_of(options.out), options.strict), options.out)
    return 128 + received[0] if received else exit_code(diagnosis, options.strict)
