"""The pictures of README.md, of the demos: ``python -m tests.screenshots --write`` takes them anew."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass, replace

from textual.pilot import Pilot

from gpudoctor import demos
from gpudoctor.views.tui import places, themes
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.recordings import LIST, RecordingsApp
from tests.needs import REPOSITORY
from tests.tui.conftest import settled

HOME = REPOSITORY / "tests/tui/screenshots"
SIZE, SMALL = (128, 40), (80, 24)
SECONDS = 1.4
"""What every picture says that the reading took."""


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture: of which demo, and by which keys one gets there. Without a demo it is their list."""

    name: str
    screen: str
    about: str
    demo: str = ""
    keys: tuple[str, ...] = ()
    size: tuple[int, int] = SIZE


SHOTS = (
    Shot("diagnosis", "diagnosis", "The cause first, its cure with it; `c` copies the command.", "torch-cu130"),
    Shot("gpus", "gpus", "One of eight H100 is held back by heat.", "hot-gpu", ("2",)),
    Shot("kernels", "kernels", "What small kernels measured, against what an H100 achieves.", "hot-gpu", ("4",)),
    Shot("cluster", "cluster", "Eight nodes, a row each; two are to be taken out.", "sound", ("5",)),
    Shot("fix", "fix", "The plan, before anything is run.", "torch-cu130", ("f",)),
    Shot("setup", "setup", "Which torch fits this driver, and why no other.", "torch-cu130", ("6",)),
    Shot("facts", "facts", "Every fact, with its source and the rules that read it.", "torch-cu130", ("3",)),
    Shot("demos", LIST, "`gpudoctor demo`: recorded machines to try it on."),
    Shot("narrow", "diagnosis", "80 columns are enough.", "rtx-5090", (), SMALL),
)


async def taken(shot: Shot) -> str:
    """That picture as SVG."""
    app: DoctorApp
    app = DoctorApp(replace(demos.named(shot.demo), pace=0).work()) if shot.demo else RecordingsApp(demos.every())
    async with app.run_test(size=shot.size) as pilot:
        app.theme = themes.NIGHT.name
        if shot.demo:
            await settled(pilot)
            app.reading = replace(app.reading, seconds=SECONDS)
        for key in shot.keys:
            await pilot.press(key)
        await _calm(pilot)
        words = f"gpudoctor demo {shot.demo}".strip()
        return app.export_screenshot(title=words)


async def _calm(pilot: Pilot[None]) -> None:
    """Wait for what the screen has done in threads: a plan, a page, the first numbers of the GPUs."""
    for _ in range(15):
        await pilot.pause(0.1)


async def write() -> None:
    """Take all of them."""
    HOME.mkdir(parents=True, exist_ok=True)
    for shot in SHOTS:
        (HOME / f"{shot.name}.svg").write_text(await taken(shot), "utf-8")


def gallery(names: tuple[str, ...]) -> str:
    """Those pictures with what they show, as Markdown."""
    shots = {shot.name: shot for shot in SHOTS}
    pictures = (f"![{shots[name].screen}](tests/tui/screenshots/{name}.svg)\n\n{shots[name].about}" for name in names)
    return "\n\n".join(pictures)


def screens() -> set[str]:
    """Every screen that there is to take a picture of."""
    return {door.name for door in (*places.DOORS, places.FIX)} | {LIST}


if __name__ == "__main__":
    if "--write" not in sys.argv:
        sys.exit("python -m tests.screenshots --write")
    with tempfile.TemporaryDirectory() as empty:
        os.environ.update(XDG_CONFIG_HOME=empty, TERM="xterm-256color", LANG="C.UTF-8", TEXTUAL_ANIMATIONS="none")
        for name in ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_COLOR_SYSTEM", "LC_ALL", "LC_CTYPE"):
            os.environ.pop(name, None)
        asyncio.run(write())
