"""``check``: this machine, diagnosed."""

from __future__ import annotations

import argparse
import sys
import time

from gpudoctor.app import output, pipeline
from gpudoctor.app.commands.reports import rendered, shared, stream_of
from gpudoctor.app.output import exit_code
from gpudoctor.views.progress import progress_on


def check(options: argparse.Namespace) -> int:
    """``gpudoctor check``: diagnose this machine and print or write the report; the exit code of the verdict."""
    output.check(options.out)
    began = time.monotonic()
    with progress_on(sys.stderr) as progress:
        diagnosis = pipeline.check(
            options.level, options.python, options.rules, progress, expect=options.expect, wait=options.wait
        )
    seconds, diagnosis = time.monotonic() - began, shared(diagnosis, options)
    output.put(rendered(diagnosis, options.format, stream_of(options.out), options.strict, seconds), options.out)
    return exit_code(diagnosis, options.strict)
