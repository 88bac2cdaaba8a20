"""How the program behaves towards its terminal and its user: signals, keys, colours, encodings, what it remembers."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpudoctor.views.tui import terminal, themes
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.widgets.frame import FIX_SCREEN, SCREEN_ENTRIES, Keys, Tabs
from tests.processes import command_line, gone, until
from tests.readme import REPORT
from tests.views.tui.conftest import NARROW, WIDE, Opened, app_of, shown
from tests.views.tui.machines import told_of
from tests.views.tui.terminal import LEFT, Terminal
from tests.views.tui.test_hostile import check

PROGRAM = ("-m", "gpudoctor")
DONE = ("BROKEN", "UNKNOWN", "SOUND", "IMPAIRED")
"""The band once this machine, whatever it is, has been read."""


def surroundings(**more: str) -> dict[str, str]:
    """The environment of a user on a terminal."""
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "CI"}}
    return {**kept, "TERM": "xterm-256color", "COLORTERM": "truecolor", **more}


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)], ids=str
)
def test_a_signal_ends_it_and_the_terminal_is_as_before(number: int, code: int) -> None:
    with Terminal(PROGRAM, environ=surroundings()) as program:
        program.wait_for(*DONE)
        program.signal(number)
        assert program.ended(60) == code
        assert LEFT in program.said
        assert "\x1b[?25h" in program.said.rpartition(LEFT)[2]  # the cursor is seen
        assert "Traceback" not in program.said


def test_a_terminal_that_is_lost_ends_it_and_its_children(tmp_path: Path) -> None:
    asleep = tmp_path / "python3"
    asleep.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import time; time.sleep(99)'\n")
    asleep.chmod(0o755)
    with Terminal((*PROGRAM, "--python", str(asleep)), environ=surroundings()) as program:
        program.wait_for("sources")
        assert until(program.children), "no child was started"
        started = program.children()
        program.hang_up()
        assert program.ended(60) == 129
        assert all(map(gone, started))


_PARTS = ["app.live_gpus", "cluster", "fixes.plan", "fixes.solver", "kernels", "probes._nvml", "readers"]
_JUDGING = ["expression", "judge", "knowledge"]
_SCREENS = ["gpus", "facts", "fix", "dialogs"]
LAZY = {
    *["packaging", "pynvml", "simpleeval", "tomllib"],
    *(f"gpudoctor.{name}" for name in _PARTS),
    *(f"gpudoctor.diagnosis.{name}" for name in _JUDGING),
    *(f"gpudoctor.views.tui.screens.{name}" for name in _SCREENS),
    *["gpudoctor.views.tui.repair", "gpudoctor.views.tui.widgets.matrix"],
}
"""What costs time and is not needed before the first screen is there."""
FIRST_PAINT = """
import asyncio, sys
from gpudoctor.app import cli
from gpudoctor.app.commands import interface
from gpudoctor.core.errors import DoctorError
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.work import Work

def diagnose(progress, partly):
    print(*sorted(sys.modules), file=sys.__stdout__)
    raise DoctorError("enough")

async def main():
    app = DoctorApp(Work("this machine", diagnose, str))
    async with app.run_test() as pilot:
        while not app.reading.over:
            await pilot.pause(0.01)

asyncio.run(main())
"""


def test_nothing_heavy_is_imported_before_the_first_screen_is_drawn() -> None:
    said = subprocess.run([sys.executable, "-c", FIRST_PAINT], capture_output=True, text=True, check=True, timeout=600)
    loaded = set(said.stdout.split())
    assert "gpudoctor.views.tui.screens.diagnosis" in loaded
    assert not loaded & LAZY


@pytest.mark.parametrize("key", ["q", "\x03", "\x11"], ids=["q", "ctrl+c", "ctrl+q"])
def test_one_key_leaves_with_the_code_of_the_verdict(key: str) -> None:
    with Terminal(PROGRAM, environ=surroundings()) as program:
        program.wait_for(*DONE)
        program.type(key)
        assert program.ended(60) in {0, 1, 3}
        assert LEFT in program.said


def test_it_stops_for_the_shell_and_goes_on() -> None:
    with Terminal(PROGRAM, environ=surroundings()) as program:
        program.wait_for(*DONE)
        program.type("\x1a")
        program.wait_for(LEFT)
        assert until(lambda: Path(f"/proc/{program.pid}/stat").read_text().rpartition(") ")[2][0] == "T"), "not stopped"
        program.signal(signal.SIGCONT)
        program.wait_for(*DONE)
        program.type("q")
        assert program.ended(60) in {0, 1, 3}


@pytest.mark.parametrize("before", ["exec {} <&-", "exec {} </dev/null", "exec {} 2>/dev/null", "TERM=dumb exec {}"])
def test_without_a_terminal_there_is_the_report(before: str) -> None:
    command = before.format(f"{sys.executable} -m gpudoctor")
    with Terminal(("-c", command), environ=surroundings(), program="/bin/sh") as program:
        assert program.ended(60) in {0, 1, 3}
        assert "gpudoctor" in program.said
        assert "\x1b[?1049h" not in program.said
        assert "Traceback" not in program.said
        assert "dumb" not in before or "\x1b" not in program.said


@pytest.mark.parametrize(
    ("environ", "ascii_only"),
    [
        ({"TERM": "xterm", "LANG": "C.UTF-8"}, False),
        ({"TERM": "screen", "LANG": "en_US.UTF-8"}, False),
        ({"TERM": "vt100", "LANG": "en_US.UTF-8"}, True),
        ({"TERM": "linux", "LANG": "en_US.UTF-8"}, True),
        ({"TERM": "xterm-256color", "LANG": "C"}, True),
        ({"TERM": "xterm-256color", "LC_ALL": "C", "LANG": "en_US.UTF-8"}, True),
        ({"TERM": "xterm-256color", "LANG": "de_DE.ISO-8859-1"}, True),
        ({"TERM": "xterm-256color", "LANG": "de_DE"}, True),
        ({"TERM": "xterm-256color"}, False),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else "",
)
def test_what_is_drawn_is_in_the_terminals_characters(environ: Mapping[str, str], ascii_only: bool) -> None:
    assert terminal.ascii_wanted(environ) == ascii_only
    if environ in ({"TERM": "xterm", "LANG": "C.UTF-8"}, {"TERM": "xterm-256color", "LANG": "C"}):
        base = {name: value for name, value in surroundings().items() if not name.startswith(("LC_", "LANG"))}
        with Terminal(PROGRAM, environ={**base, **environ}) as program:
            program.wait_for(*DONE)
            program.type("q")
            program.ended(60)
            assert "Traceback" not in program.said
            assert program.said.isascii() == ascii_only


@pytest.mark.full
async def test_in_ascii_every_screen_has_its_columns(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "vt220")
    async with opened(told_of("lost-gpu-h100"), WIDE) as pilot:
        for door in (*SCREEN_ENTRIES, FIX_SCREEN):
            app_of(pilot).action_open(door.name)
            await pilot.pause()
            check(pilot)
            assert all(line.isascii() for line in shown(pilot)), door.name
        assert shown(pilot)[0].startswith(" X BROKEN")


def test_no_two_marks_of_states_share_a_stand_in() -> None:
    states = ["✗", "!", "i", "✓", "?", "-", "·", "▲", "x"]
    assert len({terminal.ascii_of(mark) for mark in states}) == len(states)
    assert all(len(stand_in) == 1 and stand_in.isascii() for stand_in in terminal.GLYPHS.values())
    assert terminal.ascii_of("驱 ✓") == "?? +"


@pytest.mark.full
@pytest.mark.parametrize("theme", [themes.NIGHT.name, themes.ANSI_NIGHT.name])
async def test_without_colour_every_screen_says_the_same(
    theme: str, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened(told_of("lost-gpu-h100"), WIDE) as pilot:
        app = app_of(pilot)
        app.theme = theme
        for door in (*SCREEN_ENTRIES, FIX_SCREEN):
            app.action_open(door.name)
            await pilot.pause()
            check(pilot)
            assert ("? NO JOB" if door.name == "job" else "✗ BROKEN") in shown(pilot)[0]
        app.action_open("diagnosis")
        await pilot.pause()
        assert any("✗ ERROR" in line for line in shown(pilot)[3:])


async def test_a_choice_lasts_and_the_environment_has_the_last_word(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    themes.keep_choices(themes.Choices(theme=themes.DAY.name, marks="ascii"))
    async with opened(told_of("hgx-h100")) as pilot:
        assert pilot.app.theme == themes.DAY.name
        assert shown(pilot)[0].isascii()
        app_of(pilot).choose_marks("unicode")
        await pilot.pause()
        await pilot.pause()
        assert "✓" in shown(pilot)[0]
    assert themes.load_choices() == themes.Choices(theme=themes.DAY.name, marks="unicode")
    monkeypatch.setenv("TEXTUAL_THEME", "textual-dark")
    assert DoctorApp(told_of("hgx-h100")).theme == "textual-dark"


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"theme": 7}', b"\xff\x00", b"[" * 4000, b" " * 5000, b'{"theme": "none of ours"}']
)
async def test_a_broken_file_of_choices_is_no_trouble(content: bytes, opened: Opened) -> None:
    file = themes.choices_path()
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    async with opened(told_of("hgx-h100")) as pilot:
        assert pilot.app.theme == themes.NIGHT.name
        said = shown(pilot)[1]
        assert ("what was chosen before is not known" in said) == (b"none of ours" not in content)
        await pilot.press("j")
        assert "chosen before" not in shown(pilot)[1]


async def test_where_nothing_can_be_kept_it_is_said(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "a file"))
    async with opened(told_of("hgx-h100")) as pilot:
        app_of(pilot).choose_theme(themes.DAY.name)
        await pilot.pause()
        assert pilot.app.theme == themes.DAY.name
        assert "for this time only" in shown(pilot)[1]


def test_choices_are_kept_through_a_link(tmp_path: Path) -> None:
    file = themes.choices_path()
    file.parent.mkdir(parents=True)
    (tmp_path / "dotfiles.json").write_text('{"theme": "old", "of a newer version": [1]}')
    file.symlink_to(tmp_path / "dotfiles.json")
    assert themes.load_choices().theme == "old"
    themes.keep_choices(themes.Choices(theme="new"))
    assert file.is_symlink()
    assert json.loads((tmp_path / "dotfiles.json").read_text()) == {"theme": "new"}


async def test_the_mouse_does_what_keys_do(opened: Opened) -> None:
    async with opened(told_of("too-old-b200"), WIDE) as pilot:
        app = app_of(pilot)
        tabs = shown(pilot)[2]
        await pilot.click(Tabs, offset=(tabs.index("2 GPUs"), 0))
        assert app.current_mode == "gpus"
        await pilot.click(Tabs, offset=(shown(pilot)[2].index("1 Diagnosis"), 0))
        assert app.current_mode == "diagnosis"
        keys = shown(pilot)[-1]
        found = re.search(r"\bc copy", keys)
        assert found
        await pilot.click(Keys, offset=(found.start(), 0))
        assert app.clipboard
        await pilot.click(Keys, offset=(shown(pilot)[-1].index("? keys"), 0))
        assert any("What the marks mean" in line for line in shown(pilot))


async def test_the_wheel_scrolls_what_is_under_it(opened: Opened) -> None:
    from textual.events import MouseScrollDown

    async with opened(told_of("too-old-b200"), NARROW) as pilot:
        detail = pilot.app.screen.query_one("#detail")
        assert detail.max_scroll_y > 0
        x, y = detail.region.x + 2, detail.region.y + 2
        for _ in range(3):
            event = MouseScrollDown(detail, x, y, 0, 1, 0, False, False, False, screen_x=x, screen_y=y)
            pilot.app.screen._forward_event(event)
            await pilot.pause()
        assert detail.scroll_y > 0


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """An interpreter that answers who it is, and nothing else, ever."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *ask_*) exec sleep 1000.25;; esac\nexec {sys.executable} "$@"\n', "utf-8"
    )
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("leave", ["q", "\x03"], ids=["q", "ctrl+c"])
def test_it_can_be_left_while_a_probe_never_returns(hanging: Path, leave: str) -> None:
    with Terminal(["-m", "gpudoctor", "--python", str(hanging)]) as terminal:
        terminal.wait_for("READING")
        assert until(_asleep), "the child that hangs was not started"
        terminal.type(leave)
        assert terminal.ended(300) in {0, 1, 3}  # the probe would take 1,000 seconds
    assert not _asleep()


def _asleep() -> bool:
    """Whether the child that hangs is there."""
    return any(command_line(int(folder.name)) == "sleep 1000.25 " for folder in Path("/proc").glob("[0-9]*"))


@pytest.mark.parametrize("leave", ["enter", "esc"])
def test_commands_are_shown_alone_on_the_plain_terminal(tmp_path: Path, leave: str) -> None:
    report = tmp_path / "report.txt"
    report.write_text(REPORT, "utf-8")
    with Terminal(["-m", "gpudoctor", "read", "--tui", str(report)]) as terminal:
        terminal.wait_for("BROKEN")
        terminal.wait_for("quit" if "quit" in terminal.said else "^p")
        terminal.type("C")
        terminal.wait_for("Enter or Esc goes back to gpudoctor.")
        alone = terminal.said.rpartition("\x1b[?1049l")[2].replace("\r\n", "\n")
        commands = [line for line in alone.split("\n")[1:-2] if line]
        assert commands
        assert all("\x1b" not in line for line in commands)
        headings = [line for line in commands if line.startswith("#")]
        assert headings[0] == "# 1: Install a newer driver (Ubuntu)"
        assert all(line.startswith("# or ") for line in headings[1:])
        terminal.type("\x1b[A")  # an arrow is no Esc
        terminal.type("\x1b" if leave == "esc" else "\n")
        terminal.wait_for("BROKEN")
        terminal.type("q")
        assert terminal.ended(60) == 1
