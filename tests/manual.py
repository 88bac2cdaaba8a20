"""The manual page, made of the real parser: ``python -m tests.manual --write`` after a change.

The parser says what each command and option does; said here is what no option has: exit codes, variables, files.
Words of man(7), so that mandoc and groff both render it.
"""

import argparse
import re
import sys
from collections.abc import Iterator

from gpudoctor.app.arguments import EXAMPLES, commands_of, parser
from gpudoctor.core.about import __version__
from tests.completion import abouts
from tests.needs import REPOSITORY

PLACE = REPOSITORY / "gpudoctor/app/man/gpudoctor.1"

RELEASED = "2026-11-22"
"""The day of this version."""

ABOUT = """\
gpudoctor finds out why a GPU machine does not work, names the cause, shows the two values that clash and where each
was read, and says what to type. It reads, and changes nothing, except by fix and by --apply, after a yes.

Without a command it checks this machine: on a terminal in an interface, otherwise as a report. What it could not look
at is counted and named; it is never taken for sound.
"""

EXITS = {
    "0": "Sound: no error was found. With --strict, no warning either.",
    "1": "An error was found, a job must not start, or, of diff, something differs.",
    "2": "Misuse: an unknown option, a file that cannot be read, a broken rule page. A line on stderr says which.",
    "3": "Nothing wrong was found, and something that a verdict needs could not be read; the report says what.",
    "128+n": "A signal n ended it. The exit code of preflight -- COMMAND is that of the command, where it ran.",
}

VARIABLES = {
    "VIRTUAL_ENV, CONDA_PREFIX": "The environment whose torch is meant, where --python names none.",
    "NO_COLOR": "Set to anything: no colours.",
    "GPUDOCTOR_LANG": "The language of the words, as --lang: en or zh.",
    "GPUDOCTOR_NVML_TIMEOUT, GPUDOCTOR_CUDA_TIMEOUT, GPUDOCTOR_NCCL_TIMEOUT": (
        "Seconds to wait for NVML, for the driver's libcuda and for NCCL, each asked in a process of its own."
    ),
    "GPUDOCTOR_TORCH_TIMEOUT, GPUDOCTOR_KERNEL_TIMEOUT": "Seconds to wait for torch to be imported and CUDA to start.",
    "GPUDOCTOR_RESOLVER_TIMEOUT": "Seconds to wait for the name of MASTER_ADDR to be resolved.",
    "GPUDOCTOR_DATASET": "package.module:name of a callable that gives the dataset whose reading bench measures.",
    "GPUDOCTOR_STATE": "The folder of what is kept: the history, and what fix and setup did.",
    "GPUDOCTOR_HISTORY": "off: no check is kept.",
    "GPUDOCTOR_JOB_KEY": "A secret text, the same on all ranks of a job, by which preflight authenticates them.",
    "GPUDOCTOR_DEBUG": "1: where gpudoctor itself fails, the whole traceback is shown.",
    "GPUDOCTOR_TORCH_INDEX": "A mirror of https://download.pytorch.org/whl, as --index.",
    "TMPDIR": "Where gpudoctor.pyz unpacks what other programs must be able to read, as long as it runs.",
    "XDG_CACHE_HOME, XDG_STATE_HOME": "Where the folders below lie instead.",
}

PLACES = {
    "~/.cache/gpudoctor": "Compiled rule pages of a site. It may be removed at any time.",
    "~/.local/state/gpudoctor": "Checks that were kept, and what fix and setup did, with what it takes to go back.",
    "gpudoctor.pyz": "The whole program as one file, which gpudoctor pyz writes.",
}


def page() -> str:
    """All of it."""
    top = parser()
    lines = [
        f'.TH GPUDOCTOR 1 "{RELEASED}" "gpudoctor {__version__}" "User Commands"',
        *(".SH NAME", r"gpudoctor \- name the cause when a GPU machine does not work"),
        *(".SH SYNOPSIS", ".B gpudoctor", r".RI [ COMMAND ]", r".RI [ options ]"),
        *(".SH DESCRIPTION", *_prose(ABOUT)),
        *(".SH COMMANDS", *(line for name, one in commands_of(top) if name for line in _command(name, one, top))),
        *(".SH EXIT STATUS", *_table(EXITS)),
        *(".SH ENVIRONMENT", *_table(VARIABLES)),
        *(".SH FILES", *_table(PLACES)),
        *(".SH EXAMPLES", *_verbatim(EXAMPLES[""])[1:]),
        *(".SH SEE ALSO", ".BR nvidia\\-smi (1),", ".BR srun (1),", ".BR torchrun (1)"),
    ]
    return "\n".join(lines) + "\n"


def _command(name: str, command: argparse.ArgumentParser, top: argparse.ArgumentParser) -> Iterator[str]:
    """Its usage, what it does, its options, its exit codes and its examples."""
    actions = [one for one in command._actions if one.dest != "help"]
    if any(isinstance(one, argparse._SubParsersAction) for one in actions):
        return  # a group: its commands follow
    yield f".SS {_safe(f'gpudoctor {name}')}"
    about = command.description or abouts(top)[id(command)] or ""
    yield from _prose(f"{about[0].upper()}{about[1:].rstrip('.')}.")
    for action in actions:
        yield from (".TP", _head(action), _safe(_help(action)))
    epilog = (command.epilog or "").partition("examples:")[0].strip()
    yield from (".PP", *_prose(epilog)) if epilog else ()
    yield from _verbatim(EXAMPLES.get(name, ""))


_LINE = 60
"""Characters of choices that stand on one line."""


def _head(action: argparse.Action) -> str:
    """``--level {quick,standard,deep}``: what is typed in bold, what stands for something else in italics."""
    word = action.metavar if isinstance(action.metavar, str) else None
    if word is None and action.choices is not None:
        word = "|".join(map(str, action.choices))
        word = word if len(word) < _LINE else word.replace("|", " | ")
    value = "" if action.nargs == 0 else rf"\fI{_safe(word or action.dest.upper())}\fR"
    options = ", ".join(rf"\fB{_safe(option)}\fR" for option in action.option_strings)
    return f"{options} {value}".strip()


def _help(action: argparse.Action) -> str:
    return (action.help or "") % {"prog": "gpudoctor"}


def _table(entries: dict[str, str]) -> Iterator[str]:
    for word, about in entries.items():
        yield from (".TP", rf"\fB{_safe(word)}\fR", *_prose(about))


def _prose(text: str) -> Iterator[str]:
    for number, block in enumerate(text.strip().split("\n\n")):
        yield from (".PP",) if number else ()
        yield _safe(" ".join(block.split()))


def _verbatim(block: str) -> list[str]:
    return [".PP", ".nf", ".RS 4", *map(_safe, block.strip().splitlines()), ".RE", ".fi"]


def _safe(text: str) -> str:
    """No letter of it is an instruction to troff; a hyphen is the one that is typed."""
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("`", r"\(ga")
    text = text.replace("^", r"\(ha").replace("~", r"\(ti").replace('"', r"\(dq")
    return re.sub(r"^([.'])", r"\\&\1", text)


if __name__ == "__main__":
    if "--write" in sys.argv:
        PLACE.write_text(page(), "utf-8")
    else:
        sys.stdout.write(page())
