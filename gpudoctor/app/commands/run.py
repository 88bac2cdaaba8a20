"""``run``: run a command and monitor it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from gpudoctor.app import output
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import say
from gpudoctor.core.shipped import own_command

if sys.platform != "win32":
    from gpudoctor.app.monitoring.watching import HangWatch, Watch, resources_before
    from gpudoctor.target import child
    from gpudoctor.target.passthrough.command import (
        Command,
        CommandError,
        end_as,
        given_environment,
        point_streams_at_null,
    )
    from gpudoctor.target.passthrough.outputs import Outputs

    if TYPE_CHECKING:
        import argparse

        from gpudoctor.core.diagnosis import Diagnosis
        from gpudoctor.target.passthrough.command import Ended

assert sys.platform != "win32"  # what follows is POSIX's alone


def run(options: argparse.Namespace) -> int:
    """``gpudoctor run``: run the command beside a watch, print its diagnosis, and end as the command ended.

    126 or 127 where it cannot be run; with --gate the preflight's code unless that is go. A signal that ended the
    command ends this process, too.
    """
    _check(options)
    if options.gate and (code := _gate(options)):
        return code
    command = Command(options.command, given_environment())
    command.hold_signals()
    outputs = Outputs.prepare(("file",) if options.untouched else ("file", "pipe", "terminal"))
    command.resizes = outputs.on_terminal
    shared = resources_before()
    try:
        command.start(outputs.descriptors)
    except CommandError as error:
        command.release_signals()
        output.put_message(str(error))
        return error.code
    outputs.close_command_ends()
    point_streams_at_null()
    from gpudoctor.app.monitoring.ranks import Ranks  # only now: the command shall start at once

    ranks = Ranks.here()
    hanging = HangWatch(command.pid, options.hang_after, outputs.printed, lambda: watch.used, tuple(options.rules))
    watch = Watch(command.pid, shared, ranks, hanging.add, lambda: _prepare_end(options))
    watch.start()
    hanging.start()
    if ranks:
        ranks.begin(command.pid)
    command.on_quit = hanging.ask if sys.platform == "linux" else None
    ended = command.wait()
    hanging.stop()
    own = None
    try:
        from gpudoctor.app.monitoring.run_diagnosis import Seen, conclude, record_own_end

        own = record_own_end(ended, ranks)
        watch.stop()
        kept = outputs.end()
        command.release_signals()
        seen = Seen(options.command, watch, kept, outputs.kept_from, hanging.facts, hanging.groups)
        conclude(ended, seen, ranks, own, lambda judged: _write(options, judged), options.rules)
    except (KeyboardInterrupt, SystemExit):
        if not (ranks and own and ranks.first(own, echo=False)):
            _tell(f"gpudoctor{say(': ')}{say('the command has ended; its diagnosis was cut off')}")
    except BaseException as error:  # what befalls us is no matter of the command
        why = say("the command has ended, and could not be judged: {error}", error=f"{type(error).__name__}: {error}")
        _tell(f"gpudoctor{say(': ')}{why}"[:300])
    if ranks:
        ranks.leave()
    return _end(ended)


def _prepare_end(options: argparse.Namespace) -> None:
    """Load the pages and modules that judge the command's end, while it runs."""
    from gpudoctor.app.monitoring import run_diagnosis

    run_diagnosis.loaded_rulebook(tuple(options.rules))


def _check(options: argparse.Namespace) -> None:
    """Raise `UsageError` for misuse, or `RuleError` for a broken rule page, before anything is started."""
    if not options.command:
        raise UsageError(say("what is to be run stands after --: gpudoctor run -- python train.py"))
    if options.out == "-":
        raise UsageError(say("-o -: standard output is the command's; name a file, or leave -o out for standard error"))
    output.check(options.out)
    if options.rules:
        from gpudoctor.diagnosis import rulebook

        rulebook.load(options.rules)


def _gate(options: argparse.Namespace) -> int:
    """The exit code of ``gpudoctor preflight``, whose report goes to standard error: on a go only if not `quiet`.

    It is a process of its own, so that nothing of it is left beside the command.
    """
    rules = [word for folder in options.rules for word in ("--rules", str(folder))]
    share = ["--share"] if options.share else []
    lang = ["--lang", options.lang] if options.lang else []
    argv = [*own_command(), "preflight", *rules, *share, *lang]
    with subprocess.Popen(argv, stdout=subprocess.PIPE if options.quiet else sys.stderr) as preflight:
        try:
            report, _ = preflight.communicate()
        except BaseException:  # we are to end: so is it
            preflight.terminate()
            raise
    if report and preflight.returncode:
        _tell(report.decode("utf-8", "replace").rstrip())
    return preflight.returncode if preflight.returncode >= 0 else 128 - preflight.returncode


def _write(options: argparse.Namespace, judged: Diagnosis) -> None:
    """Store the diagnosis in the history, write it with -o, and print it to standard error.

    With --json and without -o the document is printed; else the account, with --quiet only if there are findings.
    """
    from gpudoctor.app.commands.reports import shared
    from gpudoctor.app.monitoring import run_diagnosis  # only now: the command shall start at once
    from gpudoctor.views import _terminal, document, job

    run_diagnosis.keep(judged)
    found: Diagnosis = shared(judged, options)
    if options.out:
        output.put(document.render(found), options.out)
    if options.json and not options.out:
        _tell(document.render(found))
    elif found.findings or not options.quiet:
        _tell(job.render_account(found, _terminal.style_of(sys.stderr)))


def _tell(text: str) -> None:
    """Write to standard error, if that is still open."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def _end(ended: Ended) -> int:
    """The command's exit code; where a signal ended it, end our children and then this process by that signal."""
    if ended.signal is None:
        return ended.code or 0
    with contextlib.suppress(Exception):
        child.end_all()
    code = end_as(ended)
    os._exit(code)
