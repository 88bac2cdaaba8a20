"""What is kept of this machine: its facts (``snapshot``), its checks (``history``)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpudoctor.app import output, pipeline
from gpudoctor.app.commands.exits import SOUND
from gpudoctor.app.commands.reports import shared
from gpudoctor.core.about import __version__
from gpudoctor.core.errors import UsageError
from gpudoctor.diagnosis.history import Shelf, of_this_machine
from gpudoctor.views import document
from gpudoctor.views import history as view
from gpudoctor.views._terminal import style_of
from gpudoctor.views.progress import progress_on

if TYPE_CHECKING:
    import argparse


def snapshot(options: argparse.Namespace) -> int:
    """``gpudoctor snapshot``: write the facts of this machine as JSON; exit code 0."""
    output.check(options.out)  # before minutes are spent on what cannot be kept
    with progress_on(sys.stderr) as progress:
        facts = pipeline.look(options.level, options.python, progress, wait=options.wait)
    output.put(document.facts(shared(facts, options), __version__), options.out)
    return SOUND


def history(options: argparse.Namespace) -> int:
    """``gpudoctor history``: print the kept checks of this machine; exit code 0."""
    shelf = kept_runs()
    runs, folder = shared(([run.summary() for run in shelf.everything()], str(shelf.folder)), options)
    if options.json:
        print(view.document(runs, folder))
    else:
        print(view.render(runs, folder, style_of(sys.stdout)))
    return SOUND


def kept_runs() -> Shelf:
    """The store of kept runs of this machine; raises `UsageError` where history is off or its folder unsafe."""
    shelf = of_this_machine()
    if shelf is None:
        raise UsageError("no run is kept: GPUDOCTOR_HISTORY is off, or others can write to the folder of the runs")
    return shelf
