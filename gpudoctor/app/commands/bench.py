"""``bench``: the micro-kernels."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpudoctor.app import pipeline
from gpudoctor.app.commands.reports import shared
from gpudoctor.app.output import INTERRUPTED, OF_VERDICT, SOUND, stopping
from gpudoctor.kernels import specs
from gpudoctor.views import bench as view
from gpudoctor.views._terminal import style_of
from gpudoctor.views.progress import measuring_on

if TYPE_CHECKING:
    import argparse

    from gpudoctor.core.measurement import Measurements

    OnResults = Callable[[Measurements], None]


def bench(options: argparse.Namespace) -> int:
    """``gpudoctor bench``: run kernels, or list them, and print; the verdict's exit code, 130 after Ctrl-C."""
    if options.list:
        print(view.kernel_list([spec.kernel for spec in specs.select_kernels(options.kernel)]))
        return SOUND
    with measuring_on(sys.stderr) as on_results, _stop_on_ctrl_c(on_results) as (record_results, stop):
        result = pipeline.bench(options.kernel, options.device, options.python, record_results, stop)
    result = shared(result, options)
    print(view.document(result) if options.json else view.render(result, style_of(sys.stdout)))
    return INTERRUPTED if stop.is_set() else OF_VERDICT[result.verdict]


@contextmanager
def _stop_on_ctrl_c(on_results: OnResults) -> Iterator[tuple[OnResults, threading.Event]]:
    """Context with a callback for results and a stop event, which Ctrl-C sets once there are results.

    Before there are any, Ctrl-C interrupts.
    """
    begun, stop = threading.Event(), threading.Event()

    def record_results(measurements: Measurements) -> None:
        """Note that there are results, and pass them on."""
        begun.set()
        on_results(measurements)

    with stopping(stop, lambda: not begun.is_set()):
        yield record_results, stop
