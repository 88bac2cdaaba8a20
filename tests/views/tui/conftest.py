"""The interface under Pilot: one look whatever the terminal, and a reading that has ended before anything is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot

from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.screens.cluster import ClusterScreen
from gpudoctor.views.tui.screens.diagnosis import DiagnosisScreen
from gpudoctor.views.tui.screens.kernels import KernelsScreen
from gpudoctor.views.tui.work import Work

NARROW, WIDE = (80, 24), (160, 48)
SIZES = [pytest.param(NARROW, id="narrow"), pytest.param(WIDE, id="wide", marks=pytest.mark.full)]
"""Of a screen whose looks another test compares: in every run the narrow one."""
_Screen = TypeVar("_Screen", ClusterScreen, KernelsScreen)
Opened = Callable[..., AbstractAsyncContextManager[Pilot[None]]]


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_COLOR_SYSTEM", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(autouse=True)
def _waits_until_all_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause, a key and a click end when all that follows is drawn. Textual takes a process that a busy machine gives
    no CPU for an idle one, and ends its pause before a layout.
    """
    pause, press, click = Pilot.pause, Pilot.press, Pilot.click

    async def pause_until_drawn(pilot: Pilot[None], delay: float | None = None) -> None:
        await pause(pilot, delay)
        for _ in range(20 if delay is None else 0):
            screen = pilot.app.screen
            if not (screen._layout_required or screen._repaint_required or screen._dirty_widgets or screen._callbacks):
                return
            await pause(pilot)

    async def press_until_drawn(pilot: Pilot[None], *keys: str) -> None:
        await press(pilot, *keys)
        await pause_until_drawn(pilot)

    async def click_until_drawn(pilot: Pilot[None], *place: Any, **more: Any) -> bool:
        hit = await click(pilot, *place, **more)
        await pause_until_drawn(pilot)
        return hit

    monkeypatch.setattr(Pilot, "pause", pause_until_drawn)
    monkeypatch.setattr(Pilot, "press", press_until_drawn)
    monkeypatch.setattr(Pilot, "click", click_until_drawn)


@pytest.fixture(scope="session", autouse=True)
def _styles_are_parsed_once() -> Iterator[None]:
    """Each app parses the same style sheets anew: a tenth of the time of a test."""
    parse = Stylesheet._parse_rules
    parsed: dict[object, list[RuleSet]] = {}

    def parsed_before(
        sheet: Stylesheet, css: str, read_from: tuple[str, str], *rest: Any, **named: Any
    ) -> list[RuleSet]:
        key = css, read_from, rest, tuple(named.items()), tuple(sheet._variables.items())
        if key not in parsed:
            parsed[key] = parse(sheet, css, read_from, *rest, **named)
        return parsed[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parsed_before)
        yield


@pytest.fixture
def opened() -> Opened:
    """``async with opened(work, size) as pilot``: the app in that size, with its reading ended."""

    @asynccontextmanager
    async def open_app(work: Work, size: tuple[int, int] = NARROW, settle: bool = True) -> AsyncIterator[Pilot[None]]:
        app = DoctorApp(work)
        async with app.run_test(size=size) as pilot:
            if settle:
                await settled(pilot)
            yield pilot

    return open_app


def app_of(pilot: Pilot[None]) -> DoctorApp:
    """The app, by its own type."""
    assert isinstance(pilot.app, DoctorApp)
    return pilot.app


def first_screen(pilot: Pilot[None]) -> DiagnosisScreen:
    """The screen that is open, which is the first."""
    screen = pilot.app.screen
    assert isinstance(screen, DiagnosisScreen)
    return screen


async def settled(pilot: Pilot[None]) -> None:
    """Wait until the reading is over and all that follows from it is on the screen."""
    await until(pilot, lambda: app_of(pilot).reading.over)


async def opened_by(key: str, kind: type[_Screen], pilot: Pilot[None], waiting: str) -> _Screen:
    """The screen that the key opens, once its pane no longer says that it waits."""
    await settled(pilot)
    await pilot.press(key)
    screen = pilot.app.screen
    assert isinstance(screen, kind)
    await until(pilot, lambda: screen.detail.prose.text not in ("", waiting))
    return screen


async def calm(pilot: Pilot[None], seconds: float = 5.0) -> None:
    """Wait until nothing on the screen has changed for 0.3 s, as far as it ever rests."""
    before, rested = None, 0
    for _ in range(int(seconds / 0.1)):
        await pilot.pause(0.1)
        now = [list(line) for line in pilot.app.screen._compositor.render_strips()]
        rested = rested + 1 if now == before else 0
        before = now
        if rested == 3:
            return


def shown(pilot: Pilot[None]) -> list[str]:
    """The lines on the screen, as text."""
    return ["".join(segment.text for segment in line) for line in pilot.app.screen._compositor.render_strips()]


def text(pilot: Pilot[None]) -> str:
    """All that is on the screen."""
    return "\n".join(shown(pilot))


async def until(pilot: Pilot[None], holds: Callable[[], bool], seconds: float = 600.0, then: float = 0.0) -> None:
    """Wait until that holds, and `then` seconds more, for what is drawn in batches."""
    for _ in range(int(seconds / 0.02)):
        if holds():
            await pilot.pause(then or None)
            return
        await pilot.pause(0.02)
    raise AssertionError("\n".join(shown(pilot)))
