"""What a scenario lets go wrong in the simulated NVML goes wrong as it does in a driver, and nowhere else."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sim import clients

TEMPERATURE: list[clients.Question] = [(gpu, "nvmlDeviceGetTemperature", (0,)) for gpu in (0, 1, 0, 1)]
HEALTHY = [30, 30, 30, 30]


def faulty(folder: Path, *faults: dict[str, Any], **parts: Any) -> dict[str, str]:
    """The environment of a client that meets these faults."""
    return clients.environ(folder, clients.hgx(faults=list(faults), **parts))


@pytest.mark.parametrize(
    ("fault", "answers"),
    [
        ({"do": 999}, [999, 999, 999, 999]),
        ({"do": 999, "gpu": 1}, [30, 999, 30, 999]),
        ({"do": 999, "from": 3}, [30, 30, 999, 999]),
        ({"do": 999, "gpu": 1, "from": 2}, [30, 30, 30, 999]),
        ({"do": 999, "gpu": 1, "from": 2, "call": "*"}, [30, 999, 30, 999]),  # the handle was the first call
        ({"do": 999, "call": "nvmlDeviceGetName"}, HEALTHY),
    ],
)
def test_a_return_code_strikes_the_call_the_gpu_and_from_the_nth_call_on(
    tmp_path: Path, fault: dict[str, Any], answers: list[int]
) -> None:
    env = faulty(tmp_path, {"call": "nvmlDeviceGetTemperature", **fault})
    got = [at if isinstance(at, int) else at["code"] for at in clients.ask(TEMPERATURE, env)]
    assert got == answers


def test_a_lost_gpu_is_lost_to_every_call_also_to_those_between_it_and_its_peers(tmp_path: Path) -> None:
    calls: list[clients.Question] = [
        (1, "nvmlDeviceGetName", ()),
        (1, "nvmlDeviceGetNvLinkState", (0,)),
        (1, "nvmlDeviceGetFieldValues", (91,)),
        (1, "nvmlDeviceGetVgpuMetadata", ()),  # one that the simulator has no code for
        (0, "nvmlDeviceGetP2PStatus", (1, 0)),
        (0, "nvmlDeviceGetName", ()),
    ]
    got = clients.ask(calls, faulty(tmp_path, {"call": "*", "gpu": 1, "do": 15}))
    assert got == [{"code": 15}] * 5 + ["NVIDIA H100 80GB HBM3"]


@pytest.mark.parametrize("parts", [{"init": 18}, {"init": {"code": 18}}, {"faults": [{"call": "nvmlInit", "do": 18}]}])
def test_nvml_that_does_not_start_says_why(tmp_path: Path, parts: dict[str, Any]) -> None:
    script = "import pynvml\ntry: pynvml.nvmlInit()\nexcept pynvml.NVMLError as error: print(error.value, error)\n"
    told = "import ctypes; print(ctypes.string_at(pynvml.nvmlLib.nvmlErrorString(18)).decode())"
    script += told.replace("import ctypes;", "import ctypes; pynvml.nvmlLib.nvmlErrorString.restype = ctypes.c_void_p;")
    done = clients.run(["-c", script], clients.environ(tmp_path, clients.hgx(**parts)))
    assert done.stdout.startswith("18 ")
    assert done.stdout.endswith("Driver/library version mismatch\n")


def test_a_crash_ends_the_process_by_a_signal(tmp_path: Path) -> None:
    env = faulty(tmp_path, {"call": "nvmlDeviceGetTemperature", "gpu": 1, "do": "crash"})
    assert clients.ask(TEMPERATURE[:1], env) == [30]
    done = clients.run([str(clients.FOLDER / "ask_pynvml.py")], env, '[[1, "nvmlDeviceGetTemperature", [0]]]')
    assert done.returncode == -signal.SIGSEGV


def test_a_hang_lasts_until_the_process_is_killed(tmp_path: Path) -> None:
    env = faulty(tmp_path, {"call": "nvmlDeviceGetTemperature", "do": "hang"})
    with pytest.raises(subprocess.TimeoutExpired):
        clients.ask(TEMPERATURE[:1], env, timeout=1.5)


def test_a_slow_call_answers_late_and_right(tmp_path: Path) -> None:
    env = faulty(tmp_path, {"call": "nvmlDeviceGetTemperature", "do": "sleep:300"})
    started = time.monotonic()
    assert clients.ask(TEMPERATURE, env) == HEALTHY
    assert time.monotonic() - started > 1.2


def test_a_process_in_uninterruptible_sleep_is_seen_so_by_the_kernel(tmp_path: Path) -> None:
    env = faulty(tmp_path, {"call": "nvmlInit", "do": "dstate"})
    child = subprocess.Popen([sys.executable, "-c", "import pynvml; pynvml.nvmlInit()"], env=env)
    inner: list[int] = []
    try:
        deadline = time.monotonic() + 60
        while state(child.pid) != "D":
            assert time.monotonic() < deadline, state(child.pid)
            time.sleep(0.02)
        inner = [int(pid) for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()]
        child.terminate()
        time.sleep(0.1)
        assert child.poll() is None, "such a process hears no SIGTERM"
    finally:
        child.kill()
        child.wait(60)
    deadline = time.monotonic() + 60
    while any(state(pid) not in ("", "Z", "X") for pid in inner):
        assert time.monotonic() < deadline, "what it waited for goes with it"
        time.sleep(0.02)
    assert len(inner) == 1


def state(pid: int) -> str:
    """The letter that ps shows for a process; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
