"""The terminal interface, on this machine or in a browser."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpudoctor.app import interactive, output, pipeline
from gpudoctor.app.output import SOUND, UNKNOWN, exit_code
from gpudoctor.core import shipped, system
from gpudoctor.core.errors import ExtraError, UsageError
from gpudoctor.core.language import say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpudoctor.core.snapshot import Snapshot
    from gpudoctor.diagnosis.expect import Profile
    from gpudoctor.views.tui.work import Work


def can_open_interface() -> bool:
    """True if the interface can be shown; else the reason is printed to standard error."""
    try:
        demand_interface()
    except UsageError as error:
        output.put_message(str(error))
        return False
    return True


def demand_interface() -> None:
    """Raise `UsageError` if Textual, which draws the interface, is missing."""
    if find_spec("textual"):
        return
    if shipped.ARCHIVE:
        how = say("gpudoctor check and gpudoctor read print the report; gpudoctor pyz makes a file with it")
        raise UsageError(say("the interface is not in this file: {how}", how=how))
    raise UsageError(say("the interface needs Textual, which is not installed: python -m pip install textual"))


def open_(options: argparse.Namespace) -> int:
    """Open the interface on this machine; the exit code of the last diagnosis."""
    profile = pipeline.expected(options.expect)  # what is wrong with it is said before a screen is drawn
    work = interactive.of_this_machine(options.level, options.python, options.rules, profile, options.wait)
    return run_interface(work, options)


def open_files(options: argparse.Namespace, machine: Snapshot | None, profile: Profile | None) -> int:
    """Open the interface on the files that are named; the exit code of their diagnosis."""
    return run_interface(interactive.of_files(options.files, options.rules, machine, profile), options)


def run_interface(work: Work, options: argparse.Namespace) -> int:
    """Run the interface until it is left; the exit code of the last diagnosis, 3 if the interface failed. UsageError
    without a terminal.
    """
    if not system.on_a_terminal():
        raise UsageError(say("the interface needs a terminal; without one, --format text gives the report"))
    diagnosis = interactive.run(interactive.shared(work) if options.share else work)
    return exit_code(diagnosis, options.strict) if diagnosis else UNKNOWN


def serve(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Serve the command to browsers until interrupted; raises UsageError for options that do not go with it.

    Raises ExtraError if textual-serve is not installed.
    """
    if options.act == "demo" and options.name:
        from gpudoctor.app import demos

        demos.named(options.name)
    elif options.act == "read" and not options.tui:
        raise UsageError(say("--serve shows the interface: gpudoctor read FILE --tui --serve"))
    elif options.act != "demo" and (options.format or options.out):
        raise UsageError(say("--serve shows the interface; --format, --json and -o are for reports"))
    try:
        from gpudoctor.app import serving
    except ModuleNotFoundError as error:
        raise ExtraError(say("{name} is missing", name=error.name), "serve") from error
    serving.serve(arguments, options.serve, options.allow_changes)
    return SOUND
