"""One step's command: no shell, nothing to answer it, its output as it comes, and ended when that is wanted.

What it changed is noted after it, and while it is at work which process that is.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from selectors import EVENT_READ

from gpudoctor.core import shipped
from gpudoctor.core.errors import DoctorError, DocumentError
from gpudoctor.core.plan import PlanStep
from gpudoctor.core.run import Printed, Stop
from gpudoctor.core.secrets import without_secrets
from gpudoctor.fixes.backup import environment
from gpudoctor.fixes.backup.environment import Environment
from gpudoctor.fixes.permissions import RunContext
from gpudoctor.fixes.records import Journals
from gpudoctor.fixes.steps import guard, system_packages
from gpudoctor.fixes.steps.engine import Recorder, Result, Wants
from gpudoctor.target import child as children
from gpudoctor.target import crash, system_paths
from gpudoctor.target.child import Process

COMMAND_SECONDS = 4 * 3600.0
"""Seconds that a command may take: a download of gigabytes over a slow line, or a build from source."""
SIGNAL_SECONDS = 8.0
"""Seconds that a command has to end in after each signal; pip puts back what it was replacing when interrupted."""
_LONGEST_LINE = 1 << 16
"""Characters of a line without an end that are held back."""
_TICK_SECONDS = 0.1
_LINGER_SECONDS = 0.5
"""Seconds that are waited for more output of a command that has ended, where something it started holds its streams."""
_SURROUNDINGS = {
    "LC_ALL": "C.UTF-8",
    "PYTHONUNBUFFERED": "1",
    "PYTHONIOENCODING": "utf-8",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "DEBIAN_FRONTEND": "noninteractive",
}
"""Every command speaks English, prints at once and asks nothing: there is nobody at its standard input."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended. `stopped` is why it was ended by us, ``""`` if it ended by itself."""

    status: int
    seconds: float
    stopped: str = ""


def run_command(
    argv: Sequence[str],
    environ: Mapping[str, str],
    on_output: Callable[[str], None],
    wants: Callable[[], Stop],
    on_start: Callable[[int], None] = lambda _: None,
    leash: bool = True,
) -> Outcome:
    """Run a command to its end. `on_output` gets its output in whole lines, secrets masked, `on_start` its process id.
    It is ended when `wants()` is ``now`` or after 4 hours; `OSError` if it cannot start. With `leash` it is killed when
    this process dies; without it goes on, as a system package manager should.
    """
    began = time.monotonic()
    program = system_paths.locate(argv[0], environ)
    if program is None:
        raise FileNotFoundError(errno.ENOENT, "no such program", argv[0])
    command = [program, *argv[1:]]
    if leash and not Process.DIES_WITH_US:
        text = shipped.text("fixes/children/leash.py")
        command = [sys.executable, "-I", "-S", "-c", text, str(os.getpid()), *command]
    child = Process(command, {**environ, **_SURROUNDINGS}, with_stdin=False, stderr=subprocess.STDOUT)
    children.begun.add(child.pid)
    try:
        on_start(child.pid)
        stopped = _Listener(child, on_output, wants, began + COMMAND_SECONDS).until_it_ends()
    except BaseException:
        children.kill_group(child)
        child.wait()
        raise
    finally:
        assert child.stdout
        child.stdout.close()
    return Outcome(child.returncode if child.status is None else child.status, time.monotonic() - began, stopped)


class _Listener:
    """Reads a child's output until it ends, and ends it when wanted or overdue."""

    def __init__(
        self,
        child: Process,
        on_output: Callable[[str], None],
        wants: Callable[[], Stop],
        deadline: float,
    ) -> None:
        """`deadline` (monotonic seconds) ends the child, as does `wants` giving ``now``."""
        assert child.stdout
        self.child, self.pipe = child, child.stdout
        self._on_output, self._wants, self._deadline = on_output, wants, deadline
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._attempts = 0
        self._next = 0.0
        self._begun = ""
        self._stopped = ""

    def until_it_ends(self) -> str:
        """Pass on the child's output until it ends, or end it if wanted or overdue; why we did, ``""`` if not."""
        with self.child.selector() as selector:
            selector.register(self.pipe, EVENT_READ)
            ended = float("inf")
            while time.monotonic() < ended + _LINGER_SECONDS:
                if selector.get_map() and selector.select(_TICK_SECONDS):
                    if not self._read():
                        selector.unregister(self.pipe)
                elif not selector.get_map():
                    time.sleep(_TICK_SECONDS / 5)
                if self.child.poll() is not None:
                    if not selector.get_map() or not selector.select(0):
                        ended = min(ended, time.monotonic())
                    if not selector.get_map():
                        break
                self._end_if_wanted()
        self._pass_on(self._decoder.decode(b"", final=True), final=True)
        return self._stopped

    def _read(self) -> bool:
        """Read and pass on the child's available output; False at its end."""
        data = os.read(self.pipe.fileno(), 65536)
        self._pass_on(self._decoder.decode(data))
        return bool(data)

    def _pass_on(self, text: str, final: bool = False) -> None:
        """Pass on complete lines with secrets masked; an incomplete line is held back until `final`, or until more than
        65536 characters are held.
        """
        text = self._begun + text
        whole = len(text) if final or len(text) > _LONGEST_LINE else max(text.rfind("\n"), text.rfind("\r")) + 1
        self._begun = text[whole:]
        if whole:
            self._on_output("".join(map(without_secrets, text[:whole].splitlines(keepends=True))))

    def _end_if_wanted(self) -> None:
        """Signal the child to end when wanted or overdue, each time more firmly, at most once in 8 s."""
        now = time.monotonic()
        if not self._stopped and self._wants() == "now":
            self._stopped = "ended by you"
        if not self._stopped and now > self._deadline:
            self._stopped = f"ended after {COMMAND_SECONDS / 3600:.0f} hours"
        if self._stopped and now > self._next and self.child.poll() is None:
            self.child.ask_to_end(self._attempts)
            self._attempts += 1
            self._next = now + SIGNAL_SECONDS


def start_ticks(pid: int) -> str:
    """Start time of a process in clock ticks since boot; ``""`` if it is over, or without /proc. Identifies it together
    with its id.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
    except (OSError, IndexError):
        return ""


# ---- A step, with what is noted before and after it ----

_RECENT = 5


def run_step(
    step: PlanStep, recorder: Recorder, context: RunContext, wants: Wants, target: Environment | None
) -> Result:
    """Run a step's command to its end, its output and process on record: how it ended, which packages it changed."""
    environ, inside = dict(context.environ), target is not None and guard.changes_packages(step)
    system = step.touches == "system"
    if inside:
        environ, taken = guard.clean(environ, target)
        if taken:
            recorder.say(step, f"Left out of its environment: {', '.join(taken)}\n")
    before = environment.installed(target) if target and inside else ()
    then = _note_system(step, recorder, environ, "before") if system else None

    def on_start(pid: int) -> None:
        """Put the process of a command that changes the system on record, for it may outlive this one."""
        if system:
            with contextlib.suppress(OSError):
                document = {"pid": pid, "birth": start_ticks(pid), "argv": list(step.argv)}
                recorder.journal.put("child.json", document)

    try:
        outcome = run_command(
            step.argv, environ, lambda text: recorder.now(Printed(step.id, text)), wants, on_start, leash=not system
        )
    except (OSError, ValueError) as error:
        why = f"{step.argv[0]}: {getattr(error, 'strerror', None) or error}"
        recorder.say(step, f"{why}\n")
        return Result("failed", why=why)
    changed = environment.changes(before, environment.installed(target)) if target and inside else ()
    if inside and (new := guard.created_environment(step.argv)) and os.path.isdir(new):  # noqa: PTH112
        changed += (f"{new} not there → a new environment",)
    now = _note_system(step, recorder, environ, "after") if then else None
    if then and now:
        changed += system_packages.changes(then.versions, now.versions)
    return _step_result(step, outcome, changed, recorder)


def _step_result(step: PlanStep, outcome: Outcome, changed: tuple[str, ...], recorder: Recorder) -> Result:
    """Result of a step from its command's outcome: done for status 0, stopped if we ended it, else failed, with the
    last line that looks like an error, or the last one, as the reason.
    """
    if outcome.stopped:
        return Result("stopped", outcome.status, changed, f"step {step.id} was {outcome.stopped}")
    if outcome.status == 0:
        return Result("done", 0, changed)
    how = f"ended with status {outcome.status}" if outcome.status > 0 else f"was {crash(outcome.status)}"
    lines = [line.strip() for line in recorder.run.step(step.id).output.lines if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "e:", "fatal"))]
    last = (errors or lines or [""])[-1][:300]
    why = f"step {step.id} {how}" + (f": {last}" if last else "")
    return Result("failed", outcome.status, changed, why)


def _note_system(
    step: PlanStep, recorder: Recorder, environ: Mapping[str, str], when: str
) -> system_packages.Packages | None:
    """The system's packages now, also stored in the journal as `when` the step; None if there is no known package
    manager.
    """
    found = system_packages.installed(environ)
    if found:
        document = {"manager": found.manager, "versions": dict(found.versions)}
        with contextlib.suppress(OSError):
            recorder.journal.put(f"system-{when}-{step.id}.json", document)
    return found


def refuse_while_one_is_at_work(journals: Journals) -> None:
    """Raise `DoctorError` if a command of one of the last 5 runs is still running after that run was killed."""
    for entry in journals.list()[:_RECENT]:
        if entry.run and entry.run.over:
            continue
        try:
            child = journals.journal(entry.id).document("child.json")
        except DocumentError:
            continue
        if child.get("birth") and start_ticks(int(child["pid"])) == child["birth"]:
            command = " ".join(map(str, child.get("argv", ())))[:80]
            raise DoctorError(
                f"a command of run {entry.id} is still at work, though its program ended: {command} "
                f"(process {child['pid']}); wait for it"
            )
