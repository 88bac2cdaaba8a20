"""What others wrote into facts, however long, and the ways from a finding to its facts and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpudoctor.core.fact import Row
from gpudoctor.views.tui.screens.help import ExplainScreen
from gpudoctor.views.tui.words.facts import Facts
from gpudoctor.views.tui.work import FactInfo
from tests.views.tui.conftest import Opened, shown, text, until
from tests.views.tui.facts_of_a_machine import (
    BOTH,
    TOLD,
    diagnosis,
    known,
    names,
    says,
    snapshot,
    to_facts,
    typed,
    work_with,
)


@BOTH
async def test_a_huge_value_is_cut_in_the_list_and_bounded_below(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(work_with(diagnosis()), size) as pilot:
        screen = await to_facts(pilot)
        assert screen.go("env.HUGE")
        await pilot.pause()
        assert all(len(line) <= size[0] for line in shown(pilot))
        prose = screen.detail.prose.text
        assert "100,000 characters; these are the first 4,000 of them" in prose
        assert len(prose) < 5_000
        await pilot.press("c")
        assert len(pilot.app.clipboard) == 50_000
        assert "copied the first 50,000 of 100,0" in text(pilot)


async def test_nested_and_empty_values_are_whole_and_c_copies_a_fact_with_its_source(opened: Opened) -> None:
    async with opened(work_with(diagnosis())) as pilot:
        await pilot.press("u", "t")  # from a rule that was not judged to what it reads
        screen = await to_facts(pilot, opened=True)
        assert names(screen) == ["driver.module_log"]
        await pilot.press("c")
        assert pilot.app.clipboard == "driver.module_log = (not read) (dmesg: needs root)"
        await pilot.press("a", "n", "c")
        assert pilot.app.clipboard == "driver.version = 535.183.06 (/proc/driver/nvidia/version)"
        assert "copied: driver.version = 535.183.06" in shown(pilot)[1]
        for name, said in [
            ("env.NESTED", 'env.NESTED = {"a": [{"b": 1}], "c": null}'),
            ("torch.archs", "torch.archs = sm_80, sm_90"),
            ("torch.elsewhere", "torch.elsewhere = none"),
            ("xid", "xid = 0 rows"),
            ("gpu", "gpu = 4 rows"),
        ]:
            assert screen.go(name)
            await pilot.pause()
            assert said in text(pilot)
        assert not screen.go("gpu.9.name")


@pytest.mark.full
async def test_a_log_of_a_hundred_thousand_lines_is_searched_beside_the_interface(opened: Opened) -> None:
    lines: tuple[Row, ...] = tuple({"line": known(f"line {number} of it", "the log")} for number in range(100_000))
    long = replace(snapshot(), groups={"text": lines})
    async with opened(work_with(diagnosis(long))) as pilot:
        screen = await to_facts(pilot)
        await pilot.press("end")
        assert screen.table.item
        assert screen.table.item.name == "text.99999.line"
        await typed(pilot, "line 77777")
        await until(pilot, lambda: names(screen) == ["text.77777.line"])
        await pilot.press("escape")
        assert len(names(screen)) == len(screen.table.listing)


async def test_the_cursor_stays_on_its_fact_when_more_is_read(opened: Opened) -> None:
    async with opened(work_with(diagnosis())) as pilot:
        screen = await to_facts(pilot)
        await pilot.press("n", "n")
        more = snapshot(**{f"driver.a{number}": known(number) for number in range(40)})
        screen.doctor.diagnosis = diagnosis(more)
        await pilot.pause()
        assert screen.table.item
        assert screen.table.item.name == "gpu.2.clock_mhz"


async def test_from_a_finding_to_its_facts_and_back(opened: Opened) -> None:
    async with opened(work_with(diagnosis())) as pilot:
        await pilot.press("t")
        screen = await to_facts(pilot, opened=True)
        assert names(screen) == ["driver.version", "gpu.2.clock_mhz"]
        assert "of gpu.throttled" in text(pilot)
        await pilot.press("escape")
        await pilot.pause()
        assert pilot.app.current_mode == "diagnosis"
        screen = await to_facts(pilot)
        assert len(names(screen)) == len(screen.table.listing)
        await pilot.press("escape")
        assert pilot.app.current_mode == "facts"  # one came here by its number: there is nowhere to go back to


async def test_from_a_fact_to_its_finding_and_back(opened: Opened) -> None:
    async with opened(work_with(diagnosis())) as pilot:
        screen = await to_facts(pilot)
        assert screen.go("gpu.2.clock_mhz")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.current_mode == "diagnosis")
        assert "GPU 2 [x] is held back" in text(pilot)
        await pilot.press("escape")
        await pilot.pause()
        assert pilot.app.current_mode == "facts"
        assert screen.go("driver.module_log")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.current_mode == "diagnosis")
        await until(pilot, lambda: "NOT JUDGED" in text(pilot))


async def test_a_fact_whose_rules_passed_opens_the_page_of_one(opened: Opened) -> None:
    told = {**TOLD, "torch.archs": FactInfo("what it was built for", rules=("gpu.ecc",))}
    async with opened(replace(work_with(diagnosis()), used_by=lambda: told)) as pilot:
        screen = await to_facts(pilot)
        assert screen.go("torch.archs")
        await pilot.pause()
        assert "passed gpu.ecc (enter explains the first)" in text(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, ExplainScreen))
        await pilot.press("escape")
        await pilot.press("e")
        await until(pilot, lambda: says(pilot, "torch.archs"))
        await pilot.press("escape")
        assert screen.go("torch.elsewhere")
        await pilot.press("enter")
        await until(pilot, lambda: "no rule reads torch.elsewhere" in shown(pilot)[1])


def test_driver_and_gpus_come_first_and_text_last() -> None:
    listed = [item.name for item in Facts(snapshot())]
    assert listed[:3] == ["driver.module_log", "driver.version", "xid"]
    assert listed.index("gpu.0.name") < listed.index("torch.archs") < listed.index("text.0.line")
    assert listed[-1] == "text.2.line"


def test_a_hundred_thousand_lines_cost_no_row_before_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: tuple[Row, ...] = tuple({"line": known(f"line {number}", "the log")} for number in range(100_000))
    many = replace(snapshot(), groups={"text": lines})
    made = 0
    make = Facts._at

    def counted(self: Facts, place: int) -> Any:
        nonlocal made
        made += 1
        return make(self, place)

    monkeypatch.setattr(Facts, "_at", counted)
    facts = Facts(many)
    assert facts[len(facts) - 1].name == "text.99999.line"
    assert facts.search("line 4242 log", range(len(facts)))[0] == facts.position_of("text.line", 4242)
    assert made == 1
