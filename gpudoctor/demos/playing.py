"""Plays the recorded run of a plan at the pace of the record. Nothing is run and nothing is changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from gpudoctor.model.errors import DocumentError
from gpudoctor.model.plan import Change, Plan, PlanStep
from gpudoctor.model.run import Began, Ended, Event, Judged, Printed, Run, State, Stop

SCHEMA = "gpudoctor-recorded-run/1"
_LOOK = 0.1
"""Seconds between two looks at what the user wants."""
Tell = Callable[[Run], None]
Wanted = Callable[[], Stop]


@dataclass(frozen=True, slots=True)
class Played:
    """A step as it was recorded: what it printed and when, in seconds from its beginning, and how it ended."""

    argv: tuple[str, ...] = ()
    verify: str = ""
    seconds: float = 0.0
    status: int = 0
    prints: tuple[tuple[float, str], ...] = ()
    changes: tuple[Change, ...] = ()

    def of(self, step: PlanStep) -> bool:
        """Whether it is a record of that step."""
        return (self.argv, self.verify) == (step.argv, step.verify) and bool(self.argv or self.verify)


@dataclass(frozen=True, slots=True)
class Recording:
    """A run that was recorded, and the one that took it back. `pace` 0 plays both without waiting."""

    steps: tuple[Played, ...]
    back: tuple[Played, ...] = ()
    before: tuple[str, ...] = ()
    downloads_mib: float | None = None
    pace: float = 1.0

    def plan(self, plan: Plan) -> Plan:
        """The plan with what the record knows of it; steps that it does not have cannot be played."""
        if not any(played.of(step) for played in self.steps for step in plan.steps):
            return plan
        return replace(
            plan,
            before=self.before,
            downloads_mib=self.downloads_mib,
            steps=tuple(map(self._known, plan.steps)),
        )

    def _known(self, step: PlanStep) -> PlanStep:
        played = next((played for played in self.steps if played.of(step)), None)
        if not played:
            return replace(step, hindrance="not in the recording")
        return replace(step, hindrance="", changes=step.changes if played.status else played.changes)

    def apply(self, plan: Plan, tell: Tell, wanted: Wanted) -> Run:
        """Plays the chosen steps, by the contract of `Apply`, save that there is nothing to keep a journal of."""
        return self._play(Run.of(plan, _name(), _now()), self.steps, tell, wanted)

    def undo(self, run: Run, tell: Tell, wanted: Wanted) -> Run:
        """Plays the run that took it back."""
        steps = tuple(
            PlanStep(str(number), f"{played.argv[2]} {played.argv[3]}", played.argv, changes=played.changes)
            for number, played in enumerate(self.back, 1)
        )
        back = Plan(f"undo {run.plan.title}", run.plan.machine, steps, environment=run.plan.environment)
        return self._play(Run.of(back, _name(), _now(), undoes=run.id), self.back, tell, wanted)

    def _play(self, run: Run, record: tuple[Played, ...], tell: Tell, wanted: Wanted) -> Run:
        def now(event: Event) -> None:
            nonlocal run
            run = run.after(event)
            tell(run)

        for step in run.plan.chosen:
            played = next((played for played in record if played.of(step)), None)
            if played is None or wanted() != "go on":
                break
            now(Began(step.id))
            whole = self._prints(step, played, now, wanted)
            state: State = "stopped" if not whole else "failed" if played.status else "done"
            if whole and step.verify:
                found = not all(_done(run, item) for item in record if item.changes)
                now(Judged(step.id, step.verify, found))
                state = "failed" if found else "done"
            changed = tuple(_words(change) for change in played.changes) if state != "stopped" else ()
            now(Ended(step.id, state, played.seconds, played.status if step.argv else None, changed))
            if state != "done":
                break
        return run.ended()

    def _prints(self, step: PlanStep, played: Played, now: Callable[[Event], None], wanted: Wanted) -> bool:
        """Waits and prints as it was recorded; false where the user ended it."""
        began = time.monotonic()
        for moment, text in (*played.prints, (played.seconds, "")):
            while (left := began + moment * self.pace - time.monotonic()) > 0:
                if wanted() == "now":
                    return False
                time.sleep(min(left, _LOOK))
            if text:
                now(Printed(step.id, text))
        return True


def _done(run: Run, played: Played) -> bool:
    """Whether that step was done in this run."""
    return any(
        played.of(step) and ran.state == "done" for step, ran in zip(run.plan.steps, run.steps, strict=True)
    ) or not any(played.of(step) for step in run.plan.steps)


def _words(change: Change) -> str:
    return f"{change.name} {change.before or 'not installed'} → {change.after or 'removed'}"


def _name() -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime())


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def from_json(raw: object, pace: float = 1.0) -> Recording:
    """A recorded run from its document; raises `DocumentError`."""
    try:
        document = cast("Mapping[str, Any]", raw)
        if document["schema"] != SCHEMA:
            raise DocumentError(f"schema {str(document['schema'])[:40]!r} is not {SCHEMA}")
        return Recording(
            steps=tuple(_played(item) for item in document["steps"]),
            back=tuple(_played(item) for item in document.get("back", ())),
            before=tuple(document.get("before", ())),
            downloads_mib=document.get("downloads_mib"),
            pace=pace,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DocumentError(f"not a whole recorded run: {type(error).__name__} {error}") from error


def _played(raw: Mapping[str, Any]) -> Played:
    return Played(
        argv=tuple(raw.get("argv", ())),
        verify=raw.get("verify", ""),
        seconds=float(raw["seconds"]),
        status=int(raw.get("status", 0)),
        prints=tuple((float(moment), str(text)) for moment, text in raw.get("prints", ())),
        changes=tuple(Change(*change) for change in raw.get("changes", ())),
    )
