"""Which finding comes first, and which are mere consequences of another."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoctor.model.diagnosis import Finding
from gpudoctor.model.frozen import replace
from gpudoctor.model.rule import CONFIDENCES, LAYERS, PREVALENCES, SEVERITIES


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Root causes in the order to act on them, each with the ids of its consequences folded under it."""
    return sorted(_fold(sorted(findings, key=lambda finding: _key(finding, findings))), key=place)


def _key(finding: Finding, findings: Sequence[Finding]) -> tuple[object, ...]:
    """As `place`, with what it would explain of the rest counted before anything is folded."""
    explained = {other.id for other in findings if _yields(other, finding)} & set(finding.explains)
    return place(replace(finding, explains=tuple(explained)))


def place(finding: Finding) -> tuple[object, ...]:
    """The sort key of a finding: of what is proven the ground first, of guesses the commonest and cheapest to check.

    Of two that are equally sure in one layer, what a message says comes before what versions let expect.
    """
    guess = finding.confidence == "possible"
    odds = (PREVALENCES.index(finding.prevalence), _cost(finding))
    return (
        SEVERITIES.index(finding.severity),
        finding.role == "symptom",
        guess,
        -len(finding.explains),
        odds if guess else (),
        LAYERS.index(finding.layer),
        CONFIDENCES.index(finding.confidence),
        not any(item.fact == "text.line" for item in finding.evidence),
        odds,
        finding.id,
    )


def _cost(finding: Finding) -> int:
    """What it takes to make sure: 0 a command that anybody may run, 1 one for root, 2 there is none to name."""
    if not finding.confirm:
        return 2
    return int("sudo " in finding.confirm)


def _fold(ordered: Sequence[Finding]) -> list[Finding]:
    """Put consequences under their cause: a symptom always, a cause only under one at least as sure.

    What is wrong with one GPU is no consequence of what is wrong with another.
    """
    under: dict[int, int] = {}
    for cause, finding in enumerate(ordered):
        if cause in under:
            continue
        for at, other in enumerate(ordered):
            if other.id != finding.id and other.id in finding.explains and _yields(other, finding):
                under.setdefault(at, cause)
    errors = {finding.id for finding in ordered if finding.severity == "error"}
    kept = []
    for cause, finding in enumerate(ordered):
        if cause not in under:
            children = {ordered[child].id for child in under if _root(child, under) == cause}
            kept.append(_with(finding, children, errors))
    return kept


def _with(finding: Finding, children: set[str], errors: set[str]) -> Finding:
    """The cause with its consequences. What explains an error that was seen is an error; a guess stays a guess."""
    raised = children & errors
    return replace(finding, explains=tuple(sorted(children)), severity="error" if raised else finding.severity)


def _yields(consequence: Finding, cause: Finding) -> bool:
    if consequence.about and cause.about and not consequence.about & cause.about:
        return False
    if consequence.role == "symptom":
        return True
    return CONFIDENCES.index(cause.confidence) <= CONFIDENCES.index(consequence.confidence)


def _root(child: int, under: dict[int, int]) -> int:
    seen = {child}
    while child in under and under[child] not in seen:
        child = under[child]
        seen.add(child)
    return child
