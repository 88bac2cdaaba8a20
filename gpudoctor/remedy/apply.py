"""Runs a plan: the environment is kept before its first change, and the machine judged anew after each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gpudoctor.model.errors import DoctorError, UsageError
from gpudoctor.model.plan import Plan, PlanStep
from gpudoctor.model.run import Judged, Run
from gpudoctor.remedy.keeping import distributions, environment, kept
from gpudoctor.remedy.keeping.environment import Environment
from gpudoctor.remedy.keeping.kept import Kept
from gpudoctor.remedy.records import journal, locks
from gpudoctor.remedy.site import Site
from gpudoctor.remedy.steps import commands, guard, requirements, signals
from gpudoctor.remedy.steps.engine import Answer, Ask, Recorder, Result, Tell, Wants, step_by_step
from gpudoctor.remedy.steps.judging import Judging

__all__ = ["Answer", "Ask", "Tell", "Wants", "apply", "opened"]


def apply(plan: Plan, site: Site, tell: Tell, wants: Wants, ask: Ask | None = None) -> Run:
    """Run the chosen steps in order; the run at its end, whatever that is. The contract is that of the interface.

    Who is asked about a step that has no command says by ``run`` that it was done by hand; without `ask` there may be
    none such. Raises `DoctorError` for what keeps it from beginning: a chosen step that cannot be run from here (leave
    it out), a command that would change another environment than the site's, another run under way, no room for a
    record.
    """
    target = _target(plan, site)
    _check(plan, target, site, by_hand=ask is not None)
    judging = Judging(site.judge, site.judge())
    with opened(plan, site, target, tell) as recorder, signals.heeded(wants) as wanted:
        applying = _Applying(recorder, site, wanted, target, judging)
        why = step_by_step(recorder, wanted, ask or _always, applying.prepare, applying.do)
        applying.note_after()
        return recorder.end(why, judging.worse)


@contextlib.contextmanager
def opened(plan: Plan, site: Site, target: Environment | None, tell: Tell, undoes: str = "") -> Iterator[Recorder]:
    """A run of that plan with its journal, while no other is under way; raises `DoctorError`."""
    journals = journal.Journals(site.journals)
    with contextlib.ExitStack() as stack:
        stack.enter_context(locks.held("on this machine", locks.of_machine(site.journals), plan.title[:80]))
        if target:
            place = locks.of_environment(target)
            stack.enter_context(locks.held(f"in {target.prefix}", place, plan.title[:80]))
        commands.refuse_while_one_is_at_work(journals)
        journals.prune(kept.needed)
        mine = journals.begin()
        recorder = Recorder(Run.of(plan, mine.id, journal.now(), undoes), mine, tell)
        try:
            recorder.write()
        except OSError as error:
            raise DoctorError(f"no record can be kept in {mine.folder}: {error.strerror}; nothing was run") from error
        yield recorder


def _target(plan: Plan, site: Site) -> Environment | None:
    """The environment that the plan changes, None where it changes none."""
    if not any(guard.changes_packages(step) for step in plan.until_reboot.chosen):
        return None
    if site.python is None:
        raise UsageError("no Python is known whose environment could be changed: name it with --python")
    return environment.ask(site.python, site.environ)


def _always(_: PlanStep) -> Answer:
    return "run"


def _check(plan: Plan, target: Environment | None, site: Site, by_hand: bool) -> None:
    """Raise `UsageError` for the first step that could not or must not be run."""
    made: list[str] = []
    for step in plan.until_reboot.chosen:
        why = step.hindrance or ("" if step.argv or step.verify or by_hand else "by hand: done by a person")
        if not why and target and guard.changes_packages(step):
            why = guard.fault(step.argv, target, made)
            new = guard.makes(step.argv)
            made += [new] if new else []
            elsewhere = new or guard.fault(step.argv, target)  # what the plan makes may always be changed by it
            why = why or ("" if elsewhere else target.hindrance(site.root))
        if why:
            raise UsageError(f"step {step.id} ({step.title}) is not run from here: {why}. Nothing was run")


@dataclass
class _Applying:
    """One plan on its way."""

    recorder: Recorder
    site: Site
    wants: Wants
    target: Environment | None
    judging: Judging
    kept: Kept | None = None
    made: list[str] = field(default_factory=list)
    notes: str = ""

    def prepare(self, step: PlanStep) -> str:
        """Why the step cannot be begun; before the first change of the environment that is kept."""
        if step.verify or _only_shows(step):
            return ""
        if why := requirements.unmet(step, self.site.environ, self.site.root):
            return why
        if not self.target or not guard.changes_packages(step):
            return ""
        try:
            return guard.fault(step.argv, self.target, self.made) or self._ready(step, self.target)
        except OSError as error:
            return f"the environment could not be kept as it is: {error.strerror}. Nothing was changed"
        except DoctorError as error:
            return str(error)

    def _ready(self, step: PlanStep, target: Environment) -> str:
        """Why its environment cannot be changed; before it is for the first time, it is kept."""
        if new := guard.makes(step.argv):
            self.made.append(new)
            self.recorder.journal.put("made.json", {"folders": self.made})
        elif not self.kept and not guard.fault(step.argv, target):  # else it fills what this run made
            why = requirements.moved_on(self.recorder.run.plan, distributions.lock(target))
            if why := why or self._led_elsewhere(step, target):
                return why
            self._keep(target)
        return ""

    def do(self, step: PlanStep) -> Result:
        """Do it."""
        if step.verify:
            return self._verify(step)
        if not step.argv:  # a person says that it is done, and may have changed anything
            self.judging.changed()
            return Result("done")
        if self.notes:
            self.recorder.say(step, self.notes)
            self.notes = ""
        result = commands.run(step, self.recorder, self.site, self.wants, self.target)
        if _only_shows(step):  # what it shows is for the reader, and nothing rests on how it ends
            return Result("done", result.status) if result.state == "failed" else result
        if step.touches == "nothing" and not guard.changes_packages(step):
            return result
        self.judging.changed()
        if result.state != "done" or not self._ends_way(step):
            return result
        return replace(result, why=self.judging.worsened(step))

    def note_after(self) -> None:
        """Remember how the run left the environment."""
        if self.kept:
            with contextlib.suppress(OSError):  # then all is put back as it was, without asking who changed it
                kept.note_after(self.kept)

    def _verify(self, step: PlanStep) -> Result:
        found, why = self.judging.look(step.verify)
        if found is not None:
            self.recorder.now(Judged(step.id, step.verify, found))
        return Result("done" if found is False else "failed", why=why)

    def _led_elsewhere(self, step: PlanStep, target: Environment) -> str:
        if "pip" not in step.argv:
            return ""
        setting = environment.diverted(target, guard.clean(self.site.environ, target)[0])
        said = f"pip's settings have {setting}, which leads it to another place"
        return f"{said}: pip config unset {setting.partition('=')[0]}" if setting else ""

    def _keep(self, target: Environment) -> None:
        self.recorder.journal.reserve()
        dropped = kept.prune(target, kept.LAST - 1)
        self.kept = kept.keep(self.recorder.run.id, target)
        self.recorder.journal.put("kept.json", self.kept.to_json())
        self.notes = f"Kept {target.prefix} as it is: {self.kept.files} files, {self.kept.size >> 20} MiB\n"
        if dropped:
            self.notes += f"Dropped what was kept for {', '.join(dropped)}: too old to be taken back\n"

    def _ends_way(self, step: PlanStep) -> bool:
        """Whether no later step of the same cause changes anything: in between it may well look worse."""
        steps = self.recorder.run.plan.until_reboot.chosen
        later = steps[next(place for place, item in enumerate(steps, 1) if item.id == step.id) :]
        return not any(item.cause == step.cause and item.argv and item.touches != "nothing" for item in later)


def _only_shows(step: PlanStep) -> bool:
    """Whether it changes nothing and brings nothing about: ``fuser -v /dev/nvidia0``, which fails where nobody is."""
    return step.touches == "nothing" and bool(step.argv) and not step.makes and not guard.changes_packages(step)
