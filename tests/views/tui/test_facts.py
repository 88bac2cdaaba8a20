"""Every fact on the third screen: found by what one types, and told apart by what is not known of it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from textual.pilot import Pilot

from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.work import Work
from tests.views.tui.conftest import WIDE, Opened, shown, text, until
from tests.views.tui.facts_of_a_machine import BOTH, diagnosis, known, names, to_facts, typed, work_with


@BOTH
async def test_the_list_counts_what_is_not_known_and_the_pane_says_all_of_a_fact(
    opened: Opened, size: tuple[int, int]
) -> None:
    async with opened(work_with(diagnosis()), size) as pilot:
        screen = await to_facts(pilot)
        lines = shown(pilot)
        total = len(screen.table.listing)
        assert f"{total} facts · 2 absent (-) · 2 not read (u)" in lines[1]
        assert f"of {total}" in lines[3]
        assert "Facts 1-" in lines[3]
        assert "▸? driver.module_log" in lines[5]
        assert "not read" in lines[5]
        assert "! driver.version" in lines[6]
        assert ("dmesg: needs root" in lines[5]) == (size == WIDE)  # the source is in the pane below where it is narrow
        said = text(pilot)
        assert "driver.module_log is not read" in said
        assert "because  dmesg: needs root" in said
        assert "? gpu.xid → not judged (enter opens it)" in said
        await pilot.press("down")
        said = text(pilot)
        assert "driver.version = 535.183.06" in said
        assert "read     /proc/driver/nvidia/version · driver took 48.1 ms" in said
        assert "! gpu.throttled → found (enter opens it): GPU 2 [x] is held back" in said
        assert "✓ passed gpu.ecc" in said


async def test_siblings_are_folded_neighbours_shown_and_n_goes_over_what_findings_rest_on(opened: Opened) -> None:
    async with opened(work_with(diagnosis())) as pilot:
        screen = await to_facts(pilot)
        assert screen.selected() == ()
        visited = []
        for key in ("n", "n", "n", "N"):
            await pilot.press(key)
            assert screen.selected() == ("gpu.throttled",)  # what a plan made from here is for
            assert screen.table.item
            visited.append(screen.table.item.name)
        assert visited == ["driver.version", "gpu.2.clock_mhz", "driver.version", "gpu.2.clock_mhz"]
        for name, said in [
            ("gpu.2.clock_mhz", ("gpu.2.clock_mhz = 1110 MHz", "siblings 1980 on all 3 others")),
            ("gpu.0.clock_mhz", ("siblings the same on 2, 1110 on 1 of 3 others",)),
            ("text.1.line", ("before   line 0 of the log", "after    line 2 of the log")),
        ]:
            assert screen.go(name)
            await pilot.pause()
            assert all(words in text(pilot) for words in said)


async def test_search_is_in_names_values_and_sources(opened: Opened) -> None:
    async with opened(work_with(diagnosis())) as pilot:
        screen = await to_facts(pilot)
        for words, found in [
            ("module_l", ["driver.module_log"]),
            ("535.183", ["driver.version"]),
            ("NEEDS ROOT", ["driver.module_log"]),
            ("1110 nvml", ["gpu.2.clock_mhz"]),
            ("gpu.3 serial", ["gpu.3.serial"]),
        ]:
            await typed(pilot, words)
            assert names(screen) == found, words
            assert f"/ {words}" in shown(pilot)[3]  # what one types is seen while one types it
            assert f'with "{words}"' in text(pilot)
            lit = "".join(piece for piece, look in screen.table.row(0) if look == "accent").lower()
            assert all(part in lit or part not in names(screen)[0] for part in words.lower().split())
            await pilot.press("escape")
            assert len(names(screen)) == len(screen.table.listing)
        assert screen.table.has_focus


async def test_while_one_types_keys_are_letters_and_enter_goes_to_what_was_found(opened: Opened) -> None:
    async with opened(work_with(diagnosis())) as pilot:
        screen = await to_facts(pilot)
        await typed(pilot, "udcaD-!q1")
        assert screen.search.field.value == "udcaD-!q1"
        assert not screen._filter.only
        assert "to the list" in shown(pilot)[-1]
        assert "copy" not in shown(pilot)[-1]
        await pilot.press("escape")
        await typed(pilot, "[/driverr]")
        assert 'no fact has "[/driverr]"; names, values and sources were searched' in text(pilot)
        await pilot.press("escape")
        await typed(pilot, "clock")
        await pilot.press("enter", "down", "down")
        assert screen.table.has_focus
        assert screen.table.item
        assert screen.table.item.name == "gpu.2.clock_mhz"
        await pilot.press("escape")
        assert screen.table.item.name == "gpu.2.clock_mhz"  # the cursor stays on the fact when all are listed again
        assert not screen._filter


async def test_each_kind_has_its_key_and_all_have_one(opened: Opened) -> None:
    async with opened(work_with(diagnosis())) as pilot:
        screen = await to_facts(pilot)
        for key, listed, said in [
            ("u", ["driver.module_log", "mig"], "only not read"),
            ("minus", ["cuda.toolkit", "toolkit"], "only absent"),
            ("exclamation_mark", ["driver.version", "gpu.2.clock_mhz"], "only what findings rest on"),
        ]:
            await pilot.press(key)
            assert sorted(names(screen)) == sorted(listed)
            assert said in text(pilot)
            await pilot.press(key)
            assert len(names(screen)) == len(screen.table.listing)
        await pilot.press("u", "a")
        assert len(names(screen)) == len(screen.table.listing)


async def test_where_nothing_is_of_a_kind_it_is_said(opened: Opened) -> None:
    facts = Snapshot(Target("snapshot", "x"), {"driver.version": known("1")})
    sound = Diagnosis(facts, "sound", (), (), (), "1")
    async with opened(work_with(sound)) as pilot:
        await to_facts(pilot)
        for key, said in [
            ("u", "no fact is not read"),
            ("minus", "no fact is absent"),
            ("exclamation_mark", "no finding rests on a fact"),
        ]:
            await pilot.press(key)
            assert said in text(pilot)


async def test_where_nothing_was_read_it_is_said(opened: Opened) -> None:
    def fails(*_: Any) -> Diagnosis:
        raise DocumentError("x.json: broken")

    async with opened(Work("x", fails, lambda name: name)) as pilot:
        await to_facts(pilot)
        assert "nothing was read" in text(pilot)
        await pilot.press("c")
        assert "no fact to copy here" in text(pilot)
        await pilot.press("d")
        assert "nothing to compare with can be opened here" in text(pilot)


async def test_before_anything_was_read_it_is_said_and_then_it_shows(opened: Opened) -> None:
    ready = threading.Event()

    def slow(*_: Any) -> Diagnosis:
        ready.wait(120)
        return diagnosis()

    async with opened(
        replace(work_with(diagnosis(), open=lambda _: diagnosis()), diagnose=slow), settle=False
    ) as pilot:
        screen = await to_facts(pilot)
        assert "nothing was read yet: what is read is shown as it comes in" in text(pilot)
        await pilot.press("d")
        assert "not while this machine is being read" in text(pilot)
        ready.set()
        await until(pilot, lambda: len(names(screen)) > 20)


@BOTH
def test_looks(snap_compare: Any, size: tuple[int, int]) -> None:
    async def there(pilot: Pilot[None]) -> None:
        await to_facts(pilot)
        await pilot.press("n", "n")

    assert snap_compare(DoctorApp(work_with(diagnosis())), terminal_size=size, run_before=there)
