"""The command palette: everything that can be done now, and nothing else."""

from __future__ import annotations

from textual.command import CommandPalette, DiscoveryHit, Hit
from textual.pilot import Pilot

from gpudoctor.views.tui.app import Commands, DoctorApp
from gpudoctor.views.tui.screens.diagnosis import DiagnosisScreen
from gpudoctor.views.tui.widgets import frame
from tests.views.tui.conftest import WIDE, Opened, shown
from tests.views.tui.machines import work_of


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
            "go: not judged",
            "here: copy the next command of the cure  c",
            "read: again  r",
            "view: theme…",
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
        app = pilot.app
        assert isinstance(app, DoctorApp)
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
        await pilot.pause()
        screen = pilot.app.screen
        assert isinstance(screen, DiagnosisScreen)
        assert screen.findings.entry
        assert screen.findings.entry.id == "driver.too-old-for-gpu"
