"""A text in which no known sign was heard: the pages whose words are nearest to it, as pointers and never as proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from gpudoctor.expression import Evaluator, Facts
from gpudoctor.judge.judgement import Judgement
from gpudoctor.judge.matter import is_on_our_matter
from gpudoctor.judge.signs import Match, Text
from gpudoctor.knowledge import LOOKUPS
from gpudoctor.model.denial import says_all_is_well
from gpudoctor.model.diagnosis import Evidence, Finding
from gpudoctor.model.fact import Known, listed
from gpudoctor.model.frozen import frozen, replace
from gpudoctor.model.pattern import pattern
from gpudoctor.model.rule import Rule, Sign
from gpudoctor.model.snapshot import Snapshot
from gpudoctor.rulebook.furniture import is_furniture
from gpudoctor.rulebook.words import Vocabulary, words

_LEAD, _CROWD = 7.0, 5
"""How far the nearest page must be ahead of the sixth: what many pages share, such as a form's own words, is chance."""
_LEAD_PER_WORD = 0.3
"""What it must be ahead for each different word of the text: the more there are, the more some page holds by chance."""
_BESIDE = 0.6
"""The share of the best page's nearness from which another page is named beside it."""
_MOST = 3
_LINES = 3
_TO_PACKAGES = pattern(r"(?<![^\s'\"(\[])[^\s'\"(\[]*[\\/](?:site|dist)-packages[\\/]")
"""The way to an installed package: who it belongs to and where Python lies says nothing of what is wrong."""
_HEADING = pattern(r"\s*#")
"""A heading, or a shell's comment: it names what comes, and is no message."""
_HEARD = Sign("", conclusive=False)


def nearest(
    rules: Sequence[Rule], text: Text, vocabulary: Vocabulary, known: AbstractSet[int | None] = frozenset()
) -> list[Finding]:
    """What `rules` would say if the text meant them: at most three, all of them guesses, the nearest first.

    `rules` are those that no fact excludes; the lines `known` say what is wrong, and so nothing of why.
    """
    if not is_on_our_matter(text.snapshot):
        rules = [rule for rule in rules if rule.pages]
    told = [line for line in _lines(text.snapshot) if line.index not in known]
    said = {word for line in told for word in line.words}
    worth = vocabulary.shared(said)
    near = {rule.id: sum(worth[rule.id].values()) for rule in rules if rule.id in worth}
    ranks = [*sorted(near.values(), reverse=True), *[0.0] * (_CROWD + 1)]
    if ranks[0] - ranks[_CROWD] < max(_LEAD, _LEAD_PER_WORD * len(said)):
        return []
    named = sorted((rule for rule in rules if near.get(rule.id, 0.0) >= _BESIDE * ranks[0]), key=lambda r: -near[r.id])
    findings = []
    for rule in named[:_MOST]:
        match = Match(_HEARD, tuple(_telling(told, worth[rule.id])), {})
        whole = replace(rule, when=(), each="") if rule.each else rule
        facts = Facts(text.snapshot)
        outcome = Judgement(whole, facts, [match], text, Evaluator(facts, LOOKUPS)).outcome()
        if isinstance(outcome, Finding):
            findings.append(replace(outcome, nearness=near[rule.id]))
    return findings


@frozen
class _Line:
    index: int
    state: Known
    words: frozenset[str]


def _lines(snapshot: Snapshot) -> list[_Line]:
    """The lines that may say what is wrong. A listing that a reader understood does not: facts hold what it shows."""
    rows = snapshot.rows("text")
    lines = ((at, row.get("line")) for at, row in enumerate(listed(rows)) if not isinstance(row.get("listed"), Known))
    return [
        _Line(at, line, frozenset(words(_TO_PACKAGES.sub(" ", text))))
        for at, line in lines
        if isinstance(line, Known) and not _HEADING.match(text := str(line.value))
        if not is_furniture(text) and not says_all_is_well(text)
    ]


def _telling(told: Sequence[_Line], worth: Mapping[str, float]) -> list[Evidence]:
    """The lines whose words speak most for the page, in the order of the text."""
    best = sorted(told, key=lambda line: -sum(worth.get(word, 0.0) for word in line.words))[:_LINES]
    return [
        Evidence("text.line", line.state, line.index)
        for line in sorted(best, key=lambda line: line.index)
        if line.words & worth.keys()
    ]
