"""Plans, runs, wishes and stacks as values, and the plan that is made of a diagnosis."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.core import plan as plans
from gpudoctor.core import run as runs
from gpudoctor.core import stack as models
from gpudoctor.core.diagnosis import Diagnosis, Finding
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Absent, Fact, Known, Unread
from gpudoctor.core.plan import Change, Plan, PlanStep, Way
from gpudoctor.core.rule import Fix, Severity, Step
from gpudoctor.core.run import MOST_LINES, Began, Ended, Judged, Output, Printed, Run
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.core.stack import GPU, Remedy, Stack, Wishes, wishes_from_snapshot
from gpudoctor.fixes import plan as remedy
from gpudoctor.fixes.solver.environment import Environment
from gpudoctor.fixes.solver.stacks import stack as answer

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


def test_a_way_is_chosen_whole_and_a_step_of_another_takes_the_place_of_the_first() -> None:
    other = PLAN.toggled("4")
    assert ids(other) == ["1", "4", "5"]
    assert ids(other.toggled("2")) == ["1", "2", "5"]
    assert ids(PLAN.toggled("3")) == ["1", "2", "5"]
    assert ids(PLAN.toggled("2").by_way(PLAN.ways[0])) == ["1", "2", "3", "5"]
    assert ids(PLAN.by_way(PLAN.ways[1])) == ["1", "4", "5"]
    assert PLAN.by_way(PLAN.ways[1]).chosen_way("torch.x") == 2
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


def test_a_run_that_ended_says_why_and_what_is_left_of_it() -> None:
    run = under_way().after(Ended("2", "done", 1.0, 0)).ended("worse than before: torch.y", ("torch.y",))
    assert run.outcome == "stopped"
    back = runs.from_json(json.loads(json.dumps(run.to_json())))
    assert (back.why, back.worse, back.over) == ("worse than before: torch.y", ("torch.y",), True)
    run = under_way().after(Ended("2", "failed", 1.0, 1)).ended()
    assert ids(run.rest) == ["2", "3", "5"]


UNDER_WAY: Any = under_way().to_json()
ODD = {**UNDER_WAY, "steps": [{**step, "state": "fine"} for step in UNDER_WAY["steps"]]}


@pytest.mark.parametrize(
    "spoilt", [None, {}, {**UNDER_WAY, "steps": []}, {**UNDER_WAY, "plan": {}}, {"schema": "other"}, ODD]
)
def test_what_is_no_record_of_a_run_is_refused(spoilt: object) -> None:
    with pytest.raises(DocumentError):
        runs.from_json(spoilt)


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


def test_a_command_or_cause_that_is_wanted_twice_is_run_once() -> None:
    found = diagnosis(
        finding("a.x", Fix("install", (INSTALL,))), finding("b.y", Fix("driver", (DRIVER,)), Fix("same", (INSTALL,)))
    )
    plan = remedy.plan_for(found)
    assert [step.argv for step in plan.commands].count(INSTALL.argv) == 1
    assert not any(step.argv == DRIVER.argv for step in plan.commands), "the cure that is brought about anyway is taken"
    assert plan.verifies == ("a.x", "b.y")
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


H100 = Wishes((GPU("NVIDIA H100 80GB HBM3", "9.0", 8),), "535.183.06", "3.11.9", "linux", "x86_64")


def test_wishes_are_read_from_the_facts_that_there_are() -> None:
    rows = tuple(
        {"name": Known(name, "nvml"), "compute_capability": Known(capability, "nvml")}
        for name, capability in (("H100", "9.0"), ("H100", "9.0"), ("RTX 4090", "8.9"))
    )
    facts: dict[str, Fact] = {
        "driver.version": Known("535.1", "x"),
        "python.version": Unread("?"),
        "python.installer": Known("uv", "x"),
    }
    wishes = wishes_from_snapshot(Snapshot(Target("local", "n"), facts, {"gpu": (*rows, {"name": Unread("lost")})}))
    assert wishes.gpus == (GPU("H100", "9.0", 2), GPU("RTX 4090", "8.9", 1))
    assert (wishes.driver, wishes.python, wishes.tool) == ("535.1", "", "uv")
    assert not wishes.elsewhere
    assert wishes_from_snapshot(Snapshot(Target("local", "n"), {})) == Wishes()


@pytest.mark.parametrize(("count", "driver"), [(1, "535.309.01"), (0, "")])
def test_a_driver_that_is_not_loaded_counts_where_there_is_a_gpu_for_it(count: int, driver: str) -> None:
    facts: dict[str, Fact] = {
        "driver.version": Absent("the nvidia module is not loaded"),
        "driver.library_version": Known("535.309.01", "x"),
        "pci.nvidia_count": Known(count, "x"),
    }
    assert wishes_from_snapshot(Snapshot(Target("local", "n"), facts)).driver == driver


def test_what_the_user_says_is_kept_apart_from_what_was_read() -> None:
    wishes = H100.with_wish("torch", "2.9")
    assert not wishes.elsewhere
    assert wishes.with_wish("driver", "570").elsewhere
    assert not wishes.alike(H100)
    assert H100.alike(replace(H100, tool="uv", emit="dockerfile", set_by_user=frozenset({"tool"})))


def test_a_stack_is_a_plan_and_each_form_has_its_text() -> None:
    stack = answer(H100, Environment(python="/venv/bin/python"))
    plan = stack.plan("pip", "node17", "/venv")
    assert [step.argv for step in plan.steps] == list(stack.commands["pip"])
    assert plan.title == "torch 2.14.1+cu126"
    assert not plan.hindered
    assert stack.plan("pixi", "node17", "/venv").steps == ()
    assert dict(plan.steps[-1].makes)["torch.version"] == "2.14.1+cu126"
    assert stack.plan("uv", "node17", "/venv", "not from here").hindered
    stack = answer(H100)
    assert stack.written("pip", "command").startswith("python -m pip install torch==2.14.1+cu126")
    assert "torch==2.14.1+cu126" in stack.written("pip", "requirements")
    assert stack.written("conda", "command").startswith("conda create --yes --name torch ")
    assert stack.written("pip", "environment.yml") == ""


@pytest.mark.parametrize(
    ("text", "wants"),
    [
        ("torch>=2.6 torchvision  flash-attn", ("torch>=2.6", "torchvision", "flash-attn")),
        ("torch >= 2.6,<2.9; vllm", ("torch >= 2.6,<2.9", "vllm")),
        ("  ", ()),
    ],
)
def test_requirements_are_told_apart(text: str, wants: tuple[str, ...]) -> None:
    assert models.parse_requirements(text) == wants


def test_a_change_is_made_with_all_that_it_takes() -> None:
    wishes = Wishes(
        (GPU("RTX 5090"), GPU("H100"), GPU("T4")),
        driver="550",
        torch="",
        extras=("flash-attn", "torchvision"),
        wants=("torch==2.5.*", "flash_attn>=2.7", "numpy"),
    )
    assert wishes.remedied(Remedy("driver", "580", "", least="570")).driver == "580"
    assert wishes.remedied(Remedy("gpus", "RTX 5090+T4", "")).gpus == (GPU("RTX 5090"), GPU("T4"))
    without = wishes.remedied(Remedy("wants", "flash-attn", ""))
    assert (without.extras, without.wants) == (("torchvision",), ("torch==2.5.*", "numpy"))
    other = wishes.remedied(Remedy("torch", "2.9", "", also=(Remedy("python", "3.12", ""),)))
    assert (other.torch, other.wants, other.python) == ("2.9", ("flash_attn>=2.7", "numpy"), "3.12")
    assert {"torch", "python"} <= other.set_by_user


def test_another_machine_or_want_is_another_stack() -> None:
    wishes = Wishes(python="3.13t", libc="musl", distribution="debian 12", wants=("torch>=2.6",))
    assert not wishes.alike(replace(wishes, wants=()))
    assert not wishes.alike(replace(wishes, libc="glibc 2.36"))


def test_the_document_has_what_was_wished_and_the_smallest_changes() -> None:
    python = Remedy("python", "3.12", "Python 3.12", "3.12")
    stack = Stack(H100.with_wish("os", "wsl"), "", smallest=(Remedy("driver", "580", "driver 580", "570", (python,)),))
    document = json.loads(json.dumps(models.to_json(stack)))
    assert document["wishes"]["said"] == ["os"]
    assert document["wishes"]["gpus"] == [{"name": H100.gpus[0].name, "compute_capability": "9.0", "count": 8}]
    assert document["smallest"][0]["also"] == [
        {
            "field": "python",
            "value": "3.12",
            "text": "Python 3.12",
            "least": "3.12",
            "also": [],
            "commands": [],
            "installs": [],
        }
    ]
