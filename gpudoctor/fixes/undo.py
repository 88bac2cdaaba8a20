"""Takes a run back, from whatever point it got to: what was kept is put back, and a person is told the rest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpudoctor.core import files, system
from gpudoctor.core.document import object_from_json
from gpudoctor.core.errors import DoctorError, DocumentError, UsageError
from gpudoctor.core.language import say
from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.core.run import Run
from gpudoctor.fixes.apply import opened
from gpudoctor.fixes.backup import backup, environment
from gpudoctor.fixes.backup.backup import Backup
from gpudoctor.fixes.permissions import RunContext
from gpudoctor.fixes.records import Journal, Journals
from gpudoctor.fixes.steps import commands, guard, system_packages
from gpudoctor.fixes.steps.engine import Recorder, Result, Tell, Wants, heeding_signals, step_by_step

_RESTORE, _REMOVE = "environment", "made"


def undo(run: Run, context: RunContext, tell: Tell, wants: Wants) -> Run:
    """Undo a run, and return the new run, whose `undoes` names it. May be repeated, also after it was killed. What was
    kept is put back; files that others changed since are moved aside; the kept copy is dropped on success. Raises
    `DoctorError` if nothing can be undone from here, or the kept copy is gone.
    """
    journals = Journals(context.journals)
    _refuse_twice(run, journals)
    before = _Recorded.load(run, journals, context.environ)
    plan = _undo_plan(run, before, context)
    journals.journal(run.id).release()
    target = before.backup.environment if before.backup else None
    with opened(plan, context, target, tell, undoes=run.id) as recorder, heeding_signals(wants) as wanted:
        undoing = _UndoRun(recorder, context, wanted, before)
        why = step_by_step(recorder, wanted, lambda _: "run", undoing.prepare, undoing.do)
        over = recorder.end(why or _manual_rest(plan))
        if before.backup and over.outcome == "undone":
            backup.drop(before.backup)
        return over


def plan_of(run: Run, context: RunContext) -> Plan:
    """Plan of what `undo` would do with that run; raises `DoctorError` as `undo` does."""
    journals = Journals(context.journals)
    _refuse_twice(run, journals)
    return _undo_plan(run, _Recorded.load(run, journals, context.environ), context)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What the journal has recorded for undoing a run: kept copy, new environments, system commands."""

    backup: Backup | None
    made: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]

    @classmethod
    def load(cls, run: Run, journals: Journals, environ: Mapping[str, str]) -> _Recorded:
        """What a run's journal holds for undoing it; `DoctorError` if its kept copy is gone, or a record damaged or
        naming foreign paths.
        """
        journal = journals.journal(run.id)
        found = object_from_json(Backup, journal.document("kept.json")) if journal.has("kept.json") else None
        if found and not found.complete:
            raise DoctorError(
                say(
                    "what was kept of {prefix} before run {id} is gone: it cannot be put back",
                    prefix=found.environment.prefix,
                    id=run.id,
                )
            )
        if found:
            _check_kept(run, found)
        raw = journal.document("made.json")["folders"] if journal.has("made.json") else []
        made = tuple(map(str, raw))
        planned = {guard.created_environment(step.argv) for step in run.plan.steps if step.argv}
        if other := next((folder for folder in made if folder not in planned), ""):
            raise DocumentError(
                say(
                    "the record of run {id} names {other}, which no step of it made", id=run.id, other=repr(other[:200])
                )
            )
        return cls(found, made, tuple(_system_commands(run, journal, environ)))


def _check_kept(run: Run, copy: Backup) -> None:
    """Raise `DoctorError` if the kept copy is of another environment or run, not ours to restore, or doubtful."""
    prefix = copy.environment.prefix
    named = run.plan.environment
    if copy.run != run.id or (named and os.path.realpath(named) != os.path.realpath(prefix)):
        raise DocumentError(
            say(
                "the record of run {id} is of another environment, {prefix}: nothing is put back",
                id=run.id,
                prefix=prefix,
            )
        )
    owner = os.stat(prefix).st_uid if os.path.isdir(prefix) else 0  # noqa: PTH112, PTH116
    if system.is_root() and owner:
        raise UsageError(
            say(
                "{prefix} belongs to user {owner}, and this is root: undo it as that user",
                prefix=prefix,
                owner=files.user_name(owner),
            )
        )
    backup.check(copy)


def _refuse_twice(run: Run, journals: Journals) -> None:
    """Raise `UsageError` for a run that is itself an undo, or was undone already."""
    if run.undoes:
        raise UsageError(
            say("run {id} took run {undoes} back; to have that again, make its plan anew", id=run.id, undoes=run.undoes)
        )
    for entry in journals.list():
        if entry.run and entry.run.undoes == run.id and entry.run.outcome == "undone":
            raise UsageError(say("run {id} was taken back already, by run {other}", id=run.id, other=entry.id))


def _system_commands(run: Run, journal: Journal, environ: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Commands that revert what the run's steps changed of the system's packages, last step first."""
    for step in reversed(run.plan.steps):
        if not journal.has(f"system-before-{step.id}.json"):
            continue
        manager, before = _recorded_versions(journal.document(f"system-before-{step.id}.json"))
        if journal.has(f"system-after-{step.id}.json"):
            _, after = _recorded_versions(journal.document(f"system-after-{step.id}.json"))
        else:  # killed in the middle: what differs now is taken for its doing
            now = system_packages.installed(environ)
            after = dict(now.versions) if now and now.manager == manager else before
        yield from system_packages.revert_commands(manager, before, after)


def _recorded_versions(raw: object) -> tuple[str, dict[str, str]]:
    """(package manager, versions by name) of a recorded document; raises `DocumentError` if malformed."""
    try:
        assert isinstance(raw, dict)
        return str(raw["manager"]), {str(name): str(version) for name, version in raw["versions"].items()}
    except (AssertionError, KeyError, AttributeError) as error:
        raise DocumentError(say("a record of the system's packages is broken")) from error


def _undo_plan(run: Run, before: _Recorded, context: RunContext) -> Plan:
    """Plan that restores the environment's files, removes one that the run made, reverts system packages (chosen only
    as root), and names what only a person can do. Raises `UsageError` if no step could be run from here.
    """
    steps: list[PlanStep] = []
    if before.backup:
        where = before.backup.environment.prefix
        text = f"Puts back {before.backup.files} files as they were before run {run.id}; nothing is downloaded."
        steps.append(PlanStep(_RESTORE, f"put {where} back", text=text, touches="environment"))
    if before.made:
        text = f"Removes {', '.join(before.made)}, which run {run.id} made."
        steps.append(PlanStep(_REMOVE, "remove the new environment", text=text, touches="environment"))
    hindrance = "" if context.root else "needs root, which this is not"
    for number, argv in enumerate(before.commands, 1):
        title = f"{argv[0]}: the packages as they were"
        needs, chosen = ("root", "network"), context.root
        steps.append(PlanStep(f"s{number}", title, argv, "", needs, "system", chosen=chosen, hindrance=hindrance))
    for number, step in enumerate(_manual_steps(run, bool(before.commands)), 1):
        way = next((way for way in run.plan.ways if (way.cause, way.number) == (step.cause, step.way)), None)
        text = (way and way.undo) or "No command takes it back."
        title, why = f"by hand: {step.title}", "by hand: done by a person"
        steps.append(PlanStep(f"h{number}", title, text=text, chosen=False, hindrance=why))
    if not any(step.chosen for step in steps):
        lines = f": {steps[0].title}; {steps[0].text or steps[0].hindrance}" if steps else ""
        raise UsageError(
            say("run {id} changed nothing that can be taken back from here{lines}", id=run.id, lines=lines)
        )
    return Plan(
        f"take back run {run.id}",
        run.plan.machine,
        tuple(steps),
        environment=run.plan.environment or (before.backup.environment.prefix if before.backup else ""),
        before=run.changed,
    )


def _manual_steps(run: Run, packages_known: bool) -> Iterator[PlanStep]:
    """Steps that were begun and change system or hardware in a way that no record can undo; `packages_known`: package
    managers' can be.
    """
    for step, ran in zip(run.plan.steps, run.steps, strict=True):
        begun = ran.state in ("done", "failed", "stopped", "running") and step.argv and not step.verify
        manager = packages_known and step.argv[:1] and os.path.basename(step.argv[0]) in system_packages.MANAGERS  # noqa: PTH119
        if begun and step.touches in ("system", "hardware") and not manager:
            yield step


def _manual_rest(plan: Plan) -> str:
    """Text naming the steps left to a person; ``""`` if there are none."""
    left = [step for step in plan.steps if not step.chosen]
    lines = [" ".join(step.argv) or f"{step.title} ({step.text})" for step in left]
    return f"left to you: {'; '.join(lines)}" if lines else ""


@dataclass
class _UndoRun:
    """State of an undo in progress."""

    recorder: Recorder
    context: RunContext
    wants: Wants
    before: _Recorded

    def prepare(self, step: PlanStep) -> str:
        """Why the undoing step cannot be started; ``""`` if it can."""
        return guard.unmet(step, self.context.environ, self.context.root) if step.argv else ""

    def do(self, step: PlanStep) -> Result:
        """Run one step of an undo: a command, removal of new environments, or restoring the kept copy."""
        if step.argv:
            return commands.run_step(step, self.recorder, self.context, self.wants, None)
        if step.id == _REMOVE:
            return self._remove()
        assert self.before.backup
        return self._restore(step, self.before.backup)

    def _restore(self, step: PlanStep, state: Backup) -> Result:
        """Restore the kept copy: done, stopped by the user, or failed if that raises or some paths still differ."""
        was = environment.installed(state.environment)
        try:
            left = backup.restore(
                state, self.recorder.run.id, self._check_end, lambda text: self.recorder.say(step, text)
            )
        except backup.RestoreEndedError:
            return Result("stopped", why="stopped by you; undo again goes on with it")
        except (OSError, DocumentError) as error:
            place = getattr(error, "filename2", None) or getattr(error, "filename", None) or state.environment.prefix
            reason = system.reason(error) if isinstance(error, OSError) else str(error)
            why = f"{place}: {reason}; undo again goes on with it"
            self.recorder.say(step, f"{why}\n")
            return Result("failed", why=why)
        changed = environment.changes(was, environment.installed(state.environment))
        if left:
            self.recorder.say(step, f"Not as they were:\n{backup.listing(left)}\n")
            return Result("failed", changed=changed, why=f"not as before, {len(left)} in all: {left[0]}")
        return Result("done", changed=changed)

    def _check_end(self) -> None:
        """Raise `RestoreEndedError` if the user wants to stop now."""
        if self.wants() == "now":
            raise backup.RestoreEndedError

    def _remove(self) -> Result:
        """Remove environments that the run made, incomplete ones too; failed for a folder that holds other files."""
        gone = []
        for folder in map(Path, self.before.made):
            if not (folder / "pyvenv.cfg").is_file() and any(place.is_file() for place in folder.rglob("*")):
                return Result("failed", why=f"{folder} is no virtual environment any more: it was left as it is")
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():
                return Result("failed", why=f"{folder} could not be removed")
            gone.append(f"{folder} → removed")
        return Result("done", changed=tuple(gone))
