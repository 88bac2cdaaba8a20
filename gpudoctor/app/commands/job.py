"""``job``: what a running job does, and for whom its ranks wait."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from gpudoctor.app import live, output
from gpudoctor.app.commands.reports import rendered, shared, stream_of
from gpudoctor.app.output import exit_code
from gpudoctor.cluster.running import judging
from gpudoctor.core.errors import UsageError
from gpudoctor.core.fact import Unread
from gpudoctor.core.sample import Sample
from gpudoctor.views import job as view
from gpudoctor.views._terminal import style_of

if TYPE_CHECKING:
    import argparse

    from gpudoctor.core.diagnosis import Diagnosis


def job(options: argparse.Namespace) -> int:
    """``gpudoctor job``: look at the job's ranks, and print the report; the exit code of its verdict."""
    if sys.platform != "linux":
        raise UsageError("job reads /proc, which only Linux has")
    _check(options)
    diagnosis = _of_this_machine(options)
    report = shared(diagnosis, options)
    if options.format in (None, "text"):
        output.put(view.render(report, style_of(stream_of(options.out))), options.out)
    else:
        output.put(rendered(report, options.format, stream_of(options.out), options.strict), options.out)
    return exit_code(diagnosis, options.strict)


def _check(options: argparse.Namespace) -> None:
    """Raise `UsageError` for what cannot be done, before anything is looked at."""
    output.check(options.out)
    if not options.pids:
        raise UsageError("job: give the process id of the job, or of one of its ranks")


def _of_this_machine(options: argparse.Namespace) -> Diagnosis:
    """The diagnosis of the job's ranks on this machine; raises `UsageError` where there is no such process."""
    from gpudoctor.cluster.running import looking
    from gpudoctor.probes._job.members import read_job
    from gpudoctor.probes._job.stacks import find_program
    from gpudoctor.target.local import Local

    found = read_job(options.pids)
    if isinstance(found, Unread):
        raise UsageError(f"job: {found.why}")
    target, began = Local("quick"), time.monotonic()
    samples: list[Sample] = []
    end = live.watch(samples.append, interval=1.0) if live.has_gpus() else (lambda: None)
    try:
        seen = looking.look_at(found, options.look, target, find_program(target), threading.Event())
    finally:
        end()
    rows = looking.rows_of(found, seen, samples)
    name = f"job of process {found.root}"
    return judging.diagnose(name, rows, time.monotonic() - began, {}, options.rules)
