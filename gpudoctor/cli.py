"""The front door: words typed -> one call -> one view -> exit code. The only place that catches and exits."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module

from gpudoctor import language, streams
from gpudoctor.arguments import COMMANDS, no_command, parse
from gpudoctor.commands.exits import INTERRUPTED, MISUSE, UNHEARD, UNKNOWN
from gpudoctor.language.choice import chosen
from gpudoctor.model.errors import DoctorError

DEBUG = "GPUDOCTOR_DEBUG"
"""The variable that has a fault of ours end in its traceback."""
_UNMAPPED = "failed to map segment from shared object"
"""What the loader says of a library that finds no room."""
_GARBAGE = 200_000
"""Objects made before a search for cycles: a short run makes few, and looking for them costs it a tenth."""

ACTS: Mapping[str, str] = {
    "check": "reports.check",
    "read": "reports.read",
    "snapshot": "reports.snapshot",
    "diff": "moments.diff",
    "history": "moments.history",
    "record": "reports.record",
    "bench": "kernels.bench",
    "preflight": "preflight.preflight",
    "fleet": "fleet.fleet",
    "expect": "expecting.expect",
    "setup torch": "setup.torch",
    "setup system": "setup_system.system",
    "explain": "pages.explain",
    "fix": "fix.fix",
    "demo": "screens.demo",
    "recipe list": "recipes.listed",
    "recipe show": "recipes.show",
    "recipe write": "recipes.write",
    "rules list": "pages.rules_list",
    "rules test": "pages.rules_test",
    "rules new": "pages.rules_new",
    "schema": "pages.schema",
    "pyz": "installing.pyz",
    "completion": "installing.completion",
    "mcp": "installing.mcp",
}
"""By command the function of `gpudoctor.commands` that does it: the others are not imported."""


def run(argv: Sequence[str]) -> int:
    """Parse, call, print, and return the exit code of the contract."""
    gc.set_threshold(_GARBAGE, 20, 20)
    streams.ready()
    _nothing_of_strangers()
    words = list(argv)
    bare = not words or (words[0] not in COMMANDS and words[0] not in {"-h", "--help", "-V", "--version"})
    if bare and words and not words[0].startswith("-"):
        no_command(words[0])
    options = parse(["check", *words] if bare else words)
    language.use(_language(options))
    _agree(options)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _end)
    try:
        code = _act_of(options, words, bare)(options)
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
    except Exception as error:
        if isinstance(error, OSError) and streams.full(error):
            sys.stdout = None
            said = f"{error.strerror}; make room, or write it elsewhere"
            print(f"gpudoctor: the answer could not be written whole: {said}", file=sys.stderr)
            return MISUSE
        if os.environ.get(DEBUG):
            raise
        if isinstance(error, MemoryError) or _UNMAPPED in str(error):
            print(
                "gpudoctor: no memory is left to answer with: raise its limit (ulimit -v, a cgroup's)", file=sys.stderr
            )
            return UNKNOWN
        return _fault(error)


def _nothing_of_strangers() -> None:
    """Programs are looked for, and temporary files made, where nobody else can exchange them."""
    from gpudoctor import trusted
    from gpudoctor.target import rights

    if "PATH" in os.environ:
        os.environ["PATH"] = rights.search(os.environ["PATH"])
    if "TMPDIR" in os.environ:
        trusted.scratch()


def _agree(options: argparse.Namespace) -> None:
    """Take note of what is said of another user's Python; many commands have no such options."""
    from gpudoctor.target import rights

    trust, as_owner = (getattr(options, name, False) for name in ("trust_python", "as_owner"))
    rights.consent = "trust" if trust else "as owner" if as_owner else ""


def _fault(error: Exception) -> int:
    """What is said of an error that nobody foresaw: a machine was not judged, and that is no fault of the machine."""
    from gpudoctor.model.secrets import without_secrets
    from gpudoctor.views._terminal import one_line

    print(
        f"gpudoctor: {type(error).__name__}: {one_line(without_secrets(str(error)))[:300] or 'no more is known'}\n"
        "  This is a fault of gpudoctor, or of where it writes to; it says nothing of the machine.\n"
        f"  {DEBUG}=1 shows where it was; gpudoctor record -o machine.json lets others see it, too.",
        file=sys.stderr,
    )
    return UNKNOWN


def _language(options: argparse.Namespace) -> str:
    """That of the words; a command that has none to choose, such as ``rules test``, speaks English."""
    if not hasattr(options, "lang"):
        return language.ENGLISH
    form = getattr(options, "format", None)
    document = getattr(options, "json", False) or form not in {None, "text", "markdown", "html"}
    return chosen(options.lang, bool(document), os.environ, getattr(sys.stdout, "encoding", None))


def _act_of(options: argparse.Namespace, words: Sequence[str], bare: bool) -> Callable[[argparse.Namespace], int]:
    """What is done: the command, or what shows it, here or in a browser."""
    if bare or getattr(options, "serve", False):
        from gpudoctor.commands import screens

        if screens.is_to_be_served(options):
            return partial(screens.serve, words=words)
        shown = options.act == "check" and not (options.format or options.out)
        if shown and screens.on_a_terminal() and screens.is_here():
            return screens.open_
    module, _, name = ACTS[options.act].partition(".")
    act: Callable[[argparse.Namespace], int] = getattr(import_module(f"gpudoctor.commands.{module}"), name)
    return act


def _end(number: int, _frame: object) -> None:
    """End with 128+n, taking the children along: they are killed when the interpreter exits."""
    raise SystemExit(128 + number)
