"""The counts and the progress of a diagnosis, as one line each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

from textual.content import Content

from gpudoctor.model.diagnosis import Diagnosis, Finding
from gpudoctor.model.rule import Severity
from gpudoctor.views import _report as report
from gpudoctor.views._terminal import one_line
from gpudoctor.views.tui.reading import Reading

_BAR = 24
_COUNTED: tuple[tuple[Severity, str], ...] = (("error", "cause"), ("warning", "warning"))


def folded(diagnosis: Diagnosis) -> dict[str, str]:
    """Ids of findings that another one explains, with the id of the first that does."""
    found = {finding.id for finding in diagnosis.findings}
    under: dict[str, str] = {}
    for finding in diagnosis.findings:
        for explained in finding.explains:
            if explained in found and _top(finding.id, under) != explained:
                under.setdefault(explained, finding.id)
    return {name: _top(name, under) for name in under}


def _top(name: str, under: Mapping[str, str]) -> str:
    while name in under:
        name = under[name]
    return name


def to_act_on(diagnosis: Diagnosis) -> list[Finding]:
    """Each cause that no other explains, once, in the order to act on them."""
    below = folded(diagnosis)
    return [finding for finding in report.causes(diagnosis) if finding.id not in below]


def summary(diagnosis: Diagnosis, over: bool = True) -> str:
    """``1 cause, 1 warning · 2 symptoms folded``."""
    below = folded(diagnosis)
    top = {finding.id: finding.severity for finding in diagnosis.findings if finding.id not in below}
    severities = Counter(top.values())
    said = [_many(severities[severity], word) for severity, word in _COUNTED]
    words = ", ".join(word for word in said if word)
    if below:
        words += f" · {_many(len(below), 'symptom')} folded"
    if words:
        return words if over else f"{words} so far"
    if not over:
        return "nothing found so far"
    if diagnosis.verdict == "sound":
        return f"nothing wrong in {len(diagnosis.passed)} checks"
    return "no error found, and too little read to call it sound"


def status(diagnosis: Diagnosis | None, reading: Reading) -> tuple[Content, list[Content]]:
    """The second line: the three counts, or how far the reading is and what it waits for; and what may stand beside."""
    if not reading.over:
        return _progress(reading)
    if diagnosis is None:
        return Content("nothing was read"), [Content("r reads again")]
    counts = Content.assemble(
        f"{len(diagnosis.passed)} passed{' (no GPU)' if report.without_gpu(diagnosis) else ''} · ",
        (f"{len(diagnosis.unjudged)} not judged", "bold" if diagnosis.unjudged else ""),
        f" (u) · {len(diagnosis.findings)} found" if diagnosis.unjudged else f" · {len(diagnosis.findings)} found",
    )
    asked = f" · {_many(len(reading.sources), 'source')} in {reading.seconds:.1f} s" if reading.sources else ""
    return Content.assemble(counts, asked), _shorter(one_line(diagnosis.snapshot.target.python or ""))


def _shorter(path: str) -> list[Content]:
    """The path, and ever less of its start: the end tells most."""
    parts = path.split("/")
    return [Content(path), *(Content(f"…/{'/'.join(parts[at:])}") for at in range(2, len(parts)))] if path else []


def _progress(reading: Reading) -> tuple[Content, list[Content]]:
    total = max(len(reading.sources), 1)
    full = _BAR * reading.done // total
    slow = min(((source.since, name) for name, source in reading.sources.items() if source.asked), default=None)
    waits = f" · {slow[1]}, {max(0.0, time.monotonic() - slow[0]):.1f} s" if slow else ""
    if detail := next((source.detail for source in reading.sources.values() if source.asked and source.detail), ""):
        waits = f" · {detail}"
    bar = Content.assemble(("█" * full, "$primary"), ("░" * (_BAR - full), "$foreground 40%"))
    return (
        Content.assemble(bar, f"  {reading.done} of {len(reading.sources)} sources{waits}"),
        [Content("Esc stop, keep what was read"), Content("Esc stop")],
    )


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count != 1 else ''}" if count else ""
