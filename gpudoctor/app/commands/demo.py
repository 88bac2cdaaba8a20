"""``demo``: a recorded sick machine, in the interface or as a report."""

from __future__ import annotations

import argparse

from gpudoctor.app import demos, output
from gpudoctor.app.commands.interface import demand_interface
from gpudoctor.app.commands.reports import rendered, shared, stream_of
from gpudoctor.app.output import SOUND, exit_code
from gpudoctor.core import system
from gpudoctor.core.errors import UsageError
from gpudoctor.core.language import say
from gpudoctor.views._terminal import style_of


def demo(options: argparse.Namespace) -> int:
    """``gpudoctor demo``: open a recorded machine, or the list, in the interface (0), or print its report (the exit
    code of its verdict). Raises `UsageError` for an unknown name, and for the list without a terminal or with a
    report's options.
    """
    if options.name:
        demos.named(options.name)
    asks = options.format or options.out or options.expect or options.rules or options.share or options.strict
    if asks or not system.on_a_terminal():
        if not options.name:
            names = ", ".join(demo.name for demo in demos.every())
            raise UsageError(
                say("the list of demos needs a terminal; with a name the report is printed: {names}", names=names)
            )

        output.check(options.out)
        diagnosis = shared(demos.named(options.name).diagnosis(options.rules, options.expect), options)
        stream = stream_of(options.out)
        text = demos.own_report(diagnosis, style_of(stream)) if options.format in (None, "text") else ""
        output.put(text or rendered(diagnosis, options.format, stream, options.strict), options.out)
        return exit_code(diagnosis, options.strict)
    demand_interface()
    demos.show(options.name)
    return SOUND
