"""``snapshot`` saves facts, ``history`` lists kept checks, ``diff`` compares, ``replay`` judges saved files again."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.app import output, pipeline, reading
from gpudoctor.app.commands.reports import shared
from gpudoctor.app.output import BROKEN, DIFFERENT, SOUND, UNKNOWN, exit_code
from gpudoctor.core.about import __version__
from gpudoctor.core.diagnosis import Replay, Replayed
from gpudoctor.core.errors import DocumentError, UsageError
from gpudoctor.core.language import say
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.catalog import catalog
from gpudoctor.diagnosis.compare import compare
from gpudoctor.diagnosis.history import Run, Shelf, interpreter_mark, of_this_machine, run_at
from gpudoctor.readers import read_file
from gpudoctor.target.local import Local
from gpudoctor.views import diff as diff_view
from gpudoctor.views import document
from gpudoctor.views import history as history_view
from gpudoctor.views._terminal import style_of
from gpudoctor.views.progress import progress_on

if TYPE_CHECKING:
    import argparse

    from gpudoctor.core.diagnosis import Diagnosis
    from gpudoctor.diagnosis.expect import Profile
    from gpudoctor.diagnosis.rulebook import Rulebook


def snapshot(options: argparse.Namespace) -> int:
    """``gpudoctor snapshot``: write the facts of this machine as JSON; exit code 0."""
    output.check(options.out)  # before minutes are spent on what cannot be kept
    with progress_on(sys.stderr) as progress:
        facts = pipeline.look(options.level, options.python, progress, wait=options.wait)
    output.put(document.facts(shared(facts, options), __version__), options.out)
    return SOUND


def history(options: argparse.Namespace) -> int:
    """``gpudoctor history``: print the kept checks and runs of this machine; exit code 0. Raises `UsageError` where
    history is off.
    """
    shelf = kept_runs()
    runs, folder = shared(([run.summary() for run in shelf.everything()], str(shelf.folder)), options)
    if options.json:
        print(history_view.document(runs, folder))
    else:
        print(history_view.render(runs, folder, style_of(sys.stdout)))
    return SOUND


def kept_runs() -> Shelf:
    """The store of kept runs of this machine; raises `UsageError` where history is off or its folder unsafe."""
    shelf = of_this_machine()
    if shelf is None:
        raise UsageError(say("no run is kept: GPUDOCTOR_HISTORY is off, or others can write to the folder of the runs"))
    return shelf


# ---- ``diff`` ----


def diff(options: argparse.Namespace) -> int:
    """``gpudoctor diff``: print what differs between two files, or a file or kept run and this machine.

    Exit code 0 if nothing differs but what always does (temperatures, serial numbers), else 1. Raises `UsageError` for
    options that do not go together.
    """
    kept = "--last-good" if options.last_good else "--last" if options.last else ""
    if kept and options.a is not None:
        raise UsageError(
            say("{option} stands for A, and B is this machine now: leave {name} out", option=kept, name=options.a)
        )
    if not kept and options.a is None:
        raise UsageError(
            say("diff needs A and B, or A alone to compare with now, or --last-good: gpudoctor diff --last-good")
        )
    if options.b is not None and (options.level or options.python):
        raise UsageError(say("--level and --python are of this machine now: leave B out, or them"))
    if [options.a, options.b].count("-") == 2:
        raise UsageError(say("-: standard input can be read only once"))
    book = rulebook.load(options.rules)
    given = [name for name in (options.a, options.b) if name is not None]
    if len(given) == 2:
        names = given
        a, b = (_diagnosis_of(name, book) for name in given)
    else:
        run = _run_for(options, given)
        names = [say("run {id}", id=run.id) if run else given[0], say("this machine now")]
        a = _diagnosis_of_run(run, book) if run else _diagnosis_of(given[0], book)
        b = _now(options, run)
        if run and run.mark != interpreter_mark(b.snapshot.target.python):
            output.put_message(say("run {id} was of another Python: its torch is not this one", id=run.id))
    difference, sides = shared((compare(a, b), (names[0], names[1])), options)
    if options.json:
        print(diff_view.document(difference))
    else:
        print(diff_view.render(difference, sides, style_of(sys.stdout)))
    return SOUND if difference.equal else DIFFERENT


def _run_for(options: argparse.Namespace, sides: list[str]) -> Run | None:
    """The kept run for side A: by its id, or for --last or --last-good; None where A is a file.

    Raises `UsageError` where no such run is kept.
    """
    if sides:
        return _run_named(sides[0])

    shelf = kept_runs()
    runs = shelf.runs()
    run = next(iter(runs), None) if options.last else shelf.last_good(Local("quick", options.python).python)
    if run is None:
        none = "none of the {count} kept checks was good" if runs else "no check of this machine is kept"
        what = say(none, count=len(runs))
        raise UsageError(
            say(
                "{what} in {folder}; gpudoctor history lists them, gpudoctor check makes one",
                what=what,
                folder=shelf.folder,
            )
        )
    return run


def _run_named(name: str) -> Run | None:
    """The kept run of that id; None if it does not look like an id, or a file has that name.

    Raises `UsageError` where it is not kept.
    """
    if not re.fullmatch(r"\d{8}(?:-\d{1,6}(?:-\d{1,3})?)?", name) or Path(name).exists():
        return None
    return kept_runs().named(name)


def _diagnosis_of(name: str, book: Rulebook) -> Diagnosis:
    """The diagnosis of a file or a kept run, by the current rules."""
    if run := _run_named(name):
        return _diagnosis_of_run(run, book)
    return pipeline.diagnose(reading.snapshot_of(read_file(name), name), book)


def _diagnosis_of_run(run: Run, book: Rulebook) -> Diagnosis:
    """The diagnosis of a kept run; raises DocumentError if its facts do not fit the current catalogue."""
    snapshot = run.snapshot()
    for misfit in catalog().misfits(snapshot):
        raise DocumentError(say("run {id} was kept by another gpudoctor: {misfit}", id=run.id, misfit=misfit))
    return pipeline.diagnose(snapshot, book)


def _now(options: argparse.Namespace, run: Run | None) -> Diagnosis:
    """Diagnose this machine, at the level of ``--level``, else of the `run` it is compared with; standard if that was
    deep or there is no run.
    """
    as_then = run.level if run and run.level in ("quick", "standard") else "standard"
    with progress_on(sys.stderr) as progress:
        return pipeline.check(options.level or as_then, options.python, options.rules, progress)


# ---- ``replay``: what a profile and pages would have drained, over what was kept ----

_MOST_FILES = 100_000


def replay(options: argparse.Namespace) -> int:
    """``gpudoctor replay``: judge all files again by today's rules, and print which machines would have been drained.

    Exit code 1 if there is one, 3 if no file could be read, else 0.
    """
    book, profile = rulebook.load(options.rules), pipeline.expected(options.expect)
    files = _files(options.paths)
    found = Replay(
        profile.name if profile else "", tuple(_replayed(*file, book, profile, options.strict) for file in files)
    )
    found = shared(found, options)
    print(history_view.replay_document(found) if options.json else history_view.replay(found, style_of(sys.stdout)))
    if found.drained:
        return BROKEN
    return SOUND if any(not one.trouble for one in found.files) else UNKNOWN


def _files(paths: list[Path]) -> list[tuple[Path, str]]:
    """Every file below the paths, each with the name of its folder, empty directly below a path.

    Raises `UsageError` for a path that is missing, too many files, or none.
    """
    found: list[tuple[Path, str]] = []
    for path in paths:
        if not path.exists():
            raise UsageError(say("{path}: no such file or folder", path=path))
        places = sorted(place for place in path.rglob("*") if place.is_file()) if path.is_dir() else [path]
        found += [(place, place.parent.name if place.parent != path and place != path else "") for place in places]
        if len(found) > _MOST_FILES:
            raise UsageError(say("{path}: more than {count} files; give a folder in it", path=path, count=_MOST_FILES))
    if not found:
        raise UsageError(say("there is no file in it"))
    return found


def _replayed(place: Path, folder: str, book: Rulebook, profile: Profile | None, strict: bool) -> Replayed:
    """The file's machine judged by today's rules: whether it would have been drained, by which findings, and when the
    file was kept or written.

    A file that cannot be read is not drained and has its error as ``trouble``.
    """
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(place.stat().st_mtime))
    try:
        run = run_at(place)
        snapshot = run.snapshot() if run else reading.snapshot_of(read_file(str(place)), str(place))
    except DocumentError as error:
        return Replayed(str(place), folder or place.stem, at, False, (), str(error))
    diagnosis = pipeline.diagnose(snapshot, book, profile=profile)
    drained = exit_code(diagnosis, strict) == BROKEN
    grave = ("error", "warning") if strict else ("error",)
    causes = tuple((one.id, one.title) for one in diagnosis.findings if one.severity in grave) if drained else ()
    own = snapshot.target.name if snapshot.target.kind in ("local", "snapshot", "node") else ""
    machine = own if own and own != str(place) else folder or place.stem
    return Replayed(str(place), machine, (run.time if run else "") or at, drained, causes)
