"""The pictures of README.md, of the demos: ``python -m tests.screenshots --write`` takes them anew."""

import asyncio
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from textual.pilot import Pilot

from gpudoctor.app import demos
from gpudoctor.views.tui import themes
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.recordings import LIST, RecordingsApp
from gpudoctor.views.tui.widgets import frame
from tests.guard import test_browser
from tests.needs import REPOSITORY
from tests.views.tui import jobs
from tests.views.tui.conftest import settled

_AT = "tests/views/tui/screenshots"
HOME = REPOSITORY / _AT
SIZE, SMALL = (128, 40), (80, 24)
_WORDS = {"this page": "the keys of the screen"}
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
    job: str = ""
    """The recorded job that it is of, where it is of one."""

    @property
    def command(self) -> str:
        """What one types to see it."""
        return "gpudoctor job 4711 --tui" if self.job else f"gpudoctor demo {self.demo}".strip()


SHOTS = (
    Shot("diagnosis", "diagnosis", "The cause first, its cure with it; `c` copies the command.", "torch-cu130"),
    Shot("gpus", "gpus", "One of eight H100 is held back by heat.", "hot-gpu", ("2",)),
    Shot("kernels", "kernels", "What small kernels measured, against what an H100 achieves.", "hot-gpu", ("4",)),
    Shot("cluster", "cluster", "64 hosts by ten checks and by pairs: which to take out, and why.", "sound", ("5",)),
    Shot("fix", "fix", "The plan, before anything is run.", "cpu-torch", ("f",)),
    Shot("setup", "setup", "Which torch fits this driver, and why no other.", "torch-cu130", ("6",)),
    Shot("facts", "facts", "Every fact, with its source and the rules that read it.", "torch-cu130", ("3",)),
    Shot("job", "job", "A rank waits for a file, and the others for the rank.", job="data"),
    Shot("demos", LIST, "`gpudoctor demo`: recorded machines to try it on."),
    Shot("narrow", "diagnosis", "80 columns are enough.", "rtx-5090", (), SMALL),
)


async def taken(shot: Shot) -> str:
    """That picture as SVG."""
    chosen = shot.demo and replace(demos.named(shot.demo), pace=0).work()
    if shot.job:
        chosen, _ = jobs.work_of(jobs.look_at(shot.job))
    app = DoctorApp(chosen) if chosen else RecordingsApp(demos.every())
    async with app.run_test(size=shot.size) as pilot:
        app.theme = themes.NIGHT.name
        if chosen:
            await settled(pilot)
            app.reading = replace(app.reading, seconds=SECONDS)
        for key in shot.keys:
            await pilot.press(key)
        await _calm(pilot)
        return app.export_screenshot(title=shot.command)


async def _calm(pilot: Pilot[None]) -> None:
    """Wait for what the screen has done in threads: a plan, a page, the first numbers of the GPUs."""
    for _ in range(12):
        await pilot.pause(0.1)


TOUR = ("torch-cu130", ((), ("f",), ("a",), ("y",)))
"""The recording at the head of README.md: a demo, and what is pressed before each of its pictures."""
SECONDS_EACH = 4


async def recorded() -> list[str]:
    """The pictures of `TOUR` as SVG: what is wrong, the plan, the question, and what came of it."""
    name, presses = TOUR
    app = DoctorApp(replace(demos.named(name), pace=0).work())
    pictures = []
    async with app.run_test(size=SIZE) as pilot:
        app.theme = themes.NIGHT.name
        await settled(pilot)
        app.reading = replace(app.reading, seconds=SECONDS)
        for keys in presses:
            await pilot.press(*keys)
            await _calm(pilot)
            pictures.append(app.export_screenshot(title=f"gpudoctor demo {name}"))
    return pictures


def animated(pictures: Sequence[str]) -> str:
    """One SVG that shows pictures of the same size in turn; the first alone where nothing may move."""
    size = re.search(r'viewBox="([^"]+)"', pictures[0])
    assert size
    share = 100 / len(pictures)
    whole = SECONDS_EACH * len(pictures)
    style = (
        f"@keyframes turn {{ 0%, {share - 0.1:.1f}% {{ opacity: 1 }} {share:.1f}%, 100% {{ opacity: 0 }} }}"
        f" .next {{ opacity: 0; animation: turn {whole}s infinite }}"
        " @media (prefers-reduced-motion) { .next { animation: none } }"
    )
    later = (
        f'<g class="next" style="animation-delay: {SECONDS_EACH * number}s">{picture}</g>'
        for number, picture in enumerate(pictures[1:], 1)
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size[1]}"><style>{style}</style>'
    return "\n".join([head, pictures[0], *later, "</svg>\n"])


async def write() -> None:
    """Take all of them."""
    HOME.mkdir(parents=True, exist_ok=True)
    (HOME / "tour.svg").write_text(animated(await recorded()), "utf-8")
    for shot in SHOTS:
        (HOME / f"{shot.name}.svg").write_text(await taken(shot), "utf-8")


def write_browser() -> None:
    """Take those of the interface in a browser: its first screen, and the GPUs in a small window."""
    with test_browser.launched() as browser, test_browser.served() as url:
        screen = test_browser.Screen(browser.new_context())
        screen.page.set_viewport_size({"width": 1000, "height": 640})
        screen.page.goto(url)
        screen.wait_for("BROKEN", "535.274.02")
        _photograph(screen, "browser")
        screen.page.set_viewport_size({"width": 760, "height": 480})
        screen.press("2", "[2 GPU]")
        _photograph(screen, "browser-small")


def _photograph(screen: test_browser.Screen, name: str) -> None:
    screen.page.wait_for_timeout(3000)  # until the last piece is painted, which no message says
    screen.page.screenshot(path=HOME / f"{name}.png")


def gallery() -> str:
    """All pictures with what they show, as Markdown; the first of them stands alone above."""
    pictures = (f"{shot.about}\n\n![{shot.name}](../../../{_AT}/{shot.name}.svg)" for shot in SHOTS[1:])
    return "\n\n".join(pictures)


async def keys() -> str:
    """What every key does, a row for each screen, as a Markdown table."""
    app = DoctorApp(replace(demos.named("sound"), pace=0).work())  # the one that has GPUs and hosts
    by_screen: dict[str, list[frame.Hint]] = {}
    async with app.run_test(size=SIZE) as pilot:
        await settled(pilot)
        for door in (*frame.SCREEN_ENTRIES, frame.FIX_SCREEN):
            await app.run_action(f"open('{door.name}')")
            await pilot.pause(0.3)
            by_screen[door.title] = [hint for hint in frame.hints_of(app.screen) if not hint.action.startswith("open(")]
    told = Counter((hint.keys, hint.words) for of in by_screen.values() for hint in of)
    most = {which for which, count in told.items() if count >= len(by_screen) - 1}
    first = next(iter(by_screen.values()))
    general = [hint for hint in first if (hint.keys, hint.words) in most or hint.moves]
    rows = [("everywhere", f"`1` … `{len(frame.SCREEN_ENTRIES)}` the screens · {_listed(general)}")]
    for title, of in by_screen.items():
        own = [hint for hint in of if (hint.keys, hint.words) not in most and not hint.moves]
        rows.append((title, _listed(own)))
    return "\n".join(["| where | keys |", "|---|---|", *(f"| {where} | {said} |" for where, said in rows)])


def _listed(of: Sequence[frame.Hint]) -> str:
    return " · ".join(
        f"{' '.join(f'`{key}`' for key in hint.keys)} {_WORDS.get(hint.words, hint.words)}" for hint in of
    )


def screens() -> set[str]:
    """Every screen that there is to take a picture of."""
    return {door.name for door in (*frame.SCREEN_ENTRIES, frame.FIX_SCREEN)} | {LIST}


if __name__ == "__main__":
    if "--write" not in sys.argv:
        sys.exit("python -m tests.screenshots --write")
    with tempfile.TemporaryDirectory() as empty:
        os.environ.update(XDG_CONFIG_HOME=empty, TERM="xterm-256color", LANG="C.UTF-8", TEXTUAL_ANIMATIONS="none")
        for name in ("NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_COLOR_SYSTEM", "LC_ALL", "LC_CTYPE"):
            os.environ.pop(name, None)
        asyncio.run(write())
        write_browser()
