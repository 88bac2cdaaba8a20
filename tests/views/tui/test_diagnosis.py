"""The first screen: verdict, causes however many, where the cursor is, the cure, its command, the page of a rule."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from gpudoctor.app import pipeline
from gpudoctor.app.commands.explain import explained
from gpudoctor.app.interactive import of_files, of_this_machine, work_on
from gpudoctor.core.diagnosis import Diagnosis, Note
from gpudoctor.core.errors import DoctorError
from gpudoctor.core.snapshot import Progress
from gpudoctor.probes import torch_live
from gpudoctor.views._report import reasons
from gpudoctor.views.tui.screens.diagnosis import DiagnosisScreen
from gpudoctor.views.tui.screens.help import ExplainScreen
from gpudoctor.views.tui.widgets.prose import Pane
from gpudoctor.views.tui.words.summary import findings_line
from gpudoctor.views.tui.work import Work
from tests.sim import scenario
from tests.views.tui.conftest import NARROW, SIZES, WIDE, Opened, app_of, first_screen, settled, shown, text, until
from tests.views.tui.machines import (
    Held,
    Stream,
    diagnosis_of,
    finding_of,
    here,
    path_of,
    told_of,
    with_findings,
)

SMALL_AND_VAST = pytest.mark.parametrize("size", [NARROW, (240, 60)], ids=str)


def one(diagnosis: Diagnosis) -> Work:
    """That diagnosis, at once."""
    return work_on("a machine", lambda _: iter([diagnosis]))


def detail(pilot: Pilot[None]) -> str:
    """All that the pane at the right says, below its end, too."""
    return first_screen(pilot).detail.prose.text


async def test_the_command_of_the_cure_is_one_key_away_and_each_further_press_gives_the_next(opened: Opened) -> None:
    async with opened(told_of("too-old-5090")) as pilot:
        fixes = diagnosis_of("too-old-5090").findings[0].fixes
        count = sum(bool(step.argv) for fix in fixes for step in fix.steps)
        copied = []
        for _ in range(count + 1):
            await pilot.press("c")
            copied.append(pilot.app.clipboard)
        assert copied[:3] == ["ubuntu-drivers devices", "ubuntu-drivers install", "reboot"]
        assert copied[-1] == copied[0]
        await pilot.pause()
        assert f"copied 1 of {count}: ubuntu-drivers devices" in shown(pilot)[1]


@SMALL_AND_VAST
async def test_cause_and_cure_are_on_the_first_screen_at_every_size(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(told_of("too-old-5090"), size) as pilot:
        text = "\n".join(shown(pilot))
        for words in (
            "✗ BROKEN",
            "1 cause",
            f"{len(diagnosis_of('too-old-5090').unjudged)} not judged",
            "✗ ERROR",
            "Do 1",
            "$ ubuntu-drivers devices",
            "^p",
        ):
            assert words in text
        assert ("So" in text) is (size != NARROW)  # there it comes after the cure
        assert all(len(line) == size[0] for line in shown(pilot))


async def test_the_list_is_as_high_as_its_rows_and_enter_on_the_count_of_what_was_not_judged_opens_it(
    opened: Opened,
) -> None:
    async with opened(told_of("too-old-b200")) as pilot:
        assert first_screen(pilot).findings.size.height == 3  # the cause, what was not judged, what passed
        await pilot.press("C")
        assert "there is no plain terminal behind this one" in shown(pilot)[1]
        await pilot.press("j", "enter")
        assert first_screen(pilot).findings.only_unjudged
        assert 5 <= first_screen(pilot).findings.outer_size.height <= 24 * 0.4


async def test_a_sound_machine_shows_what_was_looked_for_from_the_ground_up(opened: Opened) -> None:
    async with opened(told_of("hgx-h100"), (100, 32)) as pilot:
        lines = shown(pilot)
        assert re.search("✓ SOUND  nothing wrong in [1-9][0-9]+ checks", lines[0])
        rows = [entry.id for entry in first_screen(pilot).findings.entries]
        topics = [row.removeprefix("passed ") for row in rows if row.startswith("passed ")]
        assert topics[:3] == ["host", "driver", "gpu"]
        await pilot.press("end")
        assert "Looked for and not there" in detail(pilot)


@pytest.mark.parametrize(
    ("name", "says"), [("hgx-h100", "8 × H100 80GB HBM3"), ("container-without-gpus-docker", "? NVML: ")]
)
async def test_where_there_is_room_it_says_what_machine_it_is(opened: Opened, name: str, says: str) -> None:
    async with opened(told_of(name), WIDE) as pilot:
        machine = first_screen(pilot).machine_pane
        assert machine.prose.text.startswith(f"GPUs       {says}")
        labels = {line[1:].split()[0] for line in shown(pilot)[machine.region.y + 1 : machine.region.bottom - 1]}
        assert {"driver", "torch", "Python", "system", "container"} <= labels
        await pilot.resize_terminal(100, 32)
        await pilot.pause()
        assert not machine.display


async def test_unknown_is_not_green_and_says_why(opened: Opened) -> None:
    sound = diagnosis_of("hgx-h100")
    unknown = replace(sound, verdict="unknown", findings=())
    async with opened(one(unknown)) as pilot:
        assert "? UNKNOWN  no error found, and too little read to call it sound" in shown(pilot)[0]
        assert pilot.app.screen.query_one("#band").has_class("unknown")
        assert not pilot.app.screen.query_one("#band").has_class("sound")
        assert "UNKNOWN" in detail(pilot)
        assert "no log was read" in detail(pilot)


async def test_what_was_not_judged_is_grouped_by_reason_with_what_would_help(opened: Opened) -> None:
    async with opened(told_of("two-gpus-two-causes"), WIDE) as pilot:
        await pilot.press("u")
        rows = [entry.id for entry in first_screen(pilot).findings.entries]
        without_log = rows.index("because no log was read")
        await pilot.press(*["j"] * without_log)
        assert "Give it the log of the job that failed, too: gpudoctor read LOG" in detail(pilot)
        assert "nccl.hang" in rows[without_log + 1 :]
        await pilot.press("j")
        assert first_screen(pilot).detail.border_title == rows[without_log + 1]
        await pilot.press("u")
        assert first_screen(pilot).findings.entries[0].id == "gpu.ecc"
        await pilot.click("#findings", offset=(10, 2))
        assert first_screen(pilot).detail.border_title == "gpu.xid"


async def test_everything_judged_leaves_nothing_to_list(opened: Opened) -> None:
    async with opened(one(replace(diagnosis_of("too-old-b200"), unjudged=()))) as pilot:
        await pilot.press("u")
        assert "everything was judged" in shown(pilot)[1]
        assert not first_screen(pilot).findings.only_unjudged


async def test_notes_are_shown_with_what_they_concern(opened: Opened) -> None:
    diagnosis = diagnosis_of("too-old-b200")
    note = Note(("gpu.name",), "Tables of 2026-11; your B200 is newer.", ("driver.too-old-for-gpu",))
    async with opened(one(replace(diagnosis, notes=(note,)))) as pilot:
        assert "Note  Tables of 2026-11; your B200 is newer." in detail(pilot)
        await pilot.press("j")
        assert first_screen(pilot).findings.entry
        assert first_screen(pilot).detail.border_title == "Notes"
        assert note.text in detail(pilot)


async def test_what_cannot_be_read_says_why_and_what_to_type(opened: Opened) -> None:
    async with opened(of_this_machine("quick", "/no/such/python", ())) as pilot:
        assert "? UNKNOWN" in shown(pilot)[0]
        assert "--python /no/such/python: no such program" in detail(pilot)
        assert "r  reads again" in detail(pilot)
        for key in ("c", "e", "n", "u", "s", "C", "y", "j", "enter", "space"):
            await pilot.press(key)
        assert "? UNKNOWN" in shown(pilot)[0]


async def test_the_first_finding_is_shown_while_the_slowest_source_is_still_asked(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_live, "deadline", lambda _: 600.0)
    with Held(scenario.expanded(json.loads(path_of("too-old-b200").read_text("utf-8")))) as machine:
        let = machine.hold("ask_torch")

        def diagnoses(progress: Progress) -> Iterator[Diagnosis]:
            return pipeline.watch(progress=progress, target=machine)

        async with opened(work_on("a machine", diagnoses), settle=False) as pilot:
            app = app_of(pilot)
            await until(pilot, lambda: "older than the B200" in text(pilot) and "may take the lead" in detail(pilot))
            lines = shown(pilot)
            assert "… READING  1 cause so far" in lines[0]
            assert "older than the B200" in "\n".join(lines)
            assert app.reading.sources["torch_live"].asked
            assert "what comes may take the lead" in detail(pilot)
            let.set()
            await settled(pilot)
            assert "what comes may take the lead" not in detail(pilot)
            assert "✗ BROKEN" in shown(pilot)[0]


@pytest.mark.parametrize("size", [NARROW, WIDE, (40, 12)], ids=str)
async def test_the_keys_that_work_everywhere_are_never_cut(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(told_of("too-old-b200"), size) as pilot:
        line = shown(pilot)[-1]
        assert len(line) == size[0]
        await pilot.click("Keys", offset=(line.index("^p"), 0))
        assert not isinstance(pilot.app.screen, DiagnosisScreen)  # the commands are open
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, DiagnosisScreen)
        await pilot.click("Keys", offset=(line.rindex("q"), 0))
        assert not pilot.app.is_running or pilot.app._exit


async def test_a_paste_that_tells_too_little_says_what_to_ask_for(opened: Opened, tmp_path: Path) -> None:
    paste = tmp_path / "paste.txt"
    paste.write_text("It does not work since yesterday.\n", "utf-8")
    async with opened(of_files([str(paste)], ())) as pilot:
        assert "? UNKNOWN" in shown(pilot)[0]
        assert "gpudoctor read --together" in detail(pilot)
        assert "paste.txt OUTPUT" in detail(pilot)


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
        assert "Proof 1:" in text
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
async def test_a_page_that_is_not_to_be_had_is_said_in_words(opened: Opened, error: Exception) -> None:
    def explain(_: str) -> str:
        raise error

    async with opened(replace(told_of("too-old-b200"), explain=explain)) as pilot:
        await pilot.press("e")
        assert str(error) in await page_of(pilot)
        await pilot.press("c")
        assert "there is no page to copy" in shown(pilot)[0]


MANY = 500


def many(ids: int) -> Diagnosis:
    """So many findings under so many ids; every fifth explains three others."""
    one = finding_of("too-old-b200", "driver.too-old-for-gpu")
    names = [f"site.rule-{n % ids}" for n in range(MANY)]
    explains = [tuple(names[(n * 7 + k) % MANY] for k in (1, 2, 3)) if n % 5 == 0 else () for n in range(MANY)]
    return with_findings(
        diagnosis_of("too-old-b200"),
        *(
            replace(one, id=name, title=f"{one.title} {n}", subjects=({"gpu": n},), explains=explains[n])
            for n, name in enumerate(names)
        ),
    )


async def test_of_hundreds_that_differ_in_words_a_few_are_named_and_the_rest_counted(opened: Opened) -> None:
    whole = many(1)
    async with opened(work_on("a fleet", lambda _: iter([whole])), WIDE) as pilot:
        assert "487 more of this kind" in first_screen(pilot).detail.prose.text


async def test_a_search_shows_what_has_the_words_and_escape_all_again(opened: Opened) -> None:
    whole = many(500)
    async with opened(work_on("a fleet", lambda _: iter([whole]))) as pilot:
        screen = first_screen(pilot)
        await pilot.press("j", "slash", *"B200 rule-123")
        assert [entry.id for entry in screen.findings.entries] == ["site.rule-123"]
        assert screen.detail.border_title == "site.rule-123"
        await pilot.press(*"cenu")  # letters, not keys
        await pilot.pause()
        assert "nothing here has 'B200 rule-123cenu'" in "\n".join(shown(pilot))
        await pilot.press(*["backspace"] * 4, "enter", "c")
        assert pilot.app.clipboard.startswith("curl --fail ")
        await pilot.press("escape", "escape")
        assert len(screen.findings.entries) > 400
        assert screen.search
        assert not screen.search.opened


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


def test_of_an_information_that_explains_a_warning_the_summary_names_what_is_folded() -> None:
    hot = finding_of("throttled-heat-a10", "gpu.throttled")
    cause = replace(hot, id="gpu.why", severity="info", explains=(hot.id,))
    assert findings_line(with_findings(diagnosis_of("too-old-b200"), cause, hot)) == "1 symptom folded"


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
