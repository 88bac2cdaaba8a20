"""Plans run for real: real environments, real pip, the real rules, and the record on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpudoctor.core.plan import Change, PlanStep, Requirement
from gpudoctor.core.run import Run, Stop
from gpudoctor.fixes.apply import apply
from tests.fixes import wheels
from tests.fixes.place import CUDNN, NEW, OLD, PIN, Place, difference

pytestmark = pytest.mark.full

PINS = "torch.nvidia-wheels"


def states(run: Run) -> list[str]:
    return [step.state for step in run.steps]


def python_step(number: int, code: str, touches: str = "hardware") -> PlanStep:
    """A command that is none of an installer's."""
    return PlanStep(str(number), "python", (sys.executable, "-c", code), touches=touches)


def cured(place: Place, version: str) -> list[PlanStep]:
    """cuDNN of that version, and the rule that then has nothing to say."""
    install = place.step(1, "install", "--no-deps", f"{CUDNN}=={version}", "--index-url", place.index.url("cu128"))
    return [replace(install, cause=PINS), PlanStep("2", "verify", cause=PINS, verify=PINS)]


def test_a_cure_that_does_not_cure_is_said_to_be_none(place: Place) -> None:
    place.install(f"torch=={NEW}", shelf="cu128")
    place.install("--no-deps", f"{CUDNN}==9.1.0.70", shelf="cu128")
    run = place.apply(place.plan(*cured(place, "9.1.0.70")))
    assert (run.outcome, run.judged, states(run)) == ("still found", ((PINS, True),), ["done", "failed"])
    assert run.why == f"{PINS} is still found"


def test_what_makes_it_worse_stops_the_run(place: Place) -> None:
    place.install(f"torch=={NEW}", shelf="cu128")
    run = place.apply(place.plan(*cured(place, "9.1.0.70")))
    assert (run.outcome, run.worse, states(run)) == ("stopped", (PINS,), ["done", "waits"])
    assert run.why.startswith(f"worse than before: {PINS}")
    assert place.undo(run).outcome == "undone"
    assert f"{PIN.replace('==', ' ')}" in place.installed()


def test_a_version_that_the_index_lacks_fails_with_pips_own_words(place: Place) -> None:
    before = place.files()
    step = place.step(1, "install", "torch==9.9.9", "--index-url", place.index.url("cu128"))
    run = place.apply(place.plan(step))
    assert (states(run), run.outcome, run.steps[0].status) == (["failed"], "stopped", 1)
    assert "No matching distribution found for torch==9.9.9" in run.why
    assert place.undo(run).outcome == "undone"
    assert difference(before, place.files()) == []


def test_a_network_that_is_lost_in_the_middle_fails_and_is_taken_back(place: Place) -> None:
    before = place.files()
    place.index.lost = True
    try:
        run = place.apply(place.change(), PIP_RETRIES="0", PIP_RESUME_RETRIES="0")
    finally:
        place.index.lost = False
    assert states(run) == ["done", "failed"]
    assert "torch 2.9.0+cpu → removed" in run.changed
    assert place.undo(run).outcome == "undone"
    assert difference(before, place.files()) == []


def test_the_record_on_disk_is_that_of_the_run(place: Place) -> None:
    seen: list[tuple[list[str], list[str]]] = []

    def told(run: Run) -> None:
        seen.append((states(run), states(place.journals.load(run.id))))

    plan = place.plan(python_step(1, "print('one')"), python_step(2, "print('two')"))
    run = apply(plan, place.site(), told, lambda: "go on")
    assert (["running", "waits"], ["running", "waits"]) in seen
    assert (["done", "running"], ["done", "running"]) in seen
    assert place.journals.load(run.id) == run
    assert run.step("2").output.lines == ("two",)


def test_output_comes_as_it_is_printed(place: Place) -> None:
    """The next line is printed when the one before has been heard."""
    told: list[tuple[str, ...]] = []

    def hear(run: Run) -> None:
        told.append(run.steps[0].output.lines)
        for line in told[-1]:
            (place.folder / line).touch()

    code = f"""
import os, time
for line in ("1 %", "2 %", "3 %"):
    print(line, end="\\n" if line == "3 %" else "\\r", flush=True)
    while line != "3 %" and not os.path.exists({str(place.folder)!r} + "/" + line):
        time.sleep(0.02)
"""
    run = apply(place.plan(python_step(1, code)), place.site(), hear, lambda: "go on")
    assert [lines for lines in dict.fromkeys(told) if lines] == [("1 %",), ("2 %",), ("3 %",)]
    assert run.steps[0].output.lines == ("3 %",)


def test_a_step_that_reads_gets_nothing_and_none_waits_for_an_answer(place: Place) -> None:
    run = place.apply(place.plan(python_step(1, "import sys; print(repr(sys.stdin.read()))")))
    assert run.steps[0].output.lines == ("''",)


def test_steps_are_asked_for_one_by_one(place: Place) -> None:
    plan = place.plan(*(python_step(number, f"print({number})") for number in (1, 2, 3, 4)))
    answers = {"1": "run", "2": "leave out", "3": "run", "4": "stop"}
    run = place.apply(plan, ask=lambda step: answers[step.id])  # type: ignore[arg-type,return-value]
    assert (states(run), run.why) == (["done", "left out", "done", "waits"], "stopped by you")


@pytest.mark.parametrize(("want", "expected"), [("after this step", ["done", "waits"]), ("now", ["stopped", "waits"])])
def test_it_is_stopped_as_the_user_wants(place: Place, want: Stop, expected: list[str]) -> None:
    begun = place.folder / "begun"
    code = f"import time; open({str(begun)!r}, 'w'); time.sleep({1 if want == 'after this step' else 60})"
    plan = place.plan(python_step(1, code), python_step(2, "print('never')"))
    run = apply(plan, place.site(), lambda _: None, lambda: want if begun.exists() else "go on")
    assert (states(run), run.outcome) == (expected, "stopped")
    assert "by you" in run.why


def test_a_command_that_is_killed_is_said_to_be(place: Place) -> None:
    run = place.apply(place.plan(python_step(1, "import os; print('here', flush=True); os.kill(os.getpid(), 9)")))
    assert (states(run), run.why) == (["failed"], "step 1 was killed by SIGKILL: here")


def test_a_step_that_only_shows_may_fail(place: Place) -> None:
    show = python_step(1, "print('nobody holds it'); raise SystemExit(1)", touches="nothing")
    run = place.apply(place.plan(show, python_step(2, "print('goes on')")))
    assert (states(run), run.steps[0].status, run.outcome) == (["done", "done"], 1, "done")


def room(_: Place) -> Requirement:
    return Requirement("room", "/", 1e9)


def program(_: Place) -> Requirement:
    return Requirement("program", "no-such-program-here")


@pytest.mark.parametrize(
    ("requirement", "words"), [(room, "MiB free, and 1000000000 are needed"), (program, "no such program")]
)
def test_what_must_hold_is_looked_at_just_before(
    place: Place, requirement: Callable[[Place], Requirement], words: str
) -> None:
    required = replace(place.change().steps[1], requires=(requirement(place),))
    before = place.files()
    run = place.apply(place.plan(required))
    assert (states(run), run.steps[0].status) == (["failed"], None)
    assert words in run.why
    assert difference(before, place.files()) == []


def test_a_plan_that_others_overtook_is_not_run(place: Place) -> None:
    remove, install = place.change().steps
    known = (replace(remove, changes=(Change("torch", OLD),)), replace(install, changes=(Change("torch", "", NEW),)))
    place.index.add(wheels.torch("2.8.0+cpu"), shelf="cpu")
    place.install("torch==2.8.0+cpu")
    run = place.apply(place.plan(*known))
    said = f"torch 2.8.0+cpu is installed now, and the plan knows of {OLD} and {NEW}: make a new plan"
    assert (states(run), run.why) == (["failed", "waits"], said)
    place.install(f"torch=={OLD}")
    assert place.apply(place.plan(*known)).outcome == "done"


def test_a_program_that_is_not_there_fails_before_it_begins(place: Place) -> None:
    run = place.apply(place.plan(PlanStep("1", "x", (str(Path("/nowhere/tool")), "x"), touches="hardware")))
    assert (states(run), run.why) == (["failed"], "/nowhere/tool: no such program")


def test_a_judge_that_breaks_is_no_traceback(place: Place) -> None:
    judged: list[int] = []

    def judge() -> object:
        judged.append(1)
        if len(judged) > 1:
            raise RuntimeError("the card fell off")
        return place.judge()

    site = replace(place.site(), judge=judge)  # type: ignore[arg-type]
    run = apply(place.plan(*cured(place, "9.10.2.21")), site, lambda _: None, lambda: "go on")
    assert (states(run), run.over) == (["done", "waits"], True)
    assert run.why == "the machine could not be judged anew: the card fell off"
