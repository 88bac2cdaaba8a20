"""The check of one rank, from its place to the verdict; on the hub it is the check of all."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpudoctor.job import hub, local, member
from gpudoctor.job import place as places
from gpudoctor.job.descriptors import room_for
from gpudoctor.job.meeting import connections
from gpudoctor.job.place import Place
from gpudoctor.job.verdict import UNKNOWN, code_of, word_of
from gpudoctor.job.wanted import Wanted
from gpudoctor.model.errors import UsageError

if TYPE_CHECKING:
    from gpudoctor.model.diagnosis import Diagnosis

_LAST = 5.0
"""Seconds after the budget at which the process is ended, whatever hangs in it."""


@dataclass
class Checked:
    """What came of it for this rank: the code to exit with, and the diagnosis where it is this rank that tells it."""

    place: Place
    code: int
    verdict: str
    diagnosis: Diagnosis | None = None
    words: str = ""
    """What the others found, in a sentence, where this rank does not tell."""
    ended: BaseException | None = field(default=None, repr=False)
    """What cut it short, to be raised again once what is known has been told."""


def run(wanted: Wanted, environ: Mapping[str, str] | None = None, tell: Callable[[str], None] | None = None) -> Checked:
    """Check this rank's job, or this machine where it is alone. Ends within the budget and a few seconds.

    Raises `UsageError` for an environment that contradicts itself. A signal or Ctrl-C in the middle is kept in
    `Checked.ended`.
    """
    environ = os.environ if environ is None else environ
    place = places.of(environ, expanded)
    if wanted.budget is not None and wanted.budget <= 0:
        raise UsageError("--budget: a number of seconds above 0")
    with _outer_timer(wanted.seconds + _LAST):
        if place.alone:
            return _alone(wanted, place)
        with room_for(connections(place.world) if place.hub else 0):
            return _met(wanted, place, environ, tell or (lambda _: None))


def _alone(wanted: Wanted, place: Place) -> Checked:
    """Nobody to meet: this machine's own check is all there is."""
    if wanted.network:
        raise UsageError(
            "--network: this is a job of one rank, there is no network to check; start it by srun or torchrun"
        )
    began = time.monotonic()
    diagnosis = local.checked(wanted.level, wanted.python, wanted.rules, wanted.expect)
    diagnosis = replace(diagnosis, fleet=local.as_fleet(diagnosis, place, time.monotonic() - began))
    return Checked(place, code_of(diagnosis), word_of(diagnosis), diagnosis)


def _met(wanted: Wanted, place: Place, environ: Mapping[str, str], tell: Callable[[str], None]) -> Checked:
    opened: list[local.Own] = []
    try:
        checked = _meeting(wanted, place, environ, tell, opened)
    except BaseException:
        _close(opened)
        raise
    try:
        _close(opened)
    except (KeyboardInterrupt, SystemExit) as end:  # a launcher ends the ranks that are left when one has gone
        checked.ended = checked.ended or end
    return checked


def _close(opened: Sequence[local.Own]) -> None:
    for own in opened:
        own.close()


def _meeting(
    wanted: Wanted, place: Place, environ: Mapping[str, str], tell: Callable[[str], None], opened: list[local.Own]
) -> Checked:
    """Meet the others, and put into `opened` what is to be closed."""
    began = time.monotonic()
    held: hub.Hub | None = None
    try:
        held = hub.Hub(place, wanted, tell) if place.hub else None
        opened.append(own := local.Own(wanted, place, environ))
        hello = own.hello()
        rank = (
            member.connect_to_own_hub(place, hello, held.door)
            if held
            else member.come(place, hello, wanted.limits.come)
        )
        own.begin(rank)
        verdict = rank.attend(own.tasks(rank), began + wanted.seconds - time.monotonic())
        diagnosis = held.over() if held else None
        return Checked(place, int(verdict["code"]), str(verdict["verdict"]), diagnosis, str(verdict.get("words", "")))
    except member.NotMetError as error:
        diagnosis = held.over(str(error)) if held else local.without_the_others(wanted, place, error)
        return Checked(place, code_of(diagnosis) or UNKNOWN, word_of(diagnosis), diagnosis)
    except (KeyboardInterrupt, SystemExit) as end:
        words = "interrupted" if isinstance(end, KeyboardInterrupt) else "told to end"
        diagnosis = held.over(words) if held else None
        return Checked(place, UNKNOWN, "unknown", diagnosis, ended=end)


@contextmanager
def _outer_timer(seconds: float) -> Iterator[None]:
    """Ends this process with code 3 when so many seconds are over, even where Python's main thread hangs in C."""

    def end() -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"gpudoctor: the check did not end within {seconds:.0f} s\n")
            sys.stderr.flush()
        local.end_children()
        os._exit(UNKNOWN)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


# ---- A launcher's short form of host names, written out ----
# ``node[1-4,7]``.

_WORD = re.compile(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*")
_BRACKETS = re.compile(r"\[([\d,-]+)\]")
_MOST = 1 << 16
"""Names that one list may stand for."""


def expanded(short: str) -> list[str]:
    """Each name: by Slurm's own program where it is there, in containers it is not; else as hostlist(3) says.

    Empty where that cannot be told.
    """
    if "[" not in short:
        return [name for name in short.split(",") if name]
    return _by_slurm(short) or _written_out(short)


def _by_slurm(short: str) -> list[str]:
    scontrol = shutil.which("scontrol")
    if not scontrol:
        return []
    try:
        done = subprocess.run(
            [scontrol, "show", "hostnames", short], check=False, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []


def _written_out(short: str) -> list[str]:
    names: list[str] = []
    for word in _WORD.findall(short):
        for name in _names(word) if word else ():
            if "[" in name or len(names) == _MOST:
                return []
            names.append(name)
    return names


def _names(word: str) -> Iterator[str]:
    """``rack[1-2]n[01-10]``: the first brackets turn slowest; numbers keep their zeros."""
    match = _BRACKETS.search(word)
    if not match:
        yield word
        return
    for part in match[1].split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            yield word
            return
        for number in range(int(first), int(last or first) + 1):
            yield from _names(f"{word[: match.start()]}{number:0{len(first)}}{word[match.end() :]}")
