"""The machine as the steps planned so far would leave it: what is to be cured there, and what a cure would add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.rule import Step
from gpudoctor.remedy import effects
from gpudoctor.remedy.effects import Judge
from gpudoctor.remedy.planning.cures import Cure


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a cure would come to: the findings that it would bring about or back, and whether it clears its own."""

    adds: tuple[str, ...] = ()
    clears: bool = False


@dataclass
class Prospect:
    """Steps are taken into it cause by cause. Without a `judge` nothing is foreseen: every cause has its own cure."""

    diagnosis: Diagnosis
    judge: Judge | None
    steps: tuple[Step, ...] = ()
    causes: frozenset[str] = frozenset()
    cleared: frozenset[str] = frozenset()

    def take(self, cause: str, steps: Sequence[Step]) -> None:
        """These steps are part of the plan, for that cause."""
        self.steps = (*self.steps, *steps)
        self.causes |= {cause} if any(map(effects.tells, steps)) else frozenset()
        if self.judge and steps:
            self.cleared = frozenset(self._seen(self.steps, self.causes).cleared)

    def findings(self, cause: str, found: Sequence[Finding]) -> Sequence[Finding]:
        """The findings of that cause as they would be then, with the cures that would then be offered; none where the
        steps taken so far clear it. Where that can be judged only on the machine, those found now.
        """
        if not self.judge or not self.steps:
            return found
        if cause in self.cleared:
            return ()
        then = self.judge(effects.after(self.diagnosis.snapshot, self.steps))
        return [finding for finding in then.findings if finding.id == cause and finding.fixes] or found

    def of(self, cause: str, cure: Cure) -> Outcome:
        """What this cure would come to after the steps taken so far."""
        if not self.judge:
            return Outcome()
        mended = {cause} if any(map(effects.tells, cure.steps)) else set()
        seen = self._seen((*self.steps, *cure.steps), self.causes | mended)
        adds = (*seen.new, *(name for name in seen.stays if name in self.cleared))
        return Outcome(adds, clears=cause in seen.cleared)

    def _seen(self, steps: Sequence[Step], causes: frozenset[str]) -> effects.Foreseen:
        assert self.judge is not None
        then = effects.after(self.diagnosis.snapshot, steps)
        return effects.seen(self.diagnosis, then, self.judge, mended=causes)
