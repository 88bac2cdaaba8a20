"""One step's command, with what is noted before and after it: what it changed, and whether it is still at work."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping

from gpudoctor.model.errors import DoctorError, DocumentError
from gpudoctor.model.plan import PlanStep
from gpudoctor.model.run import Printed
from gpudoctor.remedy.keeping import distributions
from gpudoctor.remedy.keeping.environment import Environment
from gpudoctor.remedy.records.journal import Journals
from gpudoctor.remedy.site import Site
from gpudoctor.remedy.steps import guard, packages, running
from gpudoctor.remedy.steps.engine import Recorder, Result, Wants

_RECENT = 5


def run(step: PlanStep, recorder: Recorder, site: Site, wants: Wants, target: Environment | None) -> Result:
    """Run it to its end, whatever that is."""
    environ, inside = dict(site.environ), target is not None and guard.changes_packages(step)
    system = step.touches == "system"
    if inside:
        environ, taken = guard.clean(environ, target)
        if taken:
            recorder.say(step, f"Left out of its environment: {', '.join(taken)}\n")
    before = distributions.lock(target) if target and inside else ()
    then = _note_system(step, recorder, environ, "before") if system else None

    def born(pid: int) -> None:
        if system:
            _note_child(recorder, step, pid)

    try:
        outcome = running.run(
            step.argv, environ, lambda text: recorder.now(Printed(step.id, text)), wants, born, leash=not system
        )
    except (OSError, ValueError) as error:
        why = f"{step.argv[0]}: {getattr(error, 'strerror', None) or error}"
        recorder.say(step, f"{why}\n")
        return Result("failed", why=why)
    changed = distributions.changes(before, distributions.lock(target)) if target and inside else ()
    if inside and (new := guard.makes(step.argv)) and os.path.isdir(new):  # noqa: PTH112
        changed += (f"{new} not there → a new environment",)
    now = _note_system(step, recorder, environ, "after") if then else None
    if then and now:
        changed += packages.changes(then.versions, now.versions)
    return _result(step, outcome, changed, recorder)


def _result(step: PlanStep, outcome: running.Outcome, changed: tuple[str, ...], recorder: Recorder) -> Result:
    if outcome.stopped:
        return Result("stopped", outcome.status, changed, f"step {step.id} was {outcome.stopped}")
    if outcome.status == 0:
        return Result("done", 0, changed)
    how = f"status {outcome.status}" if outcome.status > 0 else f"signal {_signal(-outcome.status)}"
    last = _last_words([line.strip() for line in recorder.run.step(step.id).output.lines if line.strip()])
    why = f"step {step.id} ended with {how}" + (f": {last}" if last else "")
    return Result("failed", outcome.status, changed, why)


def _last_words(lines: list[str]) -> str:
    """The last line that calls itself an error, else the last one."""
    errors = [line for line in lines if line.lower().startswith(("error", "e:", "fatal"))]
    return (errors or lines or [""])[-1][:300]


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _note_system(step: PlanStep, recorder: Recorder, environ: Mapping[str, str], when: str) -> packages.Packages | None:
    """The system's packages now, kept beside the run as well."""
    found = packages.installed(environ)
    if found:
        document = {"manager": found.manager, "versions": dict(found.versions)}
        with contextlib.suppress(OSError):
            recorder.journal.put(f"system-{when}-{step.id}.json", document)
    return found


def _note_child(recorder: Recorder, step: PlanStep, pid: int) -> None:
    """Put on record which process is at work: it goes on when we are killed."""
    with contextlib.suppress(OSError):
        recorder.journal.put("child.json", {"pid": pid, "birth": running.birth(pid), "argv": list(step.argv)})


def refuse_while_one_is_at_work(journals: Journals) -> None:
    """Raise `DoctorError` where a command of a run whose program was killed goes on."""
    for entry in journals.list()[:_RECENT]:
        if entry.run and entry.run.over:
            continue
        try:
            child = journals.journal(entry.id).document("child.json")
        except DocumentError:
            continue
        if child.get("birth") and running.birth(int(child["pid"])) == child["birth"]:
            command = " ".join(map(str, child.get("argv", ())))[:80]
            raise DoctorError(
                f"a command of run {entry.id} is still at work, though its program ended: {command} "
                f"(process {child['pid']}); wait for it"
            )
