"""Every line of a profile judged on a snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.expect.bounds import Bounded
from gpudoctor.expect.condition_lines import ConditionJudgement
from gpudoctor.expect.fact_lines import FactJudgement
from gpudoctor.expect.judgement import Outcome
from gpudoctor.expect.profile import FactLine, Line, Profile
from gpudoctor.expression import Facts
from gpudoctor.model.snapshot import Snapshot


def judged(profile: Profile, snapshot: Snapshot) -> Iterator[tuple[Line, Outcome]]:
    """Every line with what came of it; all together have one budget of time."""
    evaluator = Bounded(Facts(snapshot))
    for line in profile.lines.values():
        if isinstance(line, FactLine):
            yield line, FactJudgement(line, profile, snapshot, evaluator).outcome()
        else:
            yield line, ConditionJudgement(line, profile, snapshot, evaluator).outcome()
