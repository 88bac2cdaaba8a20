"""``gpudoctor bench`` and ``soak``: the real program, its exit codes and documents, and how it ends when told to."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import jsonschema
import pytest

from gpudoctor.app import bench, pipeline, soak
from gpudoctor.core.fact import Known
from gpudoctor.core.frozen import replace
from gpudoctor.core.measurement import Meanwhile, Measurements, from_json
from gpudoctor.core.snapshot import Snapshot
from gpudoctor.core.snapshot import Target as Subject
from gpudoctor.kernels.ladder import Meter
from gpudoctor.target.local import Local
from gpudoctor.target.recorded import Recorded
from gpudoctor.views import schema
from tests import rates
from tests.conftest import Program
from tests.processes import gone
from tests.sick_kernels import Sick
from tests.sick_kernels import sick as sick
from tests.sim import scenario

DRIVER = ("bench", "--device", "cpu", "--kernel", "driver.add", "--kernel", "driver.reduction")


def test_its_document_is_what_the_schema_says_and_is_read_back(gpudoctor: Program) -> None:
    ran = gpudoctor(*DRIVER, "--json")
    document = ran.document
    assert (ran.code, document["verdict"], document["findings"]) == (0, "sound", [])
    found = from_json(document)
    assert [(run.kernel, run.status, run.right) for run in found.runs] == [(name, "ran", True) for name in DRIVER[4::2]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kernel", "matmull"], "there is no kernel 'matmull'; available: driver, eager,"),
        (["--device", "cuda:97"], "--device cuda:97: no such device; available:"),
        (["--python", "/no/such/python"], "--python /no/such/python: no such program"),
        (["--python", "/bin/true"], "--python /bin/true: not a Python interpreter 3.6 or newer"),
    ],
)
def test_what_is_misused_is_named(called: Program, words: list[str], message: str) -> None:
    ran = called("bench", *words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


@pytest.mark.parametrize(
    ("name", "first"),
    [("driver", "driver."), ("readiness", "readiness."), ("matmul", "matmul."), ("triton", "compile.")],
)
def test_kernels_are_named_by_id_by_its_beginning_and_by_rung(called: Program, name: str, first: str) -> None:
    listed = called("bench", "--list", "--kernel", name)
    assert listed.code == 0
    ids = [line.split()[0] for line in listed.out.splitlines() if line.startswith("  ")]
    assert any(one.startswith(first) for one in ids)
    assert len(ids) < len(called("bench", "--list").out.splitlines())


@pytest.fixture
def at_work(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Sick]]:
    """The program with one kernel over and one that never ends, which has started a process of its own session."""
    sick = Sick(tmp_path)
    sick.family("driver", "forks", "right", ids={"right": "driver.add", "forks": "driver.reduction"})
    words = ["bench", "--device", "cpu", "--kernel", "driver.add", "--kernel", "driver.reduction", "--json"]
    with sick.at_work(words) as child:
        yield child, sick


def test_ctrl_c_shows_what_was_measured_and_leaves_no_process(at_work: tuple[subprocess.Popen[str], Sick]) -> None:
    child, sick = at_work
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=600)
    assert (child.returncode, err) == (130, "")
    runs = json.loads(out)["runs"]
    assert [(run["kernel"], run["status"], run.get("because")) for run in runs] == [
        ("driver.add", "ran", None),
        ("driver.reduction", "not-run", "stopped while it ran"),
    ]
    assert len(sick.pids()) == 1
    assert gone(sick.pids()[0])


def test_a_signal_that_ends_it_ends_all_that_it_started(at_work: tuple[subprocess.Popen[str], Sick]) -> None:
    child, sick = at_work
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=600) == 143
    assert len(sick.pids()) == 1
    assert gone(sick.pids()[0])


EMPTY = Snapshot(Subject("local", "node"), {})


def target(sick: Sick) -> Local:
    return Local("quick", sys.executable, environ={**os.environ, "SICK_NOTES": str(sick.notes)})


def test_of_all_rounds_the_worst_counts_and_what_was_compared_is_added(sick: Sick) -> None:
    sick.family("eager", "right", "wrong_once", ids={"right": "soak.matmul", "wrong_once": "soak.memory"})
    stop, rounds = threading.Event(), []

    def hear(measurements: Measurements) -> None:
        run = measurements.run("soak.memory", 0)
        if run and run.status == "ran":
            rounds.append(run.right)
            if len(rounds) == 3:
                stop.set()

    soaked = soak.run(target(sick), EMPTY, 3600, "cpu", hear, stop)
    assert (rounds, soaked.rounds) == ([False, True, True], 3)
    memory, product = (soaked.measurements.run(name, 0) for name in ("soak.memory", "soak.matmul"))
    assert memory
    assert product
    assert (memory.right, memory.differ, memory.compared, memory.details["rounds"]) == (False, 3, 48, 3)
    assert (product.right, product.value, product.details["rounds"]) == (True, 7.5, 3)


def test_errors_of_all_rounds_are_added_and_the_greatest_heat_is_kept(
    sick: Sick, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick.family("eager", "right", "right_too", ids={"right": "soak.matmul", "right_too": "soak.memory"})
    heats, stop = iter((61.0, 83.0, 79.0)), threading.Event()

    @contextmanager
    def meters(*_: object) -> Iterator[Meter]:
        def meter(kernel: str, _: int) -> Callable[[], Meanwhile | None]:
            if kernel != "soak.memory":
                return lambda: None
            counted = Meanwhile(temperature_c=next(heats), pcie_replays=40, seconds=2.5)
            return lambda: counted

        yield meter

    def hear(measurements: Measurements) -> None:
        run = measurements.run("soak.memory", 0)
        if run and run.meanwhile and run.meanwhile.temperature_c == 79.0:
            stop.set()

    monkeypatch.setattr(soak, "meters", meters)
    run = soak.run(target(sick), EMPTY, 3600, "cpu", hear, stop).measurements.run("soak.memory", 0)
    assert run
    assert run.meanwhile == Meanwhile(temperature_c=83.0, pcie_replays=120, seconds=7.5)


def test_there_is_no_second_round_where_nothing_runs(sick: Sick) -> None:
    sick.family("eager", "cannot", "no_memory", ids={"cannot": "soak.matmul", "no_memory": "soak.memory"})
    soaked = soak.run(target(sick), EMPTY, 3600, "cpu")
    assert (soaked.rounds, {run.status for run in soaked.measurements.runs}) == (1, {"not-run"})


@pytest.mark.parametrize("device", ["", "cuda:3"])
def test_a_gpu_that_somebody_uses_is_left_alone(sick: Sick, device: str) -> None:
    node = rates.machine("H100")
    everywhere = tuple(
        {"gpu": Known(gpu, "NVML"), "pid": Known(700 + gpu, "NVML"), "name": Known("/usr/bin/python3", "NVML")}
        for gpu in range(8)
    )
    snapshot = replace(node, groups={**node.groups, "gpu_process": everywhere})
    soaked = soak.run(target(sick), snapshot, 3600, device)
    because = {run.because for run in soaked.measurements.runs if run.gpu == 3}
    assert because == {"in use by pid 703, python3"}
    assert {run.status for run in soaked.measurements.runs} == {"not-run"}
    assert not sick.notes.with_name("notes.opened").exists()


def test_where_the_time_is_too_short_for_anything_nothing_is_called_sound(gpudoctor: Program) -> None:
    ran = gpudoctor("soak", "--device", "cpu", "--minutes", "1e-9", "--json")
    assert (ran.code, ran.document["verdict"], ran.document["findings"]) == (3, "unknown", [])
    assert {one["status"]["value"] for one in ran.document["facts"]["measured"]} == {"not-run"}


def test_a_measurement_that_cannot_begin_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows the readings of a machine gets the error in place of the next one, as `check` gives it."""

    def refused(*_: object, **__: object) -> Snapshot:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(bench, "run", refused)
    record = replace(scenario.load(scenario.PROFILES / "t4.json"), level="deep")
    with Recorded(record) as machine, pytest.raises(RuntimeError, match="can't start"):
        list(pipeline.watch(target=machine))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minutes", "0"], "argument --minutes: '0' is no time in minutes, more than 0 and a week at most"),
        (["--device", "cuda:97"], "--device cuda:97: no such device; available:"),
        (["-o", "/no/such/folder/soak.json"], "-o /no/such/folder/soak.json:"),
    ],
)
def test_what_is_misused_of_soak_is_named(called: Program, words: list[str], message: str) -> None:
    ran = called("soak", *words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


@pytest.fixture
def soaking(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Sick]]:
    """The program with one kernel over and one at work, which has started a process of its own session."""
    sick = Sick(tmp_path)
    sick.family("eager", "right", "forks", ids={"right": "soak.matmul", "forks": "soak.memory"})
    words = ["soak", "--device", "cpu", "--minutes", "600", "--python", sys.executable, "--json"]
    with sick.at_work(words) as child:
        yield child, sick


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_ends_it_and_leaves_a_report_and_no_process(
    soaking: tuple[subprocess.Popen[str], Sick], number: signal.Signals
) -> None:
    child, sick = soaking
    child.send_signal(number)
    out, err = child.communicate(timeout=600)
    assert (child.returncode, err) == (128 + number, "")
    document = json.loads(out)
    jsonschema.validate(document, json.loads(schema.text()))
    assert document["facts"]["soak.ended_by"]["value"] == number.name
    runs = {one["kernel"]["value"]: one["status"]["value"] for one in document["facts"]["measured"]}
    assert runs == {"soak.matmul": "ran", "soak.memory": "not-run"}
    assert any(note["text"].startswith(f"{number.name} ended it after") for note in document["notes"])
    assert len(sick.pids()) == 1
    assert gone(sick.pids()[0])
