"""Plans and runs as values, and the plan that is made of a diagnosis."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.core import plan as plans
from gpudoctor.core import run as runs
from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Fact, Known
from gpudoctor.core.plan import Change, Plan, PlanStep, Way
from gpudoctor.core.rule import Fix, Severity, Step
from gpudoctor.core.run import MOST_LINES, Began, Ended, Judged, Output, Printed, Run
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.fixes import plan as remedy

PLAN = Plan(
    "torch.x",
    "node17",
    (
        PlanStep("1", "note", ("pip", "freeze")),
        PlanStep("2", "uninstall", ("pip", "uninstall"), cause="torch.x", way=1, touches="environment"),
        PlanStep("3", "install", ("pip", "install"), cause="torch.x", way=1, changes=(Change("torch", "a", "b"),)),
        PlanStep("4", "driver", (), "by hand", ("root", "reboot"), "system", cause="torch.x", way=2, chosen=False),
        PlanStep("5", "verify", cause="torch.x", verify="torch.x"),
    ),
    (Way("torch.x", 1, "Keep the driver", "install the old one"), Way("torch.x", 2, "Update the driver")),
    environment="/venv",
    before=("torch a",),
    downloads_mib=812.5,
    undo=("install the old one",),
)


def ids(plan: Plan) -> list[str]:
    return [step.id for step in plan.chosen]


def test_a_plan_goes_to_json_and_back() -> None:
    assert plans.from_json(json.loads(json.dumps(PLAN.to_json()))) == PLAN


def test_a_step_of_another_way_takes_the_place_of_the_first_one() -> None:
    other = PLAN.toggled("4")
    assert ids(other) == ["1", "4", "5"]
    assert ids(other.toggled("2")) == ["1", "2", "5"]
    assert ids(PLAN.toggled("3")) == ["1", "2", "5"]


def test_a_way_is_chosen_whole() -> None:
    assert ids(PLAN.toggled("2").by_way(PLAN.ways[0])) == ["1", "2", "3", "5"]
    assert ids(PLAN.by_way(PLAN.ways[1])) == ["1", "4", "5"]
    assert PLAN.by_way(PLAN.ways[1]).chosen_way("torch.x") == 2


def test_what_comes_after_a_reboot_waits_for_another_plan() -> None:
    other = PLAN.by_way(PLAN.ways[1])
    assert ids(other.until_reboot) == ["1", "4"]
    assert other.grave
    assert not PLAN.grave


@pytest.mark.parametrize(("needs", "grave"), [("root", True), ("reboot", True), ("downtime", True), ("network", False)])
def test_a_step_that_a_single_key_must_not_start(needs: str, grave: bool) -> None:
    assert PlanStep("1", "x", ("x",), needs=(needs,)).grave is grave


@pytest.mark.parametrize(
    "spoilt",
    [
        None,
        [],
        {**PLAN.to_json(), "schema": "other"},
        {**PLAN.to_json(), "steps": [{"id": "1", "title": "x"}, {"id": "1", "title": "y"}]},
        {**PLAN.to_json(), "steps": [{"id": "1", "title": "x", "argv": "rm -rf /"}]},
        {**PLAN.to_json(), "downloads_mib": "much"},
    ],
)
def test_what_is_no_plan_is_refused(spoilt: object) -> None:
    with pytest.raises(DocumentError):
        plans.from_json(spoilt)


def under_way() -> Run:
    run = Run.of(PLAN, "r1", "2026-11-21T03:12:00Z")
    for event in (Began("1"), Printed("1", "torch==a\n"), Ended("1", "done", 0.2, 0), Began("2"), Printed("2", "x\ry")):
        run = run.after(event)
    return run


def test_a_run_goes_to_json_and_back_whenever_it_is_written() -> None:
    run = under_way()
    back = runs.from_json(json.loads(json.dumps(run.to_json())))
    assert back == replace(run, steps=tuple(_settled(step) for step in run.steps))
    assert back.current == PLAN.steps[1]
    assert back.outcome == "under way"


def _settled(step: runs.StepRun) -> runs.StepRun:
    """As a journal keeps it: a line that was not ended is ended."""
    return replace(step, output=replace(step.output, tail="new"))


def test_each_end_has_its_outcome() -> None:
    run = under_way()
    assert run.ended().outcome == "stopped"
    assert run.after(Ended("2", "failed", 1.0, 1)).ended().outcome == "stopped"
    done = run.after(Ended("2", "done", 1.0, 0)).after(Began("3"))
    done = done.after(Ended("3", "done", 9.0, 0, ("torch a → b",)))
    assert done.after(Ended("5", "done", 0.1)).ended().outcome == "done"
    assert done.after(Judged("5", "torch.x", found=False)).after(Ended("5", "done", 0.1)).ended().outcome == "fixed"
    assert (
        done.after(Judged("5", "torch.x", found=True)).after(Ended("5", "failed", 0)).ended().outcome == "still found"
    )
    assert replace(done.after(Ended("5", "done", 0.1)), undoes="r0").ended().outcome == "undone"
    assert done.changed == ("torch a → b",)


def test_a_run_that_made_it_worse_says_so_and_why() -> None:
    run = under_way().after(Ended("2", "done", 1.0, 0)).ended("worse than before: torch.y", ("torch.y",))
    assert run.outcome == "stopped"
    back = runs.from_json(json.loads(json.dumps(run.to_json())))
    assert (back.why, back.worse, back.over) == ("worse than before: torch.y", ("torch.y",), True)


def test_the_rest_of_a_run_leaves_out_what_was_done_and_judges_again() -> None:
    run = under_way().after(Ended("2", "failed", 1.0, 1)).ended()
    assert ids(run.rest) == ["2", "3", "5"]


@pytest.mark.parametrize(
    "spoilt",
    [None, {}, {**under_way().to_json(), "steps": []}, {**under_way().to_json(), "plan": {}}, {"schema": "other"}],
)
def test_what_is_no_record_of_a_run_is_refused(spoilt: object) -> None:
    with pytest.raises(DocumentError):
        runs.from_json(spoilt)


def test_a_state_that_there_is_not_is_refused() -> None:
    document = json.loads(json.dumps(under_way().to_json()))
    document["steps"][0]["state"] = "fine"
    with pytest.raises(DocumentError, match="fine"):
        runs.from_json(document)


def test_progress_gives_way_and_lines_are_bounded() -> None:
    assert Output().add("a\nb\r\n").add("1 %\r2 %").add("\r3 %\nc").lines == ("a", "b", "3 %", "c")
    assert Output().add("ab").add("c\n").lines == ("abc",)
    assert Output().add("\n\nx").lines == ("", "", "x")
    many = Output().add("".join(f"{number}\n" for number in range(MOST_LINES + 7)))
    assert (len(many.lines), many.dropped, many.lines[0]) == (MOST_LINES, 7, "7")
    assert len(Output().add("x" * 100_000).lines[0]) == runs.MOST_COLUMNS


@settings(max_examples=50)
@given(st.text(alphabet="ab\r\n", max_size=40), st.lists(st.integers(0, 40), max_size=4))
def test_wherever_the_output_is_cut_it_reads_the_same(text: str, cuts: list[int]) -> None:
    """A carriage return and its line feed may come apart, too."""
    whole, pieces = Output().add(text), Output()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(text)], strict=True):
        pieces = pieces.add(text[start:end])
    assert pieces.lines == whole.lines


def finding(name: str, *fixes: Fix, explains: tuple[str, ...] = (), severity: Severity = "error") -> Finding:
    return Finding(name, "torch", severity, "cause", "certain", name, "", (), (), explains, fixes)


def diagnosis(*findings: Finding, kind: str = "local", **facts: str) -> Diagnosis:
    known: dict[str, Fact] = {name.replace("_", ".", 1): Known(value, "x") for name, value in facts.items()}
    return Diagnosis(Snapshot(Target(kind, "node17", "/venv/bin/python"), known), "broken", findings, (), (), "1")


INSTALL = Step(("/venv/bin/python", "-m", "pip", "install", "torch"), "", ("network",), "environment")
DRIVER = Step(("apt-get", "install", "driver"), "", ("root",), "system")
HAND = Step((), "Replace the card. It is broken.", (), "hardware")


def test_first_cure_of_each_cause_in_their_order_with_a_look_after_each() -> None:
    found = diagnosis(
        finding("a.x", Fix("by driver", (DRIVER,)), Fix("by hand", (HAND,)), explains=("c.z",)),
        finding("b.y", Fix("install", (INSTALL,), undo="install the old one")),
        finding("c.z", Fix("other", (HAND,))),
        finding("d.i", Fix("nice", (HAND,)), severity="info"),
    )
    plan = remedy.plan_for(found)
    assert [(step.title, step.chosen) for step in plan.steps] == [
        ("note what is installed now", True),
        ("apt-get install driver", True),
        ("Replace the card", False),
        ("verify: a.x is gone", True),
        ("pip install torch", True),
        ("verify: b.y is gone", True),
    ]
    assert plan.verifies == ("a.x", "b.y")
    assert plan.undo == ("install the old one",)
    assert [step.hindrance for step in plan.hindered] == ["needs root, which this is not"]
    assert not remedy.plan_for(found, root=True).hindered


def test_a_command_that_two_causes_want_is_run_once() -> None:
    found = diagnosis(
        finding("a.x", Fix("install", (INSTALL,))), finding("b.y", Fix("driver", (DRIVER,)), Fix("same", (INSTALL,)))
    )
    plan = remedy.plan_for(found)
    assert [step.argv for step in plan.commands].count(INSTALL.argv) == 1
    assert not any(step.argv == DRIVER.argv for step in plan.commands), "the cure that is brought about anyway is taken"
    assert plan.verifies == ("a.x", "b.y")


def test_the_same_cause_of_two_gpus_is_cured_once() -> None:
    fixes = [Fix("reset", (Step(("nvidia-smi", "-i", name, "-r"), "", ("root",), "hardware"),)) for name in "01"]
    plan = remedy.plan_for(diagnosis(*(finding("gpu.x", fix) for fix in fixes)))
    assert [step.argv[2] for step in plan.commands] == ["0", "1"]
    assert plan.verifies == ("gpu.x",)


def test_only_those_that_were_asked_for() -> None:
    found = diagnosis(finding("a.x", Fix("install", (INSTALL,))), finding("d.i", Fix("n", (HAND,)), severity="info"))
    assert remedy.plan_for(found, ("d.i",)).verifies == ("d.i",)
    assert remedy.plan_for(found, ("none.such",)).steps == ()


def test_what_cannot_be_run_from_here_says_why() -> None:
    blank = Step(("docker", "run", "IMAGE"))
    plan = remedy.plan_for(diagnosis(finding("a.x", Fix("do", (blank, HAND, Step(("smi", "-c", "DEFAULT")))))))
    filled, hand = "IMAGE is to be filled in by you", "by hand: done by a person"
    assert [step.hindrance for step in plan.steps] == [filled, hand, "", ""]
    report = remedy.plan_for(diagnosis(finding("a.x", Fix("do", (INSTALL,))), kind="report"), root=True)
    assert {step.hindrance for step in report.steps} == {"not from here: node17 is another machine"}
