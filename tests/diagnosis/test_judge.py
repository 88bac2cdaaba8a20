"""Found, passed, unjudged; causes before consequences; guesses never sold as facts."""

from dataclasses import replace
from itertools import accumulate, chain, repeat
from typing import Any

import pytest

from gpudoctor.core.diagnosis import Diagnosis, Finding, Unjudged
from gpudoctor.core.fact import Fact, Known, Reason, Row, Rows, Unread
from gpudoctor.core.language import speaking
from gpudoctor.core.pattern import TOO_COSTLY, Budget
from gpudoctor.core.rule import Fix, Proof, Rule, Sign, Step
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis import rulebook
from gpudoctor.diagnosis.judge import judge, judge_rule
from gpudoctor.diagnosis.judge.signs import Text
from gpudoctor.diagnosis.rulebook import Rulebook

PLAIN = Rule("driver.a", "driver", "A", "error", "cause", "a holds", "why", "misses", ("source",))


def rule(rule_id: str, **changes: Any) -> Rule:
    return replace(PLAIN, id=rule_id, layer=rule_id.partition(".")[0], **changes)


def judged(
    rules: list[Rule], facts: dict[str, Fact], groups: dict[str, Rows] | None = None, kind: str = "local"
) -> Diagnosis:
    return judge(Snapshot(Target(kind, "case"), facts, groups or {}), Rulebook(tuple(rules)))


def text(*lines: str) -> dict[str, Rows]:
    return {"text": tuple({"line": Known(line, f"line {number}")} for number, line in enumerate(lines, 1))}


YES: dict[str, Fact] = {"driver.installed": Known(True, "case")}
NO: dict[str, Fact] = {"driver.installed": Known(False, "case")}
HUNG: dict[str, Fact] = {"driver.installed": Unread("the disk hangs")}
HOLDS = rule("driver.a", when=("driver.installed",))


def test_each_of_the_three_answers_is_counted_and_one_false_condition_settles_a_rule() -> None:
    for facts, expected in ((YES, (1, 0, 0)), (NO, (0, 0, 1)), (HUNG, (0, 1, 0))):
        diagnosis = judged([HOLDS], facts)
        assert (len(diagnosis.findings), len(diagnosis.unjudged), len(diagnosis.passed)) == expected
    assert judged([HOLDS], HUNG).unjudged[0].because == "driver.installed: the disk hangs"
    both = rule("driver.a", when=("driver.module_loaded", "driver.installed"))
    assert judged([both], {**NO, "driver.module_loaded": Unread("no /proc")}).passed == ("driver.a",)


def test_a_conclusive_sign_is_proof_unless_the_facts_contradict_it() -> None:
    heard = rule("driver.a", signs=(Sign("version mismatch", True),))
    finding = judged([heard], {}, text("fine", "NVML: Version Mismatch")).findings[0]
    assert (finding.confidence, finding.severity) == ("certain", "error")
    assert finding.evidence[0].state == Known("NVML: Version Mismatch", "line 2")
    heard = rule("driver.a", when=("driver.installed",), signs=(Sign("mismatch", True),))
    (finding,) = judged([heard], NO, text("mismatch")).findings
    assert finding.confidence == "likely"
    assert "driver.installed" in [item.fact for item in finding.evidence]


def test_a_conclusive_sign_is_a_guess_while_what_its_condition_asserts_is_open() -> None:
    asserts = rule("driver.a", signs=(Sign("mismatch", True, ("driver.installed",)),))
    denies = rule("driver.a", signs=(Sign("mismatch", True, ("not driver.installed",)),))
    for page, facts, confidence in ((asserts, HUNG, "possible"), (asserts, YES, "certain"), (denies, HUNG, "certain")):
        assert judged([page], facts, text("mismatch")).findings[0].confidence == confidence
    assert not judged([asserts], NO, text("mismatch")).findings


def test_a_way_to_know_may_be_milder_than_its_page_and_the_gravest_that_speaks_counts() -> None:
    mild = Proof(("driver.installed",), severity="warning")
    page = rule("driver.a", proofs=(mild,), signs=(Sign("retry", True, severity="warning"), Sign("broken", True)))
    for facts, lines, severity in (
        (YES, (), "warning"),
        (NO, ("retry",), "warning"),
        (HUNG, ("retry", "broken"), "error"),
        (YES, ("retry",), "warning"),
        (YES, ("broken",), "error"),
    ):
        assert judged([page], facts, text(*lines)).findings[0].severity == severity, (facts, lines)


def test_the_cures_are_those_that_its_way_to_know_names() -> None:
    load, replace_card = (Fix(title, (Step((), title),)) for title in ("Load it", "Replace the card"))
    proof = Proof(("driver.installed",), fixes=("Load it",))
    signs = (Sign("not found", True, finding="b", fixes=("Replace the card",)), Sign("broken", True))
    page = rule("driver.a", proofs=(proof,), signs=signs, fixes=(load, replace_card))
    for facts, lines, cures in (
        (YES, (), ["Load it"]),
        (NO, ("not found",), ["Replace the card"]),
        (YES, ("not found",), ["Load it", "Replace the card"]),
        (NO, ("broken",), ["Load it", "Replace the card"]),
    ):
        (finding,) = judged([page], facts, text(*lines)).findings
        assert [fix.title for fix in finding.fixes] == cures
    denied = replace(page, fixes=(replace(load, when=("not driver.installed",)), replace_card))
    (finding,) = judged([denied], YES).findings
    assert [fix.title for fix in finding.fixes] == ["Replace the card"], "where none that is named applies, the others"


def test_the_cures_that_a_sign_names_are_found_in_another_language() -> None:
    titles: dict[str, list[str]] = {}
    for name in ("en", "zh"):
        with speaking(name):
            (page,) = (page for page in rulebook.load().rules if page.id == "nccl.infiniband")
            (finding,) = judged([page], {}, text("nv_mem does not exist: no RDMA")).findings
            titles[name] = [fix.title for fix in finding.fixes]
    assert titles["en"] == ["Let the card reach GPU memory"]
    assert len(titles["zh"]) == 1
    assert not titles["zh"][0].isascii()


def test_a_guess_shows_what_was_read_of_its_conditions() -> None:
    guess = rule("driver.a", signs=(Sign("timeout", False, ("driver.installed", "driver.module_loaded")),))
    (finding,) = judged([guess], YES, text("timeout")).findings
    assert finding.confidence == "possible"
    assert [item.fact for item in finding.evidence] == ["text.line", "driver.installed"]


def test_a_suggestion_alone_is_possible_and_no_error() -> None:
    heard = rule("driver.a", signs=(Sign("timeout", False),))
    finding = judged([heard], {}, text("timeout")).findings[0]
    assert (finding.confidence, finding.severity) == ("possible", "warning")


def test_two_suggestions_or_one_with_its_condition_make_it_likely() -> None:
    two = rule("driver.a", signs=(Sign("timeout", False), Sign("retry", False)))
    assert judged([two], {}, text("timeout", "retry")).findings[0].confidence == "likely"
    one = rule("driver.a", signs=(Sign("timeout", False, ("driver.installed",)),))
    assert judged([one], YES, text("timeout")).findings[0].confidence == "likely"
    assert judged([one], NO, text("timeout")).findings == ()
    two = rule("driver.a", signs=(Sign("timeout", False), Sign("time", False)))
    assert judged([two], {}, text("timeout")).findings[0].confidence == "possible"


def test_a_suggestion_that_the_facts_contradict_is_dropped_and_unless_silences_any_sign() -> None:
    heard = rule("driver.a", when=("driver.installed",), signs=(Sign("timeout", False),))
    assert judged([heard], NO, text("timeout")).passed == ("driver.a",)
    heard = rule("driver.a", unless=("driver.installed",), signs=(Sign("mismatch", True),))
    assert judged([heard], YES, text("mismatch")).passed == ("driver.a",)


def test_a_sentence_that_would_name_what_is_not_known_gives_way_to_the_heading() -> None:
    heard = rule("driver.a", signs=(Sign("mismatch", True, finding="{driver.version} does not fit"),))
    assert (
        judged([heard], {"driver.version": Known("570", "case")}, text("mismatch")).findings[0].title
        == "570 does not fit"
    )
    assert judged([heard], {}, text("mismatch")).findings[0].title == "A"


def test_silence_proves_nothing_and_what_cannot_be_worked_out_is_unjudged() -> None:
    heard = rule("driver.a", signs=(Sign("mismatch", True),))
    (silent,) = judged([heard], {}, text("fine"), kind="report").unjudged
    assert silent.because == "none of its messages is in the text that was read"
    assert judged([heard], {}).unjudged[0].because == "no log was read"
    odd = rule("driver.a", when=("driver.installed + 'x' > 2",))
    because = "driver.installed + 'x' > 2: true or false and text do not go together"
    assert judged([odd, HOLDS], YES).unjudged[0].because == because
    assert [finding.id for finding in judged([odd, HOLDS], YES).findings] == ["driver.a"]


@pytest.mark.parametrize(("pauses", "ids"), [(1, ["driver.a"]), (9, [])])
def test_a_condition_on_a_text_is_tried_again_behind_a_pause_and_then_given_up(pauses: int, ids: list[str]) -> None:
    """The budget's clock jumps ten seconds each time that it is asked while a condition searches the text."""
    page = rule("driver.a", when=("says(text, 'mismatch')",))
    snapshot = Snapshot(Target("local", "case"), {}, text("x" * 3000, "a mismatch"))
    times = accumulate(chain([0], *[[10, 0, 0]] * pauses, repeat(0)))
    searched = Text(snapshot, {})
    searched.budget = Budget(1.0, clock=lambda: float(next(times)))
    (found,) = judge_rule(page, snapshot, searched)
    assert [found.id for found in [found] if isinstance(found, Finding)] == ids
    if not ids:
        assert found == Unjudged("driver.a", f"text: {TOO_COSTLY}")
        assert isinstance(found, Unjudged)
        assert (found.reason, found.fact) == (Reason.GIVEN_UP, "text")


def test_a_rule_for_each_gpu_names_the_gpu() -> None:
    each = rule("gpu.hot", each="gpu", when=("gpu.temperature_c > 90",), finding="{gpu.name} is at {gpu.temperature_c}")
    gpus: Rows = tuple(
        {"name": Known(f"G{n}", "nvml"), "uuid": Known(f"GPU-{n}", "nvml"), "temperature_c": Known(degrees, "nvml")}
        for n, degrees in enumerate((40, 95))
    )
    (finding,) = judged([each], {}, {"gpu": gpus}).findings
    assert finding.title == "G1 is at 95"
    assert finding.subject == {"gpu": 1, "uuid": "GPU-1", "name": "G1"}


def test_consequences_fold_under_their_cause_and_not_under_a_guess() -> None:
    cause = rule("driver.a", when=("driver.installed",), explains=("torch.b",))
    consequence = rule("torch.b", when=("driver.installed",), role="symptom")
    (finding,) = judged([consequence, cause], YES).findings
    assert (finding.id, finding.explains) == ("driver.a", ("torch.b",))
    guess = rule("driver.a", signs=(Sign("timeout", False),), explains=("torch.b",))
    sure = rule("torch.b", when=("driver.installed",))
    assert [finding.id for finding in judged([guess, sure], YES, text("timeout")).findings] == ["torch.b", "driver.a"]


def test_what_is_wrong_with_one_gpu_does_not_fold_under_what_is_wrong_with_another() -> None:
    lost = rule(
        "gpu.a",
        when=("driver.installed",),
        explains=("gpu.b",),
        subjects=("[{'address': a} for a in driver.nodes_denied]",),
    )
    bad = rule("gpu.b", each="gpu", when=("gpu.temperature_c > 90",))
    gpus: Rows = ({"address": Known("0000:2a:00.0", "nvml"), "temperature_c": Known(95, "nvml")},)

    def ids(about: Fact) -> list[str]:
        facts = {**YES, "driver.nodes_denied": about}
        return [finding.id for finding in judged([lost, bad], facts, {"gpu": gpus}).findings]

    assert ids(Known(("0000:18:00.0", "0000:2a:00.0"), "bus")) == ["gpu.a"]
    assert ids(Known(("0000:18:00.0",), "bus")) == ["gpu.a", "gpu.b"]
    assert ids(Unread("the bus is hidden")) == ["gpu.a"]


def test_an_error_that_is_explained_is_one_also_under_a_warning_or_a_guess() -> None:
    cause = rule("driver.a", when=("driver.installed",), severity="warning", explains=("torch.b",))
    seen = rule("torch.b", when=("driver.installed",), role="symptom")
    assert [(one.id, one.severity) for one in judged([cause, seen], YES).findings] == [("driver.a", "error")]
    assert [one.severity for one in judged([cause], YES).findings] == ["warning"]
    guess = rule("driver.a", signs=(Sign("timeout", False),), explains=("torch.b",))
    seen = rule("torch.b", when=("driver.installed",), role="symptom")
    diagnosis = judged([guess, seen], YES, text("timeout"))
    (finding,) = diagnosis.findings
    assert (finding.id, finding.severity, finding.confidence) == ("driver.a", "error", "possible")
    assert diagnosis.verdict == "broken"


def test_healthy_is_said_only_where_it_was_looked_for() -> None:
    sound = rule("workload.none", severity="info", sound=True, when=("driver.installed",))
    assert judged([sound], YES).verdict == "sound"
    assert judged([sound], HUNG).verdict == "unknown"
    assert judged([sound, HOLDS], YES).verdict == "broken"
    assert [finding.id for finding in judged([sound, HOLDS], YES).findings] == ["driver.a"]
    assert judged([sound, replace(HOLDS, severity="warning")], YES).verdict == "impaired"


def test_of_equal_guesses_the_commoner_comes_first_and_then_the_cheaper_to_check() -> None:
    guess = (Sign("odd words", conclusive=False),)
    rare = rule("driver.rare", signs=guess, prevalence="rare", confirm="nvidia-smi")
    dear = rule("driver.dear", signs=guess, confirm="sudo dmesg")
    cheap = rule("torch.cheap", signs=guess, confirm="nvidia-smi")
    common = rule("workload.common", signs=guess, prevalence="common")
    found = judged([rare, dear, cheap, common], {}, text("odd words")).findings
    assert [finding.id for finding in found] == ["workload.common", "torch.cheap", "driver.dear", "driver.rare"]


def test_proven_causes_are_ordered_by_the_ground_and_in_one_layer_by_what_was_printed() -> None:
    common = rule("torch.b", when=("driver.installed",), prevalence="common")
    assert [finding.id for finding in judged([common, HOLDS], YES).findings] == ["driver.a", "torch.b"]
    versions = rule("driver.a", when=("driver.installed",))
    message = rule("driver.b", signs=(Sign("odd words", conclusive=True),))
    found = judged([versions, message], YES, text("odd words")).findings
    assert [finding.id for finding in found] == ["driver.b", "driver.a"]


def test_one_way_of_several_that_is_closed_says_nothing_against_the_others() -> None:
    page = rule("driver.a", when=("not driver.installed",), signs=(Sign("odd words", conclusive=False),))
    assert not judged([page], YES, text("odd words")).findings
    assert judged([replace(page, several=True)], YES, text("odd words")).findings[0].confidence == "possible"
    assert judged([replace(page, several=True)], YES, text("nothing")).passed == ("driver.a",)


def test_cures_are_ordered_by_what_is_known_and_then_by_what_nobody_mentioned() -> None:
    conditions = {
        "in a container": ("present(host.container)",),
        "on a host": ("not present(host.container)",),
        "always": (),
        "never": ("not driver.installed",),
    }
    fixes = tuple(Fix(title, (Step(text="do it"),), when) for title, when in conditions.items())
    page = replace(HOLDS, fixes=fixes)
    offered = {"not said": ["always", "on a host", "in a container"], "docker": ["in a container", "always"]}
    for container, titles in offered.items():
        told: dict[str, Fact] = {} if container == "not said" else {"host.container": Known(container, "case")}
        assert [fix.title for fix in judged([page], {**YES, **told}).findings[0].fixes] == titles


NO_SENSOR = Unread("no sensor")
RULE = Rule("gpu.hot", "gpu", "hot", "warning", "cause", "{gpu.t}", "", "", (), each="gpu", when=("gpu.t > 80",))


def answers(*temperatures: Fact, rule: Rule = RULE, air: Fact = NO_SENSOR) -> list[object]:
    rows: tuple[Row, ...] = tuple({"t": fact, "uuid": Known(f"GPU-{n}", "x")} for n, fact in enumerate(temperatures))
    snapshot = Snapshot(Target("local", "x"), {"room.air": air}, {"gpu": rows})
    found = judge_rule(rule, snapshot)
    return [(one.title, one.subject) if isinstance(one, Finding) else one for one in found]


def test_each_finding_names_its_own_gpu_and_an_unread_one_is_not_taken_for_another() -> None:
    cool, hot = Known(40, "x"), Known(90, "x")
    second, third = (("90", {"gpu": gpu, "uuid": f"GPU-{gpu}"}) for gpu in (2, 3))
    assert answers(cool, cool, hot, hot, cool) == [None, None, second, third, None]
    unread = Unjudged("gpu.hot", "gpu.t: lost")
    assert answers(Known(40, "x"), Unread("lost"), Unread("lost"), Known(40, "x")) == [None, unread, unread, None]


def test_a_proof_that_is_once_speaks_for_the_machine_where_no_gpu_is_found() -> None:
    rule = replace(RULE, proofs=(Proof(("room.air > 30",), finding="{room.air} in the room", once=True),))
    cool, hot, warm = Known(40, "x"), Known(90, "x"), Known(35, "x")
    assert answers(cool, cool, rule=rule, air=warm) == [("35 in the room", None)]
    assert answers(rule=rule, air=warm) == [("35 in the room", None)]
    assert answers(Unread("lost"), rule=rule, air=warm) == [("35 in the room", None)]
    assert answers(cool, hot, rule=rule, air=warm) == [None, ("90", {"gpu": 1, "uuid": "GPU-1"})]
    assert answers(cool, rule=rule, air=Known(20, "x")) == [None]
    assert answers(Unread("lost"), cool, rule=rule) == [Unjudged("gpu.hot", "gpu.t: lost"), None]
