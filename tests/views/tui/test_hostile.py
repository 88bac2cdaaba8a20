"""Whatever a machine is called and however much there is of it: every screen and key takes it, and nothing gets out."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.pilot import Pilot

from gpudoctor.app import demos
from gpudoctor.app.interactive import work_on
from gpudoctor.core import fleet, measurement
from gpudoctor.core.diagnosis import Diagnosis, from_json
from gpudoctor.core.fact import Known
from gpudoctor.core.snapshot import Event
from gpudoctor.views.tui.base import FramedScreen
from gpudoctor.views.tui.widgets.frame import FIX_SCREEN, SCREEN_ENTRIES, ScreenEntry
from gpudoctor.views.tui.widgets.prose import Block, lines, plain
from gpudoctor.views.tui.work import Work
from tests.views.tui.conftest import WIDE, Opened, app_of, until
from tests.views.tui.machines import diagnosis_of

WORDS = (
    "[/x] [red]not red[/red] [@click=app.quit]q[/] \\[",
    "\x1b[31mred\x1b[2J\x1b]0;title\x07",
    "a\rb\nc\td\x00e\x7f\x9b31m",
    "\u202etxet desrever\u202c \u200fright to left \u2066x\u2069 \ufeff\u200b",
    "w" * 4000,
    "数据中心的显卡驱动程序版本太旧 " * 30,
    "🔥👩‍👩‍👧‍👦🇩🇪 e\u0301 ｗｉｄｅ \U000e0001",
    "\ud800 lone, \ufffe none",
    "   ",
    "",
    "$foreground 60% {title} %s {0} $[x]",
)
KEPT = {"schema", "id", "layer", "severity", "role", "confidence", "verdict", "kind", "level", "needs", "touches"}
"""Keys of a document whose words are ours, and checked where it is read."""


def poisoned(diagnosis: Diagnosis) -> Diagnosis:
    """The same findings and facts, with words that nobody wants to print."""
    words = itertools.cycle(WORDS)
    document = diagnosis.to_json()
    for part in ("findings", "unjudged", "notes", "facts"):
        document[part] = with_words(document[part], words, KEPT)
    read = from_json(document)
    name = "".join(WORDS[:4])
    return replace(read, snapshot=replace(read.snapshot, target=replace(read.snapshot.target, name=name)))


def with_words(
    raw: Any,
    words: Iterator[str],
    kept: Set[str],
    free: Set[str] = set(),
    names: Mapping[str, str] = {},
    at: str = "",
) -> Any:
    """The document with the next of these words for each text, but under the keys that are `kept` or, where any are
    named, not `free`; and with these names wherever they stand.
    """
    if isinstance(raw, Mapping):
        return {names.get(name, name): with_words(item, words, kept, free, names, name) for name, item in raw.items()}
    if isinstance(raw, list):
        return [with_words(item, words, kept, free, names, at) for item in raw]
    if not isinstance(raw, str):
        return raw
    return names.get(raw) or (next(words) if at not in kept and (at in free or not free) else raw)


_FREE = {"target", "title", "short", "words", "switch", "gpu", "unit", "evidence", "do", "reason", "argv", "size"}
_FREE |= {"because", "message", "source", "name", "why", "text", "names", "warnings", "command"}


def work_on_one(diagnosis: Diagnosis, title: str = "a file") -> Work:
    """That diagnosis, as if it had been read just now."""
    return work_on(title, lambda _: iter([diagnosis]))


pytestmark = pytest.mark.full

UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
LEAVING = {"q", "ctrl+q", "ctrl+c", "ctrl+z"}
SICK = "torch-arch-dropped-and-driver-too-old"


@pytest.fixture(autouse=True)
def _files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


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
            check(pilot)
            if not isinstance(app.screen, FramedScreen):
                await pilot.press("down", "a")
                check(pilot)


async def home(pilot: Pilot[None], name: str) -> None:
    """That screen, whatever lies over it or took its place."""
    app = app_of(pilot)
    for _ in range(4):
        if not isinstance(app.screen, FramedScreen):
            await pilot.press("escape")
    assert isinstance(app.screen, FramedScreen), app.screen
    app.action_open(name)
    await pilot.pause()
    check(pilot)


async def test_words_of_measurements_and_of_a_fleet_that_drive_terminals_are_words(opened: Opened) -> None:
    def document(name: str) -> Any:
        return json.loads(gzip.decompress((Path(demos.__file__).parent / "hot-gpu" / name).read_bytes()))

    hosts = [host["name"] for host in document("cluster.json.gz")["hosts"]]
    rename = {host: f"{word[:200]}#{number}" for number, (host, word) in enumerate(zip(hosts, WORDS, strict=False))}
    words = itertools.cycle(WORDS)
    cluster = fleet.from_json(with_words(document("cluster.json.gz"), words, set(), _FREE, rename))
    measured = measurement.from_json(with_words(document("kernels.json.gz"), words, set(), _FREE))
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


async def test_500_findings_72_gpus_and_a_fact_of_100_kb_full_of_such_words(opened: Opened) -> None:
    diagnosis = poisoned(long_fact(gpus(many(diagnosis_of(SICK), 500), 72)))
    async with opened(work_on_one(diagnosis, "".join(WORDS[:4])), WIDE) as pilot:
        await everything_pressed(pilot)


@given(st.text(st.sampled_from("驱动。，（）ab-/[] \u3000\xa0\n"), max_size=60), st.integers(8, 30))
def test_chinese_fills_its_lines_and_nothing_of_it_is_lost(text: str, width: int) -> None:
    shown = [line.plain for line in lines([Block(plain(text))], width)]
    assert all(cell_len(line) <= width for line in shown)
    assert "".join("".join(shown).split()) == "".join(text.split())


def test_chinese_breaks_within_a_sentence_and_never_before_its_marks() -> None:
    text = "模块由 Canonical 签名：Secure Boot 直接接受。没有屏幕的服务器，加上同一分支的包。"
    assert [line.plain for line in lines([Block(plain(text))], 30)] == [
        "模块由 Canonical 签名：Secure",
        "Boot 直接接受。没有屏幕的服务",
        "器，加上同一分支的包。",
    ]


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
    async with opened(work_on_one(poisoned(diagnosis_of(SICK))), (40, 10)) as pilot:
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
            assert app.reading.over
            assert app.diagnosis == whole
            await pilot.press("q")
        assert app.return_code == 0
    finally:
        for_ever.set()
