"""``demo``: a recorded sick machine, in the interface or as a report."""

from __future__ import annotations

import argparse

from gpudoctor.app import demos, output
from gpudoctor.app.commands.interface import demand_interface
from gpudoctor.app.commands.reports import rendered, shared, stream_of
from gpudoctor.app.output import SOUND, exit_code
from gpudoctor.core import system
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import phrase, say
from gpudoctor.views._terminal import style_of, wrapped

_LIST = "list"
"""Instead of a demo's name: print all names."""


def demo(options: argparse.Namespace) -> int:
    """``gpudoctor demo``: open a recorded machine, or the list, in the interface (0), or print its report (the exit
    code of its verdict). ``list`` prints the list, as does no name where there is no terminal.

    Raises `UsageError` for an unknown name, and for the list with a report's options.
    """
    name = "" if options.name == _LIST else options.name
    if name:
        demos.named(name)
    asks = options.format or options.out or options.expect or options.rules or options.share or options.strict
    if asks and not name:
        names = ", ".join(demo.name for demo in demos.every())
        raise UsageError(say("a report is of one demo; name it: {names}", names=names))
    if not asks and (options.name == _LIST or not (name or system.on_a_terminal())):
        return _print_list()
    if asks or not system.on_a_terminal():
        output.check(options.out)
        diagnosis = shared(demos.named(name).diagnosis(options.rules, options.expect), options)
        stream = stream_of(options.out)
        text = demos.own_report(diagnosis, style_of(stream)) if options.format in (None, "text") else ""
        output.put(text or rendered(diagnosis, options.format, stream, options.strict), options.out)
        return exit_code(diagnosis, options.strict)
    demand_interface()
    demos.show(name)
    return SOUND


def _print_list() -> int:
    """Print name and title of every demo; exit code 0."""
    every = demos.every()
    column = max(len(demo.name) for demo in every) + 2
    for demo in every:
        print("\n".join(wrapped(f"{demo.name:{column}}{phrase(demo.title, ())}", 0, column)))
    return SOUND
