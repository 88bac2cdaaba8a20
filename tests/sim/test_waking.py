"""GPUs that wake when they are opened, calls that take time, and processes that wait for each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sim import answers, clients, scenario
from tests.sim.root import Machine, Ran

OPEN = """
import sys, time, pynvml
pynvml.nvmlInit()
code, before = 0, time.monotonic()
try:
    pynvml.nvmlDeviceGetHandleByIndex(int(sys.argv[1]))
except pynvml.NVMLError as error:
    code = error.value
print(code, before, time.monotonic(), flush=True)
sys.stdin.read()
"""
"""Open a GPU, tell when, and keep it open until standard input ends."""


def sleepy(folder: Path, wake_ms: int, **parts: Any) -> dict[str, str]:
    """The environment of a client of four GPUs that sleep, with a trace in that folder."""
    nvml = clients.hgx(4, wake_ms=wake_ms, every={"nvmlDeviceGetPersistenceMode": 0}, **parts)
    return {**clients.environ(folder, nvml, answers.cuda_of(nvml)), "GPUDOCTOR_SIM_TRACE": str(folder / "trace")}


def woken(folder: Path) -> list[str]:
    """The GPUs that woke, in order."""
    lines = (folder / "trace").read_text().splitlines()
    return [line.partition("\t")[2] for line in lines if line.startswith("wake\t")]


def opener(gpu: int, env: dict[str, str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", OPEN, str(gpu)], env=env, stdin=pipe, stdout=pipe, text=True)


def times(child: subprocess.Popen[str]) -> tuple[int, float, float]:
    """The return code, and when the call began and ended."""
    assert child.stdout
    code, before, after = child.stdout.readline().split()
    return int(code), float(before), float(after)


def test_a_gpu_without_persistence_wakes_when_it_is_opened_and_not_before(tmp_path: Path) -> None:
    env = sleepy(tmp_path, 1)
    clients.ask([(None, "nvmlSystemGetDriverVersion", ()), (None, "nvmlDeviceGetCount", ())], env)
    assert woken(tmp_path) == []
    clients.ask([(2, "nvmlDeviceGetTemperature", (0,)), (2, "nvmlDeviceGetName", ())], env)
    assert woken(tmp_path) == ["2"]
    clients.ask([(2, "nvmlDeviceGetName", ())], env)  # the process that had it open has ended
    assert woken(tmp_path) == ["2", "2"]


def test_a_gpu_with_persistence_is_awake(tmp_path: Path) -> None:
    env = {**clients.environ(tmp_path, clients.hgx(4, wake_ms=1)), "GPUDOCTOR_SIM_TRACE": str(tmp_path / "trace")}
    clients.ask([(gpu, "nvmlDeviceGetName", ()) for gpu in range(4)], env)
    assert woken(tmp_path) == []


def test_a_search_by_uuid_opens_each_gpu_up_to_the_one_sought(tmp_path: Path) -> None:
    env = sleepy(tmp_path, 1)
    uuid = clients.hgx(4)["gpus"][1]["nvmlDeviceGetUUID"]
    done = clients.run(["-c", f"import pynvml; pynvml.nvmlInit(); pynvml.nvmlDeviceGetHandleByUUID({uuid!r})"], env)
    assert done.returncode == 0, done.stderr
    assert woken(tmp_path) == ["0", "1"]


def test_cuda_wakes_every_gpu_that_it_may_see(tmp_path: Path) -> None:
    env = {**sleepy(tmp_path, 1), "CUDA_VISIBLE_DEVICES": "3,1"}
    done = clients.run(["-c", "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"], env)
    assert done.stdout == "0\n"
    assert woken(tmp_path) == ["3", "1"]


def test_gpus_wake_one_at_a_time_whichever_process_opens_them(tmp_path: Path) -> None:
    env = sleepy(tmp_path, 300)
    children = [opener(gpu, env) for gpu in (0, 1, 1)]
    try:
        spans = [times(child) for child in children]
        assert sorted(woken(tmp_path)) == ["0", "1"], "the second to open GPU 1 finds it awake"
        assert max(after for _, _, after in spans) - min(before for _, before, _ in spans) >= 0.6
    finally:
        for child in children:
            child.communicate()


def test_a_gpu_stays_awake_while_a_process_has_it_open(tmp_path: Path) -> None:
    env = sleepy(tmp_path, 1)
    child = opener(0, env)
    try:
        assert times(child)[0] == 0
        clients.ask([(0, "nvmlDeviceGetName", ())], env)
        assert woken(tmp_path) == ["0"]
    finally:
        child.communicate()
    clients.ask([(0, "nvmlDeviceGetName", ())], env)
    assert woken(tmp_path) == ["0", "0"]


def test_a_gpu_that_does_not_wake_takes_its_time_and_sleeps_on(tmp_path: Path) -> None:
    env = sleepy(tmp_path, 200, faults=[{"call": "nvmlDeviceGetHandleByIndex", "gpu": 1, "do": 999}])
    for tries in (1, 2):
        child = opener(1, env)
        code, before, after = times(child)
        child.communicate()
        assert code == 999
        assert after - before >= 0.2
        assert woken(tmp_path) == ["1"] * tries


@pytest.mark.parametrize("word", ["wake_ms", "call_ms"])
def test_times_are_numbers(tmp_path: Path, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        clients.environ(tmp_path, {**clients.hgx(), word: "slow"})


def test_every_call_takes_its_time(tmp_path: Path) -> None:
    script = """
import time, pynvml
pynvml.nvmlInit()
gpu, before = pynvml.nvmlDeviceGetHandleByIndex(0), time.monotonic()
for _ in range(20): pynvml.nvmlDeviceGetName(gpu)
print(time.monotonic() - before)
"""
    done = clients.run(["-c", script], clients.environ(tmp_path, clients.hgx(call_ms=10)))
    assert float(done.stdout) >= 0.2, done.stderr


# ---- the program ----


def diagnosis(root: Path, profile: str, nvml: dict[str, Any], *words: str) -> Ran:
    """The program on a healthy machine whose GPUs sleep, with `nvml` laid over its answers."""
    own = {"every": {"nvmlDeviceGetPersistenceMode": 0}, **nvml}
    return Machine(scenario.expanded({"profile": profile, "nvml": own}), root).gpudoctor("--json", *words, timeout=300)


def loud(ran: Ran) -> list[tuple[str, str]]:
    return [(one["id"], one["severity"]) for one in ran.document["findings"] if one["severity"] != "info"]


def read(ran: Ran) -> list[int]:
    """The GPUs whose temperature was read."""
    return [gpu["index"]["value"] for gpu in ran.document["facts"]["gpu"] if "value" in gpu["temperature_c"]]


@pytest.mark.parametrize(
    ("profile", "times"),
    [
        pytest.param("gtx1080ti", {"wake_ms": 500}, id="1x0.5s"),
        pytest.param("gtx1080ti", {"call_ms": 3}, id="1x3ms"),
        *(
            pytest.param(profile, {word: ms}, id=f"{count}x{ms}{word[4:]}", marks=pytest.mark.full)
            for count, profile in ((1, "gtx1080ti"), (8, "hgx-h100"))
            for word, ms in (("wake_ms", 500), ("wake_ms", 1200), ("wake_ms", 2600), ("wake_ms", 3200), ("call_ms", 10))
            if (count, ms) != (1, 500)
        ),
        pytest.param("hgx-h100", {"call_ms": 3}, id="8x3ms", marks=pytest.mark.full),
        pytest.param("hgx-h100", {"wake_ms": 2600, "call_ms": 3}, id="8x2.6s-3ms", marks=pytest.mark.full),
    ],
)
def test_a_machine_that_takes_its_time_is_sound(tmp_path: Path, profile: str, times: dict[str, int]) -> None:
    ran = diagnosis(tmp_path, profile, times)
    assert ran.err == ""
    assert loud(ran) == [], ran.out
    assert ran.code == 0
    assert ran.document["facts"]["nvml.state"]["value"] == "ok"
    assert read(ran) == list(range(8 if profile == "hgx-h100" else 1))


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        pytest.param({"do": "hang"}, 3, id="hangs"),
        pytest.param({"do": 999}, 1, id="unknown-error"),
        pytest.param({"do": 15}, 1, id="lost"),
        pytest.param({"do": 3}, 1, id="not-supported"),
    ],
)
def test_one_of_eight_that_does_not_wake_is_named_and_the_others_are_judged(
    tmp_path: Path, fault: dict[str, Any], code: int
) -> None:
    faults = [{"call": "nvmlDeviceGetHandleByIndex", "gpu": 3, **fault}]
    ran = diagnosis(tmp_path, "hgx-h100", {"wake_ms": 500, "faults": faults})
    assert ran.code == code
    assert ran.err == ""
    assert "GPU 3" in ran.out
    assert read(ran) == [0, 1, 2, 4, 5, 6, 7]
