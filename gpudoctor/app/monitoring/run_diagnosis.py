"""The end of what was watched: by itself or as a rank among those of its host, judged and told once.

What was seen is judged as facts, with what this machine says now; what was so before is left out.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.app import pipeline
from gpudoctor.core.about import __version__
from gpudoctor.core.diagnosis import Diagnosis, Note, verdict_of
from gpudoctor.core.errors import DoctorError
from gpudoctor.core.fact import Absent, Fact, Known, Rows, Unread
from gpudoctor.core.frozen import replace
from gpudoctor.core.language import say
from gpudoctor.core.secrets import without_secrets
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.system import signal_name
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.history import of_this_machine
from gpudoctor.diagnosis.rulebook import Rulebook
from gpudoctor.probes import Collection, host, kernel_log, limits
from gpudoctor.probes._log import read_log
from gpudoctor.readers import read_report
from gpudoctor.target.local import Local

if sys.platform != "win32":
    from gpudoctor.app.monitoring.ranks import FIRST, End, Ranks, alone

    if TYPE_CHECKING:
        from gpudoctor.app.monitoring.watching import Watch
        from gpudoctor.target.passthrough.command import Ended, Received

assert sys.platform != "win32"  # what follows is POSIX's alone

_SOURCE = "gpudoctor run"
_ASKED_TO_END = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
_ROUTINE = frozenset({signal.SIGCONT, signal.SIGWINCH, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGURG})
"""Signals of every terminal: they are passed on, and tell nothing of an end."""
_STANDING = "Wrong on this machine already before the run: {ids}. gpudoctor check tells more."
_NOT_OF_THE_JOB = ("host",)
"""Layers whose errors a program that needs no GPU does not meet: that there is none, for example."""
_WAKE_SECONDS = 5.0
"""Seconds that GPUs may take to wake for the diagnosis of a command that has failed."""
_EARLIER_SECONDS = 2.0
"""Seconds before the start from which on the kernel's messages count: its clock may run apart from ours."""
_DATED = ("xid", "sxid", "aer", "oom", "crash", "mce", "link_loss")


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a command: `kept` is the end of its output, `kept_from` the kinds of streams it is from
    (``file``, ``pipe``, ``terminal``; ``exception`` in a training); `facts` and `groups` are of the last look at its
    ranks.
    """

    argv: Sequence[str]
    watch: Watch
    kept: bytes
    kept_from: frozenset[str]
    facts: Mapping[str, Fact] = field(default_factory=dict)
    groups: Mapping[str, Rows] = field(default_factory=dict)


@lru_cache(maxsize=1)
def loaded_rulebook(rules: tuple[Path, ...]) -> Rulebook:
    """The rulebook of the shipped pages and those of `rules`, kept once loaded; raises `RuleError` for broken ones."""
    return rulebook.load(rules)


def record_own_end(ended: Ended, ranks: Ranks | None) -> End:
    """How this rank ended; recorded at once for the job's other ranks, as some of them end because of it."""
    rank = ranks.place.rank if ranks else 0
    own = End(rank, end_text(ended), ended.began + ended.seconds, ended.failed, None)
    if ranks:
        ranks.end(own)
    return own


def conclude(
    ended: Ended,
    seen: Seen,
    ranks: Ranks | None,
    own: End,
    write: Callable[[Diagnosis], None],
    rules: Sequence[Path] = (),
) -> Diagnosis:
    """Diagnosis of the ended command; `write` gets it unless another rank of this host reports the same.

    Records how this rank ended, and waits up to 3 s for the records of others, up to 15 s for the report of the first.
    """
    printed = read_output(seen.kept) if own.failed else None
    echo, asked = bool(printed and printed.text("failure.echo")), was_asked(ended)
    own = replace(own, of_itself=not echo and not asked)
    kept_from = Known(tuple(sorted(seen.kept_from)), _SOURCE)
    facts: dict[str, Fact] = {**seen.watch.facts, **seen.facts, "run.output_from": kept_from}
    if own.failed and asked and own.rank == 0 and "SLURM_JOB_ID" in os.environ:
        facts["failure.slurm"] = end_by_slurm(os.environ)
    if ranks:
        ranks.end(own)
        first = ranks.first(own, echo)
        facts.update(ranks.facts(first, own))
    else:
        facts.update(alone())
    judged = judge(
        *(ended, seen.argv, facts, {**seen.watch.groups, **seen.groups}, printed, seen.watch.alarming, rules),
        by_another=bool(ranks) and not own.of_itself,
    )
    if not ranks or ranks.should_report(own, first, echo, judged):
        write(judged)
    if ranks and first == own:
        ranks.claim(FIRST)
    return judged


# ---- What was seen, judged ----


def judge(
    ended: Ended,
    argv: Sequence[str],
    facts: Mapping[str, Fact],
    groups: Mapping[str, Rows],
    printed: Snapshot | None,
    alarming: bool,
    rules: Sequence[Path] = (),
    by_another: bool = False,
) -> Diagnosis:
    """Diagnosis of an ended command: only findings that are due to it, its output or the time of its run.

    `printed` are facts read from its output. Of the machine only the kernel's log, the host and limits are read if the
    command did not fail and nothing is `alarming`, if it was asked to end, or if it failed because of another rank
    (`by_another`). Raises `DoctorError` for a broken page.
    """
    failed = ended.failed
    hurried = by_another or was_asked(ended)
    python = argv[0] if os.path.basename(argv[0]).startswith("python") else None  # noqa: PTH119
    machine = _machine(python if failed else None, whole=(failed or alarming) and not hurried)
    earlier, now = _kernel_events(machine, ended)
    seen = {**facts_of_end(ended, argv), **facts}
    book = loaded_rulebook(tuple(rules))
    before = pipeline.diagnose(_combined_snapshot(machine, earlier, {}, {}, None), book)
    whole = pipeline.diagnose(_combined_snapshot(machine, now, seen, groups, printed), book)
    findings = pipeline.new_findings(whole, before, book)
    notes = tuple(note for note in whole.notes if note not in before.notes)
    errors = [one for one in before.findings if one.severity == "error" and one.layer not in _NOT_OF_THE_JOB]
    if failed and errors:
        notes += (Note((), say(_STANDING, ids=", ".join(dict.fromkeys(one.id for one in errors)))),)
    return replace(whole, findings=findings, verdict=verdict_of(findings, known=ended.code == 0), notes=notes)


def was_asked(ended: Ended) -> bool:
    """True if gpudoctor received a signal that asks for the end: SIGINT, SIGTERM, SIGHUP or SIGQUIT."""
    return any(received.number in _ASKED_TO_END for received in ended.received)


def read_output(kept: bytes) -> Snapshot | None:
    """Facts in the kept end of the output; None if it is empty."""
    text = readable(kept)
    return read_report(text, "its output") if text.strip() else None


def end_text(ended: Ended) -> str:
    """``exit code 1``, ``exit code not known``, or the signal's name."""
    if ended.signal:
        return signal_name(ended.signal)
    return f"exit code {ended.code if ended.code is not None else 'not known'}"


def keep(diagnosis: Diagnosis) -> None:
    """Store the diagnosis in the history; nothing where that is off or cannot be written."""
    with contextlib.suppress(Exception):  # a full disk, a home that is not ours: no matter of the command
        if shelf := of_this_machine():
            shelf.keep(diagnosis, __version__)


def facts_of_end(ended: Ended, argv: Sequence[str]) -> dict[str, Fact]:
    """The facts ``run.*`` about the command's end; secrets in its command line are hidden.

    run.exit_code is `Absent` where a signal ended it, `Unread` where it is not known. run.signal is `Absent` where it
    exited; so is run.died_of, except for an exit code 128 + n, for which it is the name of signal n.
    """
    exited = Absent(f"it exited with {ended.code}")
    code: Fact = Known(ended.code, _SOURCE) if ended.code is not None else Absent("a signal ended it")
    if ended.code is None and not ended.signal:
        exited, code = Absent("it exited"), Unread("Python does not say at its end what sys.exit was given")
    number = ended.signal or _signal_of_shell_code(ended.code)
    return {
        "run.command": Known(without_secrets(" ".join(argv))[:500], _SOURCE),
        "run.pid": Known(ended.pid, _SOURCE),
        "run.exit_code": code,
        "run.signal": Known(signal_name(ended.signal), _SOURCE) if ended.signal else exited,
        "run.died_of": Known(signal_name(number), _SOURCE) if number else exited,
        "run.core": Known(ended.core, _SOURCE),
        "run.began": Known(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ended.began)), _SOURCE),
        "run.seconds": Known(round(ended.seconds, 3), _SOURCE),
        "run.cpu_seconds": Known(round(ended.cpu_seconds, 3), _SOURCE),
        "run.signalled": Known(
            tuple(received_text(one) for one in ended.received if one.number not in _ROUTINE), _SOURCE
        ),
    }


def received_text(received: Received) -> str:
    """A signal that came, and from whom: ``SIGTERM from slurmstepd (pid 812)``."""
    name = signal_name(received.number)
    if not received.sender:
        return f"{name} from the terminal or the kernel"
    return f"{name} from {received.sender_name or 'a process'} (pid {received.sender})"


def _signal_of_shell_code(code: int | None) -> int | None:
    """Signal number that a shell's exit code above 128 stands for; None for other codes."""
    number = (code or 0) - 128
    return number if number in signal.valid_signals() and number < signal.SIGRTMIN else None


def _machine(python: str | None, whole: bool) -> Snapshot:
    """Facts of this machine now, at level quick: all (`whole`), or only the kernel's log, host and limits.

    Where `python` cannot be examined, another one found is.
    """
    if not whole:
        return Collection(Local("quick"), (kernel_log, host, limits)).snapshot()
    try:
        return pipeline.ask(None, "quick", python, lambda _: None, _WAKE_SECONDS).snapshot()
    except DoctorError:  # that Python is none, or root must not run it: another one will do
        return pipeline.ask(None, "quick", None, lambda _: None, _WAKE_SECONDS).snapshot()


def _kernel_events(machine: Snapshot, ended: Ended) -> tuple[dict[str, Fact | Rows], dict[str, Fact | Rows]]:
    """(Facts and groups of the kernel's log before the command began, those up to now).

    Where the log cannot be read, twice the machine's unread groups.
    """
    target = Local("quick")
    log = read_log(target)
    if isinstance(log, Unread):
        unread: dict[str, Fact | Rows] = {name: machine.rows(name) for name in _DATED}
        return unread, unread
    earlier = log.before(log.now - (time.time() - ended.began) - _EARLIER_SECONDS)
    return dict(kernel_log.read(target, earlier)), dict(kernel_log.read(target, log))


def _combined_snapshot(
    machine: Snapshot,
    events: Mapping[str, Fact | Rows],
    facts: Mapping[str, Fact],
    groups: Mapping[str, Rows],
    printed: Snapshot | None,
) -> Snapshot:
    """The machine's facts with those of its kernel's log, of the command, and of the output that it `printed`.

    What is known of the machine goes before what was printed.
    """
    text = printed.facts if printed else {}
    merged: dict[str, Fact] = {name: fact for name, fact in text.items() if not name.startswith("report.")}
    merged.update({name: fact for name, fact in machine.facts.items() if name not in merged or isinstance(fact, Known)})
    rows: dict[str, Rows] = dict(machine.groups)
    rows.pop("text", None)
    for name, entry in events.items():
        if "." in name:
            merged[name] = entry  # type: ignore[assignment] # a dot is a fact's
        else:
            rows[name] = entry  # type: ignore[assignment]
    for name, added in (printed.groups if printed else {}).items():
        rows[name] = _joined_rows(name, rows.get(name), added)
    return replace(machine, facts={**merged, **facts}, groups={**rows, **groups})


def _joined_rows(name: str, first: Rows | None, second: Rows) -> Rows:
    """Rows of the machine and of the output together; for GPUs only the machine's, if it has any."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        return first if name == "gpu" and first else (*first, *second)
    return second if not isinstance(first, tuple) else first


_LONGEST_LINE = 4000
"""Characters of a line that are read, its last: what is printed without an end of line may be of any length."""
_LINE_ENDS = re.compile(r"\r?\n|\r")
"""A progress bar returns to the begin of its line, and writes over it."""


def readable(kept: bytes) -> str:
    """The kept end of the output as text, without binary lines, each line's last 4000 characters."""
    lines = _LINE_ENDS.split(kept.replace(b"\0", b"").decode("utf-8", "replace"))
    return "\n".join(line for line in (line[-_LONGEST_LINE:] for line in lines) if _is_text(line))


def _is_text(line: str) -> bool:
    """True if at least two thirds of the line's characters are printable."""
    odd = sum(one == "\ufffd" or not (one.isprintable() or one in "\t\x1b") for one in line)
    return 3 * odd <= len(line)


# ---- How Slurm ended a job ----

_SCONTROL_SECONDS = 5.0
_SLURM_JOB = re.compile(r"\bJobState=(\w+)(?: Reason=(\w+))?")
_SLURM_STEP = re.compile(r"^StepId=.*\n\s*State=(\w+)", re.M)
_ENDS_OF_SLURM = {
    "TIMEOUT": "time limit",
    "TimeLimit": "time limit",
    "PREEMPTED": "pre-emption",
    "NODE_FAIL": "node failure",
}
_CANCELLED = frozenset({"CANCELLED", "COMPLETING"})


def end_by_slurm(environ: Mapping[str, str]) -> Fact:
    """``time limit``, ``cancelled``, ... (`failure.slurm`) of the job in whose environment we are; asks scontrol.

    `Absent` outside of a job and for a job that Slurm does not end, `Unread` if scontrol does not answer. Seen with
    Slurm 22.05: a job at its limit is COMPLETING with the reason TimeLimit, one that scancel ends without a reason; a
    step at its own limit has the state TIMEOUT while its job is RUNNING.
    """
    job, step = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_STEP_ID", "")
    if not job.isdecimal():
        return Absent("it did not run in a job of Slurm")
    state, reason = _state_in_slurm(_SLURM_JOB, "job", job)
    found = _ENDS_OF_SLURM.get(reason) or _ENDS_OF_SLURM.get(state)
    if found:
        return Known(found, "scontrol show job")
    if step.isdecimal() and _ENDS_OF_SLURM.get(_state_in_slurm(_SLURM_STEP, "step", f"{job}.{step}")[0]):
        return Known("time limit", "scontrol show step")
    if state in _CANCELLED:
        return Known("cancelled", "scontrol show job")
    return Absent(f"the job is {state}") if state else Unread("scontrol did not answer")


def _state_in_slurm(pattern: re.Pattern[str], kind: str, name: str) -> tuple[str, str]:
    """(state, reason) by ``scontrol show``; two empty texts if it does not answer."""
    try:
        answer = Local("quick").run(["scontrol", "show", kind, name], timeout=_SCONTROL_SECONDS)
    except OSError:
        return "", ""
    match = pattern.search(answer.out)
    return (match[1], match[2] or "" if pattern.groups > 1 else "") if match else ("", "")
