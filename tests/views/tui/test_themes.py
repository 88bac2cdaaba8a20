"""Every theme that is shipped: states are told apart with few colours, and text is read with many."""

import json
from pathlib import Path

import pytest
from rich.color import Color as RichColor
from rich.color import ColorSystem
from textual.color import Color
from textual.pilot import Pilot
from textual.theme import Theme

from gpudoctor.views.tui import themes
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.themes import ThemeScreen
from gpudoctor.views.tui.widgets.frame import SCREEN_ENTRIES
from tests.views.tui.conftest import WIDE, Opened, app_of, shown
from tests.views.tui.machines import told_of

STATES = ("error", "warning", "success", "primary")
LEAST = 4.5
"""Contrast of text, as WCAG 2.2 asks for at level AA (success criterion 1.4.3)."""
OWN_COLOURS = [theme for theme in themes.OURS if not theme.ansi]
DECORATION = "─│╭╮╰╯├└┤━═▔▁▂▃▄▅▆▇█░▒▓▌▐▊▎·…▸▾\\"
"""Borders, bars, guides and the diagonal of a matrix: they may be quiet, for what they say is said in words, too."""


@pytest.mark.parametrize("theme", themes.OURS, ids=lambda theme: theme.name)
@pytest.mark.parametrize("system", [ColorSystem.STANDARD, ColorSystem.EIGHT_BIT, ColorSystem.TRUECOLOR])
def test_no_two_states_are_one_colour(theme: Theme, system: ColorSystem) -> None:
    colours = {state: drawn(str(getattr(theme, state))).downgrade(system) for state in STATES}
    assert len(set(colours.values())) == len(STATES), colours
    for state in ("foreground", "background"):
        assert drawn(str(getattr(theme, state))).downgrade(system) not in colours.values()


def drawn(name: str) -> RichColor:
    """A theme's colour as the terminal gets it."""
    return Color.parse(name).rich_color


@pytest.mark.parametrize("theme", OWN_COLOURS, ids=lambda theme: theme.name)
def test_states_and_what_is_written_on_them_are_read(theme: Theme) -> None:
    background = Color.parse(str(theme.background))
    on_state = Color.parse({**themes.DEFAULTS, **theme.variables}["on-state"])
    for state in STATES:
        colour = Color.parse(str(getattr(theme, state)))
        assert contrast(colour, background) >= LEAST, state
        assert contrast(on_state, colour) >= LEAST, state


def contrast(a: Color, b: Color) -> float:
    """The ratio of relative luminances, by WCAG 2.2."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: Color) -> float:
    """Relative luminance of an sRGB colour, by WCAG 2.2."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    "theme", [OWN_COLOURS[0], *(pytest.param(theme, marks=pytest.mark.full) for theme in OWN_COLOURS[1:])]
)
async def test_all_that_is_written_on_the_screens_is_read(theme: Theme, opened: Opened) -> None:
    async with opened(told_of("lost-gpu-h100"), WIDE) as pilot:
        app = app_of(pilot)
        assert app.diagnosis
        app.theme = theme.name
        for door in SCREEN_ENTRIES:
            app.action_open(door.name)
            await pilot.pause()
            await pilot.pause()
            assert not list(hardly_read(pilot)), door.name
        await pilot.press("question_mark")
        assert not list(hardly_read(pilot))


def hardly_read(pilot: Pilot[None]) -> list[tuple[str, float]]:
    """Words on the screen whose contrast is too low, with it."""
    found = []
    for line in pilot.app.screen._compositor.render_strips():
        for text, style, _ in line:
            assert style
            if not style.color or not style.bgcolor or not text.strip(f" {DECORATION}"):
                continue
            front, back = Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor)
            front = back.blend(front, 0.66) if style.dim else front  # as Textual and most terminals dim
            ratio = contrast(front, back)
            if ratio < LEAST:
                found.append((text, round(ratio, 2)))
    return found


async def test_a_theme_is_previewed_kept_and_there_again(opened: Opened, tmp_path: Path) -> None:
    async with opened(told_of("hgx-h100")) as pilot:
        app = app_of(pilot)
        assert app.theme == themes.NIGHT.name
        app.action_themes()
        await pilot.pause()
        assert isinstance(app.screen, ThemeScreen)
        await pilot.press("down")
        assert app.theme == themes.DAY.name
        await pilot.press("escape")
        assert app.theme == themes.NIGHT.name
        app.action_themes()
        await pilot.pause()
        await pilot.press("down", "down", "enter")
        assert app.theme == themes.CONTRAST.name
    kept = tmp_path / "config/gpudoctor/tui.json"
    assert json.loads(kept.read_text()) == {"theme": themes.CONTRAST.name}
    assert [path.name for path in kept.parent.iterdir()] == ["tui.json"]
    assert DoctorApp(told_of("hgx-h100")).theme == themes.CONTRAST.name


async def test_the_first_screen_is_drawn_in_every_theme(opened: Opened) -> None:
    async with opened(told_of("too-old-b200")) as pilot:
        for theme in themes.NAMES:
            pilot.app.theme = theme
            await pilot.pause()
            assert shown(pilot)[0].startswith(" ✗ BROKEN"), theme
