"""What every view of a diagnosis says, each in its own form: its words, what to act on, why rules were not judged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from gpudoctor.language import say
from gpudoctor.model.diagnosis import Diagnosis, Evidence, Finding, Verdict
from gpudoctor.model.fact import Known, listed
from gpudoctor.views._terminal import one_line

_VERDICTS: dict[Verdict, str] = {
    "sound": "Sound",
    "impaired": "Impaired: it works, with the warnings below",
    "broken": "Broken: the first finding is the one to act on first",
    "unknown": "No verdict: no error found, and too little could be read to call it sound",
}
_READ_IMPAIRED = "Impaired: the environment works, with the warnings below"
_ONE_CAUSE = "Broken: the finding below is why"
_SEEN = "Broken: what is seen stands below, why it is so is not known yet"
_UNPROVEN = "Broken, and no cause is proven: the first finding is where to look first"
_MISSING = re.compile(r"([a-z_]+(?:\.\w+)?): (.+)", re.DOTALL)
ASK_FOR = (
    "nvidia-smi",
    "python -m torch.utils.collect_env",
    "sudo dmesg | grep -iE 'nvrm|xid|nvidia'",
    "env | grep -E 'CUDA|NVIDIA|NCCL|LD_'",
)
"""What a pasted report is asked for, so that more can be judged."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why some rules were not judged: what kept us, of which facts, and the rules that wait for them."""

    why: str
    facts: tuple[str, ...]
    rules: tuple[str, ...]


def verdict(diagnosis: Diagnosis) -> str:
    """The verdict as a sentence."""
    if diagnosis.verdict == "broken":
        first = diagnosis.findings[0]
        if first.confidence == "possible":
            return say(_UNPROVEN)
        if first.role == "symptom":
            return say(_SEEN)
        if len(diagnosis.findings) == 1:
            return say(_ONE_CAUSE)
    if diagnosis.verdict == "impaired" and diagnosis.snapshot.pasted:  # what somebody pasted has mostly failed
        return say(_READ_IMPAIRED)
    return say(_VERDICTS[diagnosis.verdict])


def about(diagnosis: Diagnosis) -> str:
    """``node17, level standard, /srv/venv/bin/python``: whom it is about."""
    target = diagnosis.snapshot.target
    kind = diagnosis.snapshot.get("manifest.kind")
    what = str(kind.value) if isinstance(kind, Known) else say(target.kind)
    local = target.kind == "local"
    said = [target.name, say("level {level}", level=target.level)] if local else [what, target.name]
    return one_line(", ".join([*said, target.python] if target.python else said))


def manifest(diagnosis: Diagnosis) -> bool:
    """Whether it is of a file that says what is to be installed or started."""
    return isinstance(diagnosis.snapshot.get("manifest.kind"), Known)


def installs(diagnosis: Diagnosis) -> Iterator[tuple[str, str, str]]:
    """Package, version and where that is known from, of what a manifest would bring."""
    for row in listed(diagnosis.snapshot.rows("package") if manifest(diagnosis) else ()):
        name, version = row.get("name"), row.get("version")
        if isinstance(name, Known) and isinstance(version, Known):
            yield one_line(str(name.value)), one_line(str(version.value)), one_line(version.source)


def together(findings: Sequence[Finding]) -> Iterator[tuple[Finding, list[Finding]]]:
    """Each finding with those that say the same of other GPUs."""
    for _, same in groupby(findings, key=lambda finding: (finding.id, finding.severity)):
        first, *others = same
        yield first, others


def elsewhere(finding: Finding, others: Sequence[Finding]) -> tuple[list[str], list[Finding]]:
    """Of what, besides, the very same is said (``gpu 3``), and the others, which say it in other words."""
    named, unlike = [], []
    for other in others:
        if other.title == finding.title and other.subject:
            kind = "gpu" if "gpu" in other.subject else next(iter(other.subject))
            named.append(f"{kind} {other.subject[kind]}")
        else:
            unlike.append(other)
    return named, unlike


def causes(diagnosis: Diagnosis) -> list[Finding]:
    """What is to be acted on, each cause once, in the order of the diagnosis."""
    found = {
        finding.id: finding
        for finding in reversed(diagnosis.findings)
        if finding.role == "cause" and finding.severity != "info" and finding.confidence != "possible"
    }
    return list(reversed(found.values()))


def acts(causes: Sequence[Finding]) -> list[tuple[Finding, str]]:
    """Each cause and what to do about it, in a line: its first cure, or one of its cures that a cause above it has."""
    taken: dict[str, int] = {}
    said = []
    for number, finding in enumerate(causes, 1):
        titles = [fix.title for fix in finding.fixes]
        shared = next((title for title in titles if title in taken), "")
        act = say("{act}, as in {number}", act=shared, number=taken[shared]) if shared else [*titles, finding.title][0]
        taken.setdefault(act, number)
        said.append((finding, act))
    return said


def reasons(diagnosis: Diagnosis) -> list[Reason]:
    """Why rules were not judged, what keeps most of them first."""
    found: dict[str, tuple[dict[str, None], list[str]]] = {}
    for item in diagnosis.unjudged:
        named = _MISSING.match(item.because)
        facts, ids = found.setdefault(named[2] if named else item.because, ({}, []))
        if named:
            facts[named[1]] = None
        ids.append(item.id)
    said = [Reason(say(why), tuple(facts), tuple(ids)) for why, (facts, ids) in found.items()]
    return sorted(said, key=lambda reason: -len(reason.rules))


def fact_name(item: Evidence) -> str:
    """``gpu[0].name`` for a row's fact."""
    group, _, column = item.fact.rpartition(".")
    return item.fact if item.index is None else f"{group}[{item.index}].{column}"


def without_gpu(diagnosis: Diagnosis) -> bool:
    """Whether there is known to be no GPU: then all that can be wrong with one passes, and tells nothing."""
    count = diagnosis.snapshot.get("gpu.count")
    return isinstance(count, Known) and count.value == 0


def counts(diagnosis: Diagnosis) -> str:
    """Found, not judged, passed; and how much of a pasted report was understood."""
    report = diagnosis.snapshot.get("report.lines")
    placed = diagnosis.snapshot.get("report.placed")
    said = say(
        "{found} found, {unjudged} not judged, {passed} passed",
        found=len(diagnosis.findings),
        unjudged=len(diagnosis.unjudged),
        passed=len(diagnosis.passed),
    )
    if without_gpu(diagnosis):
        said += say(" (no GPU to check)")
    if isinstance(report, Known) and isinstance(placed, Known):
        lines = "; {placed} of {all} lines of the report were understood"
        said += say(lines, placed=placed.value, all=report.value)
    return said
