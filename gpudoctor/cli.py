"""The front door: words typed -> one call -> one view -> exit code. The only place that catches and exits."""

from __future__ import annotations

import argparse
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpudoctor.arguments import COMMANDS, parser
from gpudoctor.model.errors import DoctorError, UsageError

if TYPE_CHECKING:
    from gpudoctor.model.diagnosis import Diagnosis
    from gpudoctor.model.measurement import Measurements
    from gpudoctor.model.snapshot import Snapshot
    from gpudoctor.views.tui.work import Work

    Tell = Callable[[Measurements], None]

_GARBAGE = 200_000
"""Objects made before a search for cycles: a short run makes few, and looking for them costs it a tenth."""

SOUND, BROKEN, MISUSE, UNKNOWN = 0, 1, 2, 3
DIFFERENT = 1
INTERRUPTED = 128 + signal.SIGINT
_CODES = {"sound": SOUND, "impaired": SOUND, "broken": BROKEN, "unknown": UNKNOWN}


def run(argv: Sequence[str]) -> int:
    """Parse, call, print, and return the exit code of the contract."""
    gc.set_threshold(_GARBAGE, 20, 20)
    words = list(argv)
    bare = not words or (words[0] not in COMMANDS and words[0] not in {"-h", "--help", "-V", "--version"})
    options = parser().parse_args(["check", *words] if bare else words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot print a name still gets the report
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        code = _serve(options, words) if _is_to_be_served(options) else _act_of(options, bare)(options)
        sys.stdout.flush()
        return int(code)
    except DoctorError as error:
        from gpudoctor.views._terminal import one_line

        print(f"gpudoctor: {one_line(str(error))}", file=sys.stderr)
        return MISUSE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = None  # the reader has gone: nothing is left to say
        return 141


def _act_of(options: argparse.Namespace, bare: bool) -> Callable[[argparse.Namespace], int]:
    shown = options.act == "check" and (bare or options.serve) and options.format is None and _on_a_terminal()
    return _open if shown else _ACTS[options.act]


def _end(number: int, _frame: object) -> None:
    """End with 128+n, taking the children along: they are killed when the interpreter exits."""
    raise SystemExit(128 + number)


def _on_a_terminal() -> bool:
    """Whether there is one to show the interface on: it reads stdin and draws on stderr."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    seen = all(stream and stream.isatty() for stream in streams) and os.environ.get("TERM") != "dumb"
    return seen or _in_a_browser()


def _open(options: argparse.Namespace) -> int:
    """The interface on this machine."""
    from gpudoctor import interactive

    return _shown(interactive.of_this_machine(options.level, options.python, options.rules), options.strict)


def _shown(work: Work, strict: bool) -> int:
    """The interface until it is left, and the exit code of the last diagnosis that it showed."""
    from gpudoctor import interactive

    if not _on_a_terminal():
        raise UsageError("the interface needs a terminal; without one, --format text gives the report")
    diagnosis = interactive.run(work)
    return exit_code(diagnosis, strict) if diagnosis else UNKNOWN


def _demo(options: argparse.Namespace) -> int:
    from gpudoctor import demos

    if options.name:
        demos.named(options.name)
    if not _on_a_terminal():
        names = ", ".join(demo.name for demo in demos.every())
        raise UsageError(f"a demo is shown in the terminal interface, which needs a terminal; there are: {names}")
    demos.show(options.name)
    return SOUND


def _is_to_be_served(options: argparse.Namespace) -> bool:
    """Whether a browser is wanted, and we are not what runs for one already."""
    return bool(getattr(options, "serve", None)) and not _in_a_browser()


def _in_a_browser() -> bool:
    return "WebDriver" in os.environ.get("TEXTUAL_DRIVER", "")


def _serve(options: argparse.Namespace, words: Sequence[str]) -> int:
    """The same command for each page of a browser."""
    if options.act == "demo" and options.name:
        from gpudoctor import demos

        demos.named(options.name)
    elif options.act == "read" and not options.tui:
        raise UsageError("--serve shows the interface: gpudoctor read FILE --tui --serve")
    elif options.act != "demo" and options.format:
        raise UsageError("--serve shows the interface; --format and --json are for reports")
    try:
        from gpudoctor import serving
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is missing: python -m pip install 'gpudoctor[serve]'") from error
    serving.serve(words, options.serve)
    return SOUND


def _check(options: argparse.Namespace) -> int:
    from gpudoctor import doctor
    from gpudoctor.views.progress import progress_on

    with progress_on(sys.stderr) as progress:
        diagnosis = doctor.check(options.level, options.python, options.rules, progress)
    _print(diagnosis, options.format)
    return exit_code(diagnosis, options.strict)


def _read(options: argparse.Namespace) -> int:
    from gpudoctor import doctor, rulebook
    from gpudoctor.readers import together

    if options.tui:
        return _read_shown(options)
    if options.format == "html" and len(options.files) > 1 and not options.together:
        raise UsageError("--format html gives one page: give one file, or --together")
    book = rulebook.load(options.rules)
    snapshots = _snapshots_in(options.files)  # all of them, before anything is printed
    if options.together:
        snapshots = [together(snapshots)]
    codes = []
    for number, snapshot in enumerate(snapshots):
        diagnosis = doctor.diagnose(snapshot, book)
        if number and options.format != "json":
            print()
        _print(diagnosis, options.format)
        codes.append(exit_code(diagnosis, options.strict))
    return next(code for code in (BROKEN, UNKNOWN, SOUND) if code in codes)


def _read_shown(options: argparse.Namespace) -> int:
    from gpudoctor import interactive

    if len(options.files) > 1 and not options.together:
        raise UsageError("--tui shows one machine: give one file, or --together")
    return _shown(interactive.of_files(options.files, options.rules), options.strict)


def _snapshots_in(names: Sequence[str]) -> list[Snapshot]:
    from gpudoctor import doctor
    from gpudoctor.readers import read_file

    if names.count("-") > 1:
        raise UsageError("-: standard input can be read only once")
    texts = [(name, read_file(name)) for name in names]
    return [doctor.snapshot_of(text, name) for name, text in texts]


def _snapshot(options: argparse.Namespace) -> int:
    from gpudoctor import doctor, output
    from gpudoctor.version import __version__
    from gpudoctor.views import document
    from gpudoctor.views.progress import progress_on

    output.check(options.out)  # before minutes are spent on what cannot be kept
    with progress_on(sys.stderr) as progress:
        snapshot = doctor.look(options.level, options.python, progress)
    output.put(document.facts(snapshot, __version__), options.out)
    return SOUND


def _diff(options: argparse.Namespace) -> int:
    from gpudoctor import doctor, rulebook
    from gpudoctor.compare import compare
    from gpudoctor.views import diff
    from gpudoctor.views._terminal import style_of

    book = rulebook.load(options.rules)
    a, b = (doctor.diagnose(snapshot, book) for snapshot in _snapshots_in([options.a, options.b]))
    difference = compare(a, b)
    if options.json:
        print(diff.document(difference))
    else:
        print(diff.render(difference, (options.a, options.b), style_of(sys.stdout)))
    return SOUND if difference.equal else DIFFERENT


def _record(options: argparse.Namespace) -> int:
    from gpudoctor import output, recorder
    from gpudoctor.views.progress import progress_on

    output.check(options.out)
    with progress_on(sys.stderr) as progress:
        text = recorder.record(options.level, options.python, progress)
    output.put(text, options.out)
    return SOUND


def _bench(options: argparse.Namespace) -> int:
    from gpudoctor import doctor
    from gpudoctor.views import bench
    from gpudoctor.views._terminal import style_of
    from gpudoctor.views.progress import measuring_on

    if options.list:
        from gpudoctor.kernels import specs

        print(bench.listed([one.kernel for one in specs.chosen(options.kernel)]))
        return SOUND
    with measuring_on(sys.stderr) as tell, _stopped_by_ctrl_c(tell) as (hear, stop):
        made = doctor.bench(options.kernel, options.device, options.python, hear, stop)
    print(bench.document(made) if options.json else bench.render(made, style_of(sys.stdout)))
    return INTERRUPTED if stop.is_set() else _CODES[made.verdict]


@contextmanager
def _stopped_by_ctrl_c(tell: Tell) -> Iterator[tuple[Tell, threading.Event]]:
    """Once something is measured, the first Ctrl-C sets the event, so that the rest can be shown; else it ends us."""
    begun, stop = threading.Event(), threading.Event()

    def hear(found: Measurements) -> None:
        begun.set()
        tell(found)

    def interrupt(_: int, __: object) -> None:
        if stop.is_set() or not begun.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield hear, stop
    finally:
        signal.signal(signal.SIGINT, before)


def _explain(options: argparse.Namespace) -> int:
    from gpudoctor.knowledge import entries

    key = " ".join(options.key)
    if options.id in entries.NAMES:
        print(_explained_table(options.id, key))
    elif key:
        raise UsageError(f"only tables have keys: {', '.join(entries.NAMES)}; {options.id!r} is none")
    else:
        from gpudoctor.explaining import explained

        print(explained(options.id, options.rules))
    return SOUND


def _explained_table(name: str, key: str) -> str:
    from gpudoctor.knowledge import entries
    from gpudoctor.views import tables

    table = entries.overview(name)
    return tables.entries_page(table, entries.entries(name, key)) if key else tables.table_page(table)


def _rules_list(options: argparse.Namespace) -> int:
    from gpudoctor import rulebook
    from gpudoctor.views import explain

    print(explain.rule_list(rulebook.load(options.rules).rules))
    return SOUND


def _rules_test(options: argparse.Namespace) -> int:
    from gpudoctor import ruletest

    failures = ruletest.run(options.folder)
    print(failures.report)
    return BROKEN if failures.count else SOUND


def _rules_new(options: argparse.Namespace) -> int:
    from gpudoctor import output, rulebook
    from gpudoctor.rulebook import skeleton

    path = skeleton.place(options.id, options.layer, options.folder, rulebook.load().rules)
    output.put_new(skeleton.page(options.id), path)
    print(skeleton.next_steps(path, options.folder))
    return SOUND


def _schema(options: argparse.Namespace) -> int:
    from gpudoctor.views import schema

    print(schema.text(options.kind))
    return SOUND


def _print(diagnosis: Diagnosis, form: str | None) -> None:
    if form == "json":
        from gpudoctor.views import document

        print(document.render(diagnosis))
    elif form == "markdown":
        from gpudoctor.views import markdown

        print(markdown.render(diagnosis))
    elif form == "html":
        from gpudoctor.views import html

        print(html.render(diagnosis))
    else:
        from gpudoctor.views import text

        print(text.render(diagnosis, text.style_of(sys.stdout)))


def exit_code(diagnosis: Diagnosis, strict: bool = False) -> int:
    """0 sound, 1 broken (or, if `strict`, warnings), 3 no error found and no verdict possible."""
    if diagnosis.verdict == "broken":
        return BROKEN
    if strict and any(finding.severity == "warning" for finding in diagnosis.findings):
        return BROKEN
    return UNKNOWN if diagnosis.verdict == "unknown" else SOUND


_ACTS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "open": _open,
    "check": _check,
    "read": _read,
    "snapshot": _snapshot,
    "diff": _diff,
    "record": _record,
    "bench": _bench,
    "explain": _explain,
    "demo": _demo,
    "rules list": _rules_list,
    "rules test": _rules_test,
    "rules new": _rules_new,
    "schema": _schema,
}
