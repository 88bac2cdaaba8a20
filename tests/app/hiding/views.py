"""Every view of a diagnosis that another person may be given, and what of a canary is to be seen in it."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from gpudoctor.app import pipeline
from gpudoctor.app.arguments.options import FORMS
from gpudoctor.app.commands.reports import rendered
from gpudoctor.app.hiding import Sharing
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.diagnosis.compare import compare
from gpudoctor.views import diff, document
from tests.app.hiding.canaries import Canary, some
from tests.app.hiding.planting import BOOK, planted

_RUN = 6
"""Characters of a token that are recognised."""


class Pipe:
    """A stream without a terminal behind it."""

    def isatty(self) -> bool:
        return False


def shown(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    """Each view of it by name, shared as the commands share it; the JSON, which holds most, first."""
    told = Sharing(this_machine=False)(diagnosis)
    for form in sorted(FORMS, key=lambda form: form != "json"):
        yield form, rendered(told, form, Pipe())  # type: ignore[arg-type]
    yield "snapshot", document.facts(told.snapshot, "1")
    if told.fleet:
        from gpudoctor.views import fleet

        yield "fleet", fleet.render(told, told.fleet)


def compared(a: Diagnosis, b: Diagnosis, names: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """The same of a comparison."""
    here, there = (pipeline.diagnose(side.snapshot, BOOK) for side in (a, b))
    difference, sides = Sharing(this_machine=False)((compare(here, there), names))
    yield "diff --json", diff.document(difference)
    yield "diff", diff.render(difference, sides)


def seen(canary: Canary, view: str, text: str) -> str:
    """What of it is to be seen; nothing where it is hidden. `text` is of `plain`."""
    for part in canary.parts:
        if part.lower() in text:
            return part
    if canary.token and view in ("json", "diff --json"):
        token = canary.token.lower()
        for at in range(len(token) - _RUN + 1):
            if token[at : at + _RUN] in text:
                return token[at : at + _RUN]
    return ""


def plain(text: str) -> str:
    """As it reads: without the ends of lines, and what HTML and Markdown put before signs."""
    return re.sub(r"[\s\\\u200b]|\x1b\[[\d;]*m", "", html.unescape(text)).lower()


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
