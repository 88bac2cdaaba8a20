"""A running job on its screen: recorded jobs of real torch, states that it may be in, and what its keys ask for."""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from textual.pilot import Pilot

from gpudoctor.app.live_job import NO_JOB
from gpudoctor.cluster.running_job import job_diagnosis
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread, listed
from gpudoctor.core.sample import Process, Sample
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.screens.job import JobScreen, StacksScreen
from gpudoctor.views.tui.words import job as words
from gpudoctor.views.tui.work import JobLook, Work
from tests.views.tui.conftest import NARROW, SIZES, WIDE, Opened, calm, settled, shown, text, until
from tests.views.tui.jobs import NAME, Watched, look_at, recorded, work_of
from tests.views.tui.machines import told_of
from tests.views.tui.test_gpus import Live, gpu
from tests.views.tui.test_hostile import check

Snap = Callable[..., bool]
BOTH = pytest.mark.parametrize("size", SIZES)


def screen(pilot: Pilot[None]) -> JobScreen:
    """The screen, which is shown first."""
    found = pilot.app.screen
    assert isinstance(found, JobScreen)
    return found


def ranks(pilot: Pilot[None]) -> list[str]:
    """The lines of the table's rows."""
    lines = shown(pilot)
    return list(lines[5 : lines.index(next(line for line in lines[5:] if line.startswith("╰")))])


async def ready(pilot: Pilot[None]) -> None:
    """Wait until the job is on the screen."""
    await until(pilot, lambda: isinstance(pilot.app.screen, JobScreen) and screen(pilot).job.diagnosis is not None)
    await pilot.pause()


async def tell(pilot: Pilot[None], watched: Watched, look: JobLook) -> None:
    """Tell of a look, and let it be drawn."""
    watched.tell(look)
    await until(pilot, lambda: screen(pilot).job.read_at == look.read_at and screen(pilot).job.trouble == look.trouble)
    await pilot.pause()


def changed(diagnosis: Diagnosis, change: Callable[[Row], Row]) -> Diagnosis:
    """That recorded job with each rank's row changed, compared and judged anew."""
    rows = [change(row) for row in listed(diagnosis.snapshot.rows("rank"))]
    return job_diagnosis.diagnose(NAME, rows, 4.0, {}, [])


# ---- What it looks like ----


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("kind", "keys"),
    [("data", ()), ("data", ("v",)), ("stop", ()), ("die", ("down", "v")), ("sound", ()), ("", ())],
    ids=["awaited", "rank", "stopped", "gone", "sound", "none"],
)
def test_it_looks_as_it_did(
    snap_compare: Snap, monkeypatch: pytest.MonkeyPatch, kind: str, keys: tuple[str, ...], size: tuple[int, int]
) -> None:
    monkeypatch.setattr(words, "_ago", lambda _: "3 s ago")
    if kind:
        work, _ = work_of(look_at(kind))
    else:
        work = replace(told_of("hgx-h100"), job=Watched(JobLook(trouble=NO_JOB)).follow, first="job")

    async def there(pilot: Pilot[None]) -> None:
        await settled(pilot)
        await until(pilot, lambda: isinstance(pilot.app.screen, JobScreen))
        for key in keys:
            await pilot.press(key)
        await calm(pilot)

    assert snap_compare(DoctorApp(work), terminal_size=size, run_before=there)


async def test_nothing_is_judged_before_the_stacks_are_read(opened: Opened) -> None:
    look = replace(look_at("data"), read_at=0.0, reading=True)
    async with opened(work_of(look)[0], WIDE) as pilot:
        await ready(pilot)
        assert "… READING" in shown(pilot)[0]
        assert "reading the stacks" in shown(pilot)[1]
        assert "nothing is judged yet" in text(pilot)
        assert "waits in all_reduce …" in text(pilot)


# ---- Where there is little to see ----


async def test_a_report_has_no_running_job_and_says_so(opened: Opened) -> None:
    async with opened(told_of("hgx-h100")) as pilot:
        await pilot.press("7")
        await until(pilot, lambda: "? NO JOB" in shown(pilot)[0])
        assert "a report or a recording has no running job" in shown(pilot)[0]
        await pilot.press("r", "enter", "J", "c")
        await settled(pilot)
        assert "? NO JOB" in shown(pilot)[0]


def hidden(row: Row) -> Row:
    """A rank whose stack is not known, for want of py-spy."""
    missing = Unread("py-spy is not installed: pip install 'gpudoctor[job]'")
    changed: dict[str, Fact] = dict.fromkeys(("place", "collective", "stack"), missing)
    return {**row, **changed, "state": Known("listens", "/proc"), "unseen": Known(missing.why, "py-spy")}


@BOTH
async def test_stacks_that_are_hidden_are_not_taken_for_sound(opened: Opened, size: tuple[int, int]) -> None:
    diagnosis = changed(recorded("data"), hidden)
    async with opened(work_of(JobLook(diagnosis, read_at=time.time()))[0], size) as pilot:
        await ready(pilot)
        assert "? UNKNOWN" in shown(pilot)[0]
        assert "py-spy is not installed" in shown(pilot)[1]
        assert all("? its stack is hidden" in line for line in ranks(pilot))
        assert "pip install 'gpudoctor[job]'" in text(pilot)


async def test_a_job_that_has_ended_says_how_and_keeps_what_was_found(opened: Opened) -> None:
    look = look_at("data")
    assert look.diagnosis

    def ended(row: Row) -> Row:
        return {**row, "state": Known("gone", "/proc"), "exit": Known("exit code 3", "/proc")}

    rows = tuple(ended(row) for row in listed(look.diagnosis.snapshot.rows("rank")))
    snapshot = look.diagnosis.snapshot
    diagnosis = replace(look.diagnosis, snapshot=replace(snapshot, groups={**snapshot.groups, "rank": rows}))
    over = replace(look, diagnosis=diagnosis, ended_at=time.time(), exit="exit code 3")
    async with opened(work_of(over)[0], WIDE) as pilot:
        await ready(pilot)
        assert "- ENDED  no process of it is left: exit code 3" in shown(pilot)[0]
        assert all("ended: exit code 3" in line for line in ranks(pilot))
        for line in ("No process of the job is left.", "gpudoctor read LOG", "Found while it ran:", "! WARNING"):
            assert line in text(pilot)


async def test_what_was_seen_stays_where_a_look_fails(opened: Opened) -> None:
    work, watched = work_of(look_at("data"))
    async with opened(work, WIDE) as pilot:
        await ready(pilot)
        watched.tell(JobLook(trouble="ssh: node4 gave no answer"))
        await until(pilot, lambda: "not looked at again: ssh: node4 gave no answer" in shown(pilot)[1])
        assert len(ranks(pilot)) == 4


# ---- Many ranks ----


def many(count: int) -> Diagnosis:
    """So many ranks as the recorded ones that wait, and the recorded one that they wait for among them."""
    by_rank = {cast(Known, row["rank"]).value: row for row in listed(recorded("data").snapshot.rows("rank"))}
    rows: list[Row] = [
        {
            **by_rank[2 if number == 300 else 0],
            "rank": Known(number, "test"),
            "host": Known(f"node{number // 8}", "test"),
        }
        for number in range(count)
    ]
    return job_diagnosis.diagnose("Slurm job 88", rows, 4.0, {}, [])


@BOTH
async def test_of_512_ranks_the_odd_one_is_on_top_and_one_scrolls_through_all(
    opened: Opened, size: tuple[int, int]
) -> None:
    look = JobLook(many(512), read_at=time.time(), local=False, every=30.0)
    async with opened(work_of(look)[0], size) as pilot:
        await ready(pilot)
        assert re.match(r"│ ▸!◂ +300 +node37 ", ranks(pilot)[0])
        assert "512 ranks: 511 wait in all_reduce, 1 waits for its DataLoader" in text(pilot)
        assert "again each 30 s" in shown(pilot)[1]
        await pilot.press("end")
        await pilot.pause()
        assert re.match(r"│ ▸ +511 +node63 ", ranks(pilot)[-1])
        await pilot.press("o", "home")
        await pilot.pause()
        assert re.match(r"│ ▸ +0 +node0 ", ranks(pilot)[0])


async def test_the_cursor_stays_on_its_rank_when_another_is_put_on_top(opened: Opened) -> None:
    work, watched = work_of(look_at("sound"))
    async with opened(work, WIDE) as pilot:
        await ready(pilot)
        await pilot.press("down")
        await pilot.pause()
        assert "Rank 1" in text(pilot)
        await tell(pilot, watched, replace(look_at("data"), read_at=time.time() + 5))
        assert re.match(r"│ +!◂ +2 ", ranks(pilot)[0])
        assert any(re.match(r"│ ▸ +1 ", line) for line in ranks(pilot))
        await pilot.press("n")
        await pilot.pause()
        assert ranks(pilot)[0].startswith("│ ▸!◂")


# ---- GPUs ----


def on_gpus(row: Row) -> Row:
    """The rank on the GPU of its number."""
    number = cast(int, cast(Known, row["rank"]).value)
    facts: dict[str, Fact] = {"gpu": Known(number, "NVML"), "gpus": Known((number,), "NVML")}
    return {**row, **facts, "gpu_busy": Known(100, "NVML"), "gpu_memory_mib": Known(40960, "NVML")}


def job_on_gpus() -> tuple[Work, Watched, Live]:
    """The recorded job as if each rank had a GPU, of a machine whose samples the test gives."""
    live = Live()
    work, watched = work_of(JobLook(changed(recorded("data"), on_gpus), read_at=time.time()))
    return replace(work, live=live.start), watched, live


def sample(moment: float, **more: object) -> Sample:
    """Eight GPUs, of which the job uses four."""
    return Sample(moment, tuple(gpu(at, processes=(Process(9000 + at),), **more) for at in range(8)))


async def test_the_gpus_of_the_job_have_their_curves_and_those_of_others_are_left_out(opened: Opened) -> None:
    work, _, live = job_on_gpus()
    async with opened(work, WIDE) as pilot:
        await ready(pilot)
        for moment in range(5):
            await live.tell(pilot, sample(1000.0 + moment))
        whole = text(pilot)
        assert "GPUs of the job" in whole
        assert "█" in whole
        assert sum("1980/1980" in line for line in shown(pilot)) == 4
        assert re.match(r"│ ▸!◂ +2 +node3 +\d+ +2 .* 100 +40 ", ranks(pilot)[0])
        await pilot.press("down")
        await pilot.pause()
        assert [line.count("▸") for line in shown(pilot) if "1980/1980" in line] == [1, 0, 0, 0]


async def test_in_80_columns_one_key_shows_the_gpus(opened: Opened) -> None:
    work, _, live = job_on_gpus()
    async with opened(work, NARROW) as pilot:
        await ready(pilot)
        await live.tell(pilot, sample(1000.0))
        await pilot.press("v", "v")
        await pilot.pause()
        assert "GPUs of the job" in text(pilot)
        assert re.search(r"% \d+-100 ", text(pilot))
        assert "v view" in shown(pilot)[-1]
        await pilot.press("v")
        await pilot.pause()
        assert "Found · 1" in text(pilot)


async def test_numbers_of_an_nvml_that_is_silent_do_not_pass_for_new(opened: Opened) -> None:
    work, watched, live = job_on_gpus()
    async with opened(work, WIDE) as pilot:
        await ready(pilot)
        await live.tell(pilot, sample(1000.0))
        silent = Unread("NVML: nvmlDeviceGetName of GPU 2 has not returned")
        diagnosis = changed(
            recorded("data"), lambda row: {**on_gpus(row), "gpu_busy": silent, "gpu_memory_mib": silent}
        )
        await live.tell(pilot, Sample(None, trouble="nvmlDeviceGetName of GPU 2 has not returned"))
        await tell(pilot, watched, JobLook(diagnosis, read_at=time.time() + 1))
        assert re.match(r"│ ▸!◂ +2 +node3 +\d+ +2 .* \? +\? ", ranks(pilot)[0])
        assert "has not returned" in text(pilot)


async def test_without_a_gpu_there_are_no_columns_of_gpus(opened: Opened) -> None:
    nobody = Absent("no GPU was seen")
    diagnosis = changed(recorded("data"), lambda row: {**row, "gpu": nobody, "gpu_busy": nobody})
    async with opened(work_of(JobLook(diagnosis, read_at=time.time()))[0], WIDE) as pilot:
        await ready(pilot)
        assert "GPU %" not in text(pilot)
        assert "no GPU was seen" in text(pilot)


# ---- Foreign words ----


@BOTH
async def test_what_programs_are_called_is_never_markup(opened: Opened, size: tuple[int, int]) -> None:
    evil = "a [/foo] [red]\x1b[2J\u202e" + "x" * 300

    def renamed(row: Row) -> Row:
        names = ("host", "process", "place", "what", "collective", "exit", "kernel_function", "worker_place")
        return {**row, **{name: Known(evil, "/proc") for name in names}, "stack": Known((evil, evil), "py-spy")}

    look = JobLook(changed(recorded("data"), renamed), read_at=time.time(), exit=evil, also=(evil,))
    work, watched = work_of(look)
    watched.entries = [(evil, [evil])]
    async with opened(work, size) as pilot:
        await ready(pilot)
        for key in ("v", "v", "down", "n", "o", "J", "enter"):
            await pilot.press(key)
            await pilot.pause()
            check(pilot)
        await tell_trouble(pilot, watched, evil)
        check(pilot)


async def tell_trouble(pilot: Pilot[None], watched: Watched, trouble: str) -> None:
    """Go back to the job's screen, and tell of a look that failed."""
    await pilot.press("escape")
    await pilot.pause()
    watched.tell(JobLook(trouble=trouble))
    await until(pilot, lambda: screen(pilot).job.trouble == trouble)


# ---- Keys ----


async def test_enter_opens_all_stacks_and_they_can_be_copied(opened: Opened) -> None:
    work, watched = work_of(look_at("data"))
    watched.entries = [
        ("python (pid 9482), MainThread", ["wait (/usr/lib/python3.11/multiprocessing/connection.py:947)"]),
        ("pt_data_worker (pid 9784), MainThread", ["Slow.__getitem__ (/home/a/[x]/ranks.py:38)"]),
    ]
    async with opened(work) as pilot:
        await ready(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "pt_data_worker (pid 9784), MainThread" in text(pilot))
        assert isinstance(pilot.app.screen, StacksScreen)
        assert "wait  multiprocessing/connection.py:947" in text(pilot)
        assert "Slow.__getitem__  /home/a/[x]/ranks.py:38" in text(pilot)
        await pilot.press("c")
        await pilot.pause()
        assert "Slow.__getitem__ (/home/a/[x]/ranks.py:38)" in pilot.app.clipboard
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(pilot.app.screen, JobScreen)


async def test_r_has_the_stacks_read_and_says_so_until_they_are(opened: Opened) -> None:
    work, watched = work_of(look_at("data"))
    async with opened(work) as pilot:
        await ready(pilot)
        assert "live · stacks read" in shown(pilot)[1]
        await pilot.press("r")
        await pilot.pause()
        assert watched.asked[-1] == "read"
        assert "reading the stacks" in shown(pilot)[1]
        await tell(pilot, watched, replace(look_at("stop"), read_at=time.time() + 1))
        assert "live · stacks read" in shown(pilot)[1]
        assert "✗ BROKEN" in shown(pilot)[0]


async def test_nobody_looks_while_another_screen_is_shown(opened: Opened) -> None:
    work, watched = work_of(look_at("data"))
    async with opened(work) as pilot:
        await ready(pilot)
        await pilot.press("1")
        await until(pilot, lambda: "rest" in watched.asked)
        assert "workload.rank-file" in text(pilot) or "Rank 2" in text(pilot)
        await pilot.press("7")
        await until(pilot, lambda: watched.asked[-1] == "go on")
    assert "stop" in watched.asked


async def test_j_goes_on_to_another_job(opened: Opened) -> None:
    work, watched = work_of(replace(look_at("data"), also=("process 812, torchrun",)))
    async with opened(work, WIDE) as pilot:
        await ready(pilot)
        assert "1 more here: J" in shown(pilot)[1]
        await pilot.press("J")
        await pilot.pause()
        assert watched.asked[-1] == "turn"
        assert "going on to process 812, torchrun" in shown(pilot)[1]


async def test_c_copies_what_to_do(opened: Opened) -> None:
    async with opened(work_of(look_at("stop"))[0]) as pilot:
        await ready(pilot)
        await pilot.press("c")
        await pilot.pause()
        assert pilot.app.clipboard.startswith("kill -CONT ")
        await pilot.press("f")
        await pilot.pause()
        assert isinstance(pilot.app.screen, JobScreen)
