"""The recorded machines that ship: each leads to its cure in three keys; its recorded run is played and taken back."""

import json
import re
import threading
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gpudoctor.app import cli, demos, pipeline
from gpudoctor.app.demos import Demo, RecordedGpus
from gpudoctor.app.interactive import work_on
from gpudoctor.app.output import MISUSE
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.errors import DocumentError
from gpudoctor.core.fact import Unread
from gpudoctor.core.plan import Plan, PlanStep
from gpudoctor.core.run import Run
from gpudoctor.core.sample import Sample
from gpudoctor.probes import torch_live
from gpudoctor.views._terminal import command
from gpudoctor.views.tui.recordings import LIST, RecordingsApp
from gpudoctor.views.tui.work import Work
from tests import demo_jobs
from tests import demos as written
from tests.conftest import Program
from tests.views.tui.conftest import SIZES, WIDE, Opened, settled, shown, text, until
from tests.views.tui.machines import Held
from tests.views.tui.test_fix import run_over

EVERY = [replace(demo, pace=0) for demo in demos.every()]
NAMES = [demo.name for demo in EVERY]


@pytest.mark.full
def test_they_are_up_to_date_and_small() -> None:
    stale = [path for path, content in written.made() if written.kept(path) != content]
    assert stale == [], "python -m tests.demos --write"
    files = [path for path in written.HOME.rglob("*") if path.suffix in {".gz", ".json"}]
    assert {path.parent.name for path in files if path.parent != written.HOME} == set(NAMES)
    assert sum(path.stat().st_size for path in files) < 1 << 20
    assert len(NAMES) >= 10


@pytest.mark.parametrize("one", demo_jobs.RECORDED, ids=lambda one: one.name)
def test_what_a_recorded_job_or_run_met_is_found_and_it_names_no_machine(one: demo_jobs.Recorded) -> None:
    diagnosis = demos.named(one.name).diagnosis()
    assert [finding.id for finding in diagnosis.findings] == one.rules
    document = written.kept(written.HOME / one.name / demo_jobs.FILE).decode()
    assert not re.findall(r'/(?:home|root|work|srv|tmp|Users)/[^"]{0,40}', document)
    assert set(re.findall(r'"name":"(node\d+)"', document)) <= {"node07"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stuck-loader", "Ranks 0-1, 3 wait in all_reduce, for rank 2"),
        ("oom-killed", "gpudoctor: killed by SIGKILL after "),
        ("starved", "gpudoctor: exit 0 after "),
    ],
)
def test_a_recorded_job_or_run_is_printed_as_its_command_prints_it(
    name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(["demo", name, "--format", "text"])
    assert words in capsys.readouterr().out


async def test_a_recorded_job_opens_in_the_interface(opened: Opened) -> None:
    async with opened(demo("stuck-loader").work(), WIDE) as pilot:
        await until(pilot, lambda: "DataLoader" in text(pilot) and "all_reduce" in text(pilot))
        assert shown(pilot)[1].strip() == "recorded · one look at the job; nothing is read again"
        assert "read stacks" not in shown(pilot)[-1]


@pytest.mark.parametrize(
    "demo", [EVERY[NAMES.index("torch-cu130")], EVERY[NAMES.index("sound")]], ids=lambda demo: demo.name
)
async def test_the_command_is_on_the_first_screen_and_copied_by_one_key(demo: Demo, opened: Opened) -> None:
    work = demo.work()
    command = _first_command(work)
    async with opened(work) as pilot:
        assert "recording" in shown(pilot)[0]
        assert not command or any(f"$ {command}"[:20] in line for line in shown(pilot))
        await pilot.press("c")
        if command:
            assert pilot.app.clipboard == command
            assert " ".join(command.split())[:40] in shown(pilot)[1]
        else:
            assert demo.verdict == "sound"
            assert "no command to copy" in shown(pilot)[1]


def _first_command(work: Work) -> str:
    """The first command of the first finding's first cure that has one; empty where all cures are words."""
    diagnosis = work.diagnose(lambda _: None, lambda _: None)
    fixes = diagnosis.findings[0].fixes if diagnosis.findings else ()
    steps = next((fix.steps for fix in fixes if any(step.argv for step in fix.steps)), ())
    return next((command(step.argv) for step in steps if step.argv), "")


@pytest.mark.parametrize("size", SIZES)
async def test_the_list_says_what_is_wrong_with_each_and_a_second_click_opens(size: tuple[int, int]) -> None:
    app = RecordingsApp(EVERY)
    async with app.run_test(size=size) as pilot:
        await pilot.press("1", "r", "o")  # the screens are shut
        assert app.current_mode == LIST
        assert not app.reading.sources
        await pilot.press("down")
        assert any("no kernel image" in line for line in shown(pilot))
        await pilot.press("up")
        for _ in range(2):
            await pilot.click("#choices", offset=(10, 2))
        await settled(pilot)
        assert "RTX 5090" in shown(pilot)[0]


async def test_a_second_machine_shows_nothing_of_the_first() -> None:
    app = RecordingsApp(EVERY)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("enter")
        await settled(pilot)
        assert any("535.274.02" in line for line in shown(pilot))
        await pilot.press("o")
        assert app.current_mode == LIST
        await pilot.press("end", "enter")
        await settled(pilot)
        lines = shown(pilot)
        assert "✓ SOUND" in lines[0]
        assert not any("535.274.02" in line for line in lines)


def test_what_the_files_say_is_found_while_torch_is_still_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_live, "deadline", lambda _: 600.0)
    with Held(EVERY[0].record()) as machine:
        let = machine.hold("ask_torch")
        for diagnosis in pipeline.watch(target=machine):
            if "gpu.throttled" in [one.id for one in diagnosis.findings]:
                break
        let.set()
    assert "gpu.throttled" in [one.id for one in diagnosis.findings]
    assert isinstance(diagnosis.snapshot.get("live.cuda_available"), Unread)


def test_a_name_that_is_none_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["demo", "torch-cu13"]) == MISUSE
    assert "torch-cu130" in capsys.readouterr().err
    assert cli.run(["demo", "nothing-like-it"]) == MISUSE
    assert "sound" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["demo"], ["demo", "list"]])
def test_without_a_terminal_the_list_is_printed(called: Program, words: list[str]) -> None:
    done = called(*words)
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.out.splitlines() if line[0] != " "] == list(NAMES)
    assert max(map(len, done.out.splitlines())) <= 80


def test_a_report_is_of_one_demo(called: Program) -> None:
    done = called("demo", "--json")
    assert (done.code, done.out) == (MISUSE, "")
    assert all(name in done.err for name in NAMES)


def _watched() -> RecordedGpus:
    return demos.live_from_json(json.loads(written.kept(written.HOME / "hot-gpu/live.json.gz")))


def test_playing_tells_the_past_at_once_and_ends_when_told() -> None:
    watched, past = _watched(), threading.Event()
    heard: list[Sample] = []

    def hear(sample: Sample) -> None:
        heard.append(sample)
        if len(heard) == len(watched):
            past.set()

    stop = watched.play(hear)
    assert past.wait(60)
    stop()
    time.sleep(watched.every * 1.5)
    assert len(heard) <= len(watched) + 1


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "gpudoctor-recorded-live/9"},
        {"again": 10_000},
        {"every": 0},
        {"series": {}},
        {"series": {"power_w": [[1.0]]}},
    ],
)
def test_what_is_no_record_of_gpus_at_work_is_refused(change: dict[str, object]) -> None:
    document = json.loads(written.kept(written.HOME / "hot-gpu/live.json.gz"))
    with pytest.raises(DocumentError):
        demos.live_from_json({**document, **change})


async def test_a_demo_shows_its_gpus_at_work_and_what_kernels_measured(opened: Opened) -> None:
    async with opened(EVERY[NAMES.index("hot-gpu")].work(), WIDE) as pilot:
        await pilot.press("2")
        await until(pilot, lambda: any("1110/1980" in line and "heat" in line for line in shown(pilot)))
        await pilot.press("4")
        await pilot.pause(0.3)
        assert any("bf16 matmul" in line for line in shown(pilot))


@pytest.mark.parametrize("size", SIZES)
async def test_the_way_back_to_the_list_is_among_the_keys(size: tuple[int, int]) -> None:
    app = RecordingsApp(EVERY)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert "o list" not in shown(pilot)[-1]
        await pilot.press("enter")
        await settled(pilot)
        assert "o list" in shown(pilot)[-1]
        await pilot.click("Keys", offset=(shown(pilot)[-1].index("o list"), 0))
        assert app.current_mode == LIST


def test_a_named_one_is_printed_and_held_to_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    for words, code, verdict in (((), 0, "sound"), (("--expect", "hgx-h200"), 1, "broken")):
        assert cli.run(["demo", "sound", "--json", *words]) == code
        document = json.loads(capsys.readouterr().out)
        assert (document["verdict"], document["target"]["kind"]) == (verdict, "snapshot")


PLAYED = tuple(written.SCENES)


def demo(name: str) -> demos.Demo:
    return replace(demos.named(name), pace=0)


@cache
def diagnosis(name: str) -> Diagnosis:
    return demo(name).work().diagnose(lambda _: None, lambda _: None)


def work(name: str) -> Work:
    """The demo, with its machine read beforehand."""
    still = work_on(name, lambda _: iter([diagnosis(name)]))
    return replace(demo(name).work(), diagnose=still.diagnose)


@pytest.mark.parametrize("name", ["torch-cu130", "rtx-5090"])
async def test_the_first_cure_is_played_to_its_end_in_three_keys(opened: Opened, name: str) -> None:
    async with opened(work(name), WIDE) as pilot:
        await pilot.press("f")
        assert "a recording is played: nothing on this machine is changed" in text(pilot)
        await pilot.press("a")
        assert "● a recording is played, nothing is changed" in text(pilot)
        await pilot.press("y")
        await run_over(pilot)
        lines = shown(pilot)
        assert lines[0].strip().startswith("✓ FIXED")
        assert "a recording: nothing was changed" in lines[1]
        assert "no longer found" in text(pilot)
        if name == "torch-cu130":
            await pilot.press("up", "up", "up", "up")
            said = text(pilot)
            assert "Successfully installed torch-2.9.0+cu128" in said
            assert said.count("944/944 MB") == 1  # of the progress only its end is left
            assert "torch 2.9.0+cu130 → 2.9.0+cu128" in said


async def test_the_setup_screen_answers_for_a_recorded_machine(opened: Opened) -> None:
    async with opened(work("torch-cu130"), WIDE) as pilot:
        await pilot.app.run_action("open('setup')")
        await until(pilot, lambda: "needs driver" in text(pilot))
        assert "2.14.1+cu126" in text(pilot)
        await pilot.press("a")
        assert "not from here" in text(pilot)


@pytest.mark.parametrize("size", SIZES)
async def test_a_full_disk_stops_it_and_undo_puts_back_what_was_there(opened: Opened, size: tuple[int, int]) -> None:
    async with opened(work("cpu-torch"), size) as pilot:
        await pilot.press("f", "a", "y")
        await run_over(pilot)
        assert shown(pilot)[0].strip().startswith("✗ STOPPED at step 2")
        said = " ".join(text(pilot).replace("│", " ").split())
        assert "It failed with exit status 1. ERROR: Could not install packages" in said
        assert "[Errno 28] No space left on device" in said
        assert "triton not installed → 3.5.0" in said
        await pilot.press("U", "y")
        await until(pilot, lambda: "✓ UNDONE" in shown(pilot)[0])
        assert "nvidia-cudnn-cu12 9.10.2.21 → removed" in text(pilot)


async def test_a_step_that_was_not_recorded_cannot_be_played(opened: Opened) -> None:
    async with opened(work("torch-cu130"), WIDE) as pilot:
        await pilot.press("f", "f", "a")
        assert "not in the recording" in shown(pilot)[1]


async def test_leaving_the_cure_out_does_not_cure(opened: Opened) -> None:
    async with opened(work("torch-cu130"), WIDE) as pilot:
        await pilot.press("f", "down", "down", "down", "space", "a", "y")
        await run_over(pilot)
        assert shown(pilot)[0].strip().startswith("✗ STILL FOUND")


def test_stopping_and_ending_are_heard_while_it_plays() -> None:
    recording = demos.Recording(
        (demos.PlayedStep(("a",), seconds=0.0), demos.PlayedStep(("b",), seconds=30.0, prints=((0.0, "hello\n"),)))
    )
    plan = demo_plan("a", "b", "a")
    told: list[Run] = []
    run = recording.apply(plan, told.append, lambda: "now" if told and told[-1].step("2").output.lines else "go on")
    assert [ran.state for ran in run.steps] == ["done", "stopped", "waits"]
    assert run.step("2").output.lines == ("hello",)
    assert run.outcome == "stopped"


def demo_plan(*commands: str) -> Plan:
    steps = tuple(PlanStep(str(number), word, (word,)) for number, word in enumerate(commands, 1))
    return Plan("x", "node", steps)


@pytest.mark.parametrize("raw", [None, {}, {"schema": "other"}, {"schema": demos.RUN_SCHEMA, "steps": [{}]}])
def test_what_is_no_recorded_run_is_refused(raw: object) -> None:
    with pytest.raises(DocumentError):
        demos.run_from_json(raw)


@pytest.mark.parametrize("name", PLAYED)
def test_the_shipped_files_are_those_that_the_simulated_machine_makes(name: str) -> None:
    for path, content in written.made_run(Path(demos.__file__).parent, name, diagnosis(name)):
        assert path.read_bytes() == content, path.name
        json.loads(content)
