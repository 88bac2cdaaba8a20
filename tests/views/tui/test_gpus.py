"""The GPUs: numbers that are live and say so, old ones that never pass for new, causes one key away."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot

from gpudoctor.core import diagnosis
from gpudoctor.core.fact import Known, listed
from gpudoctor.core.sample import GPU, Instance, Process, Sample
from gpudoctor.views.tui import marks
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.screens import gpus
from gpudoctor.views.tui.screens.gpus import GPUsScreen
from gpudoctor.views.tui.widgets.gpu_table import missing_cell
from gpudoctor.views.tui.words import gpu_links
from gpudoctor.views.tui.words.gpu import CURVES, MOST, Histories, axis, axis_text, health
from gpudoctor.views.tui.work import Work
from tests.views.tui.conftest import NARROW, SIZES, WIDE, Opened, settled, shown, text, until
from tests.views.tui.machines import diagnosis_of, told_of

BOTH = pytest.mark.parametrize("size", SIZES)


class Live:
    """A machine whose samples the test gives, one after another."""

    def __init__(self) -> None:
        self.hear: Callable[[Sample], None] | None = None
        self.stopped = False

    def start(self, hear: Callable[[Sample], None]) -> Callable[[], None]:
        self.hear = hear
        return self.stop

    def stop(self) -> None:
        self.stopped = True

    async def tell(self, pilot: Pilot[None], sample: Sample) -> None:
        await until(pilot, lambda: bool(self.hear))
        assert self.hear
        self.hear(sample)
        await pilot.pause()
        await pilot.pause()


def gpu(index: int, **more: object) -> GPU:
    """A sound H100 at work."""
    return replace(
        GPU(
            index,
            "NVIDIA H100 80GB HBM3",
            f"GPU-{index}",
            utilization=97,
            memory_mib=81559,
            memory_used_mib=41000,
            power_w=653,
            power_limit_w=700,
            temperature_c=67,
            temperature_slowdown_c=87,
            clock_mhz=1980,
            clock_max_mhz=1980,
            throttle_reasons=(),
            processes=(Process(41207, "train.py", "alice", 9216),),
        ),
        **more,  # type: ignore[arg-type]
    )


def sample(moment: float = 1000.0, count: int = 8, **of_five: object) -> Sample:
    return Sample(moment, tuple(gpu(index, **(of_five if index == 5 else {})) for index in range(count)))


def live_work(name: str = "throttled-brake-h100") -> tuple[Work, Live]:
    live = Live()
    return replace(told_of(name), live=live.start), live


def row(pilot: Pilot[None], number: int) -> str:
    """The table's line of that GPU."""
    return next(line for line in shown(pilot)[4:] if line.lstrip("│ ▸").lstrip("!✗?i ").split(" ")[0] == str(number))


def screen(pilot: Pilot[None]) -> GPUsScreen:
    found = pilot.app.screen
    assert isinstance(found, GPUsScreen)
    return found


@BOTH
async def test_a_report_shows_its_gpus_and_says_that_they_are_not_live(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(told_of("throttled-brake-h100"), size) as pilot:
        await pilot.press("2")
        lines = shown(pilot)
        assert "from the report, not live" in lines[1]
        assert "▼ power brake" in row(pilot, 1)
        assert row(pilot, 1).startswith("│ ▸!")
        assert "z idle" in row(pilot, 7)
        assert "520/1980" in row(pilot, 1)
        assert all(len(line) == size[0] for line in lines)


@BOTH
async def test_enter_goes_to_what_was_found_about_the_gpu(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(told_of("throttled-brake-h100"), size) as pilot:
        await pilot.press("2", "enter")
        assert pilot.app.current_mode == "diagnosis"
        assert "clocks are held down" in text(pilot)
        await pilot.press("escape")
        assert pilot.app.current_mode == "gpus"
        await pilot.press("g", "enter")
        assert "nothing was found about GPU 0" in shown(pilot)[1]
        await pilot.press("n")
        assert row(pilot, 1).startswith("│ ▸!"), "n goes to the next GPU of which something was found"


async def test_live_numbers_replace_those_of_the_diagnosis(opened: Opened) -> None:
    work, live = live_work()
    async with opened(work, WIDE) as pilot:
        await pilot.press("2")
        for moment in range(4):
            await live.tell(pilot, sample(1000 + moment / 2, power_w=412, throttle_reasons=("hw_thermal_slowdown",)))
        assert "live · 2 a second" in shown(pilot)[1]
        assert "653" in row(pilot, 4)
        assert "412" in row(pilot, 5)
        assert "▼ heat" in row(pilot, 5)
        assert "% 90-100" in shown(pilot)[4]
        assert "▆" in row(pilot, 4).split("97")[0], "the curve of utilisation"
        assert "pid 41207  train.py  9.0 GiB  alice" in text(pilot)
    assert live.stopped


@pytest.mark.parametrize(("every", "words"), [(0.5, "2 a second"), (1.0, "1 a second"), (2.5, "one each 2 s")])
def test_how_often_numbers_come_is_never_called_zero(every: float, words: str) -> None:
    samples = gpus.LiveSamples()
    for number in range(5):
        samples.take(sample(1000 + number * every))
    assert f"live · {words} ·" in samples.status_text()


def test_what_came_while_frozen_is_as_old_as_it_is() -> None:
    samples, now = gpus.LiveSamples(), [0.0]
    samples.clock = lambda: now[0]
    samples.take(sample(1000))
    samples.freeze()
    now[0] = 1.0
    samples.take(sample(1001))
    now[0] = 600.0
    samples.freeze()
    assert samples.status_text().startswith("NVML has not answered for 599 s")


async def test_a_gpu_that_is_lost_keeps_its_old_numbers_struck_out(opened: Opened) -> None:
    work, live = live_work()
    async with opened(work, WIDE) as pilot:
        await pilot.press("2")
        await live.tell(pilot, sample())
        lost = GPU(5, error="GPU is lost")
        await live.tell(pilot, Sample(1001.0, (*sample().gpus[:5], lost, *sample().gpus[6:])))
        line = row(pilot, 5)
        assert "?5" in line.replace(" ", "")
        assert re.search(r"NVML: GPU is lost, \d+ s ago", line)
        assert "653" in line
        strip = next(
            strip
            for strip in pilot.app.screen._compositor.render_strips()
            if "GPU is lost" in "".join(s.text for s in strip)
        )
        numbers = [segment for segment in strip if segment.text.strip() == "653"]
        assert numbers
        assert all(segment.style and segment.style.strike for segment in numbers)
        assert "GPU is lost" not in row(pilot, 4)


async def test_silence_is_said_and_strikes_every_number(opened: Opened) -> None:
    work, live = live_work()
    async with opened(work, WIDE) as pilot:
        await pilot.press("2")
        await live.tell(pilot, sample())
        now = [gpus.STALE_SECONDS + 1]
        watch = screen(pilot)._samples
        heard = watch._last_sample_at
        watch.clock = lambda: heard + now[0]
        screen(pilot)._redraw_if_outdated()  # even if nobody says anything
        await pilot.pause()
        assert "NVML has not answered for 4 s" in shown(pilot)[1]
        assert "no answer for 4 s" in row(pilot, 0)
        now[0] = 12.0
        await live.tell(pilot, Sample(1012.0, trouble="nvmlDeviceGetTemperature of GPU 3 has not returned"))
        assert "NVML has not answered for 12 s: nvmlDeviceGetTemperature of GPU 3" in shown(pilot)[1]
        assert "no answer for 12 s" in row(pilot, 3)
        assert len(watch.shown.struck) == 8
        now[0] = 14.0
        await live.tell(pilot, sample(1014.0))
        assert watch.shown.struck == {}
        assert shown(pilot)[1].startswith(" live")


async def test_frozen_numbers_stay_and_what_came_meanwhile_is_drawn_afterwards(opened: Opened) -> None:
    work, live = live_work()
    async with opened(work, WIDE) as pilot:
        await pilot.press("2")
        await live.tell(pilot, sample(power_w=111))
        await pilot.press("space")
        await live.tell(pilot, sample(1000.5, power_w=222))
        await live.tell(pilot, sample(1001.0, power_w=333))
        assert "frozen" in shown(pilot)[1]
        assert "111" in row(pilot, 5)
        await pilot.press("space")
        assert "333" in row(pilot, 5)
        assert len(screen(pilot)._samples.shown.histories.curve(5, "power_w")) == 3


async def test_s_puts_what_was_found_first_and_the_cursor_stays_on_its_gpu(opened: Opened) -> None:
    async with opened(told_of("ecc-uncorrected-h100"), WIDE) as pilot:
        await pilot.press("2")
        table = screen(pilot).table
        assert table.gpu_index == 3, "until the user moves it the cursor is on the worst GPU"
        await pilot.press("end")
        await pilot.press("s")
        assert [key[0] for key in table._keys] == [3, 0, 1, 2, 4, 5, 6, 7]
        assert table.gpu_index == 7
        await pilot.press("s")
        assert [key[0] for key in table._keys] == list(range(8))


async def test_columns_go_by_importance_and_every_line_fits(opened: Opened) -> None:
    work, live = live_work()
    async with opened(work, WIDE) as pilot:
        await pilot.press("2")
        await live.tell(pilot, sample(throttle_reasons=("hw_thermal_slowdown",)))
        for width in (40, 60, 80, 100, 130, 160, 240):
            await pilot.resize_terminal(width, 30)
            await pilot.pause()
            lines = shown(pilot)
            assert {len(line) for line in lines} == {width}
            heading = next(line for line in lines if "°C" in line and "%" in line)
            assert "SM MHz" in heading or width < 60
            assert "held back by" in heading or width < 80
            assert re.search(r"% \d+-100 ", heading) or width < 100
            assert re.search(r"W \d+-700 ", heading) or width < 130


async def test_links_say_of_every_pair_why(opened: Opened) -> None:
    async with opened(told_of("nvlink-three-links-h100"), WIDE) as pilot:
        await pilot.press("2", "b")
        matrix = screen(pilot).matrix
        assert matrix.cell(3, 0).glyph == "8"
        assert matrix.cell(0, 1).glyph == "·"
        assert matrix.cell(3, 0).reason == "GPU 3 → GPU 0  NV15: 15 NVLinks; GPU 3 has 15 of 18 NVLinks up"
        assert "GPU 3 has 15 of 18 NVLinks up" in text(pilot)
        await pilot.press("t")
        assert "NV18" in text(pilot)
        await pilot.press("p")
        assert "read ok, write ok" in text(pilot)


@pytest.mark.parametrize("value", ["x16", 16.5, None])
def test_a_width_that_is_no_number_is_not_known(value: str | float | None) -> None:
    snapshot = diagnosis_of("rtx4090").snapshot
    rows = tuple({**row, "link_width": Known(value, "a file")} for row in listed(snapshot.rows("gpu")))
    view = gpu_links.view(replace(snapshot, groups={**snapshot.groups, "gpu": rows}), "bandwidth")
    assert view.cells[0][1].glyph in ("?", "·", "-")


async def test_what_peers_may_not_do_is_no_fault_of_theirs(opened: Opened) -> None:
    async with opened(told_of("rtx4090"), WIDE) as pilot:
        await pilot.press("2", "p")
        mark = screen(pilot).matrix.cell(0, 1)
        assert (mark.glyph, mark.level) == ("-", "none")
        assert "chipset not supported" in mark.reason or "not supported" in mark.reason


async def test_at_80_columns_the_links_take_the_place_of_the_detail(opened: Opened) -> None:
    async with opened(told_of("nvlink-three-links-h100"), NARROW) as pilot:
        await pilot.press("2")
        assert "GPU 3 ·" in text(pilot)
        assert "Links" not in text(pilot)
        await pilot.press("b")
        assert "Links: share of their width" in text(pilot)
        await pilot.press("b")
        assert "Links" not in text(pilot)


@pytest.mark.parametrize("size", [NARROW, pytest.param((240, 60), marks=pytest.mark.full), (40, 10)])
async def test_seventy_two_gpus_take_the_whole_screen(opened: Opened, size: tuple[int, int]) -> None:
    work, live = live_work()
    async with opened(work, size) as pilot:
        await pilot.press("2")
        await live.tell(pilot, sample(count=72))
        assert "72 GPUs" in text(pilot)
        assert screen(pilot).table.region.height == size[1] - 4
        await pilot.press("G")
        assert screen(pilot).table.gpu_index == 71
        assert "71" in text(pilot)
        await pilot.press("d")
        assert "GPU 71 ·" in text(pilot)


async def test_mig_devices_stand_under_their_gpu(opened: Opened) -> None:
    work, live = live_work()
    slices = (Instance(0, "3g.40gb", "MIG-a", 40 << 10, 10 << 10), Instance(1, "4g.40gb", "MIG-b", 40 << 10, 0))
    async with opened(work, NARROW) as pilot:
        await pilot.press("2")
        await live.tell(pilot, sample(instances=slices, utilization=None))
        lines = shown(pilot)
        at = next(number for number, line in enumerate(lines) if "MIG 0" in line)
        assert "├ MIG 0  3g.40gb" in lines[at]
        assert "10 of 40 GiB" in lines[at]
        assert "└ MIG 1  4g.40gb" in lines[at + 1]
        assert " - " in row(pilot, 5), "a divided GPU reports no utilisation"


@BOTH
async def test_without_a_gpu_it_says_what_was_looked_at(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(told_of("server-without-gpu"), size) as pilot:
        await pilot.press("2")
        assert "NVIDIA devices on the PCI bus" in text(pilot)
        assert "enter opens it" in text(pilot)
        await pilot.press("enter")
        assert pilot.app.current_mode == "diagnosis"


async def test_a_machine_that_cannot_be_asked_says_why(opened: Opened) -> None:
    def live(hear: Callable[[Sample], None]) -> Callable[[], None]:
        raise OSError("no more processes")

    async with opened(replace(told_of("throttled-brake-h100"), live=live), WIDE) as pilot:
        await pilot.press("2")
        await until(pilot, lambda: "from the report, not live: no more processes" in shown(pilot)[1])


async def test_a_name_full_of_brackets_is_shown_as_it_is(opened: Opened) -> None:
    work, live = live_work()
    jobs = (Process(1, "[/red] \x1b[31mjob", "[b]alice", None),)
    async with opened(work, WIDE) as pilot:
        await pilot.press("2")
        await live.tell(pilot, sample(count=6, name="[red]\x1b[2J", processes=jobs, error=""))
        await pilot.press("G")
        assert "[/red] \\x1b[31mjob" in text(pilot)
        assert "[b]alice" in text(pilot)
        assert "[red]\\x1b[2J" in text(pilot)


def test_histories_are_bounded_however_long_one_looks() -> None:
    histories = Histories()
    for second in range(2000):
        for part in range(8):
            histories.add(second + part / 8, (gpu(0), gpu(1)))
    assert len(histories) <= 2 * len(CURVES) * MOST
    histories.add(3000.0, (gpu(1),))
    assert len(histories) == len(CURVES), "what is gone and what is over a minute old is dropped"


def test_a_curve_shows_the_last_minute_with_its_gaps() -> None:
    histories = Histories()
    for second in (*range(20), *range(40, 60)):
        histories.add(float(second), (gpu(0, utilization=100.0 if second < 20 else 0.0),))
    curve = histories.curve(0, "utilization")
    assert curve.bars(6, (0, 100), 59.0) == ["██  ▁▁"]
    assert curve.bars(0, (0, 100), 59.0) == [""]
    assert curve.bars(6, (0, 100), 89.0) == [" ▁▁   "]
    assert Histories().curve(0, "utilization").bars(4, (0, 100), 10.0) == ["    "]


def test_93_and_95_percent_look_different_and_the_scale_says_so() -> None:
    histories = Histories()
    for second in range(60):
        histories.add(float(second), (gpu(0, utilization=93.0 if second < 30 else 95.0),))
    curve = histories.curve(0, "utilization")
    scale = axis(*curve.range, 100.0)
    assert axis_text(scale) == "90-100"
    assert curve.bars(4, scale, 59.0) == ["▃▃▅▅"]
    assert curve.bars(4, scale, 59.0, rows=2) == ["  ▁▁", "▅▅██"]


@pytest.mark.parametrize(
    ("lowest", "highest", "limit", "scale"),
    [
        (100, 100, 100, "90-100"),
        (0, 99, 100, "0-100"),
        (49, 99, 100, "0-100"),
        (655, 689, 700, "600-700"),
        (1110, 1980, 1980, "1000-1980"),
        (66, 91, 89, "60-91"),
        (440, 448, 450, "400-450"),
        (0, 0, 100, "0-100"),
    ],
)
def test_a_scale_begins_at_zero_or_at_a_round_number(lowest: float, highest: float, limit: float, scale: str) -> None:
    assert axis_text(axis(lowest, highest, limit)) == scale


def test_a_saved_report_is_shown_as_the_machine_was() -> None:
    """Through JSON: what a finding is about is then known by its subject alone."""
    found = diagnosis_of("ecc-uncorrected-h100")
    again = diagnosis.from_json(json.loads(json.dumps(found.to_json())))
    assert {index: [one.id for one in of] for index, of in health(again).by_gpu.items()} == {3: ["gpu.ecc"]}
    assert health(found).by_gpu.keys() == {3}


def test_a_lost_gpu_is_known_by_what_is_left() -> None:
    assert [one.id for one in health(diagnosis_of("lost-gpu-h100")).of(2)] == ["gpu.fell-off-bus"]


class _Still(Live):
    """A minute of samples, all told at once: nothing moves afterwards."""

    def start(self, hear: Callable[[Sample], None]) -> Callable[[], None]:
        for half in range(121):
            share = 60 + 40 * abs((half % 40) - 20) / 20
            slow = {"power_w": 412 + half % 3, "temperature_c": 88, "clock_mhz": 1110}
            heat = {"throttle_reasons": ("hw_thermal_slowdown",), **slow} if half > 60 else {}
            idle = {"utilization": 0, "power_w": 71, "clock_mhz": 345, "throttle_reasons": ("gpu_idle",)}
            gpus = [gpu(index, utilization=share, power_w=5.5 * share + index) for index in range(8)]
            gpus[5], gpus[7] = replace(gpus[5], **heat), replace(gpus[7], **idle)  # type: ignore[arg-type]
            hear(Sample(1000 + half / 2, tuple(gpus)))
        return self.stop


@pytest.mark.parametrize("size", [(80, 24), (100, 32), (160, 48)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_looks(snap_compare: Any, size: tuple[int, int]) -> None:
    async def there(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await pilot.press("2")
        await until(pilot, lambda: len(screen(pilot)._samples.shown.histories.curve(5, "power_w")) == 120)
        screen(pilot)._samples.clock = lambda: screen(pilot)._samples._last_sample_at
        await pilot.press("n")
        screen(pilot)._redraw_if_outdated()
        await pilot.pause()

    work = replace(told_of("throttled-brake-h100"), live=_Still().start)
    assert snap_compare(DoctorApp(work), terminal_size=size, run_before=there)


@pytest.mark.parametrize(
    ("one", "mark"),
    [
        (GPU(0, unanswered={"power_w": "Insufficient Permissions"}), marks.UNREAD),
        (GPU(0, error="GPU is lost"), marks.UNREAD),
        (GPU(0, unanswered={"clock_mhz": "Unknown Error"}), marks.ABSENT),
    ],
)
def test_what_could_not_be_read_is_told_from_what_a_gpu_does_not_have(one: GPU, mark: str) -> None:
    assert missing_cell(one, "power_w")[0] == mark
