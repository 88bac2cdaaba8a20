"""The pictures of README.md, of the demos: ``python -m tests.screenshots --write`` takes them anew."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from dataclasses import dataclass, replace

from textual.pilot import Pilot

from gpudoctor import demos
from gpudoctor.views.tui import hints, places, themes
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.recordings import LIST, RecordingsApp
from tests.needs import REPOSITORY
from tests.tui.conftest import settled

_AT = "tests/tui/screenshots"
HOME = REPOSITORY / _AT
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
    Shot("fix", "fix", "The plan, before anything is run.", "cpu-torch", ("f",)),
    Shot("setup", "setup", "Which torch fits this driver, and why no other.", "torch-cu130", ("6",)),
    Shot("facts", "facts", "Every fact, with its source and the rules that read it.", "torch-cu130", ("3",)),
    Shot("demos", LIST, "`gpudoctor demo`: recorded machines to try it on."),
    Shot("narrow", "diagnosis", "80 columns are enough.", "rtx-5090", (), SMALL),
)


async def taken(shot: Shot) -> str:
    """That picture as SVG."""
    chosen = shot.demo and replace(demos.named(shot.demo), pace=0).work()
    app = DoctorApp(chosen) if chosen else RecordingsApp(demos.every())
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
    for _ in range(12):
        await pilot.pause(0.1)


async def write() -> None:
    """Take all of them."""
    HOME.mkdir(parents=True, exist_ok=True)
    for shot in SHOTS:
        (HOME / f"{shot.name}.svg").write_text(await taken(shot), "utf-8")


def gallery() -> str:
    """All pictures with what they show, as Markdown."""
    pictures = (
        f"**{shot.screen.capitalize()}.** {shot.about}\n\n![{shot.name}]({_AT}/{shot.name}.svg)" for shot in SHOTS
    )
    return "\n\n".join(pictures)


async def keys() -> str:
    """What every key does, by screen, as a Markdown table."""
    app = DoctorApp(replace(demos.named(SHOTS[0].demo), pace=0).work())
    by_screen: dict[str, list[hints.Hint]] = {}
    async with app.run_test(size=SIZE) as pilot:
        await settled(pilot)
        for door in (*places.DOORS, places.FIX):
            await app.run_action(f"open('{door.name}')")
            await _calm(pilot)
            by_screen[door.title] = hints.of(app.screen)
    everywhere = {hint.action: hint for hint in by_screen[places.DOORS[0].title] if hint.everywhere}
    rows = ["| where | key | does |", "|---|---|---|"]
    rows += [_row("everywhere", hint) for hint in everywhere.values() if not hint.action.startswith("open(")]
    rows += [f"| everywhere | `1` … `{len(places.DOORS)}` | {', '.join(door.title for door in places.DOORS)} |"]
    shared = set.intersection(*({hint.words for hint in of} for of in by_screen.values()))
    rows += [
        _row("every screen", hint)
        for hint in by_screen[places.DOORS[0].title]
        if hint.words in shared and not hint.everywhere
    ]
    for title, of in by_screen.items():
        rows += [_row(title, hint) for hint in of if not hint.everywhere and hint.words not in shared]
    return "\n".join(rows)


def _row(where: str, hint: hints.Hint) -> str:
    return f"| {where} | {' '.join(f'`{key}`' for key in hint.keys)} | {hint.words} |"


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
