"""The questions before steps, on a terminal: what counts as a yes."""

from __future__ import annotations

import pytest

from tests.views.tui.terminal import Terminal

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
