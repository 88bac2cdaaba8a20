"""The front door: words typed -> one call -> one view -> exit code. The only place that catches and exits."""

from __future__ import annotations

import argparse
import gc
import io
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from gpudoctor.arguments import COMMANDS, parse
from gpudoctor.commands import fleet, kernels, pages, preflight, reports, screens
from gpudoctor.commands.exits import INTERRUPTED, MISUSE, UNHEARD
from gpudoctor.model.errors import DoctorError

_GARBAGE = 200_000
"""Objects made before a search for cycles: a short run makes few, and looking for them costs it a tenth."""

_ACTS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "check": reports.check,
    "read": reports.read,
    "snapshot": reports.snapshot,
    "diff": reports.diff,
    "record": reports.record,
    "bench": kernels.bench,
    "preflight": preflight.preflight,
    "fleet": fleet.fleet,
    "explain": pages.explain,
    "demo": screens.demo,
    "rules list": pages.rules_list,
    "rules test": pages.rules_test,
    "rules new": pages.rules_new,
    "schema": pages.schema,
}


def run(argv: Sequence[str]) -> int:
    """Parse, call, print, and return the exit code of the contract."""
    gc.set_threshold(_GARBAGE, 20, 20)
    words = list(argv)
    bare = not words or (words[0] not in COMMANDS and words[0] not in {"-h", "--help", "-V", "--version"})
    options = parse(["check", *words] if bare else words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot print a name still gets the report
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _end)
    try:
        code = screens.serve(options, words) if screens.is_to_be_served(options) else _act_of(options, bare)(options)
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
        return UNHEARD


def _act_of(options: argparse.Namespace, bare: bool) -> Callable[[argparse.Namespace], int]:
    shown = options.act == "check" and (bare or options.serve) and options.format is None and screens.on_a_terminal()
    return screens.open_ if shown else _ACTS[options.act]


def _end(number: int, _frame: object) -> None:
    """End with 128+n, taking the children along: they are killed when the interpreter exits."""
    raise SystemExit(128 + number)
