"""The terminal interface, on this machine, on a recording, or in a browser."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from gpudoctor import shipped
from gpudoctor.commands.exits import SOUND, UNKNOWN, exit_code
from gpudoctor.model.errors import ExtraError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpudoctor.views.tui.work import Work


def on_a_terminal() -> bool:
    """Whether there is one to show the interface on: it reads stdin and draws on stderr."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    seen = all(stream and stream.isatty() for stream in streams) and os.environ.get("TERM") != "dumb"
    return seen or _in_a_browser()


def _in_a_browser() -> bool:
    return "WebDriver" in os.environ.get("TEXTUAL_DRIVER", "")


def is_here() -> bool:
    """Whether the interface can be shown; it is said where it cannot."""
    try:
        demand_interface()
    except UsageError as error:
        print(f"gpudoctor: {error}", file=sys.stderr)
        return False
    return True


def demand_interface() -> None:
    """Raise `UsageError` where the library that the interface is drawn with is missing."""
    from importlib.util import find_spec

    if find_spec("textual"):
        return
    if shipped.ARCHIVE:
        how = "gpudoctor check and gpudoctor read print the report; gpudoctor pyz makes a file with it"
        raise UsageError(f"the interface is not in this file: {how}")
    raise UsageError("the interface needs Textual, which is not installed: python -m pip install textual")


def open_(options: argparse.Namespace) -> int:
    """The interface on this machine."""
    from gpudoctor import doctor, interactive

    profile = doctor.expected(options.expect)  # what is wrong with it is said before a screen is drawn
    work = interactive.of_this_machine(options.level, options.python, options.rules, profile, options.wait)
    return shown(work, options)


def shown(work: Work, options: argparse.Namespace) -> int:
    """The interface until it is left, and the exit code of the last diagnosis that it showed."""
    from gpudoctor import interactive

    if not on_a_terminal():
        raise UsageError("the interface needs a terminal; without one, --format text gives the report")
    diagnosis = interactive.run(interactive.shared(work) if options.share else work)
    return exit_code(diagnosis, options.strict) if diagnosis else UNKNOWN


def demo(options: argparse.Namespace) -> int:
    from gpudoctor import demos

    if options.name:
        demos.named(options.name)
    asks = options.format or options.out or options.expect or options.rules or options.share or options.strict
    if asks or not on_a_terminal():
        if not options.name:
            names = ", ".join(demo.name for demo in demos.every())
            raise UsageError(f"the list of demos needs a terminal; with a name the report is printed: {names}")
        from gpudoctor.commands.reports import recorded

        return recorded(options)
    demand_interface()
    demos.show(options.name)
    return SOUND


def is_to_be_served(options: argparse.Namespace) -> bool:
    """Whether a browser is wanted, and we are not what runs for one already."""
    return bool(getattr(options, "serve", None)) and not _in_a_browser()


def serve(options: argparse.Namespace, words: Sequence[str]) -> int:
    """The same command for each page of a browser."""
    if options.act == "demo" and options.name:
        from gpudoctor import demos

        demos.named(options.name)
    elif options.act == "read" and not options.tui:
        raise UsageError("--serve shows the interface: gpudoctor read FILE --tui --serve")
    elif options.act != "demo" and (options.format or options.out):
        raise UsageError("--serve shows the interface; --format, --json and -o are for reports")
    try:
        from gpudoctor import serving
    except ModuleNotFoundError as error:
        raise ExtraError(f"{error.name} is missing", "serve") from error
    serving.serve(words, options.serve, options.allow_changes)
    return SOUND
