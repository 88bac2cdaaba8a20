"""Two machines or two moments side by side, and the moments that are kept: ``diff``, ``history``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpudoctor.commands.exits import DIFFERENT, SOUND
from gpudoctor.commands.sharing import shared
from gpudoctor.model.errors import DocumentError, UsageError

if TYPE_CHECKING:
    import argparse

    from gpudoctor.history import Shelf
    from gpudoctor.history.run import Run
    from gpudoctor.model.diagnosis import Diagnosis
    from gpudoctor.rulebook import Rulebook

_NOW = "this machine now"


def diff(options: argparse.Namespace) -> int:
    from gpudoctor import rulebook
    from gpudoctor.compare import compare
    from gpudoctor.views import diff
    from gpudoctor.views._terminal import style_of

    _refuse_nonsense(options)
    book = rulebook.load(options.rules)
    given = [name for name in (options.a, options.b) if name is not None]
    if len(given) == 2:
        names = given
        a, b = (_judged(name, book) for name in given)
    else:
        run = _run_for(options, given)
        names = [f"run {run.id}" if run else given[0], _NOW]
        a = _of_run(run, book) if run else _judged(given[0], book)
        b = _now(options, run)
        _say_of_another(run, b)
    difference, sides = shared((compare(a, b), (names[0], names[1])), options)
    if options.json:
        print(diff.document(difference))
    else:
        print(diff.render(difference, sides, style_of(sys.stdout)))
    return SOUND if difference.equal else DIFFERENT


def _refuse_nonsense(options: argparse.Namespace) -> None:
    kept = "--last-good" if options.last_good else "--last" if options.last else ""
    if kept and options.a is not None:
        raise UsageError(f"{kept} stands for A, and B is this machine now: leave {options.a} out")
    if not kept and options.a is None:
        raise UsageError(
            "diff needs A and B, or A alone to compare with now, or --last-good: gpudoctor diff --last-good"
        )
    if options.b is not None and (options.level or options.python):
        raise UsageError("--level and --python are of this machine now: leave B out, or them")
    if [options.a, options.b].count("-") == 2:
        raise UsageError("-: standard input can be read only once")


def _shelf() -> Shelf:
    from gpudoctor.history import of_this_machine

    shelf = of_this_machine()
    if shelf is None:
        raise UsageError("no run is kept: GPUDOCTOR_HISTORY is off, or others can write to the folder of the runs")
    return shelf


def _run_for(options: argparse.Namespace, sides: list[str]) -> Run | None:
    """The kept run that is meant by A; None where A is a file."""
    if sides:
        return _named(sides[0])
    from gpudoctor.target.local import Local

    shelf = _shelf()
    runs = shelf.runs()
    run = next(iter(runs), None) if options.last else shelf.last_good(Local("quick", options.python).python)
    if run is None:
        what = "no check of this machine is kept" if not runs else f"none of the {len(runs)} kept checks was good"
        raise UsageError(f"{what} in {shelf.folder}; gpudoctor history lists them, gpudoctor check makes one")
    return run


def _named(name: str) -> Run | None:
    """The run of that name, where it looks like one and no file is called so."""
    import re
    from pathlib import Path

    if not re.fullmatch(r"\d{8}(?:-\d{1,6}(?:-\d{1,3})?)?", name) or Path(name).exists():
        return None
    return _shelf().named(name)


def _judged(name: str, book: Rulebook) -> Diagnosis:
    """What a file, or a kept run, comes to by today's rules."""
    from gpudoctor import doctor
    from gpudoctor.readers import read_file

    if run := _named(name):
        return _of_run(run, book)
    return doctor.diagnose(doctor.snapshot_of(read_file(name), name), book)


def _of_run(run: Run, book: Rulebook) -> Diagnosis:
    from gpudoctor import doctor
    from gpudoctor.catalog import catalog

    snapshot = run.snapshot()
    for misfit in catalog().misfits(snapshot):
        raise DocumentError(f"run {run.id} was kept by another gpudoctor: {misfit}")
    return doctor.diagnose(snapshot, book)


def _now(options: argparse.Namespace, run: Run | None) -> Diagnosis:
    """This machine, asked as deep as the run that it is compared with; minutes are spent only where that is asked."""
    from gpudoctor import doctor
    from gpudoctor.views.progress import progress_on

    as_then = run.level if run and run.level != "deep" else "standard"
    with progress_on(sys.stderr) as progress:
        return doctor.check(options.level or as_then, options.python, options.rules, progress)


def _say_of_another(run: Run | None, now: Diagnosis) -> None:
    """That the run was of another interpreter: what differs in torch is then no change."""
    from gpudoctor.history.run import mark

    if run and run.mark != mark(now.snapshot.target.python):
        print(f"gpudoctor: run {run.id} was of another Python: its torch is not this one", file=sys.stderr)


def history(options: argparse.Namespace) -> int:
    from gpudoctor.views import history as view
    from gpudoctor.views._terminal import style_of

    shelf = _shelf()
    runs, folder = shared(([run.told() for run in shelf.runs()], str(shelf.folder)), options)
    if options.json:
        print(view.document(runs, folder))
    else:
        print(view.render(runs, folder, style_of(sys.stdout)))
    return SOUND
