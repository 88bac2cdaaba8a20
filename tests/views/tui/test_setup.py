"""Setup: choices are answered at once; nothing is installed from here but by a plan."""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpudoctor.core.errors import UsageError
from gpudoctor.core.stack import GPU, Stack, Wishes
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.repair import ConfirmScreen
from gpudoctor.views.tui.screens.dialogs import TextDialog
from gpudoctor.views.tui.screens.fix import FixScreen
from gpudoctor.views.tui.screens.help import ExplainScreen
from gpudoctor.views.tui.screens.setup import SetupScreen, ask_for_value
from gpudoctor.views.tui.work import Work
from tests.views.tui.conftest import NARROW, SIZES, WIDE, Opened, settled, shown, text, until
from tests.views.tui.test_fix import diagnosis
from tests.views.tui.test_fix import work as machine_work

OLD = "torch-arch-dropped-and-driver-too-old"


def work(machine: str = "hgx-h100") -> Work:
    return machine_work(machine=machine)


def answered_by(solver: Callable[[Wishes], Stack] | None) -> Work:
    return replace(work(), stack=solver)


async def setup_of(pilot: Pilot[None]) -> SetupScreen:
    await pilot.app.run_action("open('setup')")
    screen = pilot.app.screen
    assert isinstance(screen, SetupScreen)
    await until(pilot, lambda: "working it out" not in text(pilot) and "GPU" in text(pilot))
    return screen


async def test_a_choice_is_answered_anew_and_marked_as_said(opened: Opened) -> None:
    async with opened(work(), WIDE) as pilot:
        screen = await setup_of(pilot)
        await pilot.press("down", "enter")
        assert isinstance(pilot.app.screen, TextDialog)
        await pilot.press(*"535.183.06", "enter")
        await until(pilot, lambda: "2.14.1+cu126" in text(pilot))
        said = text(pilot)
        assert "535.183.06  you said" in said
        assert "for another machine" in shown(pilot)[1]
        assert "needs driver 580.65.06 or newer, not 535.183.06" in said
        await pilot.press("0")
        await until(pilot, lambda: "2.15.0+cu132" in text(pilot))
        assert screen.wishes == screen.read


async def test_tab_goes_from_field_to_field_and_then_to_the_next_pane(opened: Opened) -> None:
    async with opened(work(), WIDE) as pilot:
        screen = await setup_of(pilot)
        fields = []
        for _ in range(10):
            assert screen.form.option
            fields.append(screen.form.option.field)
            await pilot.press("tab")
        assert fields == ["gpus", "driver", "python", "os", "arch", "torch", "extras", "wants", "tool", "emit"]
        assert pilot.app.focused is screen.fits
        await pilot.press("shift+tab", "shift+tab")
        assert screen.form.option
        assert screen.form.option.field == "tool"


async def test_space_chooses_one_release_and_any_number_of_extras(opened: Opened) -> None:
    async with opened(work(), WIDE) as pilot:
        screen = await setup_of(pilot)
        await pilot.press("tab", "tab", "tab", "tab", "tab", "right", "right", "space")
        await until(pilot, lambda: screen.wishes.torch == "2.14")
        await pilot.press("tab", "space", "right", "space")
        await until(pilot, lambda: "[x] torchaudio" in text(pilot))
        assert screen.wishes.extras == ("torchvision", "torchaudio")
        assert "[x] torchvision" in text(pilot)
        assert "0.29.1+cu13" in text(pilot)
        await pilot.press("space")
        await until(pilot, lambda: "[ ] torchaudio" in text(pilot))


async def test_nothing_fits_and_the_smallest_change_is_one_key_away(opened: Opened) -> None:
    async with opened(work(), WIDE) as pilot:
        screen = await setup_of(pilot)
        screen.wishes = screen.wishes.with_wish("driver", "535.183.06")
        screen._set_field("torch", "2.15")
        await until(pilot, lambda: "Nothing fits these choices." in text(pilot))
        said = text(pilot)
        assert "It would with" in said
        assert "driver 580.65.06 or newer" in said
        assert "$   gpudoctor setup driver" in said
        assert "$   python -m pip install torch==2.15.0+cu132" in said
        await pilot.press("s")
        await until(pilot, lambda: "2.15.0+cu132" in text(pilot))
        assert "set: driver 580.65.06 or newer" in shown(pilot)[1]


async def test_what_else_is_wanted_is_typed(opened: Opened) -> None:
    async with opened(work(), WIDE) as pilot:
        screen = await setup_of(pilot)
        for _ in range(7):
            await pilot.press("tab")
        await pilot.press("enter")
        assert isinstance(pilot.app.screen, TextDialog)
        await pilot.press(*"torch<2.10", "space", *"vllm", "enter")
        await until(pilot, lambda: "vllm" in text(pilot) and "2.9.1+cu" in text(pilot))
        assert screen.wishes.wants == ("torch<2.10", "vllm")
        assert "for this machine" in shown(pilot)[1]


async def test_esc_leaves_what_was_typed_before(opened: Opened) -> None:
    async with opened(work(), WIDE) as pilot:
        screen = await setup_of(pilot)
        for name, value in (("torch", "2.9"), ("wants", ("vllm",))):
            screen._set_field(name, value)
            ask_for_value(screen.doctor, name, screen.wishes, partial(screen._set_field, name))
            await pilot.pause()
            await pilot.press("escape")
            assert getattr(screen.wishes, name) == value


async def test_a_click_chooses_why_is_one_key_away_and_a_new_reading_keeps_what_was_said(opened: Opened) -> None:
    async with opened(work(), NARROW) as pilot:
        screen = await setup_of(pilot)
        assert "the newest release that fits" not in text(pilot)
        await pilot.press("e")
        assert "the newest release that fits" in text(pilot)
        await pilot.resize_terminal(*WIDE)
        await pilot.pause()
        lines = shown(pilot)
        y = next(number for number, line in enumerate(lines) if "○ uv" in line)
        await pilot.click(offset=(lines[y].index("○ uv") + 2, y))
        assert screen.wishes.tool == "uv"
        screen._set_field("wants", ("torch>>2",))
        await until(pilot, lambda: "is no requirement" in text(pilot))
        screen._set_field("driver", "570.124.06")
        pilot.app.diagnosis = diagnosis("too-old-5090")  # type: ignore[attr-defined]
        await pilot.pause()
        assert screen.wishes.driver == "570.124.06"
        assert screen.wishes.gpus[0].name == "GeForce RTX 5090"


async def test_c_copies_the_command_and_the_file(opened: Opened) -> None:
    async with opened(work(), WIDE) as pilot:
        screen = await setup_of(pilot)
        await pilot.press("c")
        assert "-m pip install torch==2.15.0+cu132 --index-url" in pilot.app.clipboard
        screen._set_field("tool", "uv")
        await pilot.press("c")
        assert "uv pip install" in pilot.app.clipboard
        screen._set_field("emit", "dockerfile")
        await pilot.press("c")
        assert "FROM python:3.12-slim" in pilot.app.clipboard
        assert "and 2 more lines" in shown(pilot)[1]
        screen._set_field("emit", "command")
        screen._set_field("tool", "conda")
        await pilot.press("c")
        assert pilot.app.clipboard.startswith("conda create --yes --name torch")
        screen.wishes = screen.wishes.with_wish("gpus", (GPU("NVIDIA A100", "8.0"),))
        screen._set_field("driver", "470.256.02")
        await until(pilot, lambda: "cu118" in text(pilot))
        assert "There is none for conda here." in text(pilot)


async def test_w_asks_and_writes(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with opened(work(), WIDE) as pilot:
        screen = await setup_of(pilot)
        screen._set_field("emit", "requirements")
        await pilot.press("w")
        assert isinstance(pilot.app.screen, ConfirmScreen)
        await pilot.press("n")
        await pilot.pause(0.1)
        assert not list(tmp_path.iterdir())
        await pilot.press("w", "y")
        await until(pilot, lambda: "written to requirements-torch.txt" in shown(pilot)[1])
    assert "torch==2.15.0+cu132" in (tmp_path / "requirements-torch.txt").read_text("utf-8")


async def test_a_file_that_cannot_be_written_is_said(opened: Opened) -> None:
    def refuse(text: str, name: str) -> None:
        raise UsageError(f"{name}: no room")

    async with opened(replace(work(), save=refuse), WIDE) as pilot:
        await setup_of(pilot)
        await pilot.press("w", "y")
        await until(pilot, lambda: "not written: install-torch.sh: no room" in shown(pilot)[1])


async def test_a_opens_the_commands_as_a_plan(opened: Opened) -> None:
    async with opened(work(), WIDE) as pilot:
        await setup_of(pilot)
        await pilot.press("a")
        assert isinstance(pilot.app.screen, FixScreen)
        said = text(pilot)
        assert "python -m pip install torch==2.15.0+cu132" in said
        assert "in /opt/venv" in said
        await pilot.press("escape")
        assert pilot.app.current_mode == "setup"


async def test_what_is_for_another_machine_is_not_installed_on_this_one(opened: Opened) -> None:
    async with opened(work(), WIDE) as pilot:
        screen = await setup_of(pilot)
        screen._set_field("gpus", (GPU("GeForce RTX 5090", "12.0"),))
        await until(pilot, lambda: bool(screen.stack and screen.stack.wishes.elsewhere))
        await pilot.press("a", "a")
        assert "not from here: it is for another machine (GPU as given)" in shown(pilot)[1]
        assert not isinstance(pilot.app.screen, ConfirmScreen)


async def test_for_what_is_no_single_machine_the_commands_are_named(opened: Opened) -> None:
    async with opened(answered_by(None), NARROW) as pilot:
        await setup_of(pilot)
        said = text(pilot)
        assert "worked out for one machine" in said
        assert "gpudoctor setup torch" in said
        await pilot.press("c", "a", "w")
        assert "nothing fits these choices" in shown(pilot)[1]
        await pilot.press("e")
        await until(pilot, lambda: isinstance(pilot.app.screen, ExplainScreen))


async def test_a_solver_that_fails_and_one_that_is_slow(opened: Opened) -> None:
    go = threading.Event()

    def slow(wishes: Wishes) -> Stack:
        go.wait(120)
        raise UsageError("no table knows this GPU")

    async with opened(answered_by(slow), WIDE) as pilot:
        await pilot.app.run_action("open('setup')")
        await pilot.pause()
        assert "working it out …" in text(pilot)
        go.set()
        await until(pilot, lambda: "no table knows this GPU" in text(pilot))


@pytest.mark.parametrize("size", SIZES)
def test_looks(snap_compare: Any, size: tuple[int, int]) -> None:
    async def there(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await setup_of(pilot)

    assert snap_compare(DoctorApp(work(machine=OLD)), terminal_size=size, run_before=there)
