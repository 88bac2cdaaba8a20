"""The interface in Chinese: on every screen no English word is left but names, and every frame is closed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from textual.pilot import Pilot

from gpudoctor.app import demos
from gpudoctor.core.fact import listed
from gpudoctor.core.language import phrase, speaking
from gpudoctor.views.tui.recordings import RecordingsApp, RecordingsScreen
from gpudoctor.views.tui.screens.facts import FactsScreen
from gpudoctor.views.tui.words.fact import info_of
from gpudoctor.views.tui.words.facts import value_and_source
from tests.views.tui.conftest import Opened, app_of, calm, shown, text, until

WORD = re.compile(r"(?<![\w./@=+│-])[A-Za-z]{2,}(?![\w/@=+│╭╰]|[.-]\w|…| ›)")
"""A word by itself: no part of a path, an id, an option, a version or a name with digits."""
_HARDWARE_AND_PROGRAMS = """
    GPU CPU PCI PCIe NVLink MIG ECC SM RDMA TCP NUMA PIX PXB PHB NODE SYS NVn Unicode ASCII
    NVIDIA RTX GTX Ti HBM PCIE SXM NVML CUDA cuDNN NCCL Linux Ubuntu LTS open proprietary
    NVSwitch Slurm ssh Python torch pip uv
    conda wheel METADATA triton DataLoader rank Rank worker pid WSL PTX Xid glibc libc PATH
    torchvision torchaudio xformers vllm flash attn windows linux wsl root shell script ok
    requirements pyproject dockerfile environment pixi command gpudoctor
"""
_KEYS = "Esc esc Enter Tab tab space home end pgup pgdn shift fg"
_UNITS_AND_FORMS = "MHz GiB MiB MB GB TFLOP ms min cc Markdown HTML JSON SVG"
_GLOSS = "minor version compatibility"
"""In brackets, behind its Chinese."""
NAMES = frozenset(f"{_HARDWARE_AND_PROGRAMS} {_KEYS} {_UNITS_AND_FORMS} {_GLOSS}".split())


def _strings(value: Any) -> Iterator[str]:
    """Every text in a value of core, however deep."""
    if isinstance(value, str):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _strings(getattr(value, field.name))
    elif isinstance(value, dict):
        for item in (*value, *value.values()):
            yield from _strings(item)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _strings(item)


def _data(pilot: Pilot[None]) -> Iterator[str]:
    """What is no text of the interface: what was found, by pages with their own Chinese, measured, or read."""
    app, screen = app_of(pilot), pilot.app.screen_stack[0]
    if isinstance(screen, RecordingsScreen):
        yield from (text for choice in screen.choices.choices for text in (choice.name, choice.meets, choice.machine))
    if app.diagnosis:
        snapshot = app.diagnosis.snapshot
        yield from (rule.fact for rule in app.diagnosis.unjudged if rule.fact)
        yield from (name.partition(".")[0] for name in app.diagnosis.passed)
        yield from (
            snapshot.text("nvml.message"),
            *_strings([row.get("place") for row in listed(snapshot.rows("rank"))]),
        )
    for finding in app.diagnosis.findings if app.diagnosis else ():
        yield from (finding.title, finding.why, *_strings([item.state for item in finding.evidence]))
        for fix in finding.fixes:
            yield from (fix.title, fix.undo, *(step.text for step in fix.steps))
            yield from (word for step in fix.steps for word in step.argv)
    if isinstance(screen, FactsScreen):
        for place in screen.table.view[:60]:
            item = screen.table.listing[place]
            info = info_of(item.fact, screen._infos)
            yield from (item.name, *map(phrase, value_and_source(item.state)), info.about, info.source)
    elif app.current_mode == "kernels" and app.work.measured:
        yield from _strings(app.work.measured())
    elif app.current_mode == "cluster" and app.work.cluster:
        yield from _strings(app.work.cluster())


def english_left(pilot: Pilot[None]) -> set[str]:
    """The English words on the screen that are neither names nor data; commands, behind ``$``, are no words."""
    lines = [re.sub(r"\$ .*|gpudoctor [^；。，）]*|https:\S+|（[A-Za-z ]+）", "", line) for line in shown(pilot)]
    data = {word.lower() for line in _data(pilot) for word in re.findall(r"[A-Za-z]{2,}", line)}
    return {word for word in WORD.findall("\n".join(lines)) if word.lower() not in data} - NAMES


def _assert_chinese(pilot: Pilot[None], where: str) -> None:
    assert re.search(r"[\u4e00-\u9fff]", text(pilot)), where
    assert english_left(pilot) == set(), f"{where}\n{text(pilot)}"
    broken = [line for line in shown(pilot) if line[0] in "│╭╰" and line.rstrip()[-1] not in "│╮╯"]
    assert broken == [], where


KEYS = ("escape", "2", "p", "b", "3", "4", "e", "5", "b", "6", "e", "7", "1", "u", "f", "1", "question_mark", "escape")
"""One after the other: each screen, views of it, and the page of keys."""
DIALOGS = ("s", "escape", "6,enter", "escape", "6,w", "n", "3,d", "escape", "slash", "escape")


@pytest.mark.parametrize("name", ["hot-gpu", "torch-cu130", "no-gpus", "sound", "stuck-loader"])
async def test_no_english_word_is_left_but_names(opened: Opened, name: str) -> None:
    """At 80×24, where a word stands on one line or is cut; wide screens show more of what was read, which is data."""
    with speaking("zh"):
        machine = dataclasses.replace(demos.named(name), pace=0)
        async with opened(machine.work(), (80, 24), settle=name != "stuck-loader") as pilot:
            await calm(pilot)
            for keys in (*KEYS, *DIALOGS):
                await pilot.press(*keys.split(","))
                with suppress(AssertionError):  # a busy machine draws later what the keys have opened
                    await until(pilot, lambda: not english_left(pilot), seconds=20, then=0.1)
                _assert_chinese(pilot, f"{name}: {keys}")


async def test_the_list_of_recorded_machines_has_no_english_word_but_names() -> None:
    with speaking("zh"):
        async with RecordingsApp([*demos.every()]).run_test(size=(80, 24)) as pilot:
            _assert_chinese(pilot, "list")
            await pilot.press("question_mark")
            _assert_chinese(pilot, "keys")
            await pilot.press("escape", "ctrl+p")
            await calm(pilot)
            _assert_chinese(pilot, "commands")
