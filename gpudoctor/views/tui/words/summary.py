"""A machine, its diagnosis and the progress of a reading as one line each, and what findings fold under others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

from textual.content import Content

from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.fact import Absent, Known, Unread, listed, text_of
from gpudoctor.core.language import JOBS, phrase, say
from gpudoctor.core.rule import Severity
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.views import _report as report
from gpudoctor.views._terminal import one_line, plural, value
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.work import Reading

_BAR = 24
_COUNTED: tuple[tuple[Severity, str], ...] = (("error", "cause"), ("warning", "warning"))


def folded(diagnosis: Diagnosis) -> dict[str, str]:
    """For each finding that another one explains, by rule id: the id of the root cause that it is folded under."""
    ids = {finding.id for finding in diagnosis.findings}
    under: dict[str, str] = {}
    for finding in diagnosis.findings:
        for explained in finding.explains:
            if explained in ids and _root_cause(finding.id, under) != explained:
                under.setdefault(explained, finding.id)
    return {name: _root_cause(name, under) for name in under}


def _root_cause(name: str, under: Mapping[str, str]) -> str:
    """The id at the end of the chain that `under` makes from this id; the id itself if it is not in there."""
    while name in under:
        name = under[name]
    return name


def to_act_on(diagnosis: Diagnosis) -> list[Finding]:
    """The findings of `report.causes` (no ``info``, nothing only ``possible``) that are not folded under another, in
    the order to act on them.
    """
    below = folded(diagnosis)
    return [finding for finding in report.causes(diagnosis) if finding.id not in below]


def findings_line(diagnosis: Diagnosis, over: bool = True) -> str:
    """Summary of the findings: errors (``cause``) and warnings that are not folded, and folded ones: ``1 cause, 1
    warning · 2 symptoms folded``. If there are none (``info`` does not count), whether that means sound.

    `over` is False while reading goes on: then it ends in ``so far``.
    """
    below = folded(diagnosis)
    top = {finding.id: finding.severity for finding in diagnosis.findings if finding.id not in below}
    severities = Counter(top.values())
    counts = say(", ").join(plural(count, word) for severity, word in _COUNTED if (count := severities[severity]))
    folds = say("{symptoms} folded", symptoms=plural(len(below), "symptom")) if below else ""
    if words := " · ".join(filter(None, (counts, folds))):
        return words if over else say("{words} so far", words=words)
    if not over:
        return say("nothing found so far")
    if diagnosis.verdict == "sound":
        return say("nothing wrong in {count} checks", count=len(diagnosis.passed))
    return say("no error found, and too little read to call it sound")


def status_line(diagnosis: Diagnosis | None, reading: Reading) -> tuple[Content, list[Content]]:
    """The second line: its text, and versions of its right end, the longest first: counts, or a reading's progress."""
    if not reading.over:
        total = max(len(reading.sources), 1)
        full = _BAR * reading.done // total
        longest = min(((source.since, name) for name, source in reading.sources.items() if source.asked), default=None)
        waits = f" · {longest[1]}, {max(0.0, time.monotonic() - longest[0]):.1f} s" if longest else ""
        if detail := next((source.detail for source in reading.sources.values() if source.asked and source.detail), ""):
            waits = f" · {detail}"
        read = (
            say("{done} of {count} sources{waits}", done=reading.done, count=len(reading.sources), waits=waits)
            if reading.sources
            else say("starting")
        )
        bar = Content.assemble(("█" * full, "$primary"), ("░" * (_BAR - full), "$foreground 40%"))
        return (
            Content.assemble(bar, f"  {read}"),
            [Content(say("Esc stop, keep what was read")), Content(say("Esc stop"))],
        )
    if diagnosis is None:
        return Content(say("nothing was read")), [Content(say("r reads again"))]
    counts = Content.assemble(
        say(
            "{count} passed{without_gpu} · ",
            count=len(diagnosis.passed),
            without_gpu=say(" (no GPU)") if report.without_gpu(diagnosis) else "",
        ),
        (say("{count} not judged", count=len(diagnosis.unjudged)), "bold" if diagnosis.unjudged else ""),
        say(" (u) · {count} found", count=len(diagnosis.findings))
        if diagnosis.unjudged
        else say(" · {count} found", count=len(diagnosis.findings)),
    )
    asked = (
        say(" · {sources} in {seconds:.1f} s", sources=plural(len(reading.sources), "source"), seconds=reading.seconds)
        if reading.sources
        else ""
    )
    return Content.assemble(counts, asked), _shortened_paths(one_line(diagnosis.snapshot.target.python or ""))


def _shortened_paths(path: str) -> list[Content]:
    """The path, then ever shorter ends of it: ``…/venv/bin/python``; empty for an empty path."""
    parts = path.split("/")
    return [Content(path), *(Content(f"…/{'/'.join(parts[at:])}") for at in range(2, len(parts)))] if path else []


# ---- A machine ----

_BRANDS = ("NVIDIA ", "GeForce ", "Tesla ", "Graphics Device ")


def machine_words(snapshot: Snapshot) -> list[str]:
    """Name, GPUs and driver of the machine, each as one text; what is not known is left out."""
    parts = [phrase(name, JOBS)] if (name := snapshot.target.name) else []
    if gpus := gpu_names(snapshot):
        parts.append(", ".join(f"{count} × {name}" if count > 1 else name for name, count in gpus.items()))
    if driver := snapshot.text("driver.version"):
        parts.append(say("driver {driver}", driver=driver))
    return parts


_INSTALLED = (
    ("driver", "driver.version", "", ""),
    ("", "driver.cuda_version", "CUDA ≤ ", ""),
    ("", "driver.module_kind", "", " module"),
    ("torch", "torch.version", "", ""),
    ("", "torch.cudnn", "cuDNN ", ""),
    ("", "torch.nccl", "NCCL ", ""),
    ("Python", "python.version", "", ""),
    ("", "python.environment", "", ""),
    ("system", "host.os", "", ""),
    ("", "host.kernel", "kernel ", ""),
    ("container", "host.container", "", ""),
)
"""Of each line of `machine_lines`: its label where it begins one, the fact, and words before and behind its value."""


def machine_lines(snapshot: Snapshot) -> list[tuple[str, str]]:
    """(label, text) for GPUs, driver, torch, Python, system and container; ``?`` or ``-`` and why if not known."""
    gpus = snapshot.rows("gpu")
    names = ", ".join(f"{count} × {name}" for name, count in gpu_names(snapshot).items())
    lines = [("GPUs", [names or (f"{marks.UNREAD} {phrase(gpus.why)}" if isinstance(gpus, Unread) else say("none"))])]
    for label, name, before, behind in _INSTALLED:
        state = snapshot.get(name)
        if label:
            why = {Absent: marks.ABSENT, Unread: marks.UNREAD}.get(type(state), "")
            lines.append((label, [] if isinstance(state, Known) else [f"{why} {phrase(state.why)}"]))
        if isinstance(state, Known):
            lines[-1][1].append(f"{say(before)}{value(state)}{say(behind)}")
    return [(label, one_line(" · ".join(words))) for label, words in lines]


def gpu_names(snapshot: Snapshot) -> Counter[str]:
    """Number of GPUs of each model, by its short name; GPUs without a name are not counted."""
    return Counter(short_name(name) for row in listed(snapshot.rows("gpu")) if (name := text_of(row.get("name"))))


def short_name(name: str) -> str:
    """A GPU's name without leading ``NVIDIA``, ``GeForce``, ``Tesla`` and the like."""
    for brand in _BRANDS:
        name = name.removeprefix(brand)
    return name
