"""The machine judged anew while a plan is run: cured, not cured, or worse than before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpudoctor.model.diagnosis import Diagnosis
from gpudoctor.model.plan import PlanStep


@dataclass
class Judging:
    """Judges by `judge`, no more often than something changed. `before` is the diagnosis from before the run."""

    judge: Callable[[], Diagnosis]
    before: Diagnosis
    worse: tuple[str, ...] = ()
    """The rules that find an error and found none before the run."""
    _latest: Diagnosis | None = None

    def changed(self) -> None:
        """What was judged so far holds no longer."""
        self._latest = None

    def look(self, rule: str) -> tuple[bool | None, str]:
        """Whether that rule finds something, None where that is not known; and in words what is not as it should."""
        diagnosis = self._now()
        if isinstance(diagnosis, str):
            return None, diagnosis
        if any(finding.id == rule for finding in diagnosis.findings):
            return True, f"{rule} is still found"
        unjudged = next((item.because for item in diagnosis.unjudged if item.id == rule), None)
        return (False, "") if unjudged is None else (None, f"{rule} could not be judged: {unjudged}")

    def worsened(self, step: PlanStep) -> str:
        """What is worse after that step than before the run, in words; empty where nothing is."""
        diagnosis = self._now()
        if isinstance(diagnosis, str):
            return diagnosis
        known = _errors(self.before)
        self.worse = tuple(name for name in _errors(diagnosis) if name not in known)
        said = f"{', '.join(self.worse)} was not found before step {step.id}"
        return f"worse than before: {said}; take the run back" if self.worse else ""

    def _now(self) -> Diagnosis | str:
        """The diagnosis since the last change, or why there is none."""
        if self._latest is None:
            try:
                self._latest = self.judge()
            except Exception as error:  # whatever it is: the steps are done, and the record must say so
                return f"the machine could not be judged anew: {error or type(error).__name__}"
        return self._latest


def _errors(diagnosis: Diagnosis) -> tuple[str, ...]:
    return tuple(dict.fromkeys(finding.id for finding in diagnosis.findings if finding.severity == "error"))
