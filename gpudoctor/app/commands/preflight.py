"""The pre-training check: ``preflight``. On go it becomes the command that was to be run."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence

from gpudoctor.app import output, pipeline
from gpudoctor.app.commands.reports import rendered, shared
from gpudoctor.app.output import SOUND, holding_sigterm
from gpudoctor.cluster.preflight import JobOptions
from gpudoctor.cluster.preflight.run import Checked, run
from gpudoctor.core.language import say
from gpudoctor.target import child
from gpudoctor.views import document
from gpudoctor.views.progress import saying_on

_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")
"""Ignored by Python; any other signal that is ignored was given to us so, by nohup for example."""
CANNOT_RUN, NOT_FOUND = 126, 127
"""What shells say of a command."""
_NOT_STARTED = "The command was not started."
_LAUNCHER_DRAIN_SECONDS = 0.2
"""Seconds for which the rank that tells of a no-go stays. Where a rank was killed, srun ends the step by force as soon
as the last one is gone, and drops what it has not passed on by then: it passes on 16 KiB at a time.
"""


def preflight(options: argparse.Namespace) -> int:
    """``gpudoctor preflight``: check the job with all its ranks; on go this process becomes the command, if any.

    Else the verdict's exit code, 126 or 127 for a command that cannot be run. A signal that ended the check is raised
    again.
    """
    command: Sequence[str] = options.command
    output.check(options.out)
    pipeline.expected(options.expect)  # what is wrong with it is misuse, said before anybody is met
    wanted = JobOptions(
        options.level,
        options.python,
        options.rules,
        options.budget,
        options.network,
        options.expect,
        options.canary,
    )
    with saying_on(sys.stderr) as tell:
        checked = run(wanted, pipeline.of_rank, on_progress=tell)
    with holding_sigterm():
        _report(checked, options)
    if checked.ended:
        raise checked.ended
    if checked.code != SOUND or not command:
        return checked.code
    return _replace_process(command)


def _report(checked: Checked, options: argparse.Namespace) -> None:
    """Print the report, and with -o write the JSON document, on the one rank that has the diagnosis; the report goes to
    stderr if a command follows.
    """
    if checked.diagnosis is None:
        return
    diagnosis, host = shared((checked.diagnosis, checked.place.host), options)
    if options.out:
        output.put(document.render(diagnosis), options.out)
    stream = sys.stderr if options.command else sys.stdout
    if options.format in {None, "text"} and checked.place.alone:
        print(say("{title}: {text}", title=say(checked.verdict.upper()), text=host), end="\n\n", file=stream)
    print(rendered(diagnosis, options.format, stream), file=stream, flush=True)
    if options.command and options.format in {None, "text"} and checked.code != SOUND:
        print("\n" + say(_NOT_STARTED), file=stream, flush=True)
    if not checked.place.alone and checked.code != SOUND:
        time.sleep(_LAUNCHER_DRAIN_SECONDS)


def _replace_process(command: Sequence[str]) -> int:
    """Replace this process by the command (exec); where that fails, print why and return 126 or 127 (not found).

    Our children are ended first, and Python's signal handlers reset.
    """
    child.end_all()
    sys.stdout.flush()
    sys.stderr.flush()
    for name in ("SIGPIPE", "SIGXFSZ", "SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number and (name in _IGNORED_BY_PYTHON or signal.getsignal(number) is not signal.SIG_IGN):
            signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], list(command))
    except FileNotFoundError:
        output.put_message(say("{name}: no such command", name=command[0]))
        return NOT_FOUND
    except OSError as error:
        output.put_message(say("{title}: {text}", title=command[0], text=error.strerror))
        return CANNOT_RUN
