"""Many hosts, folded into one diagnosis: ``fleet``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpudoctor import language
from gpudoctor.commands.exits import exit_code
from gpudoctor.model.errors import UsageError
from gpudoctor.model.frozen import replace

if TYPE_CHECKING:
    import argparse

    from gpudoctor.fleet.asking import Asking, Way


def fleet(options: argparse.Namespace) -> int:
    if options.tui:
        return _shown(options)
    from gpudoctor import output
    from gpudoctor.commands.reports import rendered, stream_of
    from gpudoctor.commands.sharing import shared
    from gpudoctor.views.progress import counting_on

    output.check(options.out)
    asking = _asking(options)
    ended: BaseException | None = None
    with counting_on(sys.stderr, lambda: asking.heard, len(asking.way.hosts)):
        try:
            asking.run()
        except (KeyboardInterrupt, SystemExit) as end:  # what is known by then is told
            ended = end
    diagnosis = asking.diagnosis("gpudoctor was ended before it had heard of every host." if ended else "")
    told = shared(diagnosis, options)
    output.put(rendered(told, options.format, stream_of(options.out), options.strict), options.out)
    if ended:
        sys.stdout.flush()
        raise ended
    return exit_code(diagnosis, options.strict)


def _shown(options: argparse.Namespace) -> int:
    from gpudoctor.commands.screens import demand_interface, shown

    demand_interface()
    from gpudoctor import interactive

    if options.out:
        raise UsageError("-o does not go with --tui: leave one of them out")
    _asking(options)  # what cannot be asked is said before a screen is drawn
    return shown(interactive.of_fleet(lambda: _asking(options).watch(), options.rules), options)


def _asking(options: argparse.Namespace) -> Asking:
    from gpudoctor import doctor, rulebook
    from gpudoctor.fleet.asking import Asking
    from gpudoctor.fleet.fold import Folding

    way = _way(options)
    scheduler = options.scheduler or way.whole.scheduler
    whole = replace(way.whole, scheduler=scheduler, drain_silent=options.drain_silent)
    return Asking(way, Folding(rulebook.load(options.rules), doctor.expected(options.expect)), whole)


def _way(options: argparse.Namespace) -> Way:
    from gpudoctor.fleet import asking
    from gpudoctor.fleet.remote import Question

    slurm = options.slurm or bool(options.partition)
    if [bool(options.hosts), slurm, bool(options.results)].count(True) != 1:
        raise UsageError("fleet: give one of --hosts NODESET, --slurm, or the files with the hosts' documents")
    if options.results:
        return asking.files(options.results)
    seconds = min(options.timeout, options.budget)
    question = Question(
        options.level, options.program, seconds, options.budget, options.fanout, language=language.spoken()
    )
    if slurm:
        return asking.slurm(options.partition, question)
    return asking.ssh(options.hosts, question, options.ssh_options)
