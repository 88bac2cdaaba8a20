"""The cursor belongs to the user: untouched it follows the first cause, once used it stays on what was chosen."""

from __future__ import annotations

import pytest

from tests.views.tui.conftest import SIZES, Opened, first_screen, settled, shown
from tests.views.tui.machines import Stream, diagnosis_of, finding_of, here, with_findings

BOTH = pytest.mark.parametrize("size", SIZES)


def stream() -> Stream:
    """First a warning; then a symptom before it; then what explains that symptom, before both."""
    whole = diagnosis_of("too-old-b200")
    hot = finding_of("throttled-heat-a10", "gpu.throttled")
    unloaded = finding_of("module-not-loaded", "driver.module-not-loaded")
    old = finding_of("too-old-b200", "driver.too-old-for-gpu")
    assert unloaded.id in old.explains
    return Stream(
        [
            with_findings(whole, hot),
            with_findings(whole, unloaded, hot),
            with_findings(whole, old, unloaded, hot),
            with_findings(whole, old, hot),
            with_findings(whole, old, unloaded, hot),
        ]
    )


@BOTH
async def test_untouched_it_follows_the_first_cause(opened: Opened, size: tuple[int, int]) -> None:
    source = stream()
    async with opened(source.work, size, settle=False) as pilot:
        for first in ("gpu.throttled", "driver.module-not-loaded", "driver.too-old-for-gpu"):
            await source.next(pilot)
            assert here(pilot) == first


@BOTH
async def test_a_key_at_the_only_row_makes_it_the_users(opened: Opened, size: tuple[int, int]) -> None:
    source = stream()
    async with opened(source.work, size, settle=False) as pilot:
        await source.next(pilot)
        await pilot.press("k")  # there is no row above
        for _ in range(4):
            await source.next(pilot)
            assert here(pilot) == "gpu.throttled"
        await settled(pilot)
        assert here(pilot) == "gpu.throttled"


@pytest.mark.parametrize("key", ["c", "e", "enter", "j", "n", "end"])
async def test_whatever_is_done_with_an_entry_keeps_it(opened: Opened, key: str) -> None:
    source = stream()
    async with opened(source.work, settle=False) as pilot:
        await source.next(pilot)
        await pilot.press(key)
        if key == "e":
            await pilot.press("escape")
        chosen = here(pilot)
        await source.next(pilot)
        assert here(pilot) == chosen
        await source.next(pilot)
        assert here(pilot) == chosen


async def test_it_stays_on_a_symptom_that_is_folded_comes_and_goes(opened: Opened) -> None:
    source = stream()
    async with opened(source.work, settle=False) as pilot:
        await source.next(pilot)
        await source.next(pilot)
        await pilot.press("home")
        assert here(pilot) == "driver.module-not-loaded"
        await source.next(pilot)  # now under the cause that explains it
        assert here(pilot) == "driver.module-not-loaded"
        assert "└ ✗" in "\n".join(shown(pilot)).replace("▸", " ")
        await source.next(pilot)  # gone for a while
        await source.next(pilot)
        assert here(pilot) == "driver.module-not-loaded"


async def test_a_symptom_is_folded_with_its_cause_and_unfolded_when_it_is_gone_to(opened: Opened) -> None:
    whole = diagnosis_of("too-old-b200")
    old = finding_of("too-old-b200", "driver.too-old-for-gpu")
    unloaded = finding_of("module-not-loaded", "driver.module-not-loaded")
    source = Stream([with_findings(whole, old, unloaded)])
    async with opened(source.work, settle=False) as pilot:
        await source.next(pilot)
        assert "1 cause · 1 symptom folded" in shown(pilot)[0]
        screen = first_screen(pilot)
        await pilot.press("space")
        assert [entry.id for entry in screen.findings.entries[:2]] == ["driver.too-old-for-gpu", "unjudged"]
        assert screen.findings.go("driver.module-not-loaded")
        assert here(pilot) == "driver.module-not-loaded"


async def test_escape_keeps_what_was_read_and_r_reads_again(opened: Opened) -> None:
    source = stream()
    async with opened(source.work, settle=False) as pilot:
        await source.next(pilot)
        assert "Esc stop" in shown(pilot)[1]
        await pilot.press("escape")
        lines = shown(pilot)
        assert "READING" not in lines[0]
        assert "stopped: what was not read by then is not judged; r reads again" in lines[1]
        assert here(pilot) == "gpu.throttled"
        await pilot.press("r")
        assert "READING" in shown(pilot)[0]
        for _ in range(4):  # the reading that was stopped takes what is let through as well, and is not heard
            source._more.release()
        for _ in range(6):
            source._more.release()
        await settled(pilot)
        assert here(pilot) == "driver.too-old-for-gpu"
