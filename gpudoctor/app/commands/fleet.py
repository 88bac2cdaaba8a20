"""Many hosts, folded into one diagnosis: ``fleet``."""

from __future__ import annotations

import argparse
import sys

from gpudoctor.app import interactive, output, pipeline, reading
from gpudoctor.app.commands.interface import demand_interface, run_interface
from gpudoctor.app.commands.reports import rendered, shared, stream_of
from gpudoctor.app.output import exit_code
from gpudoctor.cluster.fleet import sources
from gpudoctor.cluster.fleet.fold import FleetFold
from gpudoctor.cluster.fleet.remote import Question
from gpudoctor.cluster.fleet.sources import FleetQuery, ReplySource
from gpudoctor.core import language
from gpudoctor.core.errors import UsageError
from gpudoctor.core.frozen import replace
from gpudoctor.core.language import say
from gpudoctor.diagnosis import rulebook
from gpudoctor.views.progress import counting_on


def fleet(options: argparse.Namespace) -> int:
    """``gpudoctor fleet``: check many hosts and print the report, or show it with --tui; the verdict's exit code.

    What has arrived when a signal comes is reported, and the signal's exception raised. Raises `UsageError` for options
    that do not go together.
    """
    if options.tui:
        demand_interface()
        if options.out:
            raise UsageError(say("-o does not go with --tui: leave one of them out"))
        _asking(options)  # what cannot be asked is said before a screen is drawn
        return run_interface(interactive.of_fleet(lambda: _asking(options).watch(), options.rules), options)

    output.check(options.out)
    query = _asking(options)
    ended: BaseException | None = None
    with counting_on(sys.stderr, lambda: query.replies, len(query.way.hosts)):
        try:
            query.run()
        except (KeyboardInterrupt, SystemExit) as end:  # what is known by then is told
            ended = end
    diagnosis = query.diagnosis(say("gpudoctor was ended before every host had answered.") if ended else "")
    report = shared(diagnosis, options)
    output.put(rendered(report, options.format, stream_of(options.out), options.strict), options.out)
    if ended:
        sys.stdout.flush()
        raise ended
    return exit_code(diagnosis, options.strict)


def _asking(options: argparse.Namespace) -> FleetQuery:
    """The query of the hosts by these options, not started yet."""
    way = _source(options)
    scheduler = options.scheduler or way.whole.scheduler
    whole = replace(way.whole, scheduler=scheduler, drain_silent=options.drain_silent)
    book, profile = rulebook.load(options.rules), pipeline.expected(options.expect)
    folding = FleetFold(book, profile, lambda text, name: reading.diagnose_text(text, name, book, profile=profile))
    return FleetQuery(way, folding, whole)


def _source(options: argparse.Namespace) -> ReplySource:
    """How the hosts' answers are obtained: over ssh, by Slurm, or from files; raises UsageError unless exactly one."""
    slurm = options.slurm or bool(options.partition)
    if [bool(options.hosts), slurm, bool(options.results)].count(True) != 1:
        raise UsageError(say("fleet: give one of --hosts NODESET, --slurm, or the files with the hosts' documents"))
    if options.results:
        return sources.files(options.results)
    seconds = min(options.timeout, options.budget)
    question = Question(
        options.level, options.program, seconds, options.budget, options.fanout, language=language.current()
    )
    if slurm:
        return sources.slurm(options.partition, question)
    return sources.ssh(options.hosts, question, options.ssh_options)
