"""The first screen: verdict, causes, the cure and its command."""

from __future__ import annotations

from tests.tui.conftest import Opened, shown
from tests.tui.machines import work_of


async def test_the_command_of_the_cure_is_one_key_away(opened: Opened) -> None:
    async with opened(work_of("too-old-b200")) as pilot:
        await pilot.press("c")
        assert pilot.app.clipboard == "ubuntu-drivers devices"
        await pilot.pause()
        assert "copied 1 of 3: ubuntu-drivers devices" in shown(pilot)[1]


async def test_eight_gpus_with_one_cause_are_one_cause(opened: Opened) -> None:
    async with opened(work_of("too-old-b200")) as pilot:
        lines = shown(pilot)
        assert lines[0].split("  ")[0:2] == [" ✗ BROKEN", "1 cause"]
        assert sum("older than the B200" in line for line in lines) == 2  # in the list, and in the detail
