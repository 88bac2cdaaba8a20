"""The whole program is killed at any moment: the record names the step that was under way, and undo holds."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, takewhile

import pytest

from gpudoctor.core.errors import UsageError
from gpudoctor.core.run import Run
from tests.fixes.place import CUDNN, NEW, OLD, Place, difference
from tests.processes import marked, until

pytestmark = pytest.mark.full

POINTS = 10
_SEED = 20261122
_MARK = "GPUDOCTOR_TEST_PLACE"
Words = Callable[..., list[str]]


@dataclass
class Program:
    """A way to apply and to take back, as a process of its own."""

    place: Place
    apply: list[str]
    undo: Words
    environ: dict[str, str]

    def started(self, words: list[str]) -> subprocess.Popen[bytes]:
        """It, at work. What it prints is of no interest here."""
        silent = subprocess.DEVNULL
        marked = {**self.environ, _MARK: str(self.place.folder)}
        return subprocess.Popen(words, stdout=silent, stderr=silent, env=marked, start_new_session=True)

    def killed(self, after: float, words: list[str]) -> None:
        """It, at work, and SIGKILL after so many seconds."""
        with self.started(words) as child:
            try:
                child.wait(after)
            except subprocess.TimeoutExpired:
                os.kill(child.pid, signal.SIGKILL)
        ours = f"{_MARK}={self.place.folder}"
        assert until(lambda: not marked(ours)), "its command outlives it"  # dies with it, not in the same instant

    def lasting(self, words: list[str]) -> float:
        """Seconds that it takes when nobody kills it."""
        began = time.monotonic()
        with self.started(words) as child:
            assert child.wait(600) == 0
        return time.monotonic() - began


def engine(place: Place) -> Program:
    """The engine alone, from torch for processors to torch for CUDA."""
    document = place.folder / "plan.json"
    document.write_text(json.dumps(place.change().to_json()), "utf-8")
    driver = [sys.executable, "-m", "tests.fixes.driver", str(place.folder)]
    return Program(place, [*driver, "apply", str(document)], lambda run: [*driver, "undo", run], place.environ)


def command(place: Place) -> Program:
    """``gpudoctor fix``, from a cuDNN that is not the one torch pins to the one that is."""
    place.install(f"torch=={NEW}", shelf="cu128")
    place.install("--no-deps", f"{CUDNN}==9.1.0.70", shelf="cu128")
    environ = {
        **place.environ,
        "GPUDOCTOR_STATE": str(place.journals.folder),
        "PIP_INDEX_URL": place.index.url("cu128"),
        "PIP_NO_CACHE_DIR": "1",
    }
    fix = [sys.executable, "-m", "gpudoctor", "fix", "--yes", "--level", "quick", "--python", place.python]
    return Program(place, [*fix, "torch.nvidia-wheels"], lambda run: [*fix, "--undo", run], environ)


def check_record(run: Run, untouched: bool) -> str:
    """Steps were done in order, one at most was under way, and none that changes anything had begun if nothing did."""
    states = [step.state for step in run.steps if step.state != "left out"]
    assert states == sorted(states, key=["done", "running", "waits"].index)
    assert states.count("running") <= 1
    changing = [ran.state for step, ran in zip(run.plan.steps, run.steps, strict=True) if step.touches == "environment"]
    assert untouched or set(changing) != {"waits"}
    return run.current.id if run.current and "running" in states else ""


def taken_back(place: Place, run: Run) -> None:
    """Undo, unless the run had not come to its first change, which it then says."""
    if not place.journals.journal(run.id).has("kept.json"):
        with pytest.raises(UsageError, match="changed nothing"):
            place.undo(run)
        return
    back = place.undo(run)
    assert (back.outcome, back.why) == ("undone", "")


@pytest.mark.parametrize("make", [engine, command])
def test_killed_at_any_moment_it_can_be_taken_back(place: Place, make: Callable[[Place], Program]) -> None:
    program = make(place)
    before, set_before = place.files(), place.installed()
    whole = program.lasting(program.apply)
    assert difference(before, place.files()) != []
    back = program.lasting(program.undo(place.journals.list()[0].id))
    assert difference(before, place.files()) == []
    dice, seen = random.Random(_SEED), set()
    spread = ((point + dice.random()) / POINTS for point in range(POINTS))
    later = takewhile(lambda _: "2" not in seen, (0.5 + number / 10 for number in range(20)))  # runs differ in pace
    for point, share in enumerate(chain(spread, later)):
        known = {entry.id for entry in place.journals.list()}
        program.killed(whole * share, program.apply)
        untouched = difference(before, place.files()) == []
        new = [entry for entry in place.journals.list() if entry.id not in known]
        if not new or new[0].run is None:
            assert untouched
            continue
        run = new[0].run
        seen.add(check_record(run, untouched))
        if point % 3 == 0 and place.journals.journal(run.id).has("kept.json"):
            program.killed(back * dice.random(), program.undo(run.id))
        undone = any(entry.run and entry.run.undoes == run.id and entry.run.over for entry in place.journals.list())
        if not undone:
            taken_back(place, run)
        assert difference(before, place.files()) == [], (point, run.steps)
    assert seen & {"2"}, "no point fell into the pip that installs"
    assert place.installed() == set_before
    assert any(name in set_before for name in (f"torch {OLD}", f"{CUDNN} 9.1.0.70"))
