"""The driver's kernels by the real program on simulated machines of two GPUs, one of them sick."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.processes import command_line, left, within
from tests.sim import scenario
from tests.sim.root import Machine

Bench = Callable[..., Any]

STANDARD = {"driver.add", "driver.memory", "driver.reduction"}
"""Kernels of level standard."""
TRACE = "/.sim/trace"
"""Where the simulated libraries write their calls, as the machine has it."""


def machine(root: Path, gpus: tuple[dict[str, Any], ...] = (), faults: tuple[dict[str, Any], ...] = ()) -> Machine:
    """Two RTX 3090, whose answers by CUDA are changed so."""
    record = scenario.expanded({"profile": "rtx3090-bridge"})
    cuda = json.loads(json.dumps(record.cuda))
    for own, more in zip(cuda["gpus"], gpus, strict=False):
        own.update(more)
    cuda["faults"] = list(faults)
    return Machine(replace(record, cuda=cuda), root)


def runs(document: Any) -> dict[tuple[str, int], Any]:
    """By kernel and GPU."""
    return {(run["kernel"], run["gpu"]): run for run in document["runs"]}


def _hung(root: Path) -> int:
    """The child of the second GPU, once it has made the launch that never ends."""
    children = within(root) if ("sum_u32", "1") in traced(root) else []
    return next((pid for pid in children if '"cuda:1"' in command_line(pid)), 0)


def traced(root: Path) -> list[tuple[str, str]]:
    """Every call so far, and the GPU that it was about."""
    trace = root / TRACE[1:]
    lines = trace.read_text().splitlines() if trace.exists() else []
    return [(call, gpu) for call, _, gpu in (line.partition("\t") for line in lines)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """`gpudoctor bench` on such a machine, after which nothing of it may be left running."""

    def run(*words: str, **changes: Any) -> Any:
        ran = machine(tmp_path, **changes).gpudoctor("bench", "--kernel", "driver", "--json", *words)
        assert left(lambda: list(map(command_line, within(tmp_path)))) == []
        assert ran.err == ""
        return ran.code, runs(ran.document)

    return run


def test_on_sound_gpus_every_kernel_is_right(bench: Bench) -> None:
    code, found = bench()
    assert code == 0
    assert {gpu for _, gpu in found} == {0, 1}
    assert {run["status"] for run in found.values()} == {"ran"}
    assert {run.get("right") for (name, _), run in found.items() if name != "driver.launch"} == {True}
    assert found["driver.launch", 0]["value"] > 0
    assert found["driver.memory.all", 1]["details"]["bytes"] >= 1 << 20


def test_what_was_taken_is_given_back(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUDOCTOR_SIM_TRACE", TRACE)
    bench("--device", "cuda:0", gpus=({"cuMemAlloc": 32 << 20, "cuMemGetInfo": [24 << 20, 24 << 30]},))
    calls = [call for call, _ in traced(tmp_path)]
    assert calls.count("cuMemAlloc") == calls.count("cuMemFree") > 0


def test_a_bit_that_is_stuck_in_one_gpus_memory_is_named(bench: Bench) -> None:
    stuck = {"cuMemAlloc": 16 << 20, "stuck": [6 << 20, 5, 1]}
    code, found = bench(gpus=({}, stuck))
    assert code == 1
    wrong = found["driver.memory", 1]
    assert wrong["right"] is False
    assert wrong["details"]["bits"] == [5]
    assert wrong["details"]["first_address"] == f"{0x800000000000 + (6 << 20):#x}"
    assert "0x800000600000; bit 5 is wrong" in wrong["words"]
    assert {run["right"] for (name, gpu), run in found.items() if gpu == 0 and name != "driver.launch"} == {True}


@pytest.mark.parametrize("sick", [False, True])
def test_a_soak_names_the_gpu_whose_memory_is_stuck_and_calls_nothing_sound_without_torch(
    tmp_path: Path, sick: bool
) -> None:
    stuck = {"cuMemAlloc": 16 << 20, "stuck": [6 << 20, 5, 1]}
    ran = machine(tmp_path, gpus=({}, stuck if sick else {})).gpudoctor("soak", "--minutes", "60", "--json")
    assert left(lambda: list(map(command_line, within(tmp_path)))) == []
    assert (ran.code, ran.err) == (1 if sick else 3, "")
    rows = {(row["kernel"]["value"], row["gpu"].get("value")): row for row in ran.document["facts"]["measured"]}
    assert rows["driver.memory.all", 0]["right"]["value"] is True
    assert rows["driver.memory.all", 1]["right"]["value"] is not sick
    assert rows["soak.memory", 0]["status"]["value"] == "not-run"
    named = [one["subject"]["gpu"] for one in ran.document["findings"] if one["id"] == "gpu.wrong-results"]
    assert named == ([1] if sick else [])
    assert ran.document["facts"]["soak.rounds"]["value"] == 1


def test_a_kernel_that_hangs_costs_itself(bench: Bench) -> None:
    code, found = bench(faults=({"call": "add_u32", "gpu": 1, "do": "hang"},))
    assert code == 3
    assert found["driver.add", 1]["status"] == "not-run"
    assert "did not come to an end within 8 s" in found["driver.add", 1]["because"]
    assert found["driver.reduction", 1]["right"] is True
    assert found["driver.add", 0]["right"] is True


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"call": "sum_u32", "do": "crash"}, "killed by SIGSEGV"),
        pytest.param({"call": "sum_u32", "do": 700}, "CUDA_ERROR_ILLEGAL_ADDRESS (700)", marks=pytest.mark.full),
        pytest.param({"call": "sum_u32", "do": 214}, "CUDA_ERROR_ECC_UNCORRECTABLE (214)", marks=pytest.mark.full),
    ],
)
def test_a_kernel_that_breaks_its_context_costs_itself(bench: Bench, fault: dict[str, Any], words: str) -> None:
    """Nothing can be run after it in that process: the next kernels have one of their own."""
    code, found = bench(faults=({**fault, "gpu": 1},))
    assert code == 1
    assert found["driver.reduction", 1]["status"] == "failed"
    assert words in found["driver.reduction", 1]["because"]
    assert [key for key, run in found.items() if run["status"] != "ran"] == [("driver.reduction", 1)]


def test_a_child_that_is_killed_is_told_by_its_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUDOCTOR_SIM_TRACE", TRACE)
    words = [sys.executable, "-m", "gpudoctor", "bench", "--kernel", "driver.reduction", "--json"]
    command = machine(tmp_path, faults=({"call": "sum_u32", "gpu": 1, "do": "hang"},)).command(words)
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 600
    while not (child := _hung(tmp_path)) and time.monotonic() < until:
        time.sleep(0.02)
    assert child
    os.kill(child, signal.SIGKILL)
    found = runs(json.loads(program.communicate(timeout=600)[0]))
    assert found["driver.reduction", 1]["status"] == "failed"
    assert "killed by SIGKILL" in found["driver.reduction", 1]["because"]
    assert found["driver.reduction", 0]["right"] is True
    assert left(lambda: list(map(command_line, within(tmp_path)))) == []


def test_what_says_nothing_against_a_gpu_is_not_run_and_says_why(bench: Bench) -> None:
    full = {"cuMemGetInfo": [100_000, 25_000_000_000]}
    taken = {"cuDeviceGetAttribute(20)": 3}
    code, found = bench(gpus=(full, taken), faults=({"call": "cuDevicePrimaryCtxRetain", "gpu": 1, "do": 46},))
    assert code == 0
    assert found["driver.launch", 0]["status"] == "ran"
    others = {run["status"] for key, run in found.items() if key != ("driver.launch", 0)}
    assert others == {"not-run"}
    assert "0 MiB of its memory are free: too little to test" in found["driver.memory", 0]["because"]
    assert "compute mode Exclusive_Process" in found["driver.memory", 1]["because"]


def test_a_gpu_that_another_process_has_alone_is_not_run(bench: Bench) -> None:
    taken = {"cuDeviceGetAttribute(20)": 3}
    refused = {"call": "cuDevicePrimaryCtxRetain", "gpu": 1, "do": 46}
    _, found = bench("--device", "cuda:1", gpus=({}, taken), faults=(refused,))
    assert "another process has it" in found["driver.memory", 1]["because"]


@pytest.mark.parametrize(
    ("gpu", "fault", "words"),
    [
        ({}, 2, "no memory is free on it, not even for a context"),
        ({"cuDeviceGetAttribute(20)": 2}, 0, "its compute mode is Prohibited"),
    ],
)
def test_a_gpu_without_a_context_is_not_run(bench: Bench, gpu: dict[str, Any], fault: int, words: str) -> None:
    faults = ({"call": "cuDevicePrimaryCtxRetain", "do": fault},) if fault else ()
    code, found = bench(gpus=(gpu, gpu), faults=faults)
    assert code == 3
    assert {run["status"] for run in found.values()} == {"not-run"}
    assert all(words in run["because"] for run in found.values())


def test_a_gpu_that_is_busy_though_nobody_may_have_it_alone_has_failed(bench: Bench) -> None:
    code, found = bench(faults=({"call": "cuDevicePrimaryCtxRetain", "gpu": 1, "do": 46},))
    assert code == 1
    assert {run["status"] for (_, gpu), run in found.items() if gpu == 1} == {"failed"}
    assert {run["status"] for (_, gpu), run in found.items() if gpu == 0} == {"ran"}


def test_where_the_drivers_compiler_refuses_its_words_are_told(bench: Bench) -> None:
    _, found = bench(faults=({"call": "cuModuleLoadDataEx", "gpu": 0, "do": 218},))
    assert "its compiler says: ptxas application ptx input" in found["driver.add", 0]["because"]


def test_a_mig_slice_is_measured_like_a_gpu(tmp_path: Path) -> None:
    ran = Machine(scenario.load(scenario.PROFILES / "mig-slice.json"), tmp_path).gpudoctor(
        "bench", "--kernel", "driver", "--json"
    )
    assert ran.code == 0, ran.out
    assert "MIG" in ran.document["devices"][0]["name"]


class TestCheck:
    """Level standard."""

    def test_what_was_measured_is_among_the_facts(self, tmp_path: Path) -> None:
        stuck = {"cuMemAlloc": 16 << 20, "stuck": [6 << 20, 5, 1]}
        facts = machine(tmp_path, gpus=({}, stuck)).gpudoctor("--json").document["facts"]
        assert {row["kernel"]["value"] for row in facts["measured"]} == STANDARD
        right = {(row["kernel"]["value"], row["gpu"]["value"]): row["right"]["value"] for row in facts["measured"]}
        assert [key for key, is_right in right.items() if not is_right] == [("driver.memory", 1)]
        assert [(row["gpu"]["value"], row["held"]["value"]) for row in facts["rung"]] == [(0, True), (1, False)]
        assert left(lambda: list(map(command_line, within(tmp_path)))) == []

    def test_a_gpu_for_one_process_is_left_alone(self, tmp_path: Path) -> None:
        facts = machine(tmp_path, gpus=({"cuDeviceGetAttribute(20)": 3},)).gpudoctor("--json").document["facts"]
        why = {row["because"]["value"] for row in facts["measured"] if row["gpu"]["value"] == 0}
        assert len(why) == 1
        assert "Exclusive_Process" in why.pop()

    def test_at_level_quick_nothing_is_run(self, tmp_path: Path) -> None:
        facts = machine(tmp_path).gpudoctor("--json", "--level", "quick").document["facts"]
        assert facts["measured"] == facts["rung"]
        assert facts["rung"]["reason"] == "needs_standard"
