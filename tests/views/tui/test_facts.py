"""The third screen: facts found by what one types, however long, beside those of another machine and of findings."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from gpudoctor.app.interactive import work_on
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.difference import Difference
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Row
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis.compare import compare
from gpudoctor.views import document
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.screens.facts import FactsScreen
from gpudoctor.views.tui.screens.help import ExplainScreen
from gpudoctor.views.tui.words.facts import Facts
from gpudoctor.views.tui.work import FactInfo, Work
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
from tests.views.tui.machines import diagnosis_of


@BOTH
async def test_the_list_counts_what_is_not_known_and_the_pane_says_all_of_a_fact(
    opened: Opened, size: tuple[int, int]
) -> None:
    async with opened(work_with(diagnosis()), size) as pilot:
        screen = await to_facts(pilot)
        assert f"{len(screen.table.listing)} facts · 2 absent (-) · 2 not read (u)" in shown(pilot)[1]
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
    facts = Facts(snapshot())
    listed = [facts[at].name for at in range(len(facts))]
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


async def compared(pilot: Pilot[None], name: str) -> FactsScreen:
    screen = await to_facts(pilot)
    await pilot.press("d")
    pilot.app.screen.query_one(Input).value = name
    await pilot.press("enter")
    await until(pilot, lambda: pilot.app.screen is screen and screen.beside.listing is not None)
    await pilot.pause()
    return screen


@BOTH
async def test_two_machines_differ_in_what_makes_one_of_them_sick(
    opened: Opened, size: tuple[int, int], tmp_path: Path
) -> None:
    other = tmp_path / "sound.json"
    other.write_text(document.render(diagnosis_of("hgx-h100")), "utf-8")
    sick = diagnosis_of("two-gpus-two-causes")
    async with opened(work_on("sick", lambda _: iter([sick])), size) as pilot:
        screen = await compared(pilot, str(other))
        assert screen.table.item
        assert screen.table.item.name == "gpu[3].ecc_uncorrected"
        line = next(line for line in shown(pilot) if "▸✗ gpu[3].ecc_uncorrected" in line)
        assert line.split()[3:5] == ["1", "0"]
        assert "Facts that differ" in text(pilot)
        assert "beside sound.json" in text(pilot)
        assert all("temperature" not in name for name in names(screen))
        before = len(names(screen))
        await pilot.press("D")
        assert len(names(screen)) >= before
        await pilot.press("D")
        await typed(pilot, "zzz")
        assert 'no differing fact has "zzz"' in text(pilot)
        await pilot.press("escape", "escape")
        assert screen.beside.listing is None
        assert len(names(screen)) == len(screen.table.listing) > 1000


async def test_what_always_differs_is_left_out_unless_asked_for(opened: Opened) -> None:
    rows = snapshot().groups["gpu"]
    assert isinstance(rows, tuple)
    later = replace(snapshot(), groups={"gpu": tuple({**row, "serial": known("T")} for row in rows)})
    other = replace(diagnosis(), snapshot=later)
    async with opened(work_with(diagnosis(), open=lambda _: other)) as pilot:
        screen = await compared(pilot, "x")
        assert not [name for name in names(screen) if "serial" in name]
        await pilot.press("D")
        assert [name for name in names(screen) if "serial" in name] == [f"gpu[{place}].serial" for place in range(4)]
        assert "D leaves out what always differs" in text(pilot)


async def test_what_was_found_on_the_other_machine_only_says_so(opened: Opened) -> None:
    sound = Diagnosis(snapshot(**{"driver.version": known("580.95.05")}), "sound", (), (), ("gpu.throttled",), "1")
    async with opened(work_with(sound, open=lambda _: diagnosis())) as pilot:
        await compared(pilot, "x")
        assert says(pilot, "gpu.throttled → found (enter opens it): on the other machine: GPU 2 [x] is held back")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, ExplainScreen))


async def test_two_machines_alike_have_nothing_to_show(opened: Opened) -> None:
    async with opened(work_with(diagnosis(), open=lambda _: diagnosis())) as pilot:
        await compared(pilot, "x")
        assert "nothing differs" in text(pilot)
        await pilot.press("c")
        assert "no fact to copy here" in text(pilot)


@BOTH
async def test_what_cannot_be_opened_is_said_where_one_can_name_another(
    opened: Opened, size: tuple[int, int], tmp_path: Path
) -> None:
    work = replace(work_on("x", lambda _: iter([diagnosis()])), used_by=lambda: TOLD)
    (tmp_path / "b").write_bytes(b"\x00\x01\x02" * 100)
    async with opened(work, size) as pilot:
        screen = await to_facts(pilot)
        await pilot.press("d")
        for name, said in [
            (f"{tmp_path}/[no]", "No such file"),
            (f"{tmp_path}/b", "binary, not text"),
            ("-", "this terminal"),
        ]:
            field = pilot.app.screen.query_one("Input")
            field.value = name  # type: ignore[attr-defined]
            await pilot.press("enter")
            await until(pilot, lambda said=said: said in " ".join(text(pilot).split()))  # type: ignore[misc]
        await pilot.press("escape")
        assert pilot.app.screen is screen


async def test_of_two_files_the_one_that_was_opened_last_is_compared(opened: Opened) -> None:
    both, first = threading.Event(), replace(diagnosis(), tool_version="first")

    def compared_late(a: Diagnosis, b: Diagnosis) -> Difference:
        if b is first:
            both.wait(120)
        return compare(a, b)

    opens = {"first": first, "last": diagnosis()}
    async with opened(replace(work_with(diagnosis(), open=opens.__getitem__), compare=compared_late)) as pilot:
        screen = await to_facts(pilot)
        for name in opens:
            await pilot.press("d", *name, "enter")
            await until(pilot, lambda name=name: screen.beside.name == name)  # type: ignore[misc]
        await until(pilot, lambda: screen.beside.listing is not None)
        both.set()
        await until(pilot, lambda: not [thread for thread in threading.enumerate() if thread.name == "compare"])
        await pilot.pause()
        assert screen.beside.listing is not None
        assert screen.beside.listing.difference.b is opens["last"]


async def test_a_comparison_that_fails_is_said(opened: Opened) -> None:
    def fails(a: Diagnosis, b: Diagnosis) -> Any:
        raise DocumentError("these [cannot] be compared")

    async with opened(replace(work_with(diagnosis(), open=lambda _: diagnosis()), compare=fails)) as pilot:
        await to_facts(pilot)
        await pilot.press("d", "x", "enter")
        await until(pilot, lambda: "cannot compare: these [cannot] be compared" in text(pilot))


def test_every_fact_is_told_with_its_meaning_its_probe_and_its_rules() -> None:
    used_by = work_on("x", lambda _: iter([diagnosis()])).used_by
    assert used_by
    told = used_by()
    assert "driver.too-old-for-gpu" in told["driver.version"].rules
    assert told["driver.version"].source == "driver"
    assert told["gpu.temperature_c"].about
    assert told["env.NCCL_P2P_DISABLE"].rules
    assert told["env.NCCL_P2P_DISABLE"].about == told["env.*"].about


async def test_a_name_is_completed_from_its_folder(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "node17.json").write_text(document.render(diagnosis(replace(snapshot(), facts={}))), "utf-8")
    (tmp_path / "old").mkdir()
    async with opened(work_on("x", lambda _: iter([diagnosis()]))) as pilot:
        screen = await to_facts(pilot)
        await pilot.press("d")
        field = pilot.app.screen.query_one(Input)
        for begin, whole in [("no", "node17.json"), ("o", "old/")]:
            field.value = f"{tmp_path}/{begin}"
            field.action_end()
            await until(pilot, lambda: bool(field._suggestion))
            await pilot.press("right")
            assert field.value == f"{tmp_path}/{whole}"
        field.value = f"{tmp_path}/node17.json"
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen is screen and screen.beside.name == "node17.json")
