"""The interface under Pilot: one look whatever the terminal, and a reading that has ended before anything is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.work import Work

NARROW, WIDE = (80, 24), (160, 48)
SIZES = [pytest.param(NARROW, id="narrow"), pytest.param(WIDE, id="wide", marks=pytest.mark.full)]
"""Of a screen whose looks another test compares: in every run the narrow one."""
Opened = Callable[..., AbstractAsyncContextManager[Pilot[None]]]


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_COLOR_SYSTEM", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


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


async def settled(pilot: Pilot[None], seconds: float = 60.0) -> None:
    """Wait until the reading is over and all that follows from it is on the screen."""
    app = pilot.app
    assert isinstance(app, DoctorApp)
    for _ in range(int(seconds / 0.02)):
        await pilot.pause(0.02)
        if app.reading.over:
            await pilot.pause()
            return
    raise AssertionError(f"still reading after {seconds:g} s: {app.reading.sources}")


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


async def until(pilot: Pilot[None], holds: Callable[[], bool], seconds: float = 60.0, then: float = 0.0) -> None:
    """Wait until that holds, and `then` seconds more, for what is drawn in batches."""
    for _ in range(int(seconds / 0.02)):
        if holds():
            await pilot.pause(then or None)
            return
        await pilot.pause(0.02)
    raise AssertionError("\n".join(shown(pilot)))
