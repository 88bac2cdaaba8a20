"""Which finding comes first, and which are mere consequences of another and folded under it.

Two functions decide: `_can_be_consequence` (what may be folded under a cause at all) and `sort_key` (the order).
"""

from __future__ import annotations

from collections.abc import Sequence

from gpudoctor.core.diagnosis import Finding
from gpudoctor.core.frozen import replace
from gpudoctor.core.rule import CONFIDENCES, LAYERS, PREVALENCES, SEVERITIES


def rank_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Root causes in the order to act on them; `explains` of each has the ids of what is folded under it."""
    return sorted(_fold(sorted(findings, key=lambda finding: _ranking_key(finding, findings))), key=sort_key)


def _ranking_key(finding: Finding, findings: Sequence[Finding]) -> tuple[object, ...]:
    """Sort key of a finding before folding: as `sort_key`, but of `explains` only findings that are present count."""
    explained = {other.id for other in findings if _can_be_consequence(other, finding)} & set(finding.explains)
    return sort_key(replace(finding, explains=tuple(explained)))


def sort_key(finding: Finding) -> tuple[object, ...]:
    """Sort key of a finding: severity, causes first, guesses last, most ids in `explains`, lowest layer, confidence.

    Then findings with a line of text in evidence, prevalence, cost to confirm, id. Guesses (confidence ``possible``)
    are ordered by prevalence and cost to confirm before the layer.
    """
    guess = finding.confidence == "possible"
    odds = (PREVALENCES.index(finding.prevalence), _confirm_cost(finding))
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


def _confirm_cost(finding: Finding) -> int:
    """Effort to confirm: 0 a command for any user, 1 one for root, 2 no command."""
    if not finding.confirm:
        return 2
    return int("sudo " in finding.confirm)


def _fold(ordered: Sequence[Finding]) -> list[Finding]:
    """The findings that are no other's consequence, in order; `explains` has the ids folded under each, and no others.

    A consequence goes under the first finding that explains it, or under what explains that one in turn; an error among
    the consequences makes the cause an error.
    """
    under: dict[int, int] = {}
    for cause, finding in enumerate(ordered):
        if cause in under:
            continue
        for at, other in enumerate(ordered):
            if other.id != finding.id and other.id in finding.explains and _can_be_consequence(other, finding):
                under.setdefault(at, cause)
    errors = {finding.id for finding in ordered if finding.severity == "error"}
    kept = []
    for cause, finding in enumerate(ordered):
        if cause not in under:
            children = {ordered[child].id for child in under if _root_cause(child, under) == cause}
            kept.append(_with_consequences(finding, children, errors))
    return kept


def _with_consequences(finding: Finding, children: set[str], errors: set[str]) -> Finding:
    """The finding with `explains` set to these ids, sorted; an error where one of them is in `errors`."""
    raised = children & errors
    return replace(finding, explains=tuple(sorted(children)), severity="error" if raised else finding.severity)


def _can_be_consequence(consequence: Finding, cause: Finding) -> bool:
    """Whether the finding may be folded under that cause: it is a symptom, or the cause is at least as certain.

    Never where both name subjects and share none.
    """
    if consequence.about and cause.about and not consequence.about & cause.about:
        return False
    if consequence.role == "symptom":
        return True
    return CONFIDENCES.index(cause.confidence) <= CONFIDENCES.index(consequence.confidence)


def _root_cause(child: int, under: dict[int, int]) -> int:
    """Index of the finding at the top of the chain above `child`; `under` maps a consequence's index to its cause's."""
    seen = {child}
    while child in under and under[child] not in seen:
        child = under[child]
        seen.add(child)
    return child
