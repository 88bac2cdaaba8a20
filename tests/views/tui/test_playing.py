"""The recorded runs of the demos: played at their pace, said to be recordings, taken back."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from textual.pilot import Pilot

from gpudoctor.app import demos
from gpudoctor.app.demos import playing
from gpudoctor.app.interactive import work_on
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.core.run import Run
from gpudoctor.views.tui.work import Work
from tests import demo_runs
from tests.views.tui.conftest import WIDE, Opened, shown, text, until
from tests.views.tui.test_fix import run_over

NAMES = tuple(demo_runs.SCENES)


def demo(name: str) -> demos.Demo:
    return replace(demos.named(name), pace=0)


@cache
def diagnosis(name: str) -> Diagnosis:
    return demo(name).work().diagnose(lambda _: None, lambda _: None)


def work(name: str) -> Work:
    """The demo, with its machine read beforehand."""
    still = work_on(name, lambda _: iter([diagnosis(name)]))
    return replace(demo(name).work(), diagnose=still.diagnose)


@pytest.mark.parametrize("name", ["torch-cu130", "rtx-5090"])
async def test_the_first_cure_is_played_to_its_end_in_three_keys(opened: Opened, name: str) -> None:
    async with opened(work(name), WIDE) as pilot:
        await pilot.press("f")
        await pilot.pause()
        assert "a recording is played: nothing on this machine is changed" in text(pilot)
        await pilot.press("a", "y")
        await run_over(pilot)
        lines = shown(pilot)
        assert lines[0].strip().startswith("✓ FIXED")
        assert "a recording: nothing was changed" in lines[1]
        assert "no longer found" in text(pilot)


async def test_what_it_printed_and_what_it_changed(opened: Opened) -> None:
    async with opened(work("torch-cu130"), WIDE) as pilot:
        await pilot.press("f", "a", "y")
        await run_over(pilot)
        await pilot.press("up", "up", "up", "up")
        await pilot.pause()
        said = text(pilot)
        assert "Successfully installed torch-2.9.0+cu128" in said
        assert said.count("944/944 MB") == 1  # of the progress only its end is left
        assert "torch 2.9.0+cu130 → 2.9.0+cu128" in said


async def test_a_full_disk_stops_it_and_undo_puts_back_what_was_there(opened: Opened) -> None:
    async with opened(work("cpu-torch"), WIDE) as pilot:
        await pilot.press("f", "a", "y")
        await run_over(pilot)
        assert shown(pilot)[0].strip().startswith("✗ STOPPED at step 2")
        said = text(pilot)
        assert "[Errno 28] No space left on device" in said
        assert "Changed so far: triton not installed → 3.5.0" in said
        await pilot.press("U", "y")
        await until(pilot, lambda: "✓ UNDONE" in shown(pilot)[0])
        assert "nvidia-cudnn-cu12 9.10.2.21 → removed" in text(pilot)


async def test_a_step_that_was_not_recorded_cannot_be_played(opened: Opened) -> None:
    async with opened(work("torch-cu130"), WIDE) as pilot:
        await pilot.press("f", "f", "a")
        await pilot.pause()
        assert "not in the recording" in shown(pilot)[1]


async def test_leaving_the_cure_out_does_not_cure(opened: Opened) -> None:
    async with opened(work("torch-cu130"), WIDE) as pilot:
        await pilot.press("f", "down", "down", "down", "space", "a", "y")
        await run_over(pilot)
        assert shown(pilot)[0].strip().startswith("✗ STILL FOUND")


async def test_the_setup_screen_answers_for_a_recorded_machine(opened: Opened) -> None:
    async with opened(work("torch-cu130"), WIDE) as pilot:
        await answered(pilot)
        assert "2.14.1+cu126" in text(pilot)
        await pilot.press("a")
        await pilot.pause()
        assert "not from here" in text(pilot)


async def answered(pilot: Pilot[None]) -> None:
    await pilot.app.run_action("open('setup')")
    await until(pilot, lambda: "needs driver" in text(pilot))


def test_stopping_and_ending_are_heard_while_it_plays() -> None:
    recording = playing.Recording(
        (playing.PlayedStep(("a",), seconds=0.0), playing.PlayedStep(("b",), seconds=30.0, prints=((0.0, "hello\n"),)))
    )
    plan = demo_plan("a", "b", "a")
    told: list[Run] = []
    run = recording.apply(plan, told.append, lambda: "now" if told and told[-1].step("2").output.lines else "go on")
    assert [ran.state for ran in run.steps] == ["done", "stopped", "waits"]
    assert run.step("2").output.lines == ("hello",)
    assert run.outcome == "stopped"


def demo_plan(*commands: str) -> Plan:
    steps = tuple(PlanStep(str(number), word, (word,)) for number, word in enumerate(commands, 1))
    return Plan("x", "node", steps)


@pytest.mark.parametrize("raw", [None, {}, {"schema": "other"}, {"schema": playing.RUN_SCHEMA, "steps": [{}]}])
def test_what_is_no_recorded_run_is_refused(raw: object) -> None:
    with pytest.raises(DocumentError):
        playing.run_from_json(raw)


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_files_are_those_that_the_simulated_machine_makes(name: str) -> None:
    for path, content in demo_runs.made(Path(demos.__file__).parent, name, diagnosis(name)):
        assert path.read_bytes() == content, path.name
        json.loads(content)
