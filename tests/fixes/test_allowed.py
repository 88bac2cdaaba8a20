"""Who may run which step, what counts as a yes, and the administrator's script: POSIX sh with every word quoted."""

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.core.plan import Plan, PlanStep, Way
from gpudoctor.fixes import plan
from gpudoctor.fixes.permissions import RunMode, run_mode_of_process, runnable, with_hindrances
from gpudoctor.views.plan import root_script
from tests import needs
from tests.sim import scenario
from tests.views.tui.machines import diagnosis_of
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


def run(mode: RunMode, plan: Plan = PLAN) -> list[str]:
    return [step.id for step in runnable(with_hindrances(plan, mode)).chosen]


@pytest.mark.parametrize(
    ("mode", "runs"),
    [
        (RunMode("each"), ["1", "2", "3", "4", "5", "6", "7"]),
        (RunMode("never"), ["1", "2", "6", "7"]),
        (RunMode("each", "user"), ["1", "6", "7"]),
        (RunMode("never", "user"), ["1", "6", "7"]),
        (RunMode("each", "root"), ["1", "2", "3", "4", "5"]),
        (RunMode("never", "root"), ["1", "2"]),
        (RunMode("each", owner="alice"), ["1", "2", "3", "4", "5"]),
    ],
)
def test_only_what_that_mode_allows_is_run(mode: RunMode, runs: list[str]) -> None:
    assert run(mode) == runs


def test_what_is_not_run_says_why_and_what_waits_for_it_says_for_what() -> None:
    plan = with_hindrances(PLAN, RunMode("never"))
    assert [step.hindrance for step in plan.steps] == [
        *("", "", "nothing interrupts jobs unattended", "nothing reboots unattended", "waits for step 3", "", ""),
    ]
    theirs = replace(PLAN, environment="/srv/venv")
    assert with_hindrances(theirs, RunMode(owner="alice")).steps[5].hindrance == (
        "/srv/venv belongs to alice: run gpudoctor fix as alice"
    )


def test_once_hindered_it_stays_as_it_is() -> None:
    plan = with_hindrances(PLAN, RunMode("never", "user"))
    assert with_hindrances(plan, RunMode("never", "user")) == plan


def test_what_a_person_does_is_asked_about_where_somebody_is_there() -> None:
    step = PlanStep("1", "seat the card", text="Seat the card.", hindrance="by hand: done by a person", cause=DRIVER)
    plan = replace(PLAN, steps=(step, PlanStep("2", "look again", verify=DRIVER, cause=DRIVER)))
    assert run(RunMode("each"), plan) == ["1", "2"]
    assert run(RunMode("never"), plan) == []
    assert [one.hindrance for one in with_hindrances(plan, RunMode("once")).steps] == ["by hand: done by a person", ""]


def test_roots_hands_stay_off_the_environment_of_another(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root, to give a folder away")
    os.chown(tmp_path, 12345, 12345)
    assert run_mode_of_process(replace(PLAN, environment=str(tmp_path))).owner == "12345"
    os.chown(tmp_path, 0, 0)
    assert run_mode_of_process(replace(PLAN, environment=str(tmp_path))).owner == ""


CODE = """
from gpudoctor.app.commands.apply_plan import Questions
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


def lines_of(text: str) -> list[str]:
    """What the shell would obey."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def root_step(*argv: str, **more: object) -> PlanStep:
    step = PlanStep("1", "a step", argv, needs=("root",), touches="system", cause="driver.missing", way=1)
    return replace(step, **more)  # type: ignore[arg-type]


def plan_of(*steps: PlanStep) -> Plan:
    numbered = tuple(replace(step, id=str(number)) for number, step in enumerate(steps, 1))
    return Plan("driver.missing", "node17", numbered, ways=(Way("driver.missing", 1, "Install it", "remove it"),))


@pytest.mark.full
def test_the_script_of_every_sick_machine_is_a_posix_script() -> None:
    count = 0
    for name in scenario.names(scenario.SICK)[::6]:  # what holds of all cures is in test_every_cure
        made = plan.plan_for(diagnosis_of(name), root=True)
        if text := root_script(with_hindrances(made, RunMode(only="user"))):
            count += 1
            assert needs.shellcheck(text + "\n") == "", name
            assert "reboot" not in [shlex.split(line)[0] for line in lines_of(text)]
            assert not any(line.startswith("sudo ") for line in lines_of(text))
    assert count > 10


def test_names_from_the_machine_stay_words(tmp_path: Path) -> None:
    names = ("$(touch pwned)", "; touch pwned", "a b", "'quoted'", "`touch pwned`", "-n", "\\", "*", "~")
    made = plan_of(*(root_step("printf", "%s\\n", name) for name in names))
    text = root_script(replace(made, title="x\n touch pwned #", machine="evil\ntouch pwned"))
    (tmp_path / "it.sh").write_text(text + "\n", "utf-8")
    done = subprocess.run(["sh", "it.sh"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.splitlines()[:-1] == list(names)
    assert not (tmp_path / "pwned").exists()


def test_words_that_no_terminal_shows_are_left_to_a_person() -> None:
    assert root_script(plan_of(root_step("rm", "a\x1b[2Kb"))) == ""


def test_it_ends_at_the_first_command_that_fails_but_a_look_may(tmp_path: Path) -> None:
    text = root_script(
        plan_of(root_step("false", touches="nothing"), root_step("echo", "one"), root_step("false"), root_step("echo"))
    )
    (tmp_path / "it.sh").write_text(text + "\n", "utf-8")
    done = subprocess.run(["sh", "it.sh"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stdout) == (1, "one\n")


def test_a_reboot_is_left_to_a_person_and_what_comes_after_it_to_the_next_plan() -> None:
    reboot = root_step("reboot", needs=("root", "reboot"))
    text = root_script(plan_of(root_step("apt-get", "install", "-y", "nvidia-driver-580"), reboot, root_step("later")))
    assert lines_of(text) == [
        "set -eu",
        "apt-get install -y nvidia-driver-580",
        "echo 'Done. Now reboot this machine, when no job runs, and then: gpudoctor check'",
    ]
    assert "# Left to you, at the end: reboot" in text
    assert text.count("# Install it  [driver.missing]\n# To undo: remove it") == 1


def test_what_a_person_has_to_fill_in_is_not_in_it() -> None:
    step = root_step("docker", "run", "IMAGE", hindrance="IMAGE is to be filled in by you")
    assert root_script(plan_of(step)) == ""
