"""So many documents, each with canaries of every kind, in every view: what was to be seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from gpudoctor.core.diagnosis import Diagnosis
from tests.app.hiding.canaries import some
from tests.app.hiding.planting import planted
from tests.app.hiding.views import compared, plain, seen, shown

_CANARIES = 18
_COMPARED = 10
"""Every so many documents one is compared with the one before."""


@dataclass
class Figures:
    """`leaks` tell the document's number, the view, the canary, and what of it was to be seen."""

    documents: int = 0
    canaries: int = 0
    views: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)


def run(count: int, seed: int = 1, first: int = 0) -> Figures:
    """Plant, share, look; the same for the same seed and number."""
    figures = Figures()
    before: Diagnosis | None = None
    for number in range(first, first + count):
        random = Random(f"{seed} {number}")
        canaries = some(random, _CANARIES)
        diagnosis = planted(random, canaries)
        views = list(shown(diagnosis))
        if before and not (before.fleet or diagnosis.fleet) and number % _COMPARED == 0:
            views += compared(before, diagnosis, (canaries[0].text, canaries[1].text))
        for view, text in views:
            read = plain(text)
            figures.views[view] += 1
            for canary in canaries:
                if found := seen(canary, view, read):
                    at = read.find(found.lower())
                    figures.leaks.append(
                        f"{number} {view}: {found!r} of {canary.text!r} in ...{read[max(0, at - 60) : at + 60]}..."
                    )
        figures.documents += 1
        figures.canaries += len(canaries)
        before = diagnosis
    return figures
