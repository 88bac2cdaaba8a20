"""Plans run for real, and killed at any moment: real environments, real pip, the real rules, and the record on disk."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from pathlib import Path

import pytest

from gpudoctor.core.errors import UsageError
from gpudoctor.core.plan import Change, PlanStep, Requirement
from gpudoctor.core.run import Run, Stop
from gpudoctor.fixes.apply import apply
from tests.fixes import wheels
from tests.fixes.place import CUDNN, NEW, OLD, PIN, Place, difference
from tests.processes import marked, until

pytestmark = pytest.mark.full

PINS = "torch.nvidia-wheels"


def states(run: Run) -> list[str]:
    return [step.state for step in run.steps]


def python_step(number: int, code: str, touches: str = "hardware") -> PlanStep:
    """A command that is none of an installer's."""
    return PlanStep(str(number), "python", (sys.executable, "-c", code), touches=touches)


def cured(place: Place, version: str) -> list[PlanStep]:
    """cuDNN of that version, and the rule that then has nothing to say."""
    install = place.step(1, "install", "--no-deps", f"{CUDNN}=={version}", "--index-url", place.index.url("cu128"))
    return [replace(install, cause=PINS), PlanStep("2", "verify", cause=PINS, verify=PINS)]


def test_a_cure_that_does_not_cure_is_said_to_be_none(place: Place) -> None:
    place.install(f"torch=={NEW}", shelf="cu128")
    place.install("--no-deps", f"{CUDNN}==9.1.0.70", shelf="cu128")
    run = place.apply(place.plan(*cured(place, "9.1.0.70")))
    assert (run.outcome, run.judged, states(run)) == ("still found", ((PINS, True),), ["done", "failed"])
    assert run.why == f"{PINS} is still found"


def test_a_cure_in_an_environment_that_the_plan_makes_is_judged_there(place: Place) -> None:
    place.install(f"torch=={NEW}", shelf="cu128")
    place.install("--no-deps", f"{CUDNN}==9.1.0.70", shelf="cu128")
    new = str(place.folder / "new")
    make = PlanStep("1", "venv", (place.python, "-m", "venv", new), touches="environment", cause=PINS)
    fill = place.step(2, "install", f"torch=={NEW}", "--index-url", place.index.url("cu128"))
    fill = replace(fill, argv=(f"{new}/bin/python", *fill.argv[1:]), cause=PINS)
    run = place.apply(place.plan(make, fill, PlanStep("3", "verify", cause=PINS, verify=PINS)))
    assert (run.outcome, run.judged, run.why) == ("fixed", ((PINS, False),), "")


def test_what_makes_it_worse_stops_the_run(place: Place) -> None:
    place.install(f"torch=={NEW}", shelf="cu128")
    run = place.apply(place.plan(*cured(place, "9.1.0.70")))
    assert (run.outcome, run.worse, states(run)) == ("stopped", (PINS,), ["done", "waits"])
    assert run.why.startswith(f"worse than before: {PINS}")
    assert place.undo(run).outcome == "undone"
    assert f"{PIN.replace('==', ' ')}" in place.installed()


def test_a_version_that_the_index_lacks_fails_with_pips_own_words(place: Place) -> None:
    before = place.files()
    step = place.step(1, "install", "torch==9.9.9", "--index-url", place.index.url("cu128"))
    run = place.apply(place.plan(step))
    assert (states(run), run.outcome, run.steps[0].status) == (["failed"], "stopped", 1)
    assert "No matching distribution found for torch==9.9.9" in run.why
    assert place.undo(run).outcome == "undone"
    assert difference(before, place.files()) == []


def test_a_network_that_is_lost_in_the_middle_fails_and_is_taken_back(place: Place) -> None:
    before = place.files()
    place.index.lost = True
    try:
        run = place.apply(place.change(), PIP_RETRIES="0", PIP_RESUME_RETRIES="0")
    finally:
        place.index.lost = False
    assert states(run) == ["done", "failed"]
    assert "torch 2.9.0+cpu → removed" in run.changed
    assert place.undo(run).outcome == "undone"
    assert difference(before, place.files()) == []


def test_the_record_on_disk_is_that_of_the_run(place: Place) -> None:
    seen: list[tuple[list[str], list[str]]] = []

    def told(run: Run) -> None:
        seen.append((states(run), states(place.journals.load(run.id))))

    plan = place.plan(python_step(1, "print('one')"), python_step(2, "print('two')"))
    run = apply(plan, place.site(), told, lambda: "go on")
    assert (["running", "waits"], ["running", "waits"]) in seen
    assert (["done", "running"], ["done", "running"]) in seen
    assert place.journals.load(run.id) == run
    assert run.step("2").output.lines == ("two",)


def test_output_comes_as_it_is_printed(place: Place) -> None:
    """The next line is printed when the one before has been heard."""
    told: list[tuple[str, ...]] = []

    def hear(run: Run) -> None:
        told.append(run.steps[0].output.lines)
        for line in told[-1]:
            (place.folder / line).touch()

    code = f"""
import os, time
for line in ("1 %", "2 %", "3 %"):
    print(line, end="\\n" if line == "3 %" else "\\r", flush=True)
    while line != "3 %" and not os.path.exists({str(place.folder)!r} + "/" + line):
        time.sleep(0.02)
"""
    run = apply(place.plan(python_step(1, code)), place.site(), hear, lambda: "go on")
    assert [lines for lines in dict.fromkeys(told) if lines] == [("1 %",), ("2 %",), ("3 %",)]
    assert run.steps[0].output.lines == ("3 %",)


def test_a_step_that_reads_gets_nothing_and_none_waits_for_an_answer(place: Place) -> None:
    run = place.apply(place.plan(python_step(1, "import sys; print(repr(sys.stdin.read()))")))
    assert run.steps[0].output.lines == ("''",)


@pytest.mark.parametrize(("want", "expected"), [("after this step", ["done", "waits"]), ("now", ["stopped", "waits"])])
def test_it_is_stopped_as_the_user_wants(place: Place, want: Stop, expected: list[str]) -> None:
    begun = place.folder / "begun"
    code = f"import time; open({str(begun)!r}, 'w'); time.sleep({1 if want == 'after this step' else 60})"
    plan = place.plan(python_step(1, code), python_step(2, "print('never')"))
    run = apply(plan, place.site(), lambda _: None, lambda: want if begun.exists() else "go on")
    assert (states(run), run.outcome) == (expected, "stopped")
    assert "by you" in run.why


def test_a_command_that_is_killed_is_said_to_be(place: Place) -> None:
    run = place.apply(place.plan(python_step(1, "import os; print('here', flush=True); os.kill(os.getpid(), 9)")))
    assert (states(run), run.why) == (["failed"], "step 1 was killed by SIGKILL: here")


def test_a_step_that_only_shows_may_fail(place: Place) -> None:
    show = python_step(1, "print('nobody holds it'); raise SystemExit(1)", touches="nothing")
    run = place.apply(place.plan(show, python_step(2, "print('goes on')")))
    assert (states(run), run.steps[0].status, run.outcome) == (["done", "done"], 1, "done")


@pytest.mark.parametrize(
    ("requirement", "words"),
    [
        (Requirement("room", "/", 1e9), "MiB free, and 1000000000 are needed"),
        (Requirement("program", "no-such-program-here"), "no such program"),
    ],
)
def test_what_must_hold_is_looked_at_just_before(place: Place, requirement: Requirement, words: str) -> None:
    required = replace(place.change().steps[1], requires=(requirement,))
    before = place.files()
    run = place.apply(place.plan(required))
    assert (states(run), run.steps[0].status) == (["failed"], None)
    assert words in run.why
    assert difference(before, place.files()) == []


def test_a_plan_that_others_overtook_is_not_run(place: Place) -> None:
    remove, install = place.change().steps
    known = (replace(remove, changes=(Change("torch", OLD),)), replace(install, changes=(Change("torch", "", NEW),)))
    place.index.add(wheels.torch("2.8.0+cpu"), shelf="cpu")
    place.install("torch==2.8.0+cpu")
    run = place.apply(place.plan(*known))
    said = f"torch 2.8.0+cpu is installed now, and the plan knows of {OLD} and {NEW}: make a new plan"
    assert (states(run), run.why) == (["failed", "waits"], said)
    place.install(f"torch=={OLD}")
    assert place.apply(place.plan(*known)).outcome == "done"


def test_a_program_that_is_not_there_fails_before_it_begins(place: Place) -> None:
    run = place.apply(place.plan(PlanStep("1", "x", (str(Path("/nowhere/tool")), "x"), touches="hardware")))
    assert (states(run), run.why) == (["failed"], "/nowhere/tool: no such program")


def test_a_judge_that_breaks_is_no_traceback(place: Place) -> None:
    judged: list[int] = []

    def judge(_: str | None) -> object:
        judged.append(1)
        if len(judged) > 1:
            raise RuntimeError("the card fell off")
        return place.judge()

    site = replace(place.site(), judge=judge)  # type: ignore[arg-type]
    run = apply(place.plan(*cured(place, "9.10.2.21")), site, lambda _: None, lambda: "go on")
    assert (states(run), run.over) == (["done", "waits"], True)
    assert run.why == "the machine could not be judged anew: the card fell off"


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
    *driver, _, _ = words = place.driving(place.change())
    return Program(place, words, lambda run: [*driver, "undo", run], place.environ)


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
