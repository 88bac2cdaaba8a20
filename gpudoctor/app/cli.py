"""The command line: words typed -> one call -> one view -> exit code. The only place that catches and exits."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module

from gpudoctor.app.arguments import COMMANDS, no_command, parse
from gpudoctor.app.output import BROKEN_PIPE, INTERRUPTED, MISUSE, UNKNOWN, put_message
from gpudoctor.core import files, language, system
from gpudoctor.core.errors import DoctorError, UsageError
from gpudoctor.core.language import choose_language, say
from gpudoctor.core.secrets import without_secrets
from gpudoctor.target import rights

DEBUG = "GPUDOCTOR_DEBUG"
"""The variable that has a fault of ours end in its traceback."""
_UNMAPPED = "failed to map segment from shared object"
"""What the loader says of a library that finds no room."""


def run_and_finish(argv: Sequence[str]) -> int:
    """As `run`, or the exit code of its SystemExit; then freezes garbage. Where a daemon thread is left it does not
    return: the process ends here with that code.
    """
    try:
        code = run(argv)
    except SystemExit as end:  # a misspelt option, or a signal
        code = end.code if isinstance(end.code, int) else 1
    gc.freeze()  # the process gives all back at once: to look for cycles at its end took a fifth of a quick run
    return system.finish_process(code)


def run(argv: Sequence[str]) -> int:
    """Run the command line `argv` (without the program's name) and return its exit code; prints errors to stderr.

    2 for misuse (`DoctorError`), 3 for a fault of ours, 130 after Ctrl-C. Misspelt options and signals raise
    SystemExit; GPUDOCTOR_DEBUG lets unforeseen exceptions through.
    """
    system.prepare_streams()
    system.restore_child_statuses()
    if "PATH" in os.environ:  # without the folders that other users can write to
        os.environ["PATH"] = rights.trusted_search_path(os.environ["PATH"])
    if "TMPDIR" in os.environ:
        files.secure_tmpdir()
    words = list(argv)
    language.use(_language_of_errors(words))
    bare = not words or (words[0] not in COMMANDS and words[0] not in {"-h", "--help", "-V", "--version"})
    if bare and words and not words[0].startswith("-"):
        no_command(words[0])
    options = parse(["check", *words] if bare else words)
    language.use(_language_of(options))
    trust, as_owner = (getattr(options, name, False) for name in ("trust_python", "as_owner"))
    rights.consent = "trust" if trust else "as owner" if as_owner else ""
    for number in system.ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _exit_on_signal)
    sys.unraisablehook = _send_swallowed_signal_again
    try:
        code = _action_of(options, words, bare)(options)
        sys.stdout.flush()
        return int(code)
    except DoctorError as error:
        put_message(_line_of(error))
        return MISUSE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if system.is_reader_gone(error):
            sys.stdout = None  # nothing is left to say
            return BROKEN_PIPE
        if isinstance(error, OSError) and system.is_disk_full(error):
            sys.stdout = None
            sentence = "the answer could not be written whole: {why}; make room, or write it elsewhere"
            put_message(say(sentence, why=error.strerror))
            return MISUSE
        if os.environ.get(DEBUG):
            raise
        if isinstance(error, MemoryError) or _UNMAPPED in str(error):
            put_message(say("no memory is left to answer with: raise its limit (ulimit -v, a cgroup's)"))
            return UNKNOWN
        put_message(
            f"{type(error).__name__}: {_line_of(error)[:300] or say('no more is known')}\n  "
            + say("This is a fault of gpudoctor, or of where it writes to; it says nothing of the machine.")
            + "\n  "
            + say(
                "{debug}=1 shows where it was; gpudoctor record -o machine.json lets others see it, too.", debug=DEBUG
            )
        )
        return UNKNOWN


def _line_of(error: Exception) -> str:
    """The error's message, without secrets, on one line."""
    from gpudoctor.views._terminal import one_line  # half of what the command line takes to start

    return one_line(without_secrets(str(error)))


def _language_of(options: argparse.Namespace) -> str:
    """The language of the output; English for assistants (``mcp``), and for documents unless ``--lang`` is given."""
    form = getattr(options, "format", None)
    document = getattr(options, "json", False) or form not in {None, "text", "markdown", "html"}
    asked = language.ENGLISH if options.act == "mcp" else getattr(options, "lang", None)
    return choose_language(asked, bool(document), os.environ, getattr(sys.stdout, "encoding", None))


def _language_of_errors(words: Sequence[str]) -> str:
    """The language of errors in the command line itself, which has not been parsed yet."""
    own = words[: words.index("--")] if "--" in words else words
    asked = next((name for name in language.LANGUAGES if f"--lang={name}" in own), None)
    if asked is None and "--lang" in own[:-1]:
        asked = own[own.index("--lang") + 1]
    known = asked if asked in language.LANGUAGES else None
    return choose_language(known, False, os.environ, getattr(sys.stderr, "encoding", None))


def _action_of(
    options: argparse.Namespace, arguments: Sequence[str], bare: bool
) -> Callable[[argparse.Namespace], int]:
    """The function that runs the command: the command's own, or one that opens the interface here or in a browser."""
    asked = bool(getattr(options, "serve", None))
    served = asked and not system.in_a_browser()  # there this is the process that a page runs
    opened = (bare or asked) and options.act == "check" and not (options.format or options.out)
    if served or (opened and system.on_a_terminal()):
        from gpudoctor.app.commands import interface

        if served:
            return partial(interface.serve, arguments=arguments)
        if interface.can_open_interface():
            return interface.open_
    return act_of(options.act)


_FILES = {
    "completion": "bundled",
    "diff": "snapshots",
    "history": "snapshots",
    "mcp": "bundled",
    "pyz": "bundled",
    "recipe": "bundled",
    "replay": "snapshots",
    "schema": "bundled",
    "snapshot": "snapshots",
    "soak": "bench",
}
"""The file of `gpudoctor.app.commands` that holds a command; every other one has a file of its own name."""


_POSIX_ONLY = {
    "run": "start the command itself, and give its log to gpudoctor read",
    "preflight": "NCCL, which it tests, is not made for Windows: gpudoctor check looks at this machine",
    "job": "it reads /proc and NCCL, which Windows does not have",
    "record": "a record's paths are those of POSIX; gpudoctor snapshot -o FILE saves what was found",
    "fleet": "it reaches nodes by ssh from a machine with Linux",
}
"""Commands that need processes, signals and sockets as POSIX has them, and what to do without."""


def act_of(name: str) -> Callable[[argparse.Namespace], int]:
    """The function that runs a command: for ``rules test`` it is `rules_test` in `gpudoctor.app.commands.rules`.

    Raises `UsageError` for a command that Windows does not have.
    """
    words = name.split()
    if sys.platform == "win32" and words[0] in _POSIX_ONLY:
        raise UsageError(say("{name} is not for Windows: {instead}", name=words[0], instead=say(_POSIX_ONLY[words[0]])))
    act: Callable[[argparse.Namespace], int]
    act = getattr(import_module(f"gpudoctor.app.commands.{_FILES.get(words[0], words[0])}"), "_".join(words))
    return act


def _exit_on_signal(number: int, _frame: object) -> None:
    """Signal handler: exit with 128 + `number`; child processes are killed when the interpreter exits."""
    raise SystemExit(128 + number)


def _send_swallowed_signal_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Hook for exceptions that Python drops (in ``__del__`` or a weak reference's callback).

    Where our signal handler's SystemExit was dropped so, the signal is sent once more a moment later; else Python's
    hook.
    """
    error = unraisable.exc_value
    if isinstance(error, SystemExit) and isinstance(error.code, int) and error.code > 128:
        import threading

        threading.Timer(0.01, signal.raise_signal, [error.code - 128]).start()
    else:
        sys.__unraisablehook__(unraisable)
