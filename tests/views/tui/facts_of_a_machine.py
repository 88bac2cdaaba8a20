"""A machine with every kind of fact there is, its screen of facts, and what that shows."""

from typing import Any

import pytest
from textual.pilot import Pilot

from gpudoctor.core.diagnosis import Diagnosis, Evidence, Finding, Unjudged
from gpudoctor.core.fact import Absent, Fact, Known, Row, Unread
from gpudoctor.core.snapshot import Snapshot, Target
from gpudoctor.diagnosis.compare import compare
from gpudoctor.views.tui.screens.facts import FactsScreen
from gpudoctor.views.tui.work import FactInfo, Work
from tests.views.tui.conftest import SIZES, app_of, text, until

BOTH = pytest.mark.parametrize("size", SIZES)
HUGE = "0123456789" * 10_000


def known(value: Any, source: str = "NVML") -> Known:
    return Known(value, source)


def snapshot(**more: Known) -> Snapshot:
    """A machine with every kind of fact there is."""
    clocks = [1980, 1980, 1110, 1980]
    gpus: tuple[Row, ...] = tuple(
        {"name": known("NVIDIA H100 [80GB]"), "clock_mhz": known(clock), "serial": known(f"S{number}")}
        for number, clock in enumerate(clocks)
    )
    lines: tuple[Row, ...] = tuple({"line": known(f"line {number} of the log", "the paste")} for number in range(3))
    facts: dict[str, Fact] = {
        "driver.version": known("535.183.06", "/proc/driver/nvidia/version"),
        "driver.module_log": Unread("dmesg: needs root"),
        "cuda.toolkit": Absent("no nvcc on PATH"),
        "torch.archs": known(("sm_80", "sm_90"), "libtorch_cuda.so"),
        "torch.elsewhere": known((), "package folders"),
        "env.PROMPT": known("a\x1b[31m [/bold] [red]b\tc", "environment"),
        "env.NESTED": known({"a": ({"b": 1},), "c": None}, "environment"),
        "env.HUGE": known(HUGE, "environment"),
        **more,
    }
    return Snapshot(
        Target("snapshot", "node17", "/opt/venv/bin/python"),
        facts,
        {"gpu": gpus, "text": lines, "xid": (), "mig": Unread("NVML: code 9"), "toolkit": Absent("no CUDA toolkit")},
        {"probe.driver": 48.1},
    )


def diagnosis(facts: Snapshot | None = None) -> Diagnosis:
    """GPU 2 is slow; a rule waits for the kernel's messages."""
    facts = facts or snapshot()
    evidence = (Evidence("gpu.clock_mhz", known(1110), 2), Evidence("driver.version", facts.get("driver.version")))
    slow = Finding(
        "gpu.throttled", "gpu", "warning", "cause", "certain", "GPU 2 [x] is held back", "It waits.", evidence
    )
    return Diagnosis(
        facts,
        "impaired",
        (slow,),
        (Unjudged("gpu.xid", "driver.module_log: dmesg: needs root", fact="driver.module_log"),),
        ("gpu.ecc",),
        "1",
    )


TOLD = {
    "driver.version": FactInfo("version of the driver", source="driver", rules=("gpu.ecc", "gpu.throttled")),
    "gpu.clock_mhz": FactInfo("clock of the cores", "MHz", "nvml", ("gpu.throttled",)),
    "driver.module_log": FactInfo("what the module said", source="kernel_log", rules=("gpu.xid",)),
    "env.*": FactInfo("a variable of the environment"),
}


def work_with(found: Diagnosis, **more: Any) -> Work:
    """A work whose reading is `found`."""
    return Work("node17", lambda *_: found, lambda name: name, used_by=lambda: TOLD, compare=compare, **more)


async def to_facts(pilot: Pilot[None], opened: bool = False) -> FactsScreen:
    """The screen of facts, with all it learns late; opened by its key where it is not yet."""
    if not opened:
        app_of(pilot).action_open("facts")
    await until(pilot, lambda: isinstance(pilot.app.screen, FactsScreen) and pilot.app.screen.is_mounted)
    screen = pilot.app.screen
    assert isinstance(screen, FactsScreen)
    await until(pilot, lambda: bool(screen._infos or not screen.doctor.work.used_by))
    return screen


def says(pilot: Pilot[None], words: str) -> bool:
    """Whether the screen says so, on however many lines."""
    return words in " ".join(text(pilot).replace("│", " ").split())


def names(screen: FactsScreen) -> list[str]:
    """The facts that are listed."""
    return [screen.table.listing[place].name for place in screen.table.view]


async def typed(pilot: Pilot[None], words: str) -> None:
    await pilot.press("slash", *["space" if letter == " " else letter for letter in words])
