"""The check of one rank, from its place to the verdict; on the coordinator it is the check of all."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from gpudoctor.cluster.preflight import JobOptions, launcher, local, member
from gpudoctor.cluster.preflight.diagnosis import diagnose_job
from gpudoctor.cluster.preflight.launcher import Place
from gpudoctor.cluster.preflight.meeting import JoinedRank, Meeting, max_connections
from gpudoctor.cluster.preflight.results import EXIT_UNKNOWN, MeetingResults, exit_code, verdict_word
from gpudoctor.cluster.preflight.stages import Stages
from gpudoctor.cluster.preflight.wire import ListeningSockets, Message, addresses, port_holder
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import DoctorError, UsageError
from gpudoctor.core.language import say
from gpudoctor.diagnosis import rulebook
from gpudoctor.target import child

if sys.platform != "win32":
    import resource

_OVERTIME_SECONDS = 5.0
"""Seconds after the budget at which the process is ended, whatever hangs in it."""


@dataclass
class Checked:
    """Result for this rank: exit code, verdict, and the diagnosis if this rank reports it (the coordinator)."""

    place: Place
    code: int
    verdict: str
    diagnosis: Diagnosis | None = None
    words: str = ""
    """What the others found, in a sentence, where this rank does not tell."""
    ended: BaseException | None = field(default=None, repr=False)
    """What cut it short, to be raised again once what is known has been told."""


def run(
    options: JobOptions,
    check: Callable[[JobOptions], Diagnosis],
    environ: Mapping[str, str] | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Checked:
    """Check the job from this rank, within its budget and a few seconds; a job of one rank is checked by `check` alone.
    `on_progress` receives each stage's description. Raises `UsageError` for an inconsistent environment or a budget
    that is not above 0. A signal or Ctrl-C is kept in `Checked.ended`.
    """
    environ = os.environ if environ is None else environ
    place = launcher.place_from_environment(environ, launcher.expanded)
    if options.budget is not None and options.budget <= 0:
        raise UsageError(say("--budget: a number of seconds above 0"))
    with _outer_timer(options.seconds + _OVERTIME_SECONDS):
        if place.alone:
            return _alone(options, place, check)
        with room_for(max_connections(place.world) if place.coordinator else 0):
            return _check_with_others(options, place, environ, on_progress or (lambda _: None))


def _alone(options: JobOptions, place: Place, check: Callable[[JobOptions], Diagnosis]) -> Checked:
    """Result of this machine's own check, for a job of one rank; `UsageError` if only the network was to be checked."""
    if options.network:
        raise UsageError(
            say("--network: this is a job of one rank, there is no network to check; start it by srun or torchrun")
        )
    began = time.monotonic()
    diagnosis = check(options)
    diagnosis = replace(diagnosis, fleet=local.as_fleet(diagnosis, place, time.monotonic() - began))
    return Checked(place, exit_code(diagnosis), verdict_word(diagnosis), diagnosis)


def _check_with_others(
    options: JobOptions, place: Place, environ: Mapping[str, str], on_progress: Callable[[str], None]
) -> Checked:
    """Result of the ranks' meeting; what it opened is closed afterwards, and a signal meanwhile kept in `ended`."""
    with contextlib.ExitStack() as opened:
        checked = _attend_meeting(options, place, environ, on_progress, opened)
        try:
            opened.close()
        except (KeyboardInterrupt, SystemExit) as end:  # a launcher ends the ranks that are left when one has gone
            checked.ended = checked.ended or end
    return checked


def _attend_meeting(
    options: JobOptions,
    place: Place,
    environ: Mapping[str, str],
    on_progress: Callable[[str], None],
    opened: contextlib.ExitStack,
) -> Checked:
    """Result of this rank: joins the meeting, which the coordinator holds, and attends it; if that fails or is
    interrupted, by what is known. What it opens is registered with `opened` to be closed.
    """
    began = time.monotonic()
    held: Coordinator | None = None
    try:
        held = Coordinator(place, options, on_progress) if place.coordinator else None
        own = local.OwnRank(options, place, environ)
        opened.callback(own.close)
        hello = own.hello()
        rank = (
            member.connect_to_own_coordinator(place, hello, held.listening)
            if held
            else member.join_meeting(place, hello, options.limits.come)
        )
        own.begin(rank)
        verdict = rank.attend(own.tasks(rank), began + options.seconds - time.monotonic())
        diagnosis = held.finish() if held else None
        return Checked(place, int(verdict["code"]), str(verdict["verdict"]), diagnosis, str(verdict.get("words", "")))
    except member.NotMetError as error:
        diagnosis = held.finish(str(error)) if held else local.diagnosis_without_meeting(options, place, error)
        return Checked(place, exit_code(diagnosis) or EXIT_UNKNOWN, verdict_word(diagnosis), diagnosis)
    except (KeyboardInterrupt, SystemExit) as end:
        words = "interrupted" if isinstance(end, KeyboardInterrupt) else "told to end"
        diagnosis = held.finish(words) if held else None
        return Checked(place, EXIT_UNKNOWN, "unknown", diagnosis, ended=end)


@contextmanager
def _outer_timer(seconds: float) -> Iterator[None]:
    """Context that exits this process with code 3 if it takes longer than `seconds`, even if the main thread hangs in
    C.
    """

    def end() -> None:
        """Report the timeout on stderr, end all child processes and exit with code 3."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"gpudoctor: the check did not end within {seconds:.0f} s\n")
            sys.stderr.flush()
        child.end_all()
        os._exit(EXIT_UNKNOWN)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


# ---- The rank at which all meet ----
# It holds the meeting in a thread of its own, and tells everybody what has come of it.

_MEETING_END_SECONDS = 4.0
"""Seconds that the meeting has to come to its end once it was told to."""


class Coordinator:
    """The rank that holds the meeting, in a thread; it listens as soon as it is created."""

    def __init__(self, place: Place, options: JobOptions, on_progress: Callable[[str], None]) -> None:
        """Listen on the job's ports, load the rules and start the meeting; `on_progress` is told of each stage."""
        self._found = MeetingResults(place, checked=not options.network)
        """What is known so far."""
        listening = ListeningSockets(place.ports, addresses(place))
        if place.port in listening.taken:
            self._found.taken = port_holder(place.port)
        self.listening = listening.own_address
        """Address and port at which its own rank finds it; port 0 where all its ports are taken."""
        self._meeting = Meeting(place, listening)
        how = (options.limits, on_progress, options.level, options.seconds)
        self._stages = Stages(self._meeting, self._found, *how)
        self._diagnosis: Diagnosis | None = None
        self._rules = ThreadPoolExecutor(1, "rules").submit(rulebook.load, options.rules)
        self._thread = threading.Thread(target=self._hold, name="meeting", daemon=True)
        self._thread.start()

    def finish(self, cut: str = "") -> Diagnosis:
        """Diagnosis at the meeting's end, which is awaited for 4 s; else by what is known then. A non-empty `cut` ends
        the meeting now, for that reason. An error in the rules is raised.
        """
        if cut and self._thread.is_alive():
            self._found.cut = cut
            self._meeting.stop.set()
        self._thread.join(_MEETING_END_SECONDS)
        return self._diagnosis or diagnose_job(self._found, self._rules.result())

    def _hold(self) -> None:
        """Run all stages, diagnose, and close the meeting; an exception is recorded as its interruption."""
        try:
            self._stages.run_all()
        except Exception as error:  # what is known by then is told
            self._found.cut = self._found.cut or f"{type(error).__name__}: {error}"
        self._stages.record_ranks()
        try:
            with contextlib.suppress(DoctorError):  # which `finish` raises: that of the rules
                self._diagnosis = diagnose_job(self._found, self._rules.result())
        finally:
            self._meeting.close(self._last_message)

    def _last_message(self, _: JoinedRank) -> Message:
        """Last message to each rank: verdict, exit code, and the first finding's title."""
        diagnosis = self._diagnosis
        if diagnosis is None or diagnosis.fleet is None:
            return {"verdict": "unknown", "code": EXIT_UNKNOWN, "words": "the meeting's own diagnosis failed"}
        words = diagnosis.findings[0].title if diagnosis.findings else ""
        return {"verdict": diagnosis.fleet.verdict, "code": exit_code(diagnosis), "words": words}


# ---- Room for connections ----
# Each takes a file descriptor, of which a process has 1,024 by default on most systems.

_OTHER_FILES = 512
"""What a process has open beside its connections: a training script with its data loaders, or ours."""


@contextmanager
def room_for(connections: int) -> Iterator[None]:
    """Context with the soft limit of open files raised for so many connections, as far as allowed; then restored."""
    if sys.platform == "win32":
        yield
    else:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = connections + _OTHER_FILES
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        raised = soft != resource.RLIM_INFINITY and soft < most
        if raised:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        try:
            yield
        finally:
            if raised:
                with contextlib.suppress(OSError, ValueError):
                    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
