"""The administrator's script: POSIX sh that shellcheck takes, every word quoted, no reboot in it."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.core.plan import Plan, PlanStep, Way
from gpudoctor.fixes import plan
from gpudoctor.fixes.site import Manner, with_hindrances
from gpudoctor.views.plan import root_script
from tests import needs
from tests.sim import scenario
from tests.views.tui.machines import diagnosis_of


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
def test_the_script_of_every_sick_machine_is_a_posix_script(tmp_path: Path) -> None:
    shellcheck = needs.program("shellcheck")
    written = []
    for name in scenario.names(scenario.SICK)[::6]:  # what holds of all cures is in test_every_cure
        made = plan.plan_for(diagnosis_of(name), root=True)
        if text := root_script(with_hindrances(made, Manner(only="user"))):
            written.append(tmp_path / f"{name}.sh")
            written[-1].write_text(text + "\n", "utf-8")
            assert "reboot" not in [shlex.split(line)[0] for line in lines_of(text)]
            assert not any(line.startswith("sudo ") for line in lines_of(text))
    assert len(written) > 10
    done = subprocess.run(
        [shellcheck, "--shell=sh", *written], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout


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
