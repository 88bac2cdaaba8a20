"""Runs a plan: the environment is kept before its first change, and the machine judged anew after each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.document import object_to_json
from gpudoctor.core.errors import DoctorError, UsageError
from gpudoctor.core.language import say
from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.core.run import Judged, Run
from gpudoctor.fixes import records
from gpudoctor.fixes.backup import backup, environment
from gpudoctor.fixes.backup.backup import Backup
from gpudoctor.fixes.backup.environment import Environment, Lock
from gpudoctor.fixes.permissions import RunContext
from gpudoctor.fixes.steps import commands, guard
from gpudoctor.fixes.steps.engine import Ask, Recorder, Result, Tell, Wants, heeding_signals, step_by_step


def apply(plan: Plan, context: RunContext, tell: Tell, wants: Wants, ask: Ask | None = None) -> Run:
    """Run the plan's chosen steps in order, up to a reboot; the run as it ended, whatever the outcome.
    `ask` is called for a step without a command; ``run`` means that a person has done it. Without it such steps are
    refused. Raises `DoctorError` or `UsageError` before anything is run: a step that cannot be run, a command that
    would change another environment, another run under way, or no room for the record.
    """
    target = _target_environment(plan, context)
    _refuse_unrunnable(plan, target, context, by_hand=ask is not None)
    judging = Judging(context.judge, context.judge(None))
    with opened(plan, context, target, tell) as recorder, heeding_signals(wants) as wanted:
        applying = _Application(recorder, context, wanted, target, judging)
        why = step_by_step(recorder, wanted, ask or (lambda _: "run"), applying.prepare, applying.do)
        applying.note_after()
        return recorder.end(why, judging.worse)


@contextlib.contextmanager
def opened(
    plan: Plan, context: RunContext, target: Environment | None, tell: Tell, undoes: str = ""
) -> Iterator[Recorder]:
    """Context with the recorder of a new run of the plan, begun on disk, while its locks are held; raises `DoctorError`
    if another run is under way or no record can be kept. `undoes` is the id of the run that this one takes back.
    """
    journals = records.Journals(context.journals)
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            records.hold_lock("on this machine", records.machine_lock(context.journals), plan.title[:80])
        )
        if target:
            place = records.environment_lock(target)
            stack.enter_context(records.hold_lock(f"in {target.prefix}", place, plan.title[:80]))
        commands.refuse_while_one_is_at_work(journals)
        journals.prune(backup.is_undoable)
        mine = journals.begin()
        recorder = Recorder(Run.of(plan, mine.id, records.now(), undoes), mine, tell)
        try:
            recorder.write()
        except OSError as error:
            raise DoctorError(
                say(
                    "no record can be kept in {folder}: {why}; nothing was run",
                    folder=mine.folder,
                    why=error.strerror,
                )
            ) from error
        yield recorder


def _target_environment(plan: Plan, context: RunContext) -> Environment | None:
    """The environment that the plan changes; None if it changes none, `UsageError` if no Python is known."""
    if not any(guard.changes_packages(step) for step in plan.until_reboot.chosen):
        return None
    if context.python is None:
        raise UsageError(say("no Python is known whose environment could be changed: name it with --python"))
    return environment.query_environment(context.python, context.environ)


def _refuse_unrunnable(plan: Plan, target: Environment | None, context: RunContext, by_hand: bool) -> None:
    """Raise `UsageError` for the first chosen step that cannot or must not be run; `by_hand`: manual ones may be."""
    made: list[str] = []
    for step in plan.until_reboot.chosen:
        why = step.hindrance or ("" if step.argv or step.verify or by_hand else "by hand: done by a person")
        if not why and target and guard.changes_packages(step):
            why = guard.refusal(step.argv, target, made)
            new = guard.created_environment(step.argv)
            made += [new] if new else []
            elsewhere = new or guard.refusal(step.argv, target)  # what the plan makes may always be changed by it
            why = why or ("" if elsewhere else target.hindrance(context.root))
        if why:
            raise UsageError(
                say(
                    "step {id} ({title}) is not run from here: {why}. Nothing was run",
                    id=step.id,
                    title=step.title,
                    why=why,
                )
            )


@dataclass
class _Application:
    """State of one plan being run."""

    recorder: Recorder
    context: RunContext
    wants: Wants
    target: Environment | None
    judging: Judging
    backup: Backup | None = None
    made: list[str] = field(default_factory=list)
    notes: str = ""

    def prepare(self, step: PlanStep) -> str:
        """Why the step cannot be started, ``""`` if it can; keeps a copy of the environment before its first change."""
        if step.verify or _only_shows(step):
            return ""
        if why := guard.unmet(step, self.context.environ, self.context.root):
            return why
        if not self.target or not guard.changes_packages(step):
            return ""
        try:
            return guard.refusal(step.argv, self.target, self.made) or self._prepare_environment(step, self.target)
        except OSError as error:
            return f"the environment could not be kept as it is: {error.strerror}. Nothing was changed"
        except DoctorError as error:
            return str(error)

    def _prepare_environment(self, step: PlanStep, target: Environment) -> str:
        """Why the environment cannot be changed, ``""`` if it can; before the first change keeps a copy of it."""
        if new := guard.created_environment(step.argv):
            self.made.append(new)
            self.judging.environment = new
            self.recorder.journal.put("made.json", {"folders": self.made})
        elif not self.backup and not guard.refusal(step.argv, target):  # else it fills what this run made
            lock = environment.installed(target)
            why = guard.changed_since_plan(self.recorder.run.plan, lock) or self._held(lock)
            if why := why or self._diverted_by_pip(step, target):
                return why
            self._keep_environment(target)
        return ""

    def do(self, step: PlanStep) -> Result:
        """Run the step, and after the last change for its cause judge whether the machine is worse; a step that
        verifies is done if its rule finds nothing any more.
        """
        if step.verify:
            found, why = self.judging.look(step.verify)
            if found is not None:
                self.recorder.now(Judged(step.id, step.verify, found))
            return Result("done" if found is False else "failed", why=why)
        if not step.argv:  # a person says that it is done, and may have changed anything
            self.judging.changed()
            return Result("done")
        if self.notes:
            self.recorder.say(step, self.notes)
            self.notes = ""
        result = commands.run_step(step, self.recorder, self.context, self.wants, self.target)
        if _only_shows(step):  # what it shows is for the reader, and nothing rests on how it ends
            return Result("done", result.status) if result.state == "failed" else result
        if step.touches == "nothing" and not guard.changes_packages(step):
            return result
        self.judging.changed()
        if result.state != "done" or not self._is_last_change_of_cause(step):
            return result
        return replace(result, why=self.judging.worsened(step))

    def note_after(self) -> None:
        """Store how the run left an environment that it kept a copy of, for a later undo; errors are ignored."""
        if self.backup:
            with contextlib.suppress(OSError):  # then all is put back as it was, without asking who changed it
                backup.note_after(self.backup)

    def _held(self, lock: Lock) -> str:
        """Reason why packages of the plan cannot be replaced, since a program has loaded them; ``""`` if none has."""
        names = {change.name for step in self.recorder.run.plan.until_reboot.chosen for change in step.changes}
        file = environment.held_file(lock, names)
        return f"{file}: a program has it open: end that first. Nothing was changed" if file else ""

    def _diverted_by_pip(self, step: PlanStep, target: Environment) -> str:
        """Reason why pip would install elsewhere by its settings; ``""`` if it would not."""
        if "pip" not in step.argv:
            return ""
        setting = environment.diverting_pip_setting(target, guard.clean(self.context.environ, target)[0])
        reason = f"pip's settings have {setting}, which leads it to another place"
        return f"{reason}: pip config unset {setting.partition('=')[0]}" if setting else ""

    def _keep_environment(self, target: Environment) -> None:
        """Reserve disk space, keep a copy of the environment, then drop its oldest. Raises `OSError`, `DoctorError`.

        What a killed run left of a copy goes first. A whole one goes only once the new one is whole.
        """
        self.recorder.journal.reserve()
        dropped = backup.prune(target)
        self.backup = backup.create(self.recorder.run.id, target)
        self.recorder.journal.put("kept.json", object_to_json(self.backup))
        dropped += backup.prune(target)
        self.notes = f"Kept {target.prefix} as it is: {self.backup.files} files, {self.backup.size >> 20} MiB\n"
        if dropped:
            self.notes += f"Dropped what was kept for {', '.join(dropped)}: too old to be taken back\n"

    def _is_last_change_of_cause(self, step: PlanStep) -> bool:
        """True if no later step of the same cause changes anything: until then the machine may look worse."""
        steps = self.recorder.run.plan.until_reboot.chosen
        later = steps[next(place for place, item in enumerate(steps, 1) if item.id == step.id) :]
        return not any(item.cause == step.cause and item.argv and item.touches != "nothing" for item in later)


def _only_shows(step: PlanStep) -> bool:
    """True for a command that changes nothing, such as ``fuser -v /dev/nvidia0``; its exit status does not matter."""
    return step.touches == "nothing" and bool(step.argv) and not step.makes and not guard.changes_packages(step)


# ---- The machine judged anew: cured, not cured, or worse than before ----


@dataclass
class Judging:
    """Diagnoses the machine by `judge`, at most once per change. `before` is the diagnosis before the run,
    `environment` the folder of the one that the run has made, if any: what is cured is cured there.
    """

    judge: Callable[[str | None], Diagnosis]
    before: Diagnosis
    environment: str | None = None
    worse: tuple[str, ...] = ()
    """The rules that find an error and found none before the run."""
    _latest: Diagnosis | None = None

    def changed(self) -> None:
        """Discard the latest diagnosis, so that the machine is judged anew when next asked."""
        self._latest = None

    def look(self, rule: str) -> tuple[bool | None, str]:
        """(whether the rule finds something now, why): (True, reason), (False, ""), or (None, why it is not judged)."""
        diagnosis = self._current()
        if isinstance(diagnosis, str):
            return None, diagnosis
        if any(finding.id == rule for finding in diagnosis.findings):
            return True, f"{rule} is still found"
        unjudged = next((item.because for item in diagnosis.unjudged if item.id == rule), None)
        return (False, "") if unjudged is None else (None, f"{rule} could not be judged: {unjudged}")

    def worsened(self, step: PlanStep) -> str:
        """Text naming errors found now that were not before the run, also kept in `worse`; ``""`` if there are none,
        and why if it cannot be judged.
        """
        diagnosis = self._current()
        if isinstance(diagnosis, str):
            return diagnosis
        known = _error_ids(self.before)
        self.worse = tuple(name for name in _error_ids(diagnosis) if name not in known)
        problem = f"{', '.join(self.worse)} was not found before step {step.id}"
        return f"worse than before: {problem}; take the run back" if self.worse else ""

    def _current(self) -> Diagnosis | str:
        """Diagnosis since the last change, or the reason as text if it failed."""
        if self._latest is None:
            try:
                self._latest = self.judge(self.environment)
            except Exception as error:  # whatever it is: the steps are done, and the record must say so
                return f"the machine could not be judged anew: {error or type(error).__name__}"
        return self._latest


def _error_ids(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Ids of the rules that found an error in the diagnosis, each once."""
    return tuple(dict.fromkeys(finding.id for finding in diagnosis.findings if finding.severity == "error"))
