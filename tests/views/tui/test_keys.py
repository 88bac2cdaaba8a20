"""The page of keys: from the bindings themselves, and what the marks mean."""

from __future__ import annotations

from textual.binding import Binding

from gpudoctor.views.tui import hints, marks
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.screens.help import KeysScreen
from gpudoctor.views.tui.widgets.frame import SCREEN_ENTRIES
from gpudoctor.views.tui.widgets.prose import Prose
from tests.views.tui.conftest import NARROW, WIDE, Opened
from tests.views.tui.machines import told_of


async def test_every_key_of_the_screen_is_on_the_page(opened: Opened) -> None:
    for size in (NARROW, WIDE):
        async with opened(told_of("too-old-b200"), size) as pilot:
            wanted = hints.hints_of(pilot.app.screen)
            await pilot.press("question_mark")
            await pilot.pause()
            assert isinstance(pilot.app.screen, KeysScreen)
            text = "\n".join(prose.text for prose in pilot.app.screen.query(Prose))
            for hint in wanted:
                assert hint.action.startswith("open(") or hint.words in text, hint
                assert hint.keys[0] in text, hint
            for _, words, _ in marks.MEANINGS:
                assert words in text
            await pilot.press("escape")
            await pilot.pause()
            assert not isinstance(pilot.app.screen, KeysScreen)


async def test_every_binding_says_what_it_does(opened: Opened) -> None:
    async with opened(told_of("too-old-b200"), WIDE) as pilot:
        for door in SCREEN_ENTRIES:
            app = pilot.app
            assert isinstance(app, DoctorApp)
            app.action_open(door.name)
            await pilot.pause()
            owners = [app.screen, *app.screen.query("*")]
            ours = [type(owner) for owner in owners if type(owner).__module__.startswith("gpudoctor")]
            for owner in {*ours, DoctorApp}:
                for binding in vars(owner).get("BINDINGS", ()):
                    assert isinstance(binding, Binding)
                    assert binding.description, (owner, binding)
                    assert not binding.show or len(binding.description) <= 16, (owner, binding)  # the footer's room
