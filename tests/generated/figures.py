"""Judges generated environments and counts what came of it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpudoctor.app.pipeline import diagnose
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.diagnosis.rulebook import Rulebook
from tests.generated.changes import Planted
from tests.generated.sound import Sound


@dataclass
class Figures:
    """What was found. `alarms` are findings in sound environments; `places` counts where planted causes came."""

    book: Rulebook
    alarms: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    places: Counter[int] = field(default_factory=Counter)
    judged: int = 0

    def judge(self, snapshot: Snapshot) -> Diagnosis:
        """One snapshot's diagnosis."""
        self.judged += 1
        return diagnose(snapshot, self.book)

    def sound(self, environments: Iterable[Sound]) -> None:
        """Sound environments: every error, and every warning that no circumstance justifies, is a false alarm."""
        for one in environments:
            for finding in self.judge(one.snapshot).findings:
                if finding.severity != "info" and finding.id not in one.warns:
                    self.alarms.append(f"{finding.severity} {finding.id} ({finding.title}) in {one}")

    def broken(self, planted: Iterable[Planted]) -> None:
        """Changed environments: the planted cause first counts as 1, second as 2, not found as 0."""
        for one in planted:
            found = list(dict.fromkeys(finding.id for finding in self.judge(one.snapshot).findings))
            place = found.index(one.change.cause) + 1 if one.change.cause in found else 0
            self.places[place] += 1
            if place != 1:
                self.missed.append(f"{one.change.name} wants {one.change.cause}, found {found} in {one.machine}")

    @property
    def first(self) -> float:
        """Share of planted causes that came first."""
        return self.places[1] / max(1, self.places.total())

    def __str__(self) -> str:
        told = f"{self.judged} judged: {len(self.alarms)} false alarms"
        if self.places:
            named = ", ".join(f"{count} at place {place}" for place, count in sorted(self.places.items()) if place > 1)
            told += f"; planted cause first in {self.first:.2%} of {self.places.total()}"
            told += f" ({named or 'none later'}, {self.places[0]} not named)"
        return told
