"""The fix plan: nothing runs before a yes, what runs is on record first, and every end is told in words."""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.content import Content
from textual.pilot import Pilot

from gpudoctor.app.interactive import work_on
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import UsageError
from gpudoctor.core.plan import Change, Plan, PlanStep, Way
from gpudoctor.fixes import plan as remedy
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.repair import ConfirmScreen
from gpudoctor.views.tui.screens.fix import FixScreen
from gpudoctor.views.tui.widgets.prose import Block, plain
from gpudoctor.views.tui.words import plan as words
from gpudoctor.views.tui.work import Work
from tests.views.tui.conftest import SIZES, WIDE, Opened, app_of, settled, shown, text
from tests.views.tui.conftest import until as until_holds
from tests.views.tui.machines import Engine, diagnosis_of

RULE = "torch.driver-too-old"


@cache
def diagnosis(name: str) -> Diagnosis:
    return diagnosis_of(name)


def work(plan: Plan | None = None, engine: Engine | None = None, machine: str = "too-old-5090") -> Work:
    """A machine that is read at once; its plan is that of its findings unless one is given."""

    def planned(found: Diagnosis, only: Sequence[str]) -> Plan:
        return plan or remedy.plan_for(found, only)

    made = work_on(machine, lambda _: iter([diagnosis(machine)]))
    made = replace(made, plan=planned)
    if engine:
        made = replace(made, apply=engine.apply, undo=engine.undo if engine.backwards else None)
    return made


def step(number: int, code: str, title: str = "", **more: Any) -> PlanStep:
    """A step that this Python runs."""
    return PlanStep(str(number), title or f"step {number}", (sys.executable, "-c", code), **more)


def verify(number: int) -> PlanStep:
    return PlanStep(str(number), f"verify: {RULE} is gone", verify=RULE)


def plan_of(*steps: PlanStep, **more: Any) -> Plan:
    return Plan(RULE, "node17", steps, environment="/srv/train/.venv", **more)


#: The output of a command is drawn in batches, a quarter of a second apart at most.
until = partial(until_holds, then=0.25)


def lasting(folder: Path) -> str:
    """Code that goes on until the folder has a file ``go``."""
    return f"import os, time\nwhile not os.path.exists({str(folder / 'go')!r}): time.sleep(0.02)"


async def run_over(pilot: Pilot[None]) -> None:
    app = app_of(pilot)
    await until(pilot, lambda: bool(app.repair and not app.repair.busy and (app.repair.run or app.repair.trouble)))
    await until(pilot, lambda: "FIXING" not in shown(pilot)[0])


@pytest.mark.parametrize("size", SIZES)
async def test_f_shows_the_plan_of_what_is_selected_and_runs_nothing(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(work(machine="torch-arch-dropped-and-driver-too-old"), size) as pilot:
        await pilot.press("f")
        assert isinstance(pilot.app.screen, FixScreen)
        lines = shown(pilot)
        assert lines[1].strip().startswith("plan: 4 steps for 1 cause")
        assert any("Do ◉ Install torch 2.14.1 for CUDA 12.6" in line for line in lines)
        assert any("/opt/venv/bin/python -m pip freeze" in line for line in lines), lines
        assert not any(len(line) > size[0] for line in lines)


async def test_f_again_plans_for_every_cause_and_runs_a_shared_command_once(opened: Opened) -> None:
    async with opened(work(machine="torch-arch-dropped-and-driver-too-old"), WIDE) as pilot:
        await pilot.press("f", "f")
        assert "the plan for every cause" in shown(pilot)[1]
        await pilot.press("escape")
        said = text(pilot)
        assert "5 steps for 2 causes" in said
        assert said.count("-m pip install torch==2.14.1+cu126") == 1
        assert "by the steps above" in said


async def test_space_leaves_a_step_out_and_takes_it_back_and_esc_leads_back_to_where_f_was_pressed(
    opened: Opened,
) -> None:
    async with opened(work(plan_of(step(1, ""), step(2, "")))) as pilot:
        await pilot.press("f", "down", "space")
        assert "left out" in text(pilot)
        assert "plan: 1 step" in shown(pilot)[1]
        await pilot.press("space")
        assert "plan: 2 steps" in shown(pilot)[1]
        await pilot.press("a")  # without an engine
        await pilot.pause()
        assert "nothing is run from here yet: c copies the commands" in shown(pilot)[1]
        await pilot.press("escape", "escape")
        assert pilot.app.current_mode == "diagnosis"


async def test_space_on_another_cure_chooses_it_and_a_new_diagnosis_does_not_undo_that(opened: Opened) -> None:
    async with opened(work(machine="torch-driver-too-old-beside-heat-h100"), WIDE) as pilot:
        await pilot.press("f", *["down"] * 5, "space")
        app = app_of(pilot)
        assert app.repair
        plan = app.repair.plan
        assert plan
        assert not any("--index-url" in item.argv for item in plan.commands)
        assert "or ◉ Update the driver" in text(pilot)
        app.diagnosis = diagnosis("too-old-5090")
        await pilot.pause()
        assert app.repair.plan is plan


async def test_c_copies_one_command_after_the_other_and_capital_c_a_script(opened: Opened) -> None:
    async with opened(work()) as pilot:
        await pilot.press("f", "c")
        assert pilot.app.clipboard == "ubuntu-drivers devices"
        await pilot.press("c")
        assert pilot.app.clipboard == "sudo ubuntu-drivers install"
        await pilot.press("C")
        lines = pilot.app.clipboard.splitlines()
        assert lines[0] == "#!/bin/sh"
        assert [line for line in lines if line and line[0] != "#"] == [
            "set -eu",
            "ubuntu-drivers devices",
            "sudo ubuntu-drivers install",
            "sudo reboot",
            "gpudoctor check",
        ]


def test_a_command_is_copied_as_bash_takes_it() -> None:
    word = "old\x1b[2J \u200bname"
    (line,) = words.commands(plan_of(PlanStep("1", "look", ("printf", "%s", word))))
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert done.stdout.decode() == word


def test_of_a_plan_for_windows_the_script_is_none_of_a_unix_shell() -> None:
    lines = words.script(plan_of(PlanStep("1", "look", ("C:\\py\\python.exe", "-m", "pip", "list")))).splitlines()
    assert lines[0].startswith(f"# {RULE}: ")
    assert [line for line in lines if line and line[0] != "#"] == ["C:\\py\\python.exe -m pip list"]


async def test_what_needs_root_is_not_run_without_it_and_a_says_so(opened: Opened, tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    async with opened(work(engine=engine), WIDE) as pilot:
        await pilot.press("f", "a")
        assert "steps 2, 3: needs root, which this is not. c copies the commands" in shown(pilot)[1]
        assert not isinstance(pilot.app.screen, ConfirmScreen)
        await pilot.press("n")
        assert "Step 2: what would be done" in text(pilot)
    assert engine.begun == []


@pytest.mark.parametrize("size", SIZES)
async def test_y_runs_verifies_and_says_fixed(opened: Opened, tmp_path: Path, size: tuple[int, int]) -> None:
    plan = plan_of(
        step(1, "print('Collecting torch')\nprint('[/red] not markup')", changes=(Change("torch", "a", "b"),)),
        verify(2),
        before=("torch a",),
    )
    engine = Engine(tmp_path)
    async with opened(work(plan, engine), size) as pilot:
        await pilot.press("f", "a")
        assert "Run 1 command in /srv/train/.venv?" in text(pilot)
        await pilot.press("y")
        await run_over(pilot)
        lines = shown(pilot)
        assert lines[0].strip().startswith(f"✓ FIXED  {RULE} no longer found")
        await pilot.press("up")
        said = text(pilot)
        assert "[/red] not markup" in said
        assert "torch a → b" in said
    assert engine.journal("run-1").outcome == "fixed"


async def test_progress_lines_are_replaced_and_the_record_names_a_step_before_it_begins(
    opened: Opened, tmp_path: Path
) -> None:
    look = "import json,sys;print(json.load(open(sys.argv[1]))['steps'][1]['state'], 'on record')"
    second = PlanStep("2", "look", (sys.executable, "-c", look, str(tmp_path / "run-1.json")))
    code = r"print('10 %\r20 %\r90 %\r100 %');print('\x1b[32mgreen\x1b[0m \x1b]0;title\x07')"
    engine = Engine(tmp_path)
    async with opened(work(plan_of(step(1, code), second), engine), WIDE) as pilot:
        await pilot.press("f", "a", "y")
        await run_over(pilot)
        await pilot.press("up")
        lines = [line.strip(" │") for line in shown(pilot)]
        assert "100 %" in lines
        assert r"green \x1b]0;title\x07" in lines
        assert not any(line.startswith(("10 %", "20 %", "90 %")) for line in lines)
    assert engine.journal("run-1").step("2").output.lines == ("running on record",)


async def test_a_step_that_fails_stops_it_and_enter_tries_again_from_there(opened: Opened, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    fails_once = f"import pathlib,sys;p=pathlib.Path({str(flag)!r});e=p.exists();p.touch();e or sys.exit('disk full')"
    plan = plan_of(step(1, "", changes=(Change("torch", "a", "b"),)), step(2, fails_once), verify(3))
    engine = Engine(tmp_path)
    async with opened(work(plan, engine), WIDE) as pilot:
        await pilot.press("f", "a", "y")
        await run_over(pilot)
        said = text(pilot)
        assert shown(pilot)[0].strip().startswith(f"✗ STOPPED at step 2  {RULE}")
        assert "disk full" in said
        assert "It failed with exit status 1." in said
        assert "Changed so far: torch a → b." in said
        assert "enter tries again from here" in said
        await pilot.press("enter")
        assert "Run 1 command in /srv/train/.venv?" in text(pilot)
        await pilot.press("y")
        await run_over(pilot)
        assert "✓ FIXED" in shown(pilot)[0]
    assert [engine.journal("run-2").step(name).state for name in "123"] == ["left out", "done", "done"]


async def test_esc_stops_after_the_step_and_the_next_does_not_begin(opened: Opened, tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    plan = plan_of(step(1, f"print('on', flush=True);{lasting(tmp_path)}"), step(2, ""))
    async with opened(work(plan, engine)) as pilot:
        await pilot.press("f", "a", "y")
        await until(pilot, lambda: "FIXING" in shown(pilot)[0] and "on" in text(pilot))
        await pilot.press("escape")
        assert "stops after this step; x ends it now" in shown(pilot)[1]
        (tmp_path / "go").touch()
        await run_over(pilot)
    assert [engine.journal("run-1").step(name).state for name in "12"] == ["done", "waits"]


@pytest.mark.parametrize(
    ("key", "asks"), [("x", ""), ("q", "Quitting ends it now"), ("ctrl+q", "Quitting ends it now")]
)
async def test_x_and_quitting_ask_and_end_the_step_first(opened: Opened, tmp_path: Path, key: str, asks: str) -> None:
    engine = Engine(tmp_path)
    plan = plan_of(step(1, "import time;time.sleep(60)"))
    async with opened(work(plan, engine), WIDE) as pilot:
        await pilot.press("f", "a", "y")
        await until(pilot, lambda: "FIXING" in shown(pilot)[0] and (tmp_path / "run-1.json").exists())
        await pilot.press(key)
        assert asks in text(pilot)
        await pilot.press("n")
        assert pilot.app.is_running
        assert engine.journal("run-1").step("1").state == "running"
        await pilot.press(key, "y")
        if not asks:
            await run_over(pilot)
            assert "it may be half done" in text(pilot)
        await until(pilot, lambda: engine.journal("run-1").over)
    assert engine.journal("run-1").step("1").state == "stopped"


async def test_another_screen_and_f_lead_back_to_the_run_that_is_under_way(opened: Opened, tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    plan = plan_of(step(1, lasting(tmp_path)))
    async with opened(work(plan, engine)) as pilot:
        await pilot.press("f", "a", "y")
        await until(pilot, lambda: "FIXING" in shown(pilot)[0] and (tmp_path / "run-1.json").exists())
        await pilot.press("1")
        assert pilot.app.current_mode == "diagnosis"
        await pilot.press("f")
        (tmp_path / "go").touch()
        await run_over(pilot)
        assert shown(pilot)[0].strip().startswith("✓ DONE")
    assert engine.begun == ["run-1"]


async def test_what_needs_a_reboot_asks_for_the_name_of_the_host(opened: Opened, tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    plan = plan_of(step(1, "", needs=("root", "reboot"), touches="system"), verify(2))
    async with opened(work(plan, engine), WIDE) as pilot:
        await pilot.press("f", "a")
        said = text(pilot)
        assert "▲ needs root" in said
        assert "▲ needs a reboot" in said
        assert "to go on, type node17 and press enter" in said
        await pilot.press("y", "enter")
        await pilot.pause(0.1)
        assert engine.begun == []
        await pilot.press("backspace", *"node17")
        assert "› node17" in text(pilot)
        await pilot.press("enter")
        await run_over(pilot)
        assert shown(pilot)[0].strip().startswith("✓ DONE")
    run = engine.journal("run-1")
    assert (run.step("1").state, run.step("2").state) == ("done", "left out")


async def test_undo_runs_its_own_plan_after_a_yes(opened: Opened, tmp_path: Path) -> None:
    back = plan_of(step(1, "print('installed again')"))
    engine = Engine(tmp_path, backwards=lambda _: back)
    plan = plan_of(step(1, "", changes=(Change("torch", "a", "b"),)))
    async with opened(work(plan, engine), WIDE) as pilot:
        await pilot.press("f", "U")
        assert not isinstance(pilot.app.screen, ConfirmScreen)
        await pilot.press("a", "y")
        await run_over(pilot)
        assert "gpudoctor fix --undo run-1" in text(pilot)
        await pilot.press("U")
        assert "Take back run run-1" in text(pilot)
        await pilot.press("y")
        await until(pilot, lambda: "UNDONE" in shown(pilot)[0])
        assert "installed again" in text(pilot)
    assert engine.journal("run-2").undoes == "run-1"


async def test_a_run_is_taken_back_from_another_plan_too(opened: Opened, tmp_path: Path) -> None:
    engine = Engine(tmp_path, backwards=lambda run: run.plan)
    plan = plan_of(step(1, "", changes=(Change("torch", "a", "b"),)))
    async with opened(work(plan, engine), WIDE) as pilot:
        await pilot.press("f", "a", "y")
        await run_over(pilot)
        await pilot.press("escape")
        await pilot.press("f")
        assert "plan: 1 step" in shown(pilot)[1]
        await pilot.press("U")
        assert "Take back run run-1" in text(pilot)


async def test_before_its_first_step_a_run_counts_from_its_beginning(opened: Opened, tmp_path: Path) -> None:
    engine, may_begin, before = Engine(tmp_path), threading.Event(), time.monotonic()

    def delayed(plan: Plan, report: Any, wanted: Any) -> Any:
        may_begin.wait(600)
        return engine.apply(plan, report, wanted)

    async with opened(replace(work(plan_of(step(1, "")), engine), apply=delayed)) as pilot:
        await pilot.press("f", "a", "y")
        await until(pilot, lambda: "beginning" in shown(pilot)[1])
        repair = app_of(pilot).repair
        assert repair
        assert repair.seconds() <= time.monotonic() - before
        may_begin.set()
        await run_over(pilot)


async def test_who_quits_twice_leaves_at_once(opened: Opened, tmp_path: Path) -> None:
    """An engine that hears nothing does not keep the terminal; the record names the step that runs."""
    engine = Engine(tmp_path)

    def deaf(plan: Plan, tell: Any, wanted: Any) -> Any:
        return engine.apply(plan, tell, lambda: "go on")

    plan = plan_of(step(1, lasting(tmp_path)))
    async with opened(replace(work(plan, engine), apply=deaf)) as pilot:
        await pilot.press("f", "a", "y")
        await until(pilot, lambda: "FIXING" in shown(pilot)[0] and (tmp_path / "run-1.json").exists())
        await pilot.press("q", "y")
        assert "ending the step" in shown(pilot)[1]
        await pilot.press("q")
        await until(pilot, lambda: not pilot.app.is_running)
    assert engine.journal("run-1").step("1").state == "running"
    (tmp_path / "go").touch()


async def test_an_engine_that_dies_is_told_in_words(opened: Opened, tmp_path: Path) -> None:
    gone = PlanStep("1", "no such program", (str(tmp_path / "nothing-here"),))
    engine = Engine(tmp_path)
    async with opened(work(plan_of(gone), engine), WIDE) as pilot:
        await pilot.press("f", "a", "y")
        await until(pilot, lambda: "FileNotFoundError" in text(pilot))
        assert "✗ STOPPED at step 1" in text(pilot)
    assert engine.journal("run-1").step("1").state == "running"


async def test_nothing_to_cure_is_said(opened: Opened) -> None:
    async with opened(work(machine="hgx-h100")) as pilot:
        await pilot.press("f", "f")
        assert "Nothing is wrong here, so there is nothing to cure." in text(pilot)
        await pilot.press("a")
        assert "nothing is chosen" in shown(pilot)[1]


async def test_what_cannot_be_planned_is_said_wherever_it_is_asked_for(opened: Opened) -> None:
    def refuse(*_: object) -> Plan:
        raise UsageError("a fleet's hosts are repaired one by one")

    async with opened(replace(work(), plan=refuse), WIDE) as pilot:
        app = app_of(pilot)
        app.diagnosis = None
        await pilot.press("f")  # before the first diagnosis: it comes while the plan is shown
        app.diagnosis = diagnosis("too-old-5090")
        await pilot.pause()
        assert isinstance(pilot.app.screen, FixScreen)
        assert "repaired one by one" in shown(pilot)[1]
        await pilot.press("f")
        assert "repaired one by one" in shown(pilot)[1]


async def test_f_before_anything_was_read(opened: Opened) -> None:
    async with opened(work()) as pilot:
        app = app_of(pilot)
        app.diagnosis = None
        await pilot.press("f", "a", "d", "space", "c", "C", "U", "x")
        assert isinstance(pilot.app.screen, FixScreen | ConfirmScreen)


def recorded_plan() -> Plan:
    """A plan as an engine makes it, with all that it can tell."""
    pip = ("/srv/train/.venv/bin/python", "-m", "pip")
    install = (*pip, "install", "torch==2.9.0+cu128", "--index-url", "https://download.pytorch.org/whl/cu128")
    return plan_of(
        PlanStep("1", "note what is installed now", (*pip, "freeze")),
        PlanStep(
            "2",
            "install torch 2.9.0 for CUDA 12.8",
            install,
            needs=("network",),
            touches="environment",
            cause=RULE,
            way=1,
            changes=(Change("torch", "2.9.0+cu130", "2.9.0+cu128"),),
        ),
        PlanStep("3", "update", ("apt", "install"), "", ("root", "reboot"), "system", "", RULE, 2, chosen=False),
        PlanStep("4", f"verify: {RULE} is gone", cause=RULE, verify=RULE),
        ways=(Way(RULE, 1, "Keep the driver, change torch"), Way(RULE, 2, "Update the driver to 580")),
        before=("torch 2.9.0+cu130", "triton 3.5.0", "14 nvidia wheels"),
        downloads_mib=2950.0,
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("keys", [("f",), ("f", "a")], ids=["plan", "sure"])
def test_looks(snap_compare: Any, size: tuple[int, int], keys: tuple[str, ...], tmp_path: Path) -> None:
    async def there(pilot: Pilot[None]) -> None:
        await settled(pilot)
        for key in keys:
            await pilot.press(key)

    made = replace(work(recorded_plan(), Engine(tmp_path, backwards=lambda run: run.plan)), title="node17")
    assert snap_compare(DoctorApp(made), terminal_size=size, run_before=there)


BLOCKS = [Block(plain("Run [red]this[/red] \x07 now?"))]


class Asking(App[None]):
    """Asks at once, and keeps the answer."""

    CSS_PATH = "../../../gpudoctor/views/tui/tui.tcss"

    def __init__(self, word: str = "", blocks: list[Block] | None = None) -> None:
        super().__init__()
        self.sure = ConfirmScreen("Sure?", blocks or BLOCKS, word=word)
        self.answer: bool | None = None

    def on_mount(self) -> None:
        self.push_screen(self.sure, self._answered)

    def _answered(self, answer: bool | None) -> None:
        self.answer = answer

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return {"on-state": "black"}


@pytest.mark.parametrize(
    ("word", "keys", "answer"),
    [
        *(("", [key], answer) for key, answer in (("y", True), ("n", False), ("escape", False), ("enter", None))),
        ("", ["space", "tab", "enter", "Y"], None),
        ("node17", [*"node17", "enter"], True),
        ("node17", [*"nodes", "backspace", *"17", "enter"], True),
        ("node17", [*"node17", "escape"], False),
        *(("node17", keys, None) for keys in ([*"node1", "enter"], ["enter"], ["y", "enter"])),
    ],
)
async def test_only_y_is_yes_or_the_whole_word(word: str, keys: list[str], answer: bool | None) -> None:
    app = Asking(word)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*keys)
        assert app.answer is answer
        assert (app.screen is app.sure) == (answer is None)
        assert word or app.focused is None


async def test_foreign_words_are_no_markup_and_a_long_question_scrolls() -> None:
    app = Asking(blocks=[*BLOCKS, *(Block(Content(f"line {number}")) for number in range(60))])
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        strips = app.screen._compositor.render_strips()
        said = "\n".join("".join(segment.text for segment in line) for line in strips)
        assert r"Run [red]this[/red] \x07 now?" in said
        assert "y  run it" in said
        await pilot.press("y")
        assert app.answer is True
