"""Whatever a machine is called and however much there is of it: every screen and key takes it, and nothing gets out."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from gpudoctor.app import demos
from gpudoctor.core import fleet, measurement
from gpudoctor.core.diagnosis import Diagnosis
from gpudoctor.core.fact import Known
from gpudoctor.core.snapshot import Event
from gpudoctor.views.tui.app import DoctorApp
from gpudoctor.views.tui.screens.framed import FramedScreen
from gpudoctor.views.tui.widgets.frame import FIX_SCREEN, SCREEN_ENTRIES, ScreenEntry
from gpudoctor.views.tui.work import Work
from tests.views.tui.conftest import NARROW, WIDE, Opened, until
from tests.views.tui.machines import diagnosis_of
from tests.views.tui.poison import WORDS, poisoned, poisoned_file, work_on_one

pytestmark = pytest.mark.full

UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
LEAVING = {"q", "ctrl+q", "ctrl+c", "ctrl+z"}
SICK = "torch-arch-dropped-and-driver-too-old"


@pytest.fixture(autouse=True)
def _files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def app_of(pilot: Pilot[None]) -> DoctorApp:
    """The app, by its own type."""
    assert isinstance(pilot.app, DoctorApp)
    return pilot.app


def check(pilot: Pilot[None]) -> None:
    """No line is longer than the terminal, and none holds what could drive it."""
    width, height = pilot.app.size
    strips = pilot.app.screen._compositor.render_strips()
    assert len(strips) == height
    for strip in strips:
        text = "".join(segment.text for segment in strip)
        assert not UNSAFE.search(text), text
        assert strip.cell_length == cell_len(text) == width, text


async def everything_pressed(pilot: Pilot[None], doors: Iterable[ScreenEntry] = (*SCREEN_ENTRIES, FIX_SCREEN)) -> None:
    """Every key of these screens, once, and every screen that a key opens left by Esc; keys of the app on the first."""
    app = app_of(pilot)
    pressed: set[str] = set()
    for door in doors:
        await home(pilot, door.name)
        bindings = app.screen.active_bindings
        for key in [key for key in bindings if key not in LEAVING | pressed]:
            if bindings[key].node is app:
                pressed.add(key)
            await home(pilot, door.name)
            await pilot.press(key)
            await pilot.pause()
            check(pilot)
            if not isinstance(app.screen, FramedScreen):
                await pilot.press("down", "a")
                await pilot.pause()
                check(pilot)


async def home(pilot: Pilot[None], name: str) -> None:
    """That screen, whatever lies over it or took its place."""
    app = app_of(pilot)
    for _ in range(4):
        if not isinstance(app.screen, FramedScreen):
            await pilot.press("escape")
            await pilot.pause()
    assert isinstance(app.screen, FramedScreen), app.screen
    app.action_open(name)
    await pilot.pause()
    check(pilot)


async def test_words_that_drive_terminals_are_words(opened: Opened) -> None:
    diagnosis = poisoned(diagnosis_of(SICK))
    async with opened(work_on_one(diagnosis, "".join(WORDS[:4])), NARROW) as pilot:
        await everything_pressed(pilot)


async def test_so_are_those_of_measurements_and_of_a_fleet(opened: Opened) -> None:
    def document(name: str) -> Any:
        return json.loads(gzip.decompress((Path(demos.__file__).parent / "hot-gpu" / name).read_bytes()))

    hosts = [host["name"] for host in document("cluster.json.gz")["hosts"]]
    rename = {host: f"{word[:200]}#{number}" for number, (host, word) in enumerate(zip(hosts, WORDS, strict=False))}
    cluster = fleet.from_json(poisoned_file(document("cluster.json.gz"), rename))
    measured = measurement.from_json(poisoned_file(document("kernels.json.gz")))
    work = work_on_one(poisoned(diagnosis_of(SICK)))
    async with opened(replace(work, cluster=lambda: cluster, measured=lambda: measured), WIDE) as pilot:
        await everything_pressed(pilot, (door for door in SCREEN_ENTRIES if door.name in {"kernels", "cluster"}))


def many(diagnosis: Diagnosis, count: int) -> Diagnosis:
    """So many findings, each of its own id, and as many rules that were not judged."""
    first = diagnosis.findings[0]
    findings = tuple(replace(first, id=f"site.rule-{number}", title=f"Cause {number}") for number in range(count))
    unjudged = tuple(replace(diagnosis.unjudged[0], id=f"site.other-{number}") for number in range(count))
    return replace(diagnosis, findings=findings, unjudged=unjudged)


def gpus(diagnosis: Diagnosis, count: int) -> Diagnosis:
    """As many GPUs, each like the first."""
    snapshot = diagnosis.snapshot
    rows = snapshot.rows("gpu")
    assert isinstance(rows, tuple)
    table = tuple({**rows[0], "index": Known(number, "NVML")} for number in range(count))
    return replace(diagnosis, snapshot=replace(snapshot, groups={**snapshot.groups, "gpu": table}))


def long_fact(diagnosis: Diagnosis) -> Diagnosis:
    """One fact of 100 kB, without a space to break it at."""
    snapshot = diagnosis.snapshot
    facts = {**snapshot.facts, "env.LD_LIBRARY_PATH": Known("/opt/[x]/lib:" * 8000, "environment")}
    return replace(diagnosis, snapshot=replace(snapshot, facts=facts))


async def test_500_findings_72_gpus_and_a_fact_of_100_kb(opened: Opened) -> None:
    diagnosis = long_fact(gpus(many(diagnosis_of(SICK), 500), 72))
    async with opened(work_on_one(diagnosis), WIDE) as pilot:
        await everything_pressed(pilot)


async def test_a_terminal_that_grows_and_shrinks(opened: Opened) -> None:
    async with opened(work_on_one(diagnosis_of(SICK)), WIDE) as pilot:
        for door in (*SCREEN_ENTRIES, FIX_SCREEN):
            await home(pilot, door.name)
            for size in ((40, 10), (80, 24), (20, 5), (300, 90), (1, 1), (96, 24), (95, 24)):
                await pilot.resize_terminal(*size)
                await pilot.pause()
                check(pilot)
                await pilot.press("down", "tab")
                check(pilot)


async def test_what_lies_over_a_screen_fits_a_small_terminal(opened: Opened) -> None:
    async with opened(work_on_one(diagnosis_of(SICK)), (40, 10)) as pilot:
        await everything_pressed(pilot)


async def test_a_probe_that_never_answers_is_stopped_by_esc(opened: Opened) -> None:
    import threading

    for_ever = threading.Event()
    whole = diagnosis_of("hgx-h100")

    def diagnose(progress: object, partly: object) -> Diagnosis:
        assert callable(progress)
        assert callable(partly)
        progress(Event("torch_live", "started"))
        partly(whole)
        for_ever.wait(120)
        return whole

    work = work_on_one(whole)
    slow = Work("this machine", diagnose, work.explain)
    try:
        async with opened(slow, settle=False) as pilot:
            app = app_of(pilot)
            await until(pilot, lambda: app.diagnosis is not None)
            assert not app.reading.over
            await pilot.press("2", "1", "down", "escape")
            await pilot.pause()
            assert app.reading.over
            assert app.diagnosis == whole
            await pilot.press("q")
        assert app.return_code == 0
    finally:
        for_ever.set()
