"""The page of a rule, one key from the finding."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.pilot import Pilot

from gpudoctor.app.commands.explain import explained
from gpudoctor.core.errors import DoctorError
from gpudoctor.views._report import reasons
from gpudoctor.views.tui.screens.diagnosis import DiagnosisScreen
from gpudoctor.views.tui.screens.help import ExplainScreen
from gpudoctor.views.tui.widgets.prose import Pane
from tests.views.tui.conftest import SIZES, Opened, shown, until
from tests.views.tui.machines import diagnosis_of, told_of

BOTH = pytest.mark.parametrize("size", SIZES)


async def page_of(pilot: Pilot[None]) -> str:
    """What the page says, once it is there."""
    pane = pilot.app.screen.query_one(Pane)
    await until(pilot, lambda: "Looking it up" not in pane.prose.text)
    return pane.prose.text


async def test_e_shows_the_page_of_the_rule_which_scrolls_is_copied_and_left_by_escape(opened: Opened) -> None:
    async with opened(told_of("too-old-b200")) as pilot:
        await pilot.press("e")
        text = await page_of(pilot)
        assert isinstance(pilot.app.screen, ExplainScreen)
        assert text.startswith("driver.too-old-for-gpu: ")
        assert "Proof 1, of which one must hold:" in text
        assert "\n".join(shown(pilot)).count("gpudoctor explain driver.too-old-for-gpu") == 1
        pane = pilot.app.screen.query_one(Pane)
        await until(pilot, lambda: pane.below > 0)
        assert f"↓ {pane.below} more" in "\n".join(shown(pilot))
        await pilot.press("end")
        await until(pilot, lambda: pane.below == 0)
        await pilot.press("c")
        assert pilot.app.clipboard == explained("driver.too-old-for-gpu", [])
        await pilot.pause()
        assert "copied the page" in shown(pilot)[0]
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, DiagnosisScreen)
        await pilot.press("u", "e")
        assert "put the cursor on one" in shown(pilot)[1]  # a reason has no page, a rule that was not judged has one
        await pilot.press("j", "e")
        first = reasons(diagnosis_of("too-old-b200"))[0].rules[0]
        assert (await page_of(pilot)).startswith(f"{first}: ")


@pytest.mark.parametrize("error", [DoctorError("no rule 'x'; near it: y"), OSError(5, "Input/output error")], ids=repr)
async def test_what_goes_wrong_is_said_in_words(opened: Opened, error: Exception) -> None:
    def explain(_: str) -> str:
        raise error

    async with opened(replace(told_of("too-old-b200"), explain=explain)) as pilot:
        await pilot.press("e")
        assert str(error) in await page_of(pilot)
        await pilot.press("c")
        assert "there is no page to copy" in shown(pilot)[0]
