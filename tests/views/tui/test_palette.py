"""The command palette and the page of keys: everything that can be done now, from the bindings themselves."""

from textual.binding import Binding
from textual.command import CommandPalette, DiscoveryHit, Hit
from textual.pilot import Pilot

from gpudoctor.views.tui import marks
from gpudoctor.views.tui.app import Commands, DoctorApp
from gpudoctor.views.tui.screens.help import KeysScreen
from gpudoctor.views.tui.widgets import frame
from gpudoctor.views.tui.widgets.frame import SCREEN_ENTRIES
from gpudoctor.views.tui.widgets.prose import Prose
from tests.views.tui.conftest import NARROW, WIDE, Opened, app_of, shown
from tests.views.tui.machines import here, told_of, work_of


def provider(pilot: Pilot[None]) -> Commands:
    """As the palette makes it; there, what it raises would only be missing."""
    commands = Commands(pilot.app.screen)
    commands._post_init()
    return commands


async def named(pilot: Pilot[None], query: str) -> list[str]:
    """What the palette lists for that."""
    hits: list[Hit | DiscoveryHit] = [hit async for hit in provider(pilot)._search(query)]
    ordered = sorted(hits, key=lambda hit: hit.score, reverse=True) if query else hits
    return [hit.text or "" for hit in ordered]


async def test_what_is_bound_and_what_is_found_is_listed(opened: Opened) -> None:
    async with opened(work_of("too-old-b200")) as pilot:
        names = await named(pilot, "")
        assert len(names) == len(set(names))
        for wanted in (
            *("go: not judged", "here: copy the next command of the cure  c", "read: again  r", "view: theme…"),
            "leave: quit  q",
        ):
            assert any(name.startswith(wanted) for name in names), wanted
        assert any(name.startswith("finding: driver.too-old-for-gpu  ✗ ") for name in names)
        doors = [name.partition("  ")[0] for name in names if name.startswith("go: ") and "not judged" not in name]
        assert doors == [f"go: {door.title}" for door in frame.SCREEN_ENTRIES if door.name != "diagnosis"]
        assert not any("move" in name or "scroll" in name or name.startswith("read: stop") for name in names)


async def test_a_reading_can_be_stopped_while_it_is(opened: Opened) -> None:
    async with opened(work_of("nvml-hangs-at-init"), settle=False) as pilot:
        assert any(name.startswith("read: stop") for name in await named(pilot, ""))


async def test_a_rule_that_was_not_judged_is_found_by_its_id(opened: Opened) -> None:
    async with opened(work_of("too-old-b200")) as pilot:
        app = app_of(pilot)
        assert app.diagnosis
        name = app.diagnosis.unjudged[0].id
        assert (await named(pilot, name))[0].startswith(f"not judged: {name}")


async def test_typed_and_chosen_it_is_done(opened: Opened) -> None:
    async with opened(work_of("too-old-b200"), WIDE) as pilot:
        await pilot.press("ctrl+p")
        assert isinstance(pilot.app.screen, CommandPalette)
        await pilot.press(*"too-old-for")
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        assert any("finding: driver.too-old-for-gpu" in line for line in shown(pilot))
        await pilot.press("enter")
        assert here(pilot) == "driver.too-old-for-gpu"


async def test_every_key_of_the_screen_is_on_the_page(opened: Opened) -> None:
    for size in (NARROW, WIDE):
        async with opened(told_of("too-old-b200"), size) as pilot:
            wanted = frame.hints_of(pilot.app.screen)
            await pilot.press("question_mark")
            assert isinstance(pilot.app.screen, KeysScreen)
            text = "\n".join(prose.text for prose in pilot.app.screen.query(Prose))
            for hint in wanted:
                assert hint.action.startswith("open(") or hint.words in text, hint
                assert hint.keys[0] in text, hint
            for _, words, _ in marks.MEANINGS:
                assert words in text
            await pilot.press("escape")
            assert not isinstance(pilot.app.screen, KeysScreen)


async def test_every_binding_says_what_it_does(opened: Opened) -> None:
    async with opened(told_of("too-old-b200"), WIDE) as pilot:
        app = app_of(pilot)
        for door in SCREEN_ENTRIES:
            app.action_open(door.name)
            await pilot.pause()
            owners = [app.screen, *app.screen.query("*")]
            ours = [type(owner) for owner in owners if type(owner).__module__.startswith("gpudoctor")]
            for owner in {*ours, DoctorApp}:
                for binding in vars(owner).get("BINDINGS", ()):
                    assert isinstance(binding, Binding)
                    assert binding.description, (owner, binding)
                    assert not binding.show or len(binding.description) <= 16, (owner, binding)  # the footer's room
