"""Who may run which step, what waits for a step that is not run, and what counts as a yes on a terminal."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.fixes.site import Manner, manner_of_process, runnable, with_hindrances
from tests.views.tui.terminal import Terminal

DRIVER, TORCH = "driver.missing", "torch.cpu-build"
PLAN = Plan(
    "2 causes",
    "node17",
    (
        PlanStep("1", "look", ("ubuntu-drivers", "devices"), cause=DRIVER, way=1),
        PlanStep("2", "driver", ("ubuntu-drivers", "install"), needs=("root",), touches="system", cause=DRIVER, way=1),
        PlanStep("3", "reset", ("nvidia-smi", "-r"), needs=("root", "downtime"), cause=DRIVER, way=1),
        PlanStep("4", "reboot", ("reboot",), needs=("root", "reboot"), touches="system", cause=DRIVER, way=1),
        PlanStep("5", "look again", verify=DRIVER, cause=DRIVER),
        PlanStep("6", "torch", ("python", "-m", "pip"), touches="environment", cause=TORCH, way=1),
        PlanStep("7", "look again", verify=TORCH, cause=TORCH),
    ),
)


def run(manner: Manner, plan: Plan = PLAN) -> list[str]:
    return [step.id for step in runnable(with_hindrances(plan, manner)).chosen]


@pytest.mark.parametrize(
    ("manner", "runs"),
    [
        (Manner("each"), ["1", "2", "3", "4", "5", "6", "7"]),
        (Manner("never"), ["1", "2", "6", "7"]),
        (Manner("each", "user"), ["1", "6", "7"]),
        (Manner("never", "user"), ["1", "6", "7"]),
        (Manner("each", "root"), ["1", "2", "3", "4", "5"]),
        (Manner("never", "root"), ["1", "2"]),
        (Manner("each", owner="alice"), ["1", "2", "3", "4", "5"]),
    ],
)
def test_only_what_that_manner_allows_is_run(manner: Manner, runs: list[str]) -> None:
    assert run(manner) == runs


def test_what_is_not_run_says_why_and_what_waits_for_it_says_for_what() -> None:
    plan = with_hindrances(PLAN, Manner("never"))
    assert [step.hindrance for step in plan.steps] == [
        "",
        "",
        "nothing interrupts jobs unattended",
        "nothing reboots unattended",
        "waits for step 3",
        "",
        "",
    ]
    theirs = replace(PLAN, environment="/srv/venv")
    assert with_hindrances(theirs, Manner(owner="alice")).steps[5].hindrance == (
        "/srv/venv belongs to alice: run gpudoctor fix as alice"
    )


def test_once_hindered_it_stays_as_it_is() -> None:
    plan = with_hindrances(PLAN, Manner("never", "user"))
    assert with_hindrances(plan, Manner("never", "user")) == plan


def test_what_a_person_does_is_asked_about_where_somebody_is_there() -> None:
    step = PlanStep("1", "seat the card", text="Seat the card.", hindrance="by hand: done by a person", cause=DRIVER)
    plan = replace(PLAN, steps=(step, PlanStep("2", "look again", verify=DRIVER, cause=DRIVER)))
    assert run(Manner("each"), plan) == ["1", "2"]
    assert run(Manner("never"), plan) == []
    assert [one.hindrance for one in with_hindrances(plan, Manner("once")).steps] == ["by hand: done by a person", ""]


def test_roots_hands_stay_off_the_environment_of_another(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root, to give a folder away")
    os.chown(tmp_path, 12345, 12345)
    assert manner_of_process(replace(PLAN, environment=str(tmp_path))).owner == "12345"
    os.chown(tmp_path, 0, 0)
    assert manner_of_process(replace(PLAN, environment=str(tmp_path))).owner == ""


CODE = """
from gpudoctor.app.commands.running import Questions
from gpudoctor.core.plan import Plan, PlanStep

def step(name, *needs, argv=("true",), **more):
    return PlanStep(name, name, argv, needs=needs, cause="c", touches="system", **more)

steps = (
    step("first"), step("reset", "downtime"), step("boot", "reboot"), step("hand", argv=()),
    PlanStep("look", "look", ("true",), cause="c"), PlanStep("verify", "verify", verify="c", cause="c"),
)
plan = Plan("c", "Node17", steps)
ask = Questions(plan, lambda step: [step.title])
for one in steps:
    print("answer", one.id, ask(one))
print("over")
"""


@pytest.mark.parametrize(
    ("keys", "answers"),
    [
        (["", "", "y", "n"], ["leave out", "leave out", "leave out", "leave out", "run", "leave out"]),
        (["y", "y", "node17", "y"], ["run", "run", "run", "run", "run", "run"]),
        (["a", "y", "y"], ["run", "run", "leave out", "run", "run", "leave out"]),
        (["yes please", "n", "q", "q"], ["leave out", "leave out", "stop", "stop", "run", "leave out"]),
        (["\x03", "\x04", "NODE17", "y"], ["stop", "stop", "run", "run", "run", "run"]),
    ],
)
def test_only_a_plain_yes_runs_a_step_and_only_the_hosts_name_a_reboot(keys: list[str], answers: list[str]) -> None:
    with Terminal(["-c", CODE]) as terminal:
        for number, key in enumerate(keys, 1):
            while terminal.said.count("[n] ") + terminal.said.count("leaves it out: ") < number:
                terminal._read(terminal.started + 60)
            terminal.type(key if key in ("\x03", "\x04") else f"{key}\r")
        assert terminal.ended(60) == 0
        said = [line.split(" ", 2)[2] for line in terminal.said.splitlines() if line.startswith("answer")]
    assert said == answers
