"""A rule that is judged for each GPU answers for each, also where GPUs are alike."""

from __future__ import annotations

from gpudoctor.core.diagnosis import Finding, Unjudged
from gpudoctor.core.fact import Fact, Known, Row, Unread
from gpudoctor.core.rule import Rule
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis.judge import judge_rule

RULE = Rule("gpu.hot", "gpu", "hot", "warning", "cause", "{gpu.t}", "", "", (), each="gpu", when=("gpu.t > 80",))


def answers(*temperatures: Fact) -> list[object]:
    rows: tuple[Row, ...] = tuple({"t": fact, "uuid": Known(f"GPU-{n}", "x")} for n, fact in enumerate(temperatures))
    snapshot = Snapshot(Target("local", "x"), {}, {"gpu": rows})
    found = judge_rule(RULE, snapshot)
    return [(one.title, one.subject) if isinstance(one, Finding) else one for one in found]


def test_each_finding_names_its_own_gpu() -> None:
    cool, hot = Known(40, "x"), Known(90, "x")
    assert answers(cool, cool, hot, hot, cool) == [
        None,
        None,
        ("90", {"gpu": 2, "uuid": "GPU-2"}),
        ("90", {"gpu": 3, "uuid": "GPU-3"}),
        None,
    ]


def test_one_that_was_not_read_is_not_taken_for_the_one_before() -> None:
    unread = Unjudged("gpu.hot", "gpu.t: lost")
    assert answers(Known(40, "x"), Unread("lost"), Unread("lost"), Known(40, "x")) == [None, unread, unread, None]
